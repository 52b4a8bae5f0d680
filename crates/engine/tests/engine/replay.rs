//! Replay comes to the same state as live traffic, from the first record or from a checkpoint
//! whose pieces lie between the records, and so does a snapshot: random commands, with the state's
//! invariants checked after each.

mod holes;
mod lead;
mod rest;

use std::{sync::Arc, time::Duration};

use proptest::prelude::*;
use sennit_engine::{
    CatalogueCommand, Checkpoint, Command, Credit, CursorSetter, DeadLetters, DelayChange,
    DeliveryRun, Destination, Engine, GroupSetting, Journal, Origin, PartitionCommand, Place,
    Publish, Record, Replay, Replayed, Requeue, SessionId, Settle, Verdict, Walk, WalkVerb,
};
use sennit_model::{
    Durability, Generation, GroupConfig, GroupId, Incarnation, Message, Offset, PartitionId,
    PartitionIndex, ProducerId, ProducerStamp, Retention, StartAt, TopicConfig, TopicId,
    limits::{PRODUCERS_PER_PARTITION_MAX, RESERVED_OFFSETS},
};

use crate::world::{self, DEAD, GROUP, ORDERS, World, batch, check, queue, run, setting};

/// Whoever sets a cursor without reading.
const BY_HAND: CursorSetter =
    CursorSetter { session: SessionId(0), subscription: None, take_over: false };

/// Partitions beside the two that a world begins with, before and behind them.
const OTHERS: [PartitionId; 2] = [
    PartitionId { topic: TopicId(0), index: PartitionIndex(0) },
    PartitionId { topic: TopicId(3), index: PartitionIndex(1) },
];

#[derive(Clone, Debug)]
enum Step {
    Publish { count: u8, delay: Option<u16>, time_to_live: Option<u16> },
    PublishAs { producer: u8, first: u8, count: u8 },
    Subscribe { session: u8, messages: u8, bytes: u16 },
    Credit { session: u8, messages: u8 },
    Leave { session: u8, grace: Option<u16> },
    Settle { verdict: u8, first: u8, count: u8, attempt: u8 },
    Pass { ms: u16 },
    PublishTo { other: u8, count: u8 },
    Open { which: u8, groups: u8, retention: u8 },
    Drop { which: u8 },
    Topic { name: u8, change: u8 },
    Move { nth: u8, count: u8 },
    Checkpoint { steps: u8, piece_bytes: u8 },
    Cursor { which: u8, name: u8, at: Option<u8> },
    Delay { first: u8, count: u8, change: u8 },
    Walk { of_dead: bool, group: u8, verb: u8, from: u8, matched: u8 },
}

fn any_step() -> impl Strategy<Value = Step> {
    let time = || proptest::option::weighted(0.2, 1..3_000u16);
    prop_oneof![
        4 => (1..6u8, time(), time())
            .prop_map(|(count, delay, time_to_live)| Step::Publish { count, delay, time_to_live }),
        2 => (1..3u8, 0..6u8, 1..4u8)
            .prop_map(|(producer, first, count)| Step::PublishAs { producer, first, count }),
        2 => (1..4u8, 0..9u8, 1..400u16)
            .prop_map(|(session, messages, bytes)| Step::Subscribe { session, messages, bytes }),
        1 => (1..4u8, 0..9u8).prop_map(|(session, messages)| Step::Credit { session, messages }),
        1 => (1..4u8, time()).prop_map(|(session, grace)| Step::Leave { session, grace }),
        6 => (0..5u8, 0..40u8, 1..8u8, 1..4u8).prop_map(|(verdict, first, count, attempt)| {
            Step::Settle { verdict, first, count, attempt }
        }),
        3 => (0..1_500u16).prop_map(|ms| Step::Pass { ms }),
        2 => (0..2u8, 1..4u8).prop_map(|(other, count)| Step::PublishTo { other, count }),
        1 => (0..3u8, 0..8u8, 0..4u8)
            .prop_map(|(which, groups, retention)| Step::Open { which, groups, retention }),
        1 => (0..12u8).prop_map(|which| Step::Drop { which }),
        4 => (0..40u8, 1..4u8, 0..4u8)
            .prop_map(|(first, count, change)| Step::Delay { first, count, change }),
        1 => (0..4u8, 0..4u8).prop_map(|(name, change)| Step::Topic { name, change }),
        2 => (0..40u8, 1..4u8).prop_map(|(nth, count)| Step::Move { nth, count }),
        2 => (0..3u8, 0..3u8, proptest::option::weighted(0.8, 0..40u8))
            .prop_map(|(which, name, at)| Step::Cursor { which, name, at }),
        3 => (any::<bool>(), 0..3u8, 0..5u8, 0..20u8, 1..9u8).prop_map(
            |(of_dead, group, verb, from, matched)| Step::Walk {
                of_dead,
                group,
                verb,
                from,
                matched,
            }
        ),
        8 => (1..5u8, 1..255u8)
            .prop_map(|(steps, piece_bytes)| Step::Checkpoint { steps, piece_bytes }),
    ]
}

