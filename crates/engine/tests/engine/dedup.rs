//! Deduplication by a header: what was published within the window is not appended again, or replaces what is pending.

use std::time::Duration;

use sennit_engine::{
    Confirmed, ConfirmedPart, DeadLetters, Effect, Outcome, PublishNote, Record, Verdict,
};
use sennit_model::{
    Dedup, DedupMode, Durability, GroupConfig, Header, Message, Offset, ProducerId, ProducerStamp,
    Retention, TopicConfig, TopicKind,
};

use crate::world::{self, ALICE, ORDERS, World, queue, run};

const MINUTE: Duration = Duration::from_secs(60);

fn dedup(mode: DedupMode) -> Option<Dedup> {
    Some(Dedup { header: "id".parse().expect("it is a header"), window: MINUTE, mode })
}

fn world(mode: DedupMode) -> World {
    World::with(TopicConfig { dedup: dedup(mode), ..queue() }, GroupConfig::default())
}

fn message(id: &'static str) -> Message {
    Message { headers: vec![Header::text("id", id)], ..Message::new(id) }
}

fn messages(ids: &[&'static str]) -> Vec<Message> {
    ids.iter().map(|id| message(id)).collect()
}

/// The confirms since the last call, each in its parts: `(count, offset, duplicate)`.
fn confirms(world: &mut World) -> Vec<Vec<(u32, u64, bool)>> {
    let parts = |confirmed: &Confirmed| {
        let whole = [ConfirmedPart {
            count: confirmed.count,
            first_offset: confirmed.first_offset.unwrap_or_default(),
            duplicate: confirmed.duplicate,
        }];
        let parts = if confirmed.parts.is_empty() { &whole[..] } else { &confirmed.parts };
        parts.iter().map(|part| (part.count, part.first_offset.0, part.duplicate)).collect()
    };
    let found = world.effects.iter().filter_map(|effect| match effect {
        Effect::Confirmed(confirmed) => Some(parts(confirmed)),
        _ => None,
    });
    let found = found.collect();
    world.effects.retain(|effect| !matches!(effect, Effect::Confirmed(_)));
    found
}

fn replaced(world: &World) -> Vec<u64> {
    let noted = |effect: &Effect| match effect {
        Effect::PublishNoted(PublishNote { replaced, .. }) => Some(*replaced),
        _ => None,
    };
    world.effects.iter().filter_map(noted).collect()
}

/// The payloads that are delivered, in order.
fn texts(world: &mut World) -> Vec<String> {
    world.delivered().into_iter().map(|(.., text)| text).collect()
}

#[test]
fn a_value_is_answered_with_the_first_offset_within_the_window_and_appended_behind_it() {
    let mut world = world(DedupMode::Refuse);
    world.publish(&messages(&["a"]));
    world.publish(&messages(&["b"]));
    world.publish(&messages(&["a"]));
    let of_b = vec![(1, 1, false)];
    assert_eq!(confirms(&mut world), [vec![(1, 0, false)], of_b, vec![(1, 0, true)]]);
    world.pass(MINUTE);
    world.publish(&messages(&["a"]));
    assert_eq!(confirms(&mut world), [vec![(1, 2, false)]]);
    assert_eq!(world.describe(ORDERS).end.0, 3);
}

#[test]
fn the_window_counts_from_the_first_message_and_not_from_its_duplicates() {
    let mut world = world(DedupMode::Refuse);
    world.publish(&messages(&["a"]));
    world.pass(MINUTE * 3 / 4);
    world.publish(&messages(&["a"]));
    world.pass(MINUTE / 4);
    world.publish(&messages(&["a"]));
    let confirms = confirms(&mut world);
    assert_eq!(confirms.last(), Some(&vec![(1, 1, false)]));
}

#[test]
fn a_batch_is_divided_where_its_duplicates_lie_and_its_producer_goes_on() {
    let mut world = world(DedupMode::Refuse);
    world.publish(&messages(&["a", "b"]));
    let stamp = |first_sequence| ProducerStamp { id: ProducerId(7), epoch: 0, first_sequence };
    world.journal.held_together.clear();
    world.publish_as(stamp(0), &messages(&["c", "a", "b", "d", "c"]));
    let parts = vec![(1, 2, false), (2, 0, true), (1, 3, false), (1, 2, true)];
    assert_eq!(confirms(&mut world).last(), Some(&parts));
    assert_eq!(world.journal.held_together, [4]);
    world.publish_as(stamp(5), &messages(&["a"]));
    world.publish_as(stamp(6), &messages(&["e"]));
    assert_eq!(confirms(&mut world), [vec![(1, 0, true)], vec![(1, 4, false)]]);
    world.subscribe(ALICE, 10);
    assert_eq!(texts(&mut world), ["a", "b", "c", "d", "e"]);
    // Sent again after a lost connection.
    world.publish_as(stamp(5), &messages(&["a"]));
    assert_eq!(confirms(&mut world), [vec![(1, 0, true)]]);
}

#[test]
fn a_message_without_the_header_is_never_a_duplicate() {
    let mut world = world(DedupMode::Refuse);
    world.publish_texts(&["x"]);
    world.publish_texts(&["x"]);
    assert_eq!(world.describe(ORDERS).end.0, 2);
}

#[test]
fn a_restart_remembers_the_values_also_of_messages_that_are_freed() {
    for checkpointed in [false, true] {
        let mut world = world(DedupMode::Refuse);
        world.subscribe(ALICE, 10);
        world.publish(&messages(&["a", "b"]));
        world.ack(run(0, 2, 1));
        world.publish(&messages(&["c"]));
        let count = world.journal.records.len();
        if checkpointed {
            let mut checkpoint = world.engine.begin_checkpoint(64);
            world.journal.records.clear();
            while !world.engine.checkpoint_step(&mut checkpoint, &mut world.journal) {}
        }
        let count = if checkpointed { world.journal.records.len() } else { count };
        let mut world = world.crashed(count);
        world.publish(&messages(&["b", "c", "d"]));
        let parts = vec![(2, 1, true), (1, 3, false)];
        assert_eq!(confirms(&mut world), [parts], "{checkpointed}");
        world.pass(MINUTE);
        world.publish(&messages(&["a"]));
        assert_eq!(confirms(&mut world), [vec![(1, 4, false)]]);
    }
}

#[test]
fn a_checkpoint_in_pieces_between_publishes_remembers_all_values() {
    let mut world = world(DedupMode::Refuse);
    let ids = ["a", "b", "c", "d", "e", "f", "g", "h"];
    world.publish(&messages(&ids[..4]));
    let mut checkpoint = world.engine.begin_checkpoint(32);
    world.journal.records.clear();
    let mut at = 4;
    while !world.engine.checkpoint_step(&mut checkpoint, &mut world.journal) {
        if at < ids.len() {
            world.publish(&messages(&ids[at..=at]));
            at += 1;
        }
    }
    let count = world.journal.records.len();
    let mut world = world.crashed(count);
    world.publish(&messages(&ids));
    assert_eq!(confirms(&mut world), [vec![(8, 0, true)]]);
}

#[test]
fn another_header_makes_the_partition_forget_and_another_mode_does_not() {
    let mut world = world(DedupMode::Refuse);
    let open = |world: &mut World, dedup| {
        let config = TopicConfig { dedup, ..queue() };
        let groups = vec![world::setting(GroupConfig::default())];
        world.open(ORDERS, config, groups, DeadLetters::NotYet);
    };
    world.publish(&messages(&["a"]));
    open(&mut world, dedup(DedupMode::Replace));
    open(&mut world, dedup(DedupMode::Refuse));
    world.publish(&messages(&["a"]));
    open(&mut world, None);
    open(&mut world, dedup(DedupMode::Refuse));
    world.publish(&messages(&["a"]));
    let expected = [vec![(1, 0, false)], vec![(1, 0, true)], vec![(1, 1, false)]];
    assert_eq!(confirms(&mut world), expected);
}

#[test]
fn a_pending_message_is_replaced_in_one_frame_and_one_that_is_held_stays() {
    let mut world = world(DedupMode::Replace);
    let delay = Some(MINUTE / 2);
    world.publish(&[Message { delay, ..message("a") }]);
    world.publish(&messages(&["b"]));
    world.subscribe(ALICE, 1);
    assert_eq!(texts(&mut world), ["b"]);
    world.journal.held_together.clear();
    world.publish(&[Message { payload: "a2".into(), ..message("a") }]);
    assert_eq!((replaced(&world), &world.journal.held_together[..]), (vec![1], &[2][..]));
    let settled =
        world.journal.records.iter().filter(|(record, _)| {
            matches!(record, Record::Settled { outcome: Outcome::Replaced, .. })
        });
    assert_eq!(settled.count(), 1);
    world.publish(&[Message { payload: "b2".into(), ..message("b") }]);
    assert_eq!(replaced(&world), [1], "the held one was not");
    world.ack(run(1, 1, 1));
    world.subscribe(ALICE, 10);
    assert_eq!(texts(&mut world), ["a2", "b2"]);
    world.pass(MINUTE);
    assert_eq!(world.group().ready, 0);
}

#[test]
fn of_one_batch_the_last_message_of_a_value_stays() {
    let mut world = world(DedupMode::Replace);
    let texts_of = [("a", "1"), ("b", "2"), ("a", "3"), ("a", "4")];
    let batch = texts_of.map(|(id, text)| Message { payload: text.into(), ..message(id) });
    world.publish(&batch);
    assert_eq!(replaced(&world), [2]);
    world.subscribe(ALICE, 10);
    assert_eq!(texts(&mut world), ["2", "4"]);
    let count = world.journal.records.len();
    let mut world = world.crashed(count);
    world.subscribe(ALICE, 10);
    assert_eq!(texts(&mut world), ["2", "4"]);
}

#[test]
fn a_message_that_waits_for_its_next_attempt_is_replaced_and_a_dead_one_is_not() {
    let mut world = world(DedupMode::Replace);
    world.subscribe(ALICE, 10);
    world.publish(&messages(&["a", "b"]));
    world.settle(Verdict::RetryAfter(MINUTE / 2), vec![run(0, 1, 1)]);
    world.settle(Verdict::DeadLetter { reason: "no".into() }, vec![run(1, 1, 1)]);
    world.effects.clear();
    world.publish(&messages(&["a", "b"]));
    assert_eq!(replaced(&world), [1]);
}

#[test]
fn a_stream_of_any_durability_leaves_duplicates_out() {
    for durability in [Durability::Speculative, Durability::Ephemeral, Durability::Memory] {
        let mut world = World::empty();
        let config = TopicConfig {
            dedup: dedup(DedupMode::Refuse),
            retention: Retention::FOREVER,
            durability,
            ..TopicConfig::of_kind(TopicKind::Stream)
        };
        world.open(ORDERS, config, vec![], DeadLetters::NotYet);
        let producer = ProducerStamp { id: ProducerId(7), epoch: 0, first_sequence: 0 };
        world.publish_as(producer, &messages(&["a", "b", "a"]));
        assert_eq!(confirms(&mut world), [vec![(2, 0, false), (1, 0, true)]], "{durability}");
        assert_eq!(world.engine.end_of(ORDERS), Some(Offset(2)));
    }
}
