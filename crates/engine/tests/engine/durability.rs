//! What each durability promises: when messages are given and confirmed, what is said of them, and that
//! no offset is given twice, whatever is lost.

mod crashes;

use std::collections::BTreeMap;

use proptest::prelude::*;
use sennit_engine::{
    Command, Content, Credit, DeadLetters, Effect, Engine, GapReason, OpenStream, Outbox,
    PartitionCommand, Publish, Read, Record, Refusal, Replay, SessionId, StreamAppend,
    StreamCommand, StreamNote, StreamSettings, Subscribe,
};
use sennit_model::{
    Durability, Generation, GroupConfig, Message, Messages, Offset, OffsetRange, PartitionId,
    ProducerId, ProducerStamp, Retention, TopicConfig, TopicId, TopicKind, WhenSlow,
    limits::{MEMORY_SHARD_BYTES, MEMORY_TOPIC_BYTES, RESERVED_OFFSETS},
};

use crate::world::{self, ALICE, BOB, DEAD, GROUP, ORDERS, World, batch, check, queue, run};

const WIDE: Credit = Credit { messages: 100_000, bytes: 1 << 30 };

fn of(durability: Durability) -> TopicConfig {
    TopicConfig { durability, ..queue() }
}

/// A world whose orders have this durability, and whose first offsets are reserved.
fn world_of(durability: Durability) -> World {
    let mut world = World::with(of(durability), GroupConfig::default());
    world.publish_texts(&["first"]);
    world.effects.clear();
    world
}

/// A turn of which nothing is committed yet, with what comes of it at once and what waits.
fn turn(world: &mut World, command: Command) -> (Vec<Effect>, Vec<Effect>) {
    let mut out = Outbox::default();
    world.engine.handle(command, world.now, &mut world.journal, &mut out);
    let mut batches = world::Memory { batches: world.journal.batches.clone(), ..<_>::default() };
    while world.engine.has_ready_partitions() {
        world.engine.deliver(world.now, &mut world.journal, &mut batches, &mut out);
    }
    check(&world.engine);
    (out.now, out.after_commit)
}

fn publish(world: &mut World, producer: ProducerStamp, texts: &[&str]) -> Command {
    let messages: Vec<_> = texts.iter().map(|text| Message::new(text.to_string())).collect();
    let (origin, batch) = (world.origin(ALICE), batch(&messages));
    Command::Publish(Publish { origin, partition: ORDERS, producer, batch })
}

fn publish_one(world: &mut World, text: &str) -> (Vec<Effect>, Vec<Effect>) {
    let command = publish(world, ProducerStamp::default(), &[text]);
    turn(world, command)
}

fn read(world: &mut World, session: SessionId, at: u64) -> Command {
    let (origin, at, cursor) = (world.origin(session), Offset(at), None);
    let when_slow = WhenSlow::default();
    Command::Read(Read {
        origin,
        subscription: 3,
        partition: ORDERS,
        at,
        credit: WIDE,
        cursor,
        when_slow,
        filter: None,
    })
}

/// Of each delivery: to whom, from where, and what it is said to have reached.
fn given(effects: &[Effect]) -> Vec<(SessionId, u64, Durability)> {
    let of = |effect: &Effect| match effect {
        Effect::Deliver(given) => Some((given.session, given.first.0, given.durability)),
        _ => None,
    };
    effects.iter().filter_map(of).collect()
}

fn confirmed(effects: &[Effect]) -> Vec<(u64, Durability)> {
    let of = |effect: &Effect| match effect {
        Effect::Confirmed(held) => Some((held.first_offset?.0, held.durability)),
        _ => None,
    };
    effects.iter().filter_map(of).collect()
}

fn gaps(effects: &[Effect]) -> Vec<(SessionId, OffsetRange, GapReason)> {
    let of = |effect: &Effect| match effect {
        Effect::Gap { session, range, reason, .. } => Some((*session, *range, *reason)),
        _ => None,
    };
    effects.iter().filter_map(of).collect()
}

fn crashed_now(world: World) -> World {
    let count = world.journal.records.len();
    world.crashed(count)
}

