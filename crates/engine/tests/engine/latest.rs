//! What compaction does to those who are in the middle of a batch: they go on with what is kept of it.

use std::time::Duration;

use sennit_engine::{
    Command, CompactedBatch, CompactionPass, Credit, DeadLetters, Effect, GapReason, KeptPart,
    KeptRun, OpenStream, Outbox, Place, Read, ReaderChange, Record, Refusal, StreamCommand,
    SupersededBatch,
};
use sennit_model::{
    GroupConfig, Message, Messages, Offset, Retention, TopicConfig, TopicKind, WhenSlow,
};

use crate::world::{
    self, ALICE, ORDERS, World, batch, run, setting,
    streams::{ask, settings, with},
};

fn latest() -> TopicConfig {
    let stream = TopicConfig::of_kind(TopicKind::Stream);
    TopicConfig { retention: Retention::LATEST_PER_KEY, ..stream }
}

fn keyed(key: &str, payload: &str) -> Message {
    Message { key: key.to_owned().into(), ..Message::new(payload.to_owned()) }
}

fn world() -> World {
    let mut world = World::empty();
    world.open(ORDERS, latest(), vec![setting(GroupConfig::default())], DeadLetters::NotYet);
    world.effects.clear();
    world
}

/// Of the only batch these messages stay, each run of neighbours in a place of its own.
fn compact(world: &mut World, runs: &[(u64, Vec<Message>)]) {
    world.engine.begin_compaction(ORDERS, world.now).expect("there is something to look through");
    let held = world.engine.batches().next().expect("a batch is kept");
    let mut parts = Vec::new();
    for (first, messages) in runs {
        let bytes = batch(messages).bytes().clone();
        world.journal.pack += 1;
        let position = 1 << 63 | world.journal.pack;
        let place = Place { position, bytes: bytes.len() as u32 };
        world.journal.batches.insert(position, bytes);
        parts.push(KeptPart { first: Offset(*first), count: messages.len() as u32, place });
    }
    let (first, count) = (held.first, held.count);
    let batches = vec![CompactedBatch { first, count, parts }];
    world.engine.compact(ORDERS, batches, &mut world.journal);
    world.finish(Default::default());
}

/// The same, where these messages stay where they lie.
fn supersede(world: &mut World, runs: &[(u64, Vec<Message>)]) {
    world.engine.begin_compaction(ORDERS, world.now).expect("there is something to look through");
    let held = world.engine.batches().next().expect("a batch is kept");
    let stored = world.journal.batches[&held.place.position].clone();
    let run = |(first, messages): &(u64, Vec<Message>)| {
        let mut of_batch = Messages::of_checked(&stored);
        let begin = of_batch.skip_bytes((first - held.first.0) as u32) as u32;
        let bytes = of_batch.skip_bytes(messages.len() as u32) as u32;
        KeptRun { first: Offset(*first), count: messages.len() as u32, begin, bytes }
    };
    let (first, count, bytes) = (held.first, held.count, held.place.bytes);
    let batches =
        vec![SupersededBatch { first, count, bytes, kept: runs.iter().map(run).collect() }];
    world.engine.supersede(ORDERS, batches, &mut world.journal);
    world.finish(Default::default());
}

/// Leaves these messages of the only batch, each run of neighbours by itself.
type Compact = fn(&mut World, &[(u64, Vec<Message>)]);

/// Both ways of compaction.
const WAYS: [Compact; 2] = [compact, supersede];

fn read_two(world: &mut World) {
    let origin = world.origin(ALICE);
    let (subscription, partition, at, cursor) = (3, ORDERS, Offset(0), None);
    let credit = Credit { messages: 2, bytes: 1 << 20 };
    let (when_slow, filter) = (WhenSlow::Wait, None);
    let read = Read { origin, subscription, partition, at, credit, cursor, when_slow, filter };
    world.do_now(Command::Read(read));
}

/// What the reader came by: payloads, and gaps as `start..end reason`.
fn came(world: &mut World) -> Vec<String> {
    let mut came = Vec::new();
    for effect in world.effects.drain(..) {
        match effect {
            Effect::Deliver(delivery) if delivery.subscription == 3 => {
                let messages = Messages::of_checked(&delivery.messages);
                came.extend(messages.map(|m| String::from_utf8_lossy(m.payload()).into_owned()));
            }
            Effect::Gap { range, reason, .. } => {
                came.push(format!("{}..{} {reason:?}", range.start.0, range.end.0));
            }
            _ => {}
        }
    }
    came
}

