//! Publishing: order, confirms, idempotence, delays, time to live, retention, groups.

use std::time::Duration;

use sennit_engine::{
    Command, Confirmed, DeadLetters, Effect, GroupSetting, Outbox, PartitionCommand, Publish,
    Refusal,
};
use sennit_model::{
    GroupConfig, GroupId, Message, Offset, ProducerId, ProducerStamp, Retention, StartAt,
    TopicConfig, TopicKind,
};

use crate::world::{self, ALICE, BOB, DEAD, GROUP, ORDERS, World, batch, queue, run, setting};

fn confirms(world: &mut World) -> Vec<Confirmed> {
    std::mem::take(&mut world.effects)
        .into_iter()
        .filter_map(|effect| match effect {
            Effect::Confirmed(confirmed) => Some(confirmed),
            _ => None,
        })
        .collect()
}

fn stamp(first_sequence: u64) -> ProducerStamp {
    ProducerStamp { id: ProducerId(77), epoch: 0, first_sequence }
}

#[test]
fn a_batch_sent_twice_is_appended_once_and_answered_with_its_offset() {
    let mut world = World::new();
    let messages = [Message::new("a"), Message::new("b")];
    world.publish_as(stamp(0), &messages);
    world.publish_as(stamp(0), &messages);
    let answers: Vec<_> = confirms(&mut world)
        .iter()
        .map(|c| (c.first_sequence, c.count, c.first_offset, c.duplicate))
        .collect();
    let first = Some(Offset(0));
    assert_eq!(answers, [(0, 2, first, false), (0, 2, first, true)]);
    assert_eq!(world.describe(ORDERS).end, Offset(2));
}

#[test]
fn a_batch_that_skips_sequences_is_refused_with_the_one_expected() {
    let mut world = World::new();
    world.publish_as(stamp(4), &[Message::new("a")]);
    assert_eq!(world.refusals(), [Refusal::SequenceGap { expected: 0, received: 4 }]);
}

#[test]
fn a_producer_is_told_that_it_was_fenced_once_that_is_committed() {
    let mut world = World::new();
    world.publish_as(stamp(0), &[Message::new("a")]);
    let mut out = Outbox::default();
    for producer in [ProducerStamp { epoch: 1, ..stamp(0) }, stamp(1)] {
        let (origin, batch) = (world.origin(ALICE), batch(&[Message::new("b")]));
        let publish = Publish { origin, partition: ORDERS, producer, batch };
        world.engine.handle(Command::Publish(publish), world.now, &mut world.journal, &mut out);
    }
    // A crash now would undo it, and the lower epoch would be taken again.
    assert!(out.now.is_empty(), "{:?}", out.now);
    world.effects = out.after_commit;
    assert_eq!(world.refusals(), [Refusal::ProducerFenced { current: 1, received: 0 }]);
}

#[test]
fn duplicates_are_known_after_a_restart() {
    let mut world = World::new();
    world.publish_as(stamp(0), &[Message::new("a")]);
    world.engine = world.replayed();
    world.effects.clear();
    world.publish_as(stamp(0), &[Message::new("a")]);
    assert!(confirms(&mut world)[0].duplicate);
}

#[test]
fn an_unknown_partition_is_refused() {
    let mut world = World::empty();
    world.publish_texts(&["a"]);
    assert_eq!(world.refusals(), [Refusal::UnknownTopic]);
}

#[test]
fn a_delayed_message_is_ready_when_its_time_has_come_and_not_before() {
    let mut world = World::new();
    world.subscribe(ALICE, 9);
    let later = Message { delay: Some(Duration::from_secs(10)), ..Message::new("later") };
    world.publish(&[Message::new("a"), later, Message::new("b")]);
    assert_eq!(world.delivered(), [(0, 1, "a".to_owned()), (2, 1, "b".to_owned())]);
    world.pass(Duration::from_millis(9_999));
    assert_eq!(world.delivered(), []);
    world.pass(Duration::from_millis(1));
    assert_eq!(world.delivered(), [(1, 1, "later".to_owned())]);
}

