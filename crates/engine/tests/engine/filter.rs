//! What readers with a filter get: what it lets through and nothing else, for credit that only that
//! costs, while the turns of others stay short.

use proptest::prelude::*;
use sennit_engine::{
    Command, Credit, DeadLetters, Effect, GapReason, Outbox, PartitionCommand, Read, ReaderChange,
    SessionId,
};
use sennit_model::{
    Filter, Header, Message, Messages, Offset, Retention, TopicConfig, TopicKind, WhenSlow,
};

use crate::world::{self, ALICE, BOB, ORDERS, World};

const WIDE: Credit = Credit { messages: 100_000, bytes: 1 << 24 };

fn streaming(retention: Retention) -> World {
    let mut world = World::empty();
    let config = TopicConfig { retention, ..TopicConfig::of_kind(TopicKind::Stream) };
    world.open(ORDERS, config, vec![], DeadLetters::NotYet);
    world.effects.clear();
    world
}

/// A reader from `at` on, of what its filter lets through, or of all.
fn read(world: &mut World, session: SessionId, filter: Option<&str>, at: u64) -> Read {
    Read {
        origin: world.origin(session),
        subscription: 3,
        partition: ORDERS,
        at: Offset(at),
        credit: WIDE,
        cursor: None,
        when_slow: WhenSlow::Wait,
        filter: filter.map(|text| text.parse::<Filter>().expect("it is a filter")),
    }
}

fn begin(world: &mut World, session: SessionId, filter: &str, credit: Credit) {
    let read = Read { credit, ..read(world, session, Some(filter), 0) };
    world.do_now(Command::Read(read));
}

fn taken(world: &mut World, session: SessionId, messages: u32, bytes: u64) {
    let change = ReaderChange::Taken { messages, bytes };
    let (subscription, partition) = (3, ORDERS);
    world.do_now(Command::Reader { session, subscription, partition, change });
}

/// A message whose header `n` is its payload.
fn numbered(n: u64) -> Message {
    Message { headers: vec![Header::text("n", n.to_string())], ..Message::new(n.to_string()) }
}

fn publish(world: &mut World, numbers: impl IntoIterator<Item = u64>) {
    let messages: Vec<_> = numbers.into_iter().map(numbered).collect();
    world.publish(&messages);
}

/// What came: first offset and payloads of a delivery, or a gap.
#[derive(Clone, Debug, PartialEq)]
enum Came {
    Run(u64, Vec<u64>),
    Gap(u64, u64, GapReason),
}

fn came(world: &mut World, of: SessionId) -> Vec<Came> {
    let mut came = Vec::new();
    world.effects.retain(|effect| match effect {
        Effect::Deliver(delivery) if delivery.session == of => {
            let number = |payload: &[u8]| {
                String::from_utf8_lossy(payload).parse().expect("a number was published")
            };
            let numbers: Vec<u64> =
                Messages::of_checked(&delivery.messages).map(|m| number(m.payload())).collect();
            assert_eq!((delivery.attempt, delivery.count as usize), (0, numbers.len()));
            came.push(Came::Run(delivery.first.0, numbers));
            false
        }
        Effect::Gap { session, range, reason, .. } if *session == of => {
            came.push(Came::Gap(range.start.0, range.end.0, *reason));
            false
        }
        _ => true,
    });
    came
}

fn filtered(start: u64, end: u64) -> Came {
    Came::Gap(start, end, GapReason::Filtered)
}

#[test]
fn neighbours_that_pass_come_together_and_the_rest_is_told_once_at_the_end() {
    let mut world = streaming(Retention::FOREVER);
    publish(&mut world, 0..10);
    publish(&mut world, 10..12);
    begin(&mut world, ALICE, "header.n >= 2 and header.n != 4 and header.n < 7", WIDE);
    let (two, five) = (Came::Run(2, vec![2, 3]), Came::Run(5, vec![5, 6]));
    assert_eq!(came(&mut world, ALICE), [two, five, filtered(7, 12)]);
    publish(&mut world, [3, 20]);
    assert_eq!(came(&mut world, ALICE), [Came::Run(12, vec![3]), filtered(13, 14)]);
}