fn take(world: &mut World, step: Step) {
    let millis = |ms: u16| Duration::from_millis(ms.into());
    match step {
        Step::Publish { count, delay, time_to_live } => {
            let message = |n| Message {
                delay: delay.filter(|_| n % 2 == 0).map(millis),
                time_to_live: time_to_live.filter(|_| n % 3 == 0).map(millis),
                ..Message::new(format!("message {n}"))
            };
            world.publish(&(0..count).map(message).collect::<Vec<_>>());
        }
        Step::PublishAs { producer, first, count } => {
            let id = ProducerId(producer.into());
            let stamp = ProducerStamp { id, epoch: 0, first_sequence: first.into() };
            world.publish_as(stamp, &vec![Message::new("from a producer"); count.into()]);
        }
        Step::Subscribe { session, messages, bytes } => {
            let credit = Credit { messages: messages.into(), bytes: bytes.into() };
            world.subscribe_to(ORDERS, SessionId(session.into()), credit);
        }
        Step::Credit { session, messages } => world.do_now(Command::SetCredit {
            session: SessionId(session.into()),
            subscription: 7,
            partition: ORDERS,
            group: GROUP,
            credit: Credit { messages: messages.into(), bytes: 500 },
        }),
        Step::Leave { session, grace } => world.do_now(Command::EndSession {
            session: SessionId(session.into()),
            grace: grace.map(millis).unwrap_or_default(),
        }),
        Step::Settle { verdict, first, count, attempt } => {
            let verdict = match verdict {
                0 | 1 => Verdict::Ack,
                2 => Verdict::Retry,
                3 => Verdict::RetryAfter(millis(700)),
                _ if attempt == 1 => Verdict::DeadLetter { reason: "a reason".into() },
                _ => Verdict::Extend(millis(900)),
            };
            let run = run(first.into(), count.into(), attempt.into());
            let runs = vec![DeliveryRun { generation: world.generation, ..run }];
            let (origin, partition, group) = (world.origin(SessionId(1)), ORDERS, GROUP);
            let settle = Settle { origin, partition, group, verdict, runs, confirm: true };
            world.do_now(Command::Settle(settle));
        }
        Step::Pass { ms } => world.pass(millis(ms)),
        Step::Cursor { which, name, at } => {
            let partition = if which == 2 { ORDERS } else { OTHERS[usize::from(which)] };
            let name = format!("cursor-{name}").parse().expect("a name");
            let command = match at {
                Some(at) => PartitionCommand::SetCursor(name, Offset(at.into()), BY_HAND),
                None => PartitionCommand::DeleteCursor(name),
            };
            world.do_now(Command::Partition(Origin::default(), partition, command));
        }
        Step::Delay { first, count, change } => {
            let change = match change {
                0 | 1 => DelayChange::Cancel,
                2 => DelayChange::DueAt(world.now),
                _ => DelayChange::DueAfter(millis(700)),
            };
            // Each by itself: of several, one that is not delayed has none change.
            for offset in (first..).take(count.into()) {
                let offsets = vec![Offset(offset.into())];
                let command = PartitionCommand::ChangeDelayed(offsets, change);
                world.do_now(Command::Partition(Origin::default(), ORDERS, command));
            }
        }
        Step::PublishTo { other, count } => {
            let batch = batch(&vec![Message::new("elsewhere"); count.into()]);
            let partition = OTHERS[usize::from(other)];
            let producer = ProducerStamp::default();
            let publish = Publish { origin: Origin::default(), partition, producer, batch };
            world.do_now(Command::Publish(publish));
        }
        Step::Open { which, groups, retention } => {
            let starts = [StartAt::Earliest, StartAt::Earliest, StartAt::Latest];
            let settings = (0..).zip(starts).filter(|(id, _)| groups & (1 << id) != 0);
            let config = GroupConfig { attempts_max: 3, ..GroupConfig::default() };
            let settings = settings.map(|(id, start)| GroupSetting {
                id: GroupId(id),
                config: config.clone(),
                start,
            });
            let retention = match retention {
                0 | 1 => Retention::UNTIL_SETTLED,
                2 => Retention { bytes: Some(300), ..Retention::UNTIL_SETTLED },
                3 => Retention { count: Some(7), ..Retention::FOREVER },
                _ => Retention { age: Some(millis(2_000)), ..Retention::FOREVER },
            };
            let config = TopicConfig { retention, ..queue() };
            let (partition, dead_letters) = match which {
                2 => (ORDERS, DeadLetters::To(DEAD.topic)),
                other => (OTHERS[usize::from(other)], DeadLetters::NotYet),
            };
            world.open(partition, config, settings.collect(), dead_letters);
        }
        Step::Drop { which } => {
            let partition = match which {
                0 => ORDERS,
                1 => DEAD,
                other => OTHERS[usize::from(other % 2)],
            };
            let drop = Command::Partition(Origin::default(), partition, PartitionCommand::Drop);
            world.do_now(drop);
        }
        Step::Topic { name, change } => {
            let topic_name = format!("topic-{name}").parse().expect("a good name");
            let topic = TopicId(u32::from(name));
            let incarnation = Incarnation(9);
            let command = match change {
                0 | 1 => CatalogueCommand::CreateTopic {
                    name: topic_name,
                    config: queue(),
                    incarnation,
                    placed: None,
                    is_stream: change == 0,
                },
                2 => CatalogueCommand::CreateGroup {
                    topic,
                    name: "late".parse().expect("a good name"),
                    config: GroupConfig::default(),
                    start: StartAt::Latest,
                },
                _ => CatalogueCommand::DeleteTopic { topic },
            };
            world.do_now(Command::Catalogue(Origin::default(), command));
        }
        Step::Move { nth, count } => {
            let appended = world.journal.records.iter().filter_map(|(record, _)| match record {
                Record::Appended { partition: ORDERS, first, batch, .. } => Some((*first, batch)),
                _ => None,
            });
            let some = appended.skip(nth.into()).take(count.into());
            let moves: Vec<_> = some
                .map(|(first, batch)| {
                    world.journal.pack += 1;
                    let position = 1 << 63 | world.journal.pack;
                    let bytes = batch.bytes().clone();
                    let place = Place { position, bytes: bytes.len() as u32 };
                    world.journal.batches.insert(position, bytes);
                    (first, place)
                })
                .collect();
            world.engine.move_batches(ORDERS, &moves, &mut world.journal);
        }
        Step::Walk { of_dead, group, verb, from, matched } => {
            let to = |to| WalkVerb::Requeue(Requeue { to, redrive: 7, edit: None });
            let elsewhere = Destination::Topic { topic: OTHERS[0].topic, partitions: 1 };
            let verb = match verb {
                0 => WalkVerb::Cancel,
                1 | 2 => to(Destination::Source),
                3 => to(Destination::DeadLetters),
                _ => to(elsewhere),
            };
            let walk = Walk {
                group: GroupId(if of_dead { 0 } else { group.into() }),
                from: Offset(from.into()),
                selection: Arc::default(),
                fair_key: None,
                examined_max: 100,
                matched_max: matched.into(),
                verb,
                dry_run: false,
            };
            let partition = if of_dead { DEAD } else { ORDERS };
            let walk = PartitionCommand::Walk(Box::new(walk));
            world.do_now(Command::Partition(Origin::default(), partition, walk));
        }
        Step::Checkpoint { .. } => {}
    }
    world.effects.clear();
}