#[test]
fn a_message_that_nobody_leased_in_time_is_settled_as_expired() {
    let mut world = World::new();
    let short = Message { time_to_live: Some(Duration::from_secs(5)), ..Message::new("short") };
    world.publish(&[short, Message::new("long")]);
    world.pass(Duration::from_secs(5));
    assert_eq!(world.group().settled_before, Offset(1));
    world.subscribe(ALICE, 9);
    assert_eq!(world.delivered(), [(1, 1, "long".to_owned())]);
}

#[test]
fn a_leased_message_does_not_expire_under_its_consumer_but_does_when_it_returns() {
    let config = TopicConfig { time_to_live: Some(Duration::from_secs(5)), ..queue() };
    let mut world = World::with(config, GroupConfig::default());
    world.subscribe(ALICE, 9);
    world.publish_texts(&["a", "b"]);
    world.delivered();
    world.pass(Duration::from_secs(6));
    assert_eq!(world.ack(run(0, 1, 1)).applied, 1);
    world.pass(Duration::from_secs(30));
    assert_eq!(world.delivered(), []);
    assert_eq!(world.group().settled_before, Offset(2));
}

#[test]
fn a_stream_keeps_what_its_bytes_allow_and_a_group_goes_on_behind_it() {
    let retention = Retention { bytes: Some(60), ..Retention::FOREVER };
    let config = TopicConfig { retention, ..TopicConfig::of_kind(TopicKind::Stream) };
    let mut world = World::with(config, GroupConfig::default());
    for text in ["0123456789", "0123456789", "0123456789", "0123456789"] {
        world.publish_texts(&[text]);
    }
    assert_eq!(world.describe(ORDERS).start, Offset(2));
    world.subscribe(ALICE, 9);
    assert_eq!(world.delivered().len(), 2);
}

#[test]
fn messages_older_than_their_age_are_freed() {
    let retention = Retention { age: Some(Duration::from_secs(60)), ..Retention::FOREVER };
    let config = TopicConfig { retention, ..TopicConfig::of_kind(TopicKind::Stream) };
    let mut world = World::with(config, GroupConfig::default());
    world.publish_texts(&["a"]);
    world.pass(Duration::from_secs(30));
    world.publish_texts(&["b"]);
    world.pass(Duration::from_secs(30));
    assert_eq!(world.describe(ORDERS).start, Offset(1));
    world.pass(Duration::from_secs(30));
    assert_eq!(world.describe(ORDERS).start, Offset(2));
}

#[test]
fn messages_grow_too_old_whatever_became_of_those_before() {
    let aged = |seconds| {
        let age = Some(Duration::from_secs(seconds));
        let retention = Retention { age, ..Retention::FOREVER };
        TopicConfig { retention, ..TopicConfig::of_kind(TopicKind::Stream) }
    };
    let mut world = World::with(aged(60), GroupConfig::default());
    let start_after = |world: &mut World, seconds| {
        world.pass(Duration::from_secs(seconds));
        world.describe(ORDERS).start.0
    };
    // Freed by hand before it is too old, so that the next is the oldest.
    world.publish_texts(&["a"]);
    world.pass(Duration::from_secs(10));
    let origin = world.origin(ALICE);
    world.do_now(Command::Partition(origin, ORDERS, PartitionCommand::Trim(Offset(1))));
    world.pass(Duration::from_secs(10));
    world.publish_texts(&["b"]);
    assert_eq!([start_after(&mut world, 59), start_after(&mut world, 1)], [1, 2]);
    // A shorter age is due sooner, a longer one later.
    world.publish_texts(&["c"]);
    world.open(ORDERS, aged(10), vec![], DeadLetters::NotYet);
    assert_eq!([start_after(&mut world, 9), start_after(&mut world, 1)], [2, 3]);
    world.publish_texts(&["d"]);
    world.open(ORDERS, aged(60), vec![], DeadLetters::NotYet);
    assert_eq!([start_after(&mut world, 59), start_after(&mut world, 1)], [3, 4]);
}

#[test]
fn a_message_is_kept_until_every_group_has_settled_it() {
    let mut world = World::new();
    let other =
        GroupSetting { id: GroupId(1), config: GroupConfig::default(), start: StartAt::Earliest };
    let group = setting(GroupConfig::default());
    world.open(ORDERS, queue(), vec![group.clone(), other], DeadLetters::NotYet);
    world.subscribe(ALICE, 9);
    world.publish_texts(&["a"]);
    world.ack(run(0, 1, 1));
    assert_eq!(world.describe(ORDERS).start, Offset(0));
    world.open(ORDERS, queue(), vec![group], DeadLetters::NotYet);
    assert_eq!(world.describe(ORDERS).start, Offset(1));
}