#[test]
fn what_is_passed_over_costs_no_credit() {
    let mut world = streaming(Retention::FOREVER);
    publish(&mut world, 0..100);
    let two = Credit { messages: 2, bytes: 1 << 20 };
    begin(&mut world, ALICE, "header.n glob '*9'", two);
    assert_eq!(came(&mut world, ALICE), [Came::Run(9, vec![9]), Came::Run(19, vec![19])]);
    taken(&mut world, ALICE, 2, 1 << 20);
    assert_eq!(came(&mut world, ALICE), [Came::Run(29, vec![29]), Came::Run(39, vec![39])]);
}

#[test]
fn a_full_window_stops_the_filter_inside_a_run() {
    let mut world = streaming(Retention::FOREVER);
    publish(&mut world, 0..5);
    begin(&mut world, ALICE, "exists header.n", Credit { messages: 9, bytes: 30 });
    assert_eq!(came(&mut world, ALICE), [Came::Run(0, vec![0, 1])]);
    taken(&mut world, ALICE, 1, 20);
    assert_eq!(came(&mut world, ALICE), [Came::Run(2, vec![2])]);
}

#[test]
fn gaps_are_told_from_where_the_filter_was() {
    let mut world = streaming(Retention { bytes: Some(60), ..Retention::FOREVER });
    for n in 0..6 {
        publish(&mut world, [n]);
    }
    begin(&mut world, ALICE, "header.n = 4", WIDE);
    let gap = Came::Gap(0, 4, GapReason::Retention);
    assert_eq!(came(&mut world, ALICE), [gap, Came::Run(4, vec![4]), filtered(5, 6)]);
}

/// A topic whose messages nobody wants, in batches of 1,000.
fn backlog(batches: u64) -> World {
    let mut world = streaming(Retention::FOREVER);
    for _ in 0..batches {
        publish(&mut world, 0..1000);
    }
    world
}

/// One turn, as the shard does it. Returns whether more is to be done.
fn turn(world: &mut World, command: Command) -> bool {
    let mut out = Outbox::default();
    world.engine.handle(command, world.now, &mut world.journal, &mut out);
    world.engine.committed(world.journal.end);
    let mut payloads =
        world::Memory { batches: world.journal.batches.clone(), ..Default::default() };
    world.engine.deliver(world.now, &mut world.journal, &mut payloads, &mut out);
    world.effects.append(&mut out.now);
    world.engine.has_ready_partitions()
}

/// How many more turns there are until nothing is to be done.
fn turns(world: &mut World) -> u32 {
    let mut turns = 0;
    loop {
        turns += 1;
        let next = Command::Partition(world.origin(BOB), ORDERS, PartitionCommand::Describe);
        if !turn(world, next) {
            return turns;
        }
    }
}

#[test]
fn a_filter_over_a_long_backlog_lets_others_have_their_turn() {
    let mut world = backlog(150);
    let all = read(&mut world, ALICE, Some("header.n = 'none'"), 0);
    assert!(turn(&mut world, Command::Read(all)), "it has more to look at");
    let newest = read(&mut world, BOB, None, 149_990);
    assert!(turn(&mut world, Command::Read(newest)));
    assert_eq!(came(&mut world, BOB), [Came::Run(149_990, (990..1000).collect())]);
    assert_eq!(came(&mut world, ALICE), []);
    let turns = 2 + turns(&mut world);
    assert!((10..20).contains(&turns), "{turns} turns");
    let told = came(&mut world, ALICE);
    assert!(matches!(told.last(), Some(Came::Gap(_, 150_000, GapReason::Filtered))), "{told:?}");
}

#[test]
fn a_thousand_filters_share_a_turn_and_none_starves() {
    let mut world = backlog(2);
    let count = 1000;
    for n in 0..count {
        let read = read(&mut world, SessionId(n), Some(&format!("header.n = {n}")), 0);
        let mut out = Outbox::default();
        world.engine.handle(Command::Read(read), world.now, &mut world.journal, &mut out);
    }
    let turns = turns(&mut world);
    assert!((4..200).contains(&turns), "{turns} turns");
    for n in 0..count {
        let runs = came(&mut world, SessionId(n));
        let found = runs.iter().filter(|came| matches!(came, Came::Run(..))).count();
        assert_eq!(found, 2, "{n}: {runs:?}");
    }
}