/// Checkpoints as they are written: at most one is under way.
#[derive(Default)]
struct Checkpoints {
    under_way: Option<(Checkpoint, usize)>,
    /// The record with which the last whole one begins.
    newest: Option<usize>,
}

impl Checkpoints {
    fn step(&mut self, world: &mut World, steps: u8, piece_bytes: usize) {
        for _ in 0..steps {
            let begin = world.journal.records.len();
            let begun = || (world.engine.begin_checkpoint(piece_bytes), begin);
            let (checkpoint, begin) = self.under_way.get_or_insert_with(begun);
            if world.engine.checkpoint_step(checkpoint, &mut world.journal) {
                self.newest = Some(*begin);
                self.under_way = None;
            }
        }
    }
}

/// Goes through the records from one on, as they lie in the journal.
fn replay_from(world: &World, first: usize) -> Engine {
    replay_lossy(world, first).0
}

/// As [`replay_from`], with what is to be journaled of what is lost.
fn replay_lossy(world: &World, first: usize) -> (Engine, Vec<Record>) {
    let mut replay = Replay::new(world.now);
    for (record, position) in &world.journal.records[first..] {
        let mut body = Vec::new();
        record.encode_head(&mut body);
        let begin = position - body.len() as u64;
        body.extend(record.batch().iter().flat_map(|batch| batch.bytes().iter()));
        let replayed = replay.record(record.kind(), begin, body.into()).expect("it was written");
        assert_eq!(
            matches!(replayed, Replayed::CheckpointEnded { .. }),
            matches!(record, Record::CheckpointEnded { .. })
        );
    }
    replay.finish(Generation(2), first == 0).expect("the checkpoint is whole")
}