#[test]
fn a_new_group_begins_where_it_is_told() {
    for (start, expected) in [
        (StartAt::Earliest, vec![0, 1, 2]),
        (StartAt::Latest, vec![]),
        (StartAt::Offset(Offset(2)), vec![2]),
        (StartAt::Offset(Offset(99)), vec![]),
    ] {
        let stream = TopicConfig::of_kind(TopicKind::Stream);
        let mut world = World::with(stream.clone(), GroupConfig::default());
        world.open(ORDERS, stream.clone(), vec![], DeadLetters::NotYet);
        world.publish_texts(&["a", "b", "c"]);
        let group = GroupSetting { start, ..setting(GroupConfig::default()) };
        world.open(ORDERS, stream, vec![group], DeadLetters::NotYet);
        world.subscribe(ALICE, 9);
        let offsets: Vec<_> = world.delivered().iter().map(|d| d.0).collect();
        assert_eq!(offsets, expected, "{start:?}");
    }
}

#[test]
fn nothing_is_delivered_before_it_is_committed() {
    let mut world = World::new();
    world.subscribe(ALICE, 9);
    let publish = Publish {
        origin: world.origin(BOB),
        partition: ORDERS,
        producer: ProducerStamp::default(),
        batch: batch(&[Message::new("a")]),
    };
    let mut out = Outbox::default();
    let command = Command::Publish(publish);
    world.engine.handle(command, world.now, &mut world.journal, &mut out);
    let mut payloads = world::Memory::default();
    world.engine.deliver(world.now, &mut world.journal, &mut payloads, &mut out);
    assert!(out.now.is_empty() && out.after_commit.len() == 1);
    world.finish(out);
    assert_eq!(world.delivered().len(), 1);
}

#[test]
fn a_batch_that_has_to_be_fetched_is_delivered_once_it_is_there() {
    let mut world = World::new();
    world.journal.absent = true;
    world.subscribe(ALICE, 9);
    world.publish_texts(&["a"]);
    assert_eq!(world.delivered(), []);
    world.journal.absent = false;
    world.engine.fetched(ORDERS);
    world.finish(Outbox::default());
    assert_eq!(world.delivered().len(), 1);
}

#[test]
fn a_dropped_partition_ends_its_subscriptions_and_frees_its_bytes() {
    let mut world = World::new();
    world.subscribe(ALICE, 1);
    world.publish_texts(&["a", "b"]);
    world.effects.clear();
    let origin = world.origin(BOB);
    let drop = PartitionCommand::Drop;
    world.do_now(Command::Partition(origin, ORDERS, drop));
    let ended = Effect::SubscriptionEnded { session: ALICE, subscription: 7, partition: ORDERS };
    assert_eq!(world.effects[0], ended);
    assert_eq!(world.engine.take_freed().count(), 1);
    assert_eq!(world.engine.next_timer(), None);
    let _ = GROUP;
}

fn publish_at(
    world: &mut World,
    expected: u64,
    producer: ProducerStamp,
    texts: &[&str],
) -> Vec<Effect> {
    let messages: Vec<_> = texts.iter().map(|&text| Message::new(text.to_owned())).collect();
    let (origin, partition) = (world.origin(ALICE), ORDERS);
    let publish = Publish { origin, partition, producer, batch: batch(&messages) };
    world.effects.clear();
    world.do_now(Command::PublishAt(publish, Offset(expected)));
    std::mem::take(&mut world.effects)
}

fn first_of(effects: &[Effect]) -> Option<(u64, u32)> {
    effects.iter().find_map(|effect| match effect {
        Effect::PublishedAt { first, count, .. } => Some((first.0, *count)),
        _ => None,
    })
}