#[test]
fn a_speculative_message_is_given_before_the_commit_and_confirmed_behind_it() {
    let mut world = world_of(Durability::Speculative);
    let command = read(&mut world, BOB, 1);
    turn(&mut world, command);
    world.subscribe(ALICE, 10);
    world.effects.clear();
    let (now, later) = publish_one(&mut world, "early");
    let early = Durability::Speculative;
    assert_eq!(given(&now), [(ALICE, 1, early), (BOB, 1, early)]);
    assert_eq!((confirmed(&now), confirmed(&later)), (vec![], vec![(1, Durability::Durable)]));
    world.finish(Outbox::default());
    let command = read(&mut world, SessionId(3), 0);
    let (now, _) = turn(&mut world, command);
    let durable = Durability::Durable;
    assert_eq!(given(&now), [(SessionId(3), 0, durable), (SessionId(3), 1, durable)]);
}

#[test]
fn a_durable_message_waits_for_both() {
    let mut world = world_of(Durability::Durable);
    world.subscribe(ALICE, 10);
    world.effects.clear();
    let (now, later) = publish_one(&mut world, "late");
    assert_eq!((given(&now), confirmed(&now)), (vec![], vec![]));
    assert_eq!(confirmed(&later), [(1, Durability::Durable)]);
}

#[test]
fn what_is_ephemeral_or_in_memory_is_given_and_confirmed_at_once() {
    for durability in [Durability::Ephemeral, Durability::Memory] {
        let mut world = world_of(durability);
        world.subscribe(ALICE, 10);
        world.effects.clear();
        let (now, later) = publish_one(&mut world, "early");
        assert_eq!(given(&now), [(ALICE, 1, durability)]);
        assert_eq!((confirmed(&now), later), (vec![(1, durability)], vec![]));
        // Once it is committed the one has become durable; the other never does.
        world.finish(Outbox::default());
        let reached = match durability {
            Durability::Memory => Durability::Memory,
            _ => Durability::Durable,
        };
        let command = read(&mut world, BOB, 1);
        assert_eq!(given(&turn(&mut world, command).0), [(BOB, 1, reached)]);
    }
}

#[test]
fn nothing_is_given_early_before_its_offsets_are_reserved_for_good() {
    for durability in [Durability::Speculative, Durability::Ephemeral, Durability::Memory] {
        let mut world = World::with(of(durability), GroupConfig::default());
        world.subscribe(ALICE, 10);
        world.effects.clear();
        let (now, later) = publish_one(&mut world, "first");
        assert_eq!((given(&now), confirmed(&now)), (vec![], vec![]), "{durability}");
        assert_eq!(confirmed(&later).len(), 1);
        world.finish(Outbox::default());
        assert_eq!(world.delivered().len(), 1, "{durability}");
    }
}

#[test]
fn no_confirm_overtakes_one_that_waits() {
    for durability in [Durability::Ephemeral, Durability::Memory] {
        let mut world = World::with(of(durability), GroupConfig::default());
        publish_one(&mut world, "waits");
        let first = world.journal.end;
        let (now, _) = publish_one(&mut world, "waits too");
        assert_eq!(confirmed(&now), [], "{durability}");
        // Only what came with the first is committed: the second still waits.
        world.engine.committed(first);
        let (now, later) = publish_one(&mut world, "and behind it this");
        assert_eq!((confirmed(&now), confirmed(&later).len()), (vec![], 1), "{durability}");
        world.engine.committed(world.journal.end);
        let (now, _) = publish_one(&mut world, "this does not");
        assert_eq!(confirmed(&now), [(3, durability)]);
    }
}

#[test]
fn what_is_kept_in_memory_never_reaches_the_journal() {
    let mut world = World::with(of(Durability::Memory), GroupConfig::default());
    world.publish_texts(&["a", "b"]);
    world.subscribe(ALICE, 10);
    world.ack(run(0, 1, 1));
    let about_messages = world.journal.records.iter().filter(|(record, _)| {
        matches!(record, Record::Appended { .. } | Record::Settled { .. } | Record::Failed { .. })
    });
    assert_eq!(about_messages.count(), 0);
    assert_eq!(world.describe(ORDERS).end, Offset(2));
    world.ack(run(1, 1, 1));
    assert_eq!(world.engine.places().count(), 0);
}