#[test]
fn a_reader_in_the_middle_of_a_batch_goes_on_with_what_is_kept_of_it() {
    for compact in WAYS {
        let mut world = world();
        let messages = [
            keyed("a", "long, long, a0"),
            keyed("b", "b1"),
            keyed("a", "a2"),
            keyed("c", "c3"),
            keyed("d", "d4"),
        ];
        world.publish(&messages);
        read_two(&mut world);
        assert_eq!(came(&mut world), ["long, long, a0", "b1"]);
        compact(&mut world, &[(1, vec![keyed("b", "b1")]), (3, messages[3..].to_vec())]);
        assert_eq!(came(&mut world), Vec::<String>::new());
        let taken = ReaderChange::Taken { messages: 2, bytes: 1 << 20 };
        let (session, subscription, partition) = (ALICE, 3, ORDERS);
        world.do_now(Command::Reader { session, subscription, partition, change: taken });
        let compacted = format!("2..3 {:?}", GapReason::Compacted);
        assert_eq!(came(&mut world), [compacted.as_str(), "c3", "d4"]);
    }
}

#[test]
fn a_group_in_the_middle_of_a_batch_goes_on_and_what_went_is_settled() {
    for compact in WAYS {
        let mut world = world();
        world.subscribe(ALICE, 2);
        let messages =
            [keyed("a", "a0"), keyed("b", "b1"), keyed("a", "a2"), keyed("b", "a longer b3")];
        world.publish(&messages);
        assert_eq!(world.delivered().len(), 2);
        compact(&mut world, &[(2, messages[2..].to_vec())]);
        // The leases of what went have ended, and made room.
        let given = world.delivered();
        assert_eq!(given, [(2, 1, "a2".into()), (3, 1, "a longer b3".into())]);
        let late = world.ack(run(0, 2, 1));
        assert_eq!((late.applied, late.stale), (0, vec![]));
        assert_eq!(world.ack(run(2, 2, 1)).applied, 2);
        let group = world.group();
        assert_eq!((group.ready, group.leased), (0, 0));
    }
}

#[test]
fn a_checkpoint_says_what_the_records_of_a_compaction_come_to() {
    for compact in WAYS {
        let mut world = world();
        world.publish(&[keyed("a", "a0"), keyed("a", ""), keyed("b", "b2")]);
        compact(&mut world, &[(1, vec![keyed("a", ""), keyed("b", "b2")])]);
        let pass = CompactionPass { until: Offset(3), keeps_tombstones: true, all_read: true };
        world.engine.compacted_to(ORDERS, pass, world.now, &mut world.journal);
        let snapshot = |engine: &sennit_engine::Engine| {
            let mut bytes = Vec::new();
            engine.encode_snapshot(&mut bytes);
            bytes
        };
        let live = snapshot(&world.engine);
        assert_eq!(snapshot(&world.replayed()), live);
        let now = world.now;
        let restored = sennit_engine::Engine::from_snapshot(
            live.clone().into(),
            sennit_model::Generation(2),
            now,
        );
        let mut restored = restored.expect("it is whole");
        assert_eq!(snapshot(&restored), live);
        // Its tombstone is due a day later, and says so itself.
        let day = now.plus(Duration::from_secs(24 * 3600));
        restored.advance(now.plus(Duration::from_secs(3600)), &mut world.journal);
        assert_eq!(restored.next_compaction(), None);
        restored.advance(day, &mut world.journal);
        assert_eq!(restored.next_compaction(), Some(ORDERS));
        let scope = restored.begin_compaction(ORDERS, day).expect("it is due");
        assert_eq!(scope.tombstones_below, Offset(3));
    }
}

#[test]
fn a_batch_of_which_one_message_has_no_key_is_refused_whole() {
    let mut world = world();
    world.publish(&[keyed("a", "a0"), Message::new("none")]);
    assert_eq!(world.refusals(), [Refusal::KeyMissing]);
    assert_eq!(world.describe(ORDERS).end, Offset(0));
}

#[test]
fn what_is_dirty_is_to_be_compacted_after_a_while() {
    let mut world = world();
    for payload in ["1", "2"] {
        world.publish(&[keyed("a", payload)]);
    }
    assert_eq!(world.engine.next_compaction(), None);
    world.pass(Duration::from_secs(10));
    assert_eq!(world.engine.next_compaction(), Some(ORDERS));
}