#[test]
fn a_batch_that_expects_the_next_offset_is_appended_there_and_any_other_is_refused() {
    let mut world = World::new();
    let anybody = ProducerStamp::default();
    assert_eq!(first_of(&publish_at(&mut world, 0, anybody, &["a", "b"])), Some((0, 2)));
    for expected in [0, 1, 3] {
        let effects = publish_at(&mut world, expected, anybody, &["late"]);
        let refusal = Refusal::OffsetMismatch { expected: Offset(expected), next: Offset(2) };
        let refused =
            |effect: &Effect| matches!(effect, Effect::Refused { refusal: r, .. } if *r == refusal);
        assert!(effects.iter().any(refused), "{effects:?}");
    }
    assert_eq!(world.describe(ORDERS).end, Offset(2));
    world.engine = world.replayed();
    assert_eq!(first_of(&publish_at(&mut world, 2, anybody, &["c"])), Some((2, 1)));
}

#[test]
fn an_expectant_batch_that_is_sent_again_is_answered_as_it_was() {
    let mut world = World::new();
    assert_eq!(first_of(&publish_at(&mut world, 0, stamp(0), &["a"])), Some((0, 1)));
    assert_eq!(first_of(&publish_at(&mut world, 0, stamp(0), &["a"])), Some((0, 1)));
    assert_eq!(world.describe(ORDERS).end, Offset(1));
}

#[test]
fn a_trim_frees_the_batches_that_lie_before_it_as_a_whole() {
    let config = TopicConfig::of_kind(TopicKind::Stream);
    let mut world = World::with(config, GroupConfig::default());
    for texts in [["a", "b"], ["c", "d"], ["e", "f"]] {
        world.publish_texts(&texts);
    }
    for (before, start) in [(1, 0), (2, 2), (3, 2), (1, 2), (5, 4), (900, 6)] {
        let origin = world.origin(ALICE);
        let trim = PartitionCommand::Trim(Offset(before));
        world.do_now(Command::Partition(origin, ORDERS, trim));
        assert_eq!(world.describe(ORDERS).start, Offset(start), "before {before}");
        world.engine = world.replayed();
        assert_eq!(world.describe(ORDERS).start, Offset(start), "before {before}, again");
    }
    world.publish_texts(&["g"]);
    world.subscribe(ALICE, 9);
    assert_eq!(world.delivered(), [(6, 1, "g".to_owned())]);
}

#[test]
fn what_a_partition_at_rest_waits_for_comes_though_timers_are_looked_at_meanwhile() {
    let span = Some(Duration::from_secs(10));
    for (delay, time_to_live) in [(span, None), (None, span)] {
        let mut world = World::new();
        world.publish(&[Message { delay, time_to_live, ..Message::new("a") }]);
        // Each batch sets a timer, for which others are looked at.
        for _ in 0..8 {
            let (origin, producer) = (world.origin(ALICE), ProducerStamp::default());
            let batch = batch(&[Message { delay, time_to_live, ..Message::new("elsewhere") }]);
            let publish = Publish { origin, partition: DEAD, producer, batch };
            world.do_now(Command::Publish(publish));
        }
        world.pass(Duration::from_secs(10));
        let held = world.describe(ORDERS);
        let is_delayed = delay.is_some();
        assert_eq!((held.groups[0].ready, held.start.0), (is_delayed.into(), (!is_delayed).into()));
    }
}

#[test]
fn what_is_just_as_much_as_is_kept_is_kept_and_a_batch_more_frees_one() {
    let each = batch(&[Message::new("a"), Message::new("b")]).bytes().len() as u64;
    for retention in [
        Retention { bytes: Some(2 * each), ..Retention::FOREVER },
        Retention { count: Some(4), ..Retention::FOREVER },
    ] {
        let config = TopicConfig { retention, ..TopicConfig::of_kind(TopicKind::Stream) };
        let mut world = World::with(config, GroupConfig::default());
        for start in [0, 0, 2, 4] {
            world.publish_texts(&["a", "b"]);
            assert_eq!(world.describe(ORDERS).start, Offset(start), "{retention:?}");
        }
    }
}

#[test]
fn a_queue_without_a_group_keeps_its_messages_for_one_that_comes() {
    let mut world = World::new();
    world.open(ORDERS, queue(), vec![], DeadLetters::To(DEAD.topic));
    world.publish_texts(&["a", "b"]);
    world.open(ORDERS, queue(), vec![], DeadLetters::NotYet);
    assert_eq!(world.describe(ORDERS).start, Offset(0));
    let group = setting(GroupConfig::default());
    world.open(ORDERS, queue(), vec![group], DeadLetters::NotYet);
    world.subscribe(ALICE, 9);
    assert_eq!(world.delivered().len(), 2);
}