#[test]
fn on_a_long_way_a_reader_is_told_now_and_then_where_it_is() {
    let mut world = backlog(150);
    begin(&mut world, ALICE, "header.n = 'none'", WIDE);
    let told = came(&mut world, ALICE);
    assert!((2..=3).contains(&told.len()), "{told:?}");
    let mut at = 0;
    for gap in told {
        let Came::Gap(start, end, GapReason::Filtered) = gap else { panic!("{gap:?}") };
        assert_eq!(start, at);
        at = end;
    }
    assert_eq!(at, 150_000);
}

#[test]
fn a_batch_that_cannot_be_read_is_told_whatever_would_have_passed() {
    let mut world = streaming(Retention::FOREVER);
    publish(&mut world, 0..3);
    publish(&mut world, 3..6);
    let place = world.engine.batches().next().unwrap().place;
    world.journal.absent = true;
    begin(&mut world, ALICE, "header.n = 4", WIDE);
    let mut out = Outbox::default();
    assert!(world.engine.damaged(ORDERS, place, &mut out));
    world.journal.absent = false;
    world.finish(out);
    let gap = Came::Gap(0, 3, GapReason::Damaged);
    assert_eq!(came(&mut world, ALICE), [gap, Came::Run(4, vec![4]), filtered(5, 6)]);
}

#[derive(Clone, Debug)]
enum Step {
    Publish(Vec<u64>),
    Taken(u32, u64),
    Absent(bool),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => proptest::collection::vec(0..8u64, 1..7).prop_map(Step::Publish),
        2 => (0..4u32, 0..80u64).prop_map(|(messages, bytes)| Step::Taken(messages, bytes)),
        1 => any::<bool>().prop_map(Step::Absent),
    ]
}

proptest! {
    /// Whatever the window and the batches: exactly what passes comes, in order, and what comes and
    /// what is told never goes back.
    #[test]
    fn a_filtered_reader_gets_exactly_what_passes(
        steps in proptest::collection::vec(any_step(), 1..40),
        below in 0..9u64,
        (messages, bytes) in (1..6u32, 1..200u64),
    ) {
        let mut world = streaming(Retention::FOREVER);
        let filter = format!("header.n < {below}");
        begin(&mut world, ALICE, &filter, Credit { messages, bytes });
        let mut published = Vec::new();
        let mut steps = steps;
        steps.push(Step::Absent(false));
        steps.extend((0..300).map(|_| Step::Taken(1000, 1 << 30)));
        for step in steps {
            match step {
                Step::Publish(numbers) => {
                    published.extend(numbers.iter().copied());
                    publish(&mut world, numbers);
                }
                Step::Taken(messages, bytes) => taken(&mut world, ALICE, messages, bytes),
                Step::Absent(absent) => {
                    world.journal.absent = absent;
                    world.engine.fetched(ORDERS);
                    world.finish(Outbox::default());
                }
            }
        }
        let mut at = 0;
        let mut got = Vec::new();
        for came in came(&mut world, ALICE) {
            let (start, end) = match came {
                Came::Run(first, numbers) => {
                    let end = first + numbers.len() as u64;
                    got.extend((first..end).zip(numbers));
                    (first, end)
                }
                Came::Gap(start, end, reason) => {
                    prop_assert_eq!(reason, GapReason::Filtered);
                    prop_assert_eq!(start, at, "a gap begins where the reader is");
                    (start, end)
                }
            };
            prop_assert!(start >= at);
            at = end;
        }
        let passes = (0..).zip(published.iter().copied()).filter(|(_, n)| *n < below);
        prop_assert_eq!(got, passes.collect::<Vec<_>>());
        prop_assert_eq!(at, published.len() as u64, "it knows where it is");
    }
}
