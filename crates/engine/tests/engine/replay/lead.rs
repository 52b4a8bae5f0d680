//! Replicas that lead one after the other: each has the state that the records of all leaders make, and goes on from
//! there.

use std::collections::BTreeMap;

use sennit_engine::{Effect, Outbox};
use sennit_model::{OffsetRange, Timestamp};

use super::*;
use crate::world::{ALICE, Memory};

/// A replica that follows.
struct Replica {
    engine: Engine,
    applied: usize,
    /// How far its clock is behind that of the fastest, in milliseconds.
    behind_ms: u64,
}

impl Replica {
    fn of(engine: Engine, applied: usize, behind_ms: u64) -> Self {
        Self { engine, applied, behind_ms }
    }

    /// Applies all that is there. Of that, it learns that all but the last `unsure` records are committed.
    fn hear(&mut self, journal: &Memory, unsure: usize) {
        for (record, position) in &journal.records[self.applied..] {
            self.engine.apply(record, *position);
        }
        self.applied = journal.records.len();
        if let Some(known) = self.applied.checked_sub(unsure + 1) {
            self.engine.committed(journal.records[known].1 + 1);
        }
        self.engine.end_followed_turn();
        assert!(!self.engine.has_ready_partitions());
    }
}

/// How far the clocks of the three replicas are behind the fastest.
const CLOCKS_MS: [u64; 3] = [0, 700, 2_100];

/// A group of three. The one that leads is in the world.
struct Group {
    world: World,
    behind_ms: u64,
    others: Vec<Replica>,
}

impl Group {
    fn new(config: TopicConfig, group: GroupConfig) -> Self {
        let mut world = World::with(config, group);
        world.engine.join_group(Timestamp(0));
        let follower = |behind_ms| {
            let mut engine = Engine::new(Generation(1), Timestamp(world.now.0 - behind_ms));
            engine.join_group(Timestamp(0));
            Replica::of(engine, 0, behind_ms)
        };
        let others = CLOCKS_MS[1..].iter().copied().map(follower).collect();
        let mut group = Self { world, behind_ms: CLOCKS_MS[0], others };
        group.hear(0);
        group
    }

    fn hear(&mut self, unsure: usize) {
        for other in &mut self.others {
            other.hear(&self.world.journal, unsure);
        }
    }

    /// The offsets that records reserve behind the ends of all partitions.
    fn reserved(&self) -> Vec<Record> {
        let mut ends = BTreeMap::new();
        for (record, _) in &self.world.journal.records {
            match record {
                Record::Reserved { partition, end } => drop(ends.insert(*partition, *end)),
                Record::PartitionDropped { partition } => drop(ends.remove(partition)),
                _ => {}
            }
        }
        let behind = ends.into_iter().filter_map(|(partition, end)| {
            let start = self.world.engine.end_of(partition)?;
            let range = OffsetRange { start, end };
            (start < end).then_some(Record::Lost { partition, range })
        });
        behind.collect()
    }

    /// The leader steps down, and another replica leads, which has all records.
    fn change_leader(&mut self, which: usize) {
        let Self { world, behind_ms, others } = self;
        world.engine.rest(world.now, &mut Outbox::default());
        let next = &mut others[which % CLOCKS_MS[1..].len()];
        next.hear(&world.journal, 0);
        std::mem::swap(&mut world.engine, &mut next.engine);
        world.now = Timestamp(world.now.0 + *behind_ms - next.behind_ms);
        std::mem::swap(behind_ms, &mut next.behind_ms);
        next.applied = world.journal.records.len();

        let (expected, before) = (self.reserved(), self.world.journal.records.len());
        let world = &mut self.world;
        world.generation = Generation(world.generation.0 + 1);
        world.engine.lead(world.generation, world.now, &mut world.journal);
        let records = world.journal.records[before..].iter().map(|(record, _)| record);
        let lost = records.clone().filter(|record| matches!(record, Record::Lost { .. })).count();
        let first: Vec<_> = records.take(lost).cloned().collect();
        assert_eq!(first, expected, "what is reserved is lost, before anything else is decided");
        assert_eq!(self.reserved(), [], "nothing is reserved any more");
        self.world.finish(Outbox::default());
        self.world.name(ORDERS, &[GROUP]);
        self.world.effects.clear();
    }