#[test]
fn a_durable_topic_beside_one_in_memory_is_journaled() {
    let mut world = World::with(of(Durability::Memory), GroupConfig::default());
    let (origin, batch) = (world.origin(ALICE), batch(&[Message::new("a")]));
    let producer = ProducerStamp::default();
    let publish = Publish { origin, partition: DEAD, producer, batch };
    let (now, after_commit) = turn(&mut world, Command::Publish(publish));
    let appended =
        |(record, _): &(Record, u64)| matches!(record, Record::Appended { partition: DEAD, .. });
    assert!(world.journal.records.iter().any(appended));
    assert_eq!(
        (confirmed(&now), confirmed(&after_commit)),
        (vec![], vec![(0, Durability::Durable)])
    );
}

#[test]
fn a_topic_in_memory_is_a_ring() {
    let stream =
        TopicConfig { durability: Durability::Memory, ..TopicConfig::of_kind(TopicKind::Stream) };
    let bytes = 400;
    let retention = Retention { bytes: Some(bytes), ..Retention::FOREVER };
    for (config, most) in
        [(stream.clone(), MEMORY_TOPIC_BYTES), (TopicConfig { retention, ..stream }, bytes)]
    {
        let mut world = World::empty();
        world.open(ORDERS, config, vec![], DeadLetters::NotYet);
        let text = "x".repeat(most as usize / 10);
        for _ in 0..30 {
            world.publish_texts(&[&text]);
        }
        let held = world.describe(ORDERS);
        assert!(held.bytes <= most && held.bytes > most / 2, "{held:?}");
        assert_eq!(held.end, Offset(30));
    }
}

#[test]
fn memory_is_limited_in_a_shard_and_what_is_refused_changes_nothing() {
    let retention = Retention { bytes: Some(u64::MAX), ..Retention::FOREVER };
    let config = TopicConfig { retention, ..of(Durability::Memory) };
    let mut world = World::empty();
    let other = DEAD;
    world.open(ORDERS, config.clone(), vec![], DeadLetters::NotYet);
    world.open(other, config.clone(), vec![], DeadLetters::NotYet);
    let text = "x".repeat(7 << 20);
    let count = MEMORY_SHARD_BYTES / (7 << 20);
    for n in 0..count + 3 {
        world.publish_texts(&[&text]);
        assert!(world.describe(ORDERS).end == Offset(n + 1));
    }
    assert!(world.describe(ORDERS).bytes <= MEMORY_SHARD_BYTES);
    world.effects.clear();
    // The other has nothing of its own to free.
    let batch = batch(&[Message::new(text)]);
    let (origin, producer) = (world.origin(ALICE), ProducerStamp::default());
    world.do_now(Command::Publish(Publish { origin, partition: other, producer, batch }));
    assert_eq!(
        world.refusals(),
        [Refusal::Limit { limit: "MEMORY_SHARD_BYTES", value: MEMORY_SHARD_BYTES }]
    );
    assert_eq!(world.describe(other).end, Offset(0));
    // A stream that would begin with it is not there, and one that is takes no append.
    let id = PartitionId { topic: TopicId(77), ..other };
    let content = Some(Content::from(self::batch(&[Message::new("x".repeat(7 << 20))])));
    let settings = StreamSettings::of_topic();
    for content in [content.clone(), None] {
        let (origin, is_there) = (world.origin(ALICE), content.is_none());
        let open = OpenStream {
            config: config.clone(),
            settings: settings.clone(),
            content,
            closes: false,
        };
        world.do_now(Command::Stream(origin, id, StreamCommand::Open(Box::new(open))));
        assert_eq!(world.refusals().len(), usize::from(!is_there));
        assert_eq!(world.engine.end_of(id), is_there.then_some(Offset(0)));
    }
    let append = StreamAppend { content, content_type: None, note: StreamNote::default() };
    let origin = world.origin(ALICE);
    world.do_now(Command::Stream(origin, id, StreamCommand::Append(Box::new(append))));
    assert_eq!((world.refusals().len(), world.engine.end_of(id)), (1, Some(Offset(0))));
    // What is deleted makes room.
    let origin = world.origin(ALICE);
    world.do_now(Command::Partition(origin, ORDERS, PartitionCommand::Drop));
    let batch = self::batch(&[Message::new("y".repeat(7 << 20))]);
    let origin = world.origin(ALICE);
    world.do_now(Command::Publish(Publish { origin, partition: other, producer, batch }));
    assert_eq!(world.describe(other).end, Offset(1));
}