#[test]
fn a_group_that_is_to_begin_behind_the_end_begins_at_the_end() {
    let mut world = World::new();
    world.publish_texts(&["a"]);
    let start = StartAt::Offset(Offset(900));
    let ahead = GroupSetting { id: GroupId(5), config: GroupConfig::default(), start };
    let groups = vec![setting(GroupConfig::default()), ahead];
    world.open(ORDERS, queue(), groups, DeadLetters::To(DEAD.topic));
    world.publish_texts(&["b"]);
    let group = world.describe(ORDERS).groups[1];
    assert_eq!((group.settled_before, group.ready), (Offset(1), 1));
}

#[test]
fn a_delay_that_is_over_before_the_commit_waits_for_that() {
    let mut world = World::new();
    world.subscribe(ALICE, 9);
    let (origin, producer) = (world.origin(ALICE), ProducerStamp::default());
    let delay = Some(Duration::from_secs(1));
    let batch = batch(&[Message { delay, ..Message::new("a") }]);
    let publish = Command::Publish(Publish { origin, partition: ORDERS, producer, batch });
    let mut out = Outbox::default();
    world.engine.handle(publish, world.now, &mut world.journal, &mut out);
    world.now = world.now.plus(Duration::from_secs(2));
    world.engine.advance(world.now, &mut world.journal);
    let mut batches = world::Memory { batches: world.journal.batches.clone(), ..<_>::default() };
    world.engine.deliver(world.now, &mut world.journal, &mut batches, &mut out);
    world::check(&world.engine);
    assert!(out.now.is_empty(), "{:?}", out.now);
    world.finish(out);
    assert_eq!(world.delivered(), [(0, 1, "a".to_owned())]);
}

#[test]
fn a_trim_that_frees_nothing_says_so_and_writes_nothing() {
    let config = TopicConfig::of_kind(TopicKind::Stream);
    let mut world = World::with(config, GroupConfig::default());
    for texts in [["a", "b"], ["c", "d"]] {
        world.publish_texts(&texts);
    }
    for (before, frees) in [(1, false), (2, true), (2, false), (0, false)] {
        let written = world.journal.records.len();
        world.effects.clear();
        let trim = PartitionCommand::Trim(Offset(before));
        let origin = world.origin(ALICE);
        world.do_now(Command::Partition(origin, ORDERS, trim));
        let is_done = |e: &Effect| matches!(e, Effect::Done { created, .. } if *created == frees);
        assert!(world.effects.iter().any(is_done), "before {before}: {:?}", world.effects);
        let written = world.journal.records.len() - written;
        assert_eq!(written, usize::from(frees), "before {before}");
    }
}

#[test]
fn a_trim_frees_nothing_that_is_not_committed() {
    let config = TopicConfig::of_kind(TopicKind::Stream);
    let mut world = World::with(config, GroupConfig::default());
    world.publish_texts(&["a"]);
    let (origin, producer) = (world.origin(ALICE), ProducerStamp::default());
    let batch = batch(&[Message::new("b")]);
    world.do_in_one_turn([
        Command::Publish(Publish { origin, partition: ORDERS, producer, batch }),
        Command::Partition(origin, ORDERS, PartitionCommand::Trim(Offset(9))),
    ]);
    let held = world.describe(ORDERS);
    assert_eq!((held.start, held.end), (Offset(1), Offset(2)));
}

#[test]
fn a_stream_keeps_the_last_messages_that_its_count_allows_and_their_batches() {
    let retention = Retention { count: Some(3), ..Retention::FOREVER };
    let config = TopicConfig { retention, ..TopicConfig::of_kind(TopicKind::Stream) };
    let mut world = World::with(config, GroupConfig::default());
    for (texts, start) in [(["a", "b"], 0), (["c", "d"], 0), (["e", "f"], 2), (["g", "h"], 4)] {
        world.publish_texts(&texts);
        assert_eq!(world.describe(ORDERS).start, Offset(start), "{texts:?}");
        world.engine = world.replayed();
        assert_eq!(world.describe(ORDERS).start, Offset(start), "{texts:?}, again");
    }
    world.subscribe(ALICE, 9);
    assert_eq!(world.delivered().len(), 4);
}