    /// A replica that follows begins anew, with what the journal says.
    fn restart(&mut self, which: usize) {
        let replica = &mut self.others[which % CLOCKS_MS[1..].len()];
        let journal = &self.world.journal;
        let mut replay = Replay::new(Timestamp(self.world.now.0 - replica.behind_ms));
        for (record, position) in &journal.records {
            let mut body = Vec::new();
            record.encode_head(&mut body);
            let begin = position - body.len() as u64;
            body.extend(record.batch().iter().flat_map(|batch| batch.bytes().iter()));
            replay.record(record.kind(), begin, body.into()).expect("it was written");
        }
        let engine = replay.finish_as_replica(self.world.generation, true, Timestamp(0));
        let engine = engine.expect("there is no checkpoint");
        *replica = Replica::of(engine, journal.records.len(), replica.behind_ms);
    }

    fn check(&self) -> Result<(), TestCaseError> {
        // A timer that is due by the fastest clock is due at one replica at least.
        let fastest = Timestamp(self.world.now.0 + self.behind_ms);
        let now = fastest.max(self.world.engine.group_time());
        let led = self.world.engine.replicated_state(now);
        for other in &self.others {
            let followed = other.engine.replicated_state(now);
            prop_assert_eq!(led.difference(&followed), None);
            prop_assert_eq!(other.engine.group_time(), self.world.engine.group_time());
            check(&other.engine);
        }
        let records = &self.world.journal.records;
        let times: Vec<_> = records.iter().filter_map(|(record, _)| record.time()).collect();
        prop_assert!(times.is_sorted(), "times went back: {:?}", times);
        Ok(())
    }
}

#[derive(Clone, Debug)]
enum Turn {
    Take(Step),
    ChangeLeader(usize),
    Restart(usize),
}