/// Goes through the records from `first` on, of which those in `hole` are gone.
fn replay_past(
    world: &World,
    first: usize,
    hole: std::ops::Range<usize>,
) -> Option<(Engine, Vec<Record>)> {
    let mut replay = Replay::new(world.now);
    for (at, (record, position)) in world.journal.records.iter().enumerate().skip(first) {
        let mut body = Vec::new();
        record.encode_head(&mut body);
        let begin = position - body.len() as u64;
        body.extend(record.batch().iter().flat_map(|batch| batch.bytes().iter()));
        if hole.contains(&at) {
            replay.damage(body.len() as u64);
            continue;
        }
        let replayed = replay.record(record.kind(), begin, body.into());
        replayed.expect("what a hole leaves is no error");
    }
    replay.finish(Generation(2), first == 0)
}

/// Places of what was published outside the hole and is still kept.
fn kept_outside(world: &World, first: usize, hole: &std::ops::Range<usize>) -> Vec<Place> {
    let kept = places(&world.engine);
    let records = world.journal.records.iter().enumerate().skip(first);
    let outside = records.filter(|(at, _)| !hole.contains(at)).filter_map(|(_, (record, at))| {
        let bytes = u32::try_from(record.batch()?.bytes().len()).expect("short");
        Some(Place { position: *at, bytes })
    });
    outside.filter(|place| kept.binary_search(place).is_ok()).collect()
}

/// A snapshot as it reads, so that a difference can be seen.
fn dump(engine: &Engine) -> String {
    String::from_utf8_lossy(&snapshot(engine)).escape_debug().to_string()
}

fn snapshot(engine: &Engine) -> Vec<u8> {
    let mut bytes = Vec::new();
    engine.encode_snapshot(&mut bytes);
    bytes
}

fn places(engine: &Engine) -> Vec<Place> {
    let mut places: Vec<_> = engine.places().collect();
    places.sort_unstable();
    places
}