#[test]
fn what_a_stream_begins_with_is_to_be_compacted_after_a_while() {
    let mut world = World::empty();
    let content = Some(batch(&[keyed("a", "1"), keyed("a", "2")]).into());
    let open = OpenStream { config: latest(), content, ..with(settings()) };
    ask(&mut world, StreamCommand::Open(Box::new(open)));
    let replayed = world.replayed();
    for engine in [replayed, world.engine] {
        let (mut engine, mut journal) = (engine, world::Memory::default());
        assert_eq!(engine.next_compaction(), None);
        engine.advance(world.now.plus(Duration::from_secs(10)), &mut journal);
        assert_eq!(engine.next_compaction(), Some(ORDERS));
    }
}

#[test]
fn a_partition_that_keeps_all_again_begins_at_its_oldest_message_before_a_restart_and_behind_it() {
    for compact in WAYS {
        let mut world = world();
        world.publish(&[keyed("a", "a0"), keyed("a", "a1")]);
        compact(&mut world, &[(1, vec![keyed("a", "a1")])]);
        assert_eq!(world.describe(ORDERS).start, Offset(0));
        let stream = TopicConfig::of_kind(TopicKind::Stream);
        world.open(ORDERS, stream, vec![setting(GroupConfig::default())], DeadLetters::NotYet);
        world.effects.clear();
        let mut live = Vec::new();
        world.engine.encode_snapshot(&mut live);
        let generation = sennit_model::Generation(2);
        let restored = sennit_engine::Engine::from_snapshot(live.into(), generation, world.now);
        for engine in [world.replayed(), restored.expect("it is whole")] {
            assert_eq!(world.describe(ORDERS).start, Offset(1));
            world.engine = engine;
        }
        assert_eq!(world.describe(ORDERS).start, Offset(1));
    }
}

#[test]
fn what_stays_of_a_batch_lies_where_it_lay_and_the_rest_is_freed() {
    let mut world = world();
    world.publish(&["a", "b", "a", "c", "a"].map(|key| keyed(key, key)));
    let before = world.engine.places().next().expect("a batch is kept");
    world.engine.take_freed();
    supersede(&mut world, &[(1, vec![keyed("b", "b")]), (3, vec![keyed("c", "c")])]);
    let freed: Vec<Place> = world.engine.take_freed().collect();
    let mut all: Vec<Place> = world.engine.places().chain(freed.iter().copied()).collect();
    all.sort_unstable();
    assert_eq!((freed.len(), all.len()), (3, 5));
    let mut at = before.position;
    for place in all {
        assert_eq!(place.position, at, "a byte is neither kept nor freed, or both");
        at += u64::from(place.bytes);
    }
    assert_eq!(at, before.position + u64::from(before.bytes));
    // Whoever asks what of the batch is wanted is told of both parts, and of none elsewhere.
    assert_eq!(world.engine.kept_at(ORDERS, (Offset(0), 5), before).len(), 2);
    let elsewhere = Place { position: before.position + 1_000_000, ..before };
    assert_eq!(world.engine.kept_at(ORDERS, (Offset(0), 5), elsewhere), []);
}

#[test]
fn what_is_said_of_another_batch_than_is_kept_supersedes_nothing() {
    let mut world = world();
    world.publish(&[keyed("a", "1"), keyed("a", "2")]);
    let held = world.engine.batches().next().expect("a batch is kept");
    let (first, count, bytes) = (held.first, held.count, held.place.bytes);
    for (count, bytes) in [(count - 1, bytes), (count, bytes - 1)] {
        let batches = vec![SupersededBatch { first, count, bytes, kept: Vec::new() }];
        world.engine.apply(&Record::Superseded { partition: ORDERS, batches }, 0);
        assert_eq!(world.engine.batches().collect::<Vec<_>>(), [held]);
    }
}

#[test]
fn a_pass_that_a_leader_has_begun_comes_to_nothing_when_it_steps_down() {
    let mut world = world();
    world.publish(&[keyed("a", "1"), keyed("a", "2")]);
    world.engine.begin_compaction(ORDERS, world.now).expect("there is something to look through");
    assert!(world.engine.goes_on_compacting(ORDERS));
    world.engine.rest(world.now, &mut Outbox::default());
    assert!(!world.engine.goes_on_compacting(ORDERS));
}