fn any_turn() -> impl Strategy<Value = Turn> {
    prop_oneof![
        8 => any_step().prop_map(Turn::Take),
        1 => (0..2usize).prop_map(Turn::ChangeLeader),
        1 => (0..2usize).prop_map(Turn::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn replicas_that_lead_in_turn_have_the_same_state_and_their_records_times_rise(
        (config, group) in settings(),
        turns in proptest::collection::vec((any_turn(), 0..6usize), 1..80),
    ) {
        let mut group = Group::new(config, group);
        for (turn, unsure) in turns {
            match turn {
                Turn::Take(step) => {
                    if matches!(step, Step::Open { .. }) {
                        // No topic has the number of one before. Here it may, once all of that is committed.
                        group.hear(0);
                    }
                    take(&mut group.world, step);
                }
                Turn::ChangeLeader(which) => group.change_leader(which),
                Turn::Restart(which) => group.restart(which),
            }
            group.hear(unsure);
            group.check()?;
        }
        group.world.pass(Duration::from_secs(9));
        group.hear(0);
        group.check()?;
    }
}

fn early(durability: Durability) -> Group {
    Group::new(TopicConfig { durability, ..queue() }, GroupConfig::default())
}

fn lost(group: &Group) -> Vec<(u64, u64)> {
    let records = group.world.journal.records.iter();
    let lost = records.filter_map(|(record, _)| match record {
        Record::Lost { partition: ORDERS, range } => Some((range.start.0, range.end.0)),
        _ => None,
    });
    lost.collect()
}

#[test]
fn what_the_leader_before_may_have_delivered_is_lost_once() {
    let mut group = early(Durability::Speculative);
    group.world.publish_texts(&["a", "b"]);
    group.hear(0);
    assert_eq!(lost(&group), []);
    group.change_leader(0);
    group.hear(0);
    let reserved = 2 + RESERVED_OFFSETS;
    assert_eq!(lost(&group), [(2, reserved)]);
    group.change_leader(1);
    group.hear(0);
    assert_eq!(lost(&group), [(2, reserved)]);
    group.world.publish_texts(&["c"]);
    group.hear(0);
    group.change_leader(0);
    group.hear(0);
    let next = reserved + 1;
    assert_eq!(lost(&group), [(2, reserved), (next, next + RESERVED_OFFSETS)]);
    group.check().unwrap();
}

#[test]
fn what_was_in_memory_alone_is_lost_with_its_leader_and_no_offset_is_given_twice() {
    let mut group = early(Durability::Memory);
    group.world.publish_texts(&["a", "b"]);
    group.hear(0);
    group.change_leader(0);
    group.hear(0);
    let reserved = 2 + RESERVED_OFFSETS;
    assert_eq!(lost(&group), [(0, reserved)]);
    assert_eq!(group.world.engine.end_of(ORDERS), Some(Offset(reserved)));
    group.change_leader(0);
    group.hear(0);
    assert_eq!(lost(&group), [(0, reserved)]);
    group.check().unwrap();
}

#[test]
fn a_leader_whose_clock_is_behind_goes_on_at_the_time_of_the_newest_record() {
    let mut group = early(Durability::Durable);
    group.world.pass(Duration::from_secs(60));
    group.world.publish_texts(&["a"]);
    let newest = group.world.now;
    group.hear(0);
    group.change_leader(1);
    assert!(group.world.now < newest);
    group.world.publish_texts(&["b"]);
    let appended = group.world.journal.records.iter().rev().find_map(|(record, _)| record.time());
    assert_eq!(appended, Some(newest));
    group.world.pass(Duration::from_secs(60));
    group.world.publish_texts(&["c"]);
    let appended = group.world.journal.records.iter().rev().find_map(|(record, _)| record.time());
    assert_eq!(appended, Some(group.world.now));
}

#[test]
fn a_shard_that_is_alone_keeps_to_its_clock() {
    let mut world = World::new();
    world.publish_texts(&["a"]);
    world.now = Timestamp(world.now.0 - 5_000);
    world.publish_texts(&["b"]);
    let appended = world.journal.records.iter().rev().find_map(|(record, _)| record.time());
    assert_eq!(appended, Some(world.now));
}

#[test]
fn a_new_leader_does_what_has_come_due_and_delivers_in_its_own_generation() {
    let mut group = early(Durability::Durable);
    let delay = Some(Duration::from_secs(1));
    group.world.publish(&[Message { delay, ..Message::new("later") }]);
    group.hear(0);
    group.world.now = group.world.now.plus(Duration::from_secs(60));
    group.change_leader(0);
    group.world.subscribe(ALICE, 1);
    let delivered = group.world.effects.iter().find_map(|effect| match effect {
        Effect::Deliver(delivery) => Some((delivery.first, delivery.generation)),
        _ => None,
    });
    assert_eq!(delivered, Some((Offset(0), Generation(2))));
}

#[test]
fn a_new_leader_asks_for_the_names_that_dead_letters_need() {
    let mut group = early(Durability::Durable);
    group.world.publish_texts(&["a"]);
    group.world.subscribe(ALICE, 1);
    group.world.engine.set_storage_full(true);
    let (origin, partition) = (Origin::default(), ORDERS);
    let verdict = Verdict::DeadLetter { reason: "a reason".into() };
    let (runs, confirm) = (vec![run(0, 1, 1)], false);
    let settle = Settle { origin, partition, group: GROUP, verdict, runs, confirm };
    group.world.do_now(Command::Settle(settle));
    group.hear(0);
    let Group { world, others, .. } = &mut group;
    world.engine.rest(world.now, &mut Outbox::default());
    std::mem::swap(&mut world.engine, &mut others[0].engine);
    world.effects.clear();
    world.engine.lead(Generation(2), world.now, &mut world.journal);
    world.finish(Outbox::default());
    let source = ORDERS.topic;
    assert_eq!(world.effects, [Effect::DeadLetterTopicNeeded { source }]);
}

#[test]
#[should_panic(expected = "each leader has a higher generation")]
fn a_leader_of_an_earlier_term_is_a_bug() {
    let mut group = early(Durability::Durable);
    group.world.engine.rest(group.world.now, &mut Outbox::default());
    group.world.engine.lead(Generation(1), group.world.now, &mut group.world.journal);
}