fn settings() -> impl Strategy<Value = (TopicConfig, GroupConfig)> {
    let retention = prop_oneof![
        Just(Retention::UNTIL_SETTLED),
        Just(Retention { bytes: Some(400), ..Retention::UNTIL_SETTLED }),
        Just(Retention { count: Some(5), ..Retention::FOREVER }),
        Just(Retention { age: Some(Duration::from_secs(4)), ..Retention::FOREVER }),
        Just(Retention::FOREVER),
    ];
    let durable = [Durability::Durable, Durability::Speculative, Durability::Ephemeral];
    let durability = proptest::sample::select(durable.to_vec());
    let ttl = proptest::option::of(2_000..3_000u64);
    (retention, ttl, durability).prop_map(|(retention, ttl, durability)| {
        let time_to_live = ttl.map(Duration::from_millis);
        let group = GroupConfig {
            lease: Duration::from_millis(1_000),
            attempts_max: 3,
            ..GroupConfig::default()
        };
        (TopicConfig { retention, time_to_live, durability, ..queue() }, group)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn replay_and_snapshot_come_to_the_state_of_live_traffic(
        (config, group) in settings(),
        steps in proptest::collection::vec(any_step(), 1..80),
    ) {
        let mut world = World::with(config, group);
        let mut checkpoints = Checkpoints::default();
        for step in steps {
            match step {
                Step::Checkpoint { steps, piece_bytes } => {
                    checkpoints.step(&mut world, steps, piece_bytes.into());
                }
                step => take(&mut world, step),
            }
        }
        world.pass(Duration::from_millis(0));
        // What is reserved and was not given would be lost.
        world.engine.give_back_reserved(&mut world.journal);
        let live = snapshot(&world.engine);
        // Time that has passed is not in the records: all sides are brought to the same time.
        let from_first = replay_from(&world, 0);
        let from_newest = checkpoints.newest.map(|newest| replay_from(&world, newest));
        let records = world.journal.records.len();
        let later = world.now.plus(Duration::from_millis(1));
        world.engine.advance(later, &mut world.journal);
        let live_later = snapshot(&world.engine);
        for mut replayed in [from_first].into_iter().chain(from_newest) {
            let mut journal = world::Memory::default();
            replayed.advance(later, &mut journal);
            check(&replayed);
            // What expires or fails just then does not expire where a consumer holds it.
            if world.journal.records.len() == records && journal.records.is_empty() {
                prop_assert_eq!(&dump(&replayed), &dump(&world.engine));
                prop_assert_eq!(&snapshot(&replayed), &live_later);
            }
        }
        let restored =
            Engine::from_snapshot(live.clone().into(), Generation(2), world.now).unwrap();
        check(&restored);
        prop_assert_eq!(snapshot(&restored), live);
    }

    #[test]
    fn an_engine_that_comes_out_of_a_checkpoint_goes_on_as_if_nothing_had_been(
        (config, group) in settings(),
        lives in proptest::collection::vec(proptest::collection::vec(any_step(), 1..30), 2..4),
    ) {
        let mut world = World::with(config, group);
        for steps in lives {
            let mut checkpoints = Checkpoints::default();
            checkpoints.step(&mut world, 1, 100);
            for step in steps {
                match step {
                    Step::Checkpoint { steps, piece_bytes } => {
                        checkpoints.step(&mut world, steps, piece_bytes.into());
                    }
                    step => take(&mut world, step),
                }
            }
            // A crash here; one that has ended a checkpoint begins with it.
            let first = checkpoints.newest.unwrap_or(0);
            let (engine, lost) = replay_lossy(&world, first);
            world.engine = engine;
            for record in &lost {
                world.journal.append(record);
            }
            world.pass(Duration::from_millis(1));
            let whole = replay_from(&world, 0);
            check(&whole);
            prop_assert_eq!(places(&whole), places(&world.engine));
        }
        // Everything that is left comes out.
        world.subscribe(SessionId(9), 10_000);
        world.pass(Duration::from_secs(3600));
    }

    #[test]
    fn a_hole_in_the_journal_gives_no_offset_twice_and_takes_nothing_but_what_lay_in_it(
        (config, group) in settings(),
        steps in proptest::collection::vec(any_step(), 1..80),
        at in any::<prop::sample::Index>(),
        length in 1..8usize,
    ) {
        let mut world = World::with(config, group);
        let mut checkpoints = Checkpoints::default();
        for step in steps {
            match step {
                Step::Checkpoint { steps, piece_bytes } => {
                    checkpoints.step(&mut world, steps, piece_bytes.into());
                }
                step => take(&mut world, step),
            }
        }
        let records = world.journal.records.len();
        for first in [Some(0), checkpoints.newest].into_iter().flatten() {
            let begin = first + at.index(records - first);
            let hole = begin..(begin + length).min(records);
            let is_checkpoint = |(record, _): &(Record, u64)| matches!(
                record,
                Record::CheckpointBegan { .. } | Record::CheckpointPart { .. } | Record::CheckpointEnded { .. }
            );
            let tears = first > 0 && world.journal.records[hole.clone()].iter().any(is_checkpoint);
            let Some((engine, lost)) = replay_past(&world, first, hole.clone()) else {
                prop_assert!(tears, "a checkpoint that is whole is refused");
                continue;
            };
            check(&engine);
            for partition in [ORDERS, DEAD] {
                let before = world.engine.end_of(partition);
                let now = engine.end_of(partition);
                // A partition whose opening is lost begins, once it is opened again, behind all
                // that a hole can have held.
                let now = now.or(Some(engine.first_offset()));
                prop_assert!(now >= before, "{partition:?}: {now:?} after {before:?}, lost {lost:?}");
            }
            // Under a setting that is lost less may be kept, and where bytes are limited, what a
            // lost settlement had freed pushes others out.
            let opened = |(record, _): &(Record, u64)| match record {
                Record::PartitionOpened { config, .. } => Some(config.clone()),
                _ => None,
            };
            let journal = &world.journal.records;
            let limits_bytes = journal.iter().filter_map(opened).any(|it| it.retention.bytes.is_some());
            if !limits_bytes && !journal[hole.clone()].iter().any(|it| opened(it).is_some()) {
                let here = places(&engine);
                for place in kept_outside(&world, first, &hole) {
                    prop_assert!(here.binary_search(&place).is_ok(), "{place:?} is gone");
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_restored_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Engine::from_snapshot(bytes.into(), Generation(1), sennit_model::Timestamp(0));
    }

    #[test]
    fn a_snapshot_with_a_wrong_byte_is_refused_or_restored_but_never_panics(
        steps in proptest::collection::vec(any_step(), 1..20),
        at in any::<prop::sample::Index>(),
        value in any::<u8>(),
    ) {
        let mut world = World::with(queue(), GroupConfig::default());
        for step in steps {
            take(&mut world, step);
        }
        let mut bytes = snapshot(&world.engine);
        let at = at.index(bytes.len());
        bytes[at] = value;
        let _ = Engine::from_snapshot(bytes.into(), Generation(1), world.now);
    }
}

#[test]
fn a_dead_letter_moves_once_across_a_restart() {
    let mut world = World::with(queue(), GroupConfig { attempts_max: 1, ..GroupConfig::default() });
    world.subscribe(SessionId(1), 5);
    world.publish_texts(&["a", "b"]);
    world.settle(Verdict::Retry, vec![run(0, 2, 1)]);
    world.engine = world.replayed();
    world.pass(Duration::from_secs(60));
    assert_eq!(world.describe(DEAD).end.0, 2);
    assert_eq!(world.describe(ORDERS).start.0, 2);
}

#[test]
fn who_is_forgotten_while_a_checkpoint_is_written_is_forgotten_in_its_replay() {
    let mut world = World::new();
    let publish_once = |world: &mut World, id| {
        let producer = ProducerStamp { id: ProducerId(id), epoch: 0, first_sequence: 0 };
        world.publish_as(producer, &[Message::new("x")]);
        world.effects.clear();
    };
    // The first to be forgotten are the first to be written: those with the lowest ids.
    let all = PRODUCERS_PER_PARTITION_MAX as u64;
    (0..all).for_each(|at| publish_once(&mut world, 1 + at));
    let mut checkpoints = Checkpoints::default();
    checkpoints.step(&mut world, 20, 4000);
    assert!(checkpoints.newest.is_none(), "it is to end later");
    (0..50).for_each(|at| publish_once(&mut world, 1 + all + at));
    while checkpoints.newest.is_none() {
        checkpoints.step(&mut world, 1, 4000);
    }
    let replayed = replay_from(&world, checkpoints.newest.expect("it has ended"));
    assert!(snapshot(&replayed) == snapshot(&world.engine), "the replay knows others");
}