#[test]
fn a_failed_journal_rolls_back_what_was_given_and_tells_those_who_saw_it() {
    for durability in [Durability::Speculative, Durability::Ephemeral] {
        let mut world = world_of(durability);
        world.subscribe(ALICE, 10);
        for (session, at) in [(BOB, 0), (SessionId(4), 0)] {
            let command = read(&mut world, session, at);
            turn(&mut world, command);
        }
        let narrow = Credit { messages: 1, bytes: 1 };
        let credit = sennit_engine::ReaderChange::Credit(narrow);
        let (session, subscription, partition) = (SessionId(4), 3, ORDERS);
        let change = Command::Reader { session, subscription, partition, change: credit };
        turn(&mut world, change);
        publish_one(&mut world, "early");
        let mut out = Outbox::default();
        world.engine.roll_back(&mut out);
        let range = OffsetRange::new(Offset(1), 1);
        let reason = GapReason::RolledBack;
        assert_eq!(gaps(&out.now), [(ALICE, range, reason), (BOB, range, reason)]);
    }
}

#[test]
fn a_reader_that_comes_back_inside_what_was_lost_is_told_what_it_saw_of_that() {
    let mut world = world_of(Durability::Speculative);
    let committed = world.journal.records.len();
    publish_one(&mut world, "seen");
    publish_one(&mut world, "seen too");
    let mut world = world.crashed(committed);
    world.publish_texts(&["after"]);
    let hole = OffsetRange { start: Offset(1), end: world.describe(ORDERS).end };
    let hole = OffsetRange { end: Offset(hole.end.0 - 1), ..hole };
    assert!(hole.end.0 > RESERVED_OFFSETS);
    for (at, reason) in
        [(1, Some(GapReason::Lost)), (2, Some(GapReason::RolledBack)), (hole.end.0, None)]
    {
        let command = read(&mut world, BOB, at);
        let (now, _) = turn(&mut world, command);
        let told: Vec<_> = reason.map(|reason| (BOB, hole, reason)).into_iter().collect();
        assert_eq!(gaps(&now), told, "at {at}");
        assert_eq!(given(&now), [(BOB, hole.end.0, Durability::Durable)]);
    }
}

#[test]
fn a_confirm_that_waits_says_durable_unless_the_message_is_in_memory_alone() {
    for (durability, said) in
        [(Durability::Ephemeral, Durability::Durable), (Durability::Memory, Durability::Memory)]
    {
        let mut world = World::with(of(durability), GroupConfig::default());
        let (now, later) = publish_one(&mut world, "first");
        assert_eq!((confirmed(&now), confirmed(&later)), (vec![], vec![(0, said)]));
    }
}

#[test]
fn who_comes_back_to_a_durable_topic_inside_what_was_lost_is_not_told_of_any_rollback() {
    let mut world = World::new();
    world.publish_texts(&["a", "b", "c"]);
    world.engine.give_up(ORDERS, Offset(0), &mut world.journal);
    let command = read(&mut world, BOB, 1);
    let (now, _) = turn(&mut world, command);
    assert_eq!(gaps(&now), [(BOB, OffsetRange::new(Offset(1), 2), GapReason::Lost)]);
}

#[test]
fn what_comes_out_of_a_checkpoint_is_durable_whatever_it_was_given_as() {
    for durability in [Durability::Speculative, Durability::Ephemeral] {
        let mut world = world_of(durability);
        let mut snapshot = Vec::new();
        world.engine.encode_snapshot(&mut snapshot);
        let engine = Engine::from_snapshot(snapshot.into(), Generation(2), world.now);
        world.engine = engine.expect("it is whole");
        let command = read(&mut world, BOB, 0);
        let (now, _) = turn(&mut world, command);
        assert_eq!(given(&now), [(BOB, 0, Durability::Durable)], "{durability}");
    }
}

#[test]
fn a_stop_that_gives_back_what_is_reserved_leaves_no_hole() {
    for durability in [Durability::Speculative, Durability::Ephemeral] {
        let mut world = world_of(durability);
        world.publish_texts(&["second"]);
        world.engine.give_back_reserved(&mut world.journal);
        let written = world.journal.records.len();
        world.engine.give_back_reserved(&mut world.journal);
        assert_eq!(world.journal.records.len(), written, "there is nothing left");
        let mut world = crashed_now(world);
        world.publish_texts(&["third"]);
        let held = world.describe(ORDERS);
        assert_eq!((held.end, held.lost), (Offset(3), 0), "{durability}");
    }
}

