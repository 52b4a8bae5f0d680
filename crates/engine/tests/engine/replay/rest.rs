//! A leader that steps down and a follower, which has only applied the same records, have the same state.

use sennit_engine::{Effect, Outbox, PartitionDescription, Read, ReaderChange};
use sennit_model::{Timestamp, WhenSlow};

use super::*;
use crate::world::{ALICE, BOB, Memory};

/// How far the clock of the follower lies behind when it begins.
const LATE: Duration = Duration::from_secs(600);

/// An engine that applies what lies in a journal, and knows that it is committed only later.
struct Follower {
    engine: Engine,
    applied: usize,
}

impl Follower {
    fn new(now: Timestamp) -> Self {
        let begins = Timestamp(now.0 - LATE.as_millis() as u64);
        Self { engine: Engine::new(Generation(2), begins), applied: 0 }
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
    }
}

fn describe(engine: &mut Engine, partition: PartitionId) -> Option<PartitionDescription> {
    let (mut journal, mut out) = (Memory::default(), Outbox::default());
    let describe = Command::Partition(Origin::default(), partition, PartitionCommand::Describe);
    engine.handle(describe, Timestamp(0), &mut journal, &mut out);
    match out.now.pop() {
        Some(Effect::Described { description, .. }) => Some(description),
        _ => None,
    }
}

/// What an engine decides when time passes, in an order of its own: of what is settled, each message.
fn decided(engine: &mut Engine, now: Timestamp) -> Vec<String> {
    let mut journal = Memory::default();
    engine.advance(now, &mut journal);
    engine.committed(u64::MAX);
    let mut decided = Vec::new();
    for (record, _) in journal.records {
        if let Record::Settled { partition, group, outcome, ranges } = record {
            let offsets = ranges.iter().flat_map(|range| range.start.0..range.end.0);
            decided.extend(offsets.map(|at| format!("{partition} {group:?} {outcome:?} {at}")));
        } else {
            decided.push(format!("{record:?}"));
        }
    }
    decided.sort_unstable();
    decided
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_rested_leader_and_a_follower_have_the_same_state_and_go_on_alike(
        (config, group) in settings(),
        steps in proptest::collection::vec((any_step(), 0..6usize), 1..80),
    ) {
        let mut world = World::with(config, group);
        let mut follower = Follower::new(world.now);
        for (step, unsure) in steps {
            take(&mut world, step);
            follower.hear(&world.journal, unsure);
            let (led, followed) = (
                world.engine.replicated_state(world.now),
                follower.engine.replicated_state(world.now),
            );
            prop_assert_eq!(led.difference(&followed), None);
        }
        let mut out = Outbox::default();
        let records = world.journal.records.len();
        world.engine.rest(world.now, &mut out);
        prop_assert_eq!(world.journal.records.len(), records);
        prop_assert!(out.after_commit.is_empty(), "{:?}", out.after_commit);
        world.engine.committed(u64::MAX);
        follower.engine.committed(u64::MAX);
        let later = world.now.plus(Duration::from_millis(1));
        let by_leader = decided(&mut world.engine, later);
        prop_assert_eq!(by_leader, decided(&mut follower.engine, later));
        let rested = world.engine.replicated_state(later);
        let followed = follower.engine.replicated_state(later);
        prop_assert_eq!(rested.difference(&followed), None);
        for partition in [ORDERS, DEAD, OTHERS[0], OTHERS[1]] {
            let described = describe(&mut world.engine, partition);
            for group in described.iter().flat_map(|described| &described.groups) {
                prop_assert_eq!((group.leased, group.consumers), (0, 0));
            }
            prop_assert_eq!(described, describe(&mut follower.engine, partition));
        }
        check(&follower.engine);
    }
}

#[test]
fn a_batch_of_a_dropped_partition_is_not_delivered_in_one_that_is_opened_with_its_id() {
    for durability in [Durability::Durable, Durability::Speculative, Durability::Ephemeral] {
        let config = TopicConfig { durability, ..queue() };
        let mut world = World::with(config.clone(), GroupConfig::default());
        let mut follower = Follower::new(world.now);
        world.publish_texts(&["a", "b", "c"]);
        let before = world.journal.records.len();
        world.do_now(Command::Partition(Origin::default(), ORDERS, PartitionCommand::Drop));
        let groups = vec![setting(GroupConfig::default())];
        world.open(ORDERS, config, groups, DeadLetters::NotYet);
        world.publish_texts(&["d"]);
        // All of it is applied before any is known to be committed.
        follower.hear(&world.journal, usize::MAX - 1);
        let mut ready = |records: usize| {
            follower.engine.committed(world.journal.records[records - 1].1 + 1);
            let described = describe(&mut follower.engine, ORDERS).expect("a partition");
            described.groups[0].ready
        };
        assert_eq!(ready(before), 0, "{durability:?}");
        assert_eq!(ready(world.journal.records.len()), 1, "{durability:?}");
        check(&follower.engine);
    }
}

#[test]
fn consumers_and_readers_are_told_to_ask_again_and_what_they_held_is_ready_without_a_failed_attempt()
 {
    let mut world = World::new();
    world.subscribe(ALICE, 2);
    world.subscribe(BOB, 1);
    let credit = Credit { messages: 9, bytes: 1 << 20 };
    let origin = world.origin(BOB);
    let (partition, cursor, filter) = (ORDERS, None, None);
    let when_slow = WhenSlow::Wait;
    world.do_now(Command::Read(Read {
        origin,
        subscription: 3,
        partition,
        at: Offset(0),
        credit,
        cursor,
        when_slow,
        filter,
    }));
    world.publish_texts(&["a", "b", "c"]);
    assert_eq!(world.group().leased, 3);
    world.effects.clear();
    let mut out = Outbox::default();
    world.engine.rest(world.now, &mut out);
    let mut told: Vec<_> = out
        .now
        .iter()
        .map(|effect| match effect {
            Effect::SubscriptionInterrupted { session, subscription, partition: ORDERS } => {
                (*session, *subscription)
            }
            other => panic!("{other:?}"),
        })
        .collect();
    told.sort_unstable();
    assert_eq!(told, [(ALICE, 7), (BOB, 3), (BOB, 7)]);
    let group = world.group();
    assert_eq!((group.ready, group.leased, group.consumers), (3, 0, 0));
    // It says nothing twice, and who asks again is given the same messages.
    let mut again = Outbox::default();
    world.engine.rest(world.now, &mut again);
    assert_eq!(again.now, []);
    world.subscribe(ALICE, 9);
    let given = world.delivered();
    assert_eq!(given.iter().map(|(offset, _, _)| *offset).collect::<Vec<_>>(), [0, 1, 2]);
    world.settle(Verdict::Retry, vec![run(0, 1, given[0].1)]);
    let failed = world.journal.records.iter().rev().find_map(|(record, _)| match record {
        Record::Failed { runs, .. } => Some(runs[0].1),
        _ => None,
    });
    assert_eq!(failed, Some(1), "only this attempt has failed");
    // What is said of a reader that is gone changes nothing.
    let change = ReaderChange::Taken { messages: 3, bytes: 9 };
    world.do_now(Command::Reader { session: BOB, subscription: 3, partition: ORDERS, change });
}