#[test]
fn what_is_published_after_reservations_were_given_back_waits_again() {
    let mut world = world_of(Durability::Ephemeral);
    world.engine.give_back_reserved(&mut world.journal);
    let (now, later) = publish_one(&mut world, "late");
    assert_eq!((confirmed(&now), confirmed(&later).len()), (vec![], 1));
}

#[test]
fn a_reservation_that_was_given_back_is_none_whichever_of_them_is_committed() {
    let mut world = World::with(of(Durability::Ephemeral), GroupConfig::default());
    publish_one(&mut world, "reserves");
    let reserved = world.journal.end;
    world.engine.give_back_reserved(&mut world.journal);
    let given_back = world.journal.records.len();
    publish_one(&mut world, "reserves again");
    let reads = read(&mut world, BOB, 0);
    turn(&mut world, reads);
    // The first reservation is committed, and that it was given back: of the second nothing is.
    world.engine.committed(reserved);
    let (now, _) = publish_one(&mut world, "would be given twice");
    assert_eq!((confirmed(&now), given(&now)), (vec![], vec![(BOB, 0, Durability::Durable)]));
    let world = world.crashed(given_back);
    assert_eq!(world.engine.end_of(ORDERS), Some(Offset(1)));
}

/// Where reservations made so far end.
fn reservations(world: &World) -> Vec<u64> {
    let end = |(record, _): &(Record, u64)| match record {
        Record::Reserved { end, .. } => Some(end.0),
        _ => None,
    };
    world.journal.records.iter().filter_map(end).collect()
}

#[test]
fn half_of_what_is_reserved_is_used_before_more_is() {
    let mut world = world_of(Durability::Ephemeral);
    let texts = vec!["x"; 1 << 12];
    let half = RESERVED_OFFSETS / 2;
    for first in (1..half).step_by(texts.len()) {
        assert_eq!(reservations(&world), [1 + RESERVED_OFFSETS], "before {first}");
        let command = publish(&mut world, ProducerStamp::default(), &texts);
        turn(&mut world, command);
    }
    publish_one(&mut world, "x");
    assert_eq!(reservations(&world), [1 + RESERVED_OFFSETS, 2 + half + RESERVED_OFFSETS]);
}

#[test]
fn the_last_offset_that_is_reserved_for_good_is_given_once_it_is_committed() {
    let mut world = world_of(Durability::Ephemeral);
    let reads = read(&mut world, BOB, 1);
    turn(&mut world, reads);
    let texts = vec!["x"; 1 << 12];
    for first in (1..RESERVED_OFFSETS).step_by(texts.len()) {
        let command = publish(&mut world, ProducerStamp::default(), &texts);
        let (now, after_commit) = turn(&mut world, command);
        let ends_there = first + texts.len() as u64 == 1 + RESERVED_OFFSETS;
        let at_once = [given(&now).len(), confirmed(&now).len()];
        assert_eq!(at_once, if ends_there { [0, 0] } else { [1, 1] }, "{first}");
        assert_eq!(confirmed(&after_commit).len(), usize::from(ends_there), "{first}");
    }
}

#[test]
fn a_topic_in_memory_is_empty_after_a_restart_and_goes_on_behind() {
    let mut world = world_of(Durability::Memory);
    for life in 0..3 {
        world.publish_texts(&["lost"]);
        if life == 1 {
            world.engine.give_back_reserved(&mut world.journal);
        }
        let end = world.describe(ORDERS).end;
        world = crashed_now(world);
        let held = world.describe(ORDERS);
        assert!(held.end >= end && held.start == held.end && held.bytes == 0, "{held:?}");
        let command = read(&mut world, BOB, end.0 - 1);
        let gone = OffsetRange { start: Offset(0), end: held.end };
        assert_eq!(gaps(&turn(&mut world, command).0), [(BOB, gone, GapReason::RolledBack)]);
        world.subscribe(ALICE, 10);
        world.publish_texts(&["new"]);
        let leased = world.delivered().into_iter().filter(|(_, attempt, _)| *attempt > 0);
        assert_eq!(leased.collect::<Vec<_>>(), [(held.end.0, 1, "new".to_owned())]);
        world
            .ack(sennit_engine::DeliveryRun { generation: Generation(2), ..run(held.end.0, 1, 1) });
        let origin = world.origin(ALICE);
        let session = origin.session;
        world.do_now(Command::EndSession { session, grace: std::time::Duration::ZERO });
    }
}

#[test]
fn a_checkpoint_keeps_what_is_reserved() {
    for durability in [Durability::Speculative, Durability::Ephemeral, Durability::Memory] {
        let mut world = world_of(durability);
        let before = world.journal.records.len();
        let mut checkpoint = world.engine.begin_checkpoint(4096);
        while !world.engine.checkpoint_step(&mut checkpoint, &mut world.journal) {}
        publish_one(&mut world, "given and lost");
        let written = world
            .journal
            .records
            .iter()
            .position(|(record, _)| matches!(record, Record::CheckpointEnded { .. }));
        world.journal.records.truncate(written.expect("it ended") + 1);
        world.journal.records.drain(..before);
        let mut replay = Replay::new(world.now);
        for (record, position) in &world.journal.records {
            let mut body = Vec::new();
            record.encode_head(&mut body);
            replay.record(record.kind(), *position, body.into()).expect("it was written");
        }
        let (engine, lost) = replay.finish(Generation(2), false).expect("it is whole");
        let end = engine.end_of(ORDERS).expect("it is there");
        assert!(end.0 > RESERVED_OFFSETS && lost.len() == 1, "{durability}: {end:?} {lost:?}");
    }
}

fn stamp(first_sequence: u64) -> ProducerStamp {
    ProducerStamp { id: ProducerId(9), epoch: 0, first_sequence }
}

#[test]
fn a_producer_goes_on_behind_what_was_confirmed_and_lost() {
    for (durability, goes_on) in [
        (Durability::Speculative, false),
        (Durability::Ephemeral, true),
        (Durability::Memory, true),
    ] {
        let mut world = world_of(durability);
        world.publish_as(stamp(0), &[Message::new("a")]);
        let committed = world.journal.records.len();
        let command = publish(&mut world, stamp(1), &["b", "c"]);
        turn(&mut world, command);
        let mut world = world.crashed(committed);
        world.publish_as(stamp(3), &[Message::new("d")]);
        assert_eq!(world.refusals().is_empty(), goes_on, "{durability}");
        // Once it has gone on, what is missing was never sent.
        if goes_on {
            world.publish_as(stamp(5), &[Message::new("f")]);
            assert_eq!(world.refusals(), [Refusal::SequenceGap { expected: 4, received: 5 }]);
            world.publish_as(stamp(3), &[Message::new("d")]);
            assert!(matches!(&world.effects[..], [Effect::Confirmed(held)] if held.duplicate));
        } else {
            world.publish_as(stamp(1), &[Message::new("b"), Message::new("c")]);
            assert_eq!(world.refusals(), []);
        }
    }
}

#[test]
fn a_durability_is_for_ever() {
    let mut world = World::empty();
    let name: sennit_model::TopicName = "prices".parse().expect("a name");
    let incarnation = sennit_model::Incarnation(1);
    let config = of(Durability::Ephemeral);
    let create = sennit_engine::CatalogueCommand::CreateTopic {
        name,
        config,
        incarnation,
        placed: None,
        is_stream: false,
    };
    let origin = world.origin(ALICE);
    world.do_now(Command::Catalogue(origin, create));
    let topic = world.engine.catalogue().topics().next().expect("it was made").id();
    let alter = sennit_engine::CatalogueCommand::AlterTopic { topic, config: queue() };
    world.do_now(Command::Catalogue(origin, alter));
    assert_eq!(world.refusals(), [Refusal::SettingFixed { field: "durability" }]);
    // What fails there is kept whatever the topic is.
    let source = topic;
    let create = sennit_engine::CatalogueCommand::CreateDeadLetterTopic { source, incarnation };
    world.do_now(Command::Catalogue(origin, create));
    let letters = world.engine.catalogue().topics().nth(1).expect("it was made");
    assert_eq!(letters.config().durability, Durability::Durable);
}
