//! Limits of a topic: a full partition refuses, or drops its oldest messages and says how many.

use sennit_engine::{Command, DeadLetters, Effect, Outcome, Publish, PublishNote, Record, Refusal};
use sennit_model::{
    Durability, GroupConfig, Message, ProducerStamp, Retention, TopicConfig, TopicKind, TopicLimit,
    WhenFull,
};

use crate::world::{self, ALICE, ORDERS, World, batch, queue, run};

fn messages(max: u64, when_full: WhenFull) -> TopicLimit {
    TopicLimit { messages: Some(max), bytes: None, when_full }
}

fn limited(limit: TopicLimit) -> World {
    World::with(TopicConfig { limit, ..queue() }, GroupConfig::default())
}

/// Takes what publishers were told of older messages.
fn notes(world: &mut World) -> Vec<u64> {
    let taken = std::mem::take(&mut world.effects);
    let noted = |effect: &Effect| match effect {
        Effect::PublishNoted(PublishNote { dropped, .. }) => Some(*dropped),
        _ => None,
    };
    let found = taken.iter().filter_map(noted).collect();
    world.effects = taken.into_iter().filter(|effect| noted(effect).is_none()).collect();
    found
}

#[test]
fn a_full_partition_refuses_until_a_message_is_settled() {
    let mut world = limited(messages(3, WhenFull::Refuse));
    world.subscribe(ALICE, 10);
    world.publish_texts(&["a", "b", "c"]);
    world.publish_texts(&["d"]);
    let full = Refusal::TopicFull { limit: "limit.messages", value: 3, held: 3 };
    assert_eq!(world.refusals(), [full]);
    world.ack(run(1, 1, 1));
    world.publish_texts(&["d"]);
    assert_eq!((world.refusals(), world.describe(ORDERS).end.0), (vec![], 4));
}

#[test]
fn a_batch_beyond_the_limit_is_refused_for_good_whatever_the_rule() {
    for when_full in [WhenFull::Refuse, WhenFull::DropOldest] {
        let mut world = limited(messages(2, when_full));
        world.publish_texts(&["a", "b", "c"]);
        assert_eq!(world.refusals(), [Refusal::Limit { limit: "limit.messages", value: 2 }]);
    }
}

#[test]
fn the_oldest_unsettled_messages_are_dropped_and_the_publisher_is_told_how_many() {
    let mut world = limited(messages(3, WhenFull::DropOldest));
    world.publish_texts(&["a", "b", "c"]);
    assert_eq!(notes(&mut world), []);
    world.subscribe(ALICE, 1);
    world.publish_texts(&["d", "e"]);
    assert_eq!(notes(&mut world), [2]);
    world.subscribe(ALICE, 10);
    let texts: Vec<_> = world.delivered().into_iter().map(|(at, _, text)| (at, text)).collect();
    let expected = [(0, "a"), (2, "c"), (3, "d"), (4, "e")].map(|(at, text)| (at, text.to_owned()));
    assert_eq!(texts, expected);
    let late = world.ack(run(0, 1, 1));
    assert_eq!((late.applied, late.stale.len()), (0, 0), "it was dropped while it was held");
}

#[test]
fn what_is_dropped_lies_in_one_frame_with_what_it_made_room_for_and_replays_the_same() {
    let mut world = limited(messages(2, WhenFull::DropOldest));
    world.publish_texts(&["a", "b"]);
    world.journal.held_together.clear();
    world.publish_texts(&["c"]);
    assert_eq!(world.journal.held_together, [2]);
    let dropped =
        world.journal.records.iter().filter(|(record, _)| {
            matches!(record, Record::Settled { outcome: Outcome::Dropped, .. })
        });
    assert_eq!(dropped.count(), 1);
    let before = world.describe(ORDERS);
    let count = world.journal.records.len();
    let mut world = world.crashed(count);
    assert_eq!(world.describe(ORDERS), before);
    assert_eq!((before.start.0, before.groups[0].ready), (0, 2));
}

#[test]
fn bytes_are_those_of_whole_batches_and_the_oldest_of_them_go() {
    let long = batch(&[Message::new("x".repeat(100))]).bytes().len() as u64;
    let limit = |when_full| TopicLimit { messages: None, bytes: Some(3 * long), when_full };
    let mut world = limited(limit(WhenFull::DropOldest));
    let text = "x".repeat(100);
    (0..3).for_each(|_| world.publish_texts(&[&text]));
    world.publish_texts(&["short"]);
    assert_eq!(notes(&mut world), [1]);
    assert_eq!(world.describe(ORDERS).start.0, 1);
    world.publish_texts(&[&"x".repeat(400)]);
    assert!(matches!(world.refusals()[..], [Refusal::Limit { limit: "limit.bytes", .. }]));
    let mut world = limited(limit(WhenFull::Refuse));
    (0..4).for_each(|_| world.publish_texts(&[&text]));
    let full = Refusal::TopicFull { limit: "limit.bytes", value: 3 * long, held: 3 * long };
    assert_eq!(world.refusals(), [full]);
}

#[test]
fn a_stream_holds_what_it_keeps_and_drops_whole_batches() {
    for durability in [Durability::Durable, Durability::Ephemeral, Durability::Memory] {
        let config = TopicConfig {
            limit: messages(4, WhenFull::DropOldest),
            retention: Retention::FOREVER,
            durability,
            ..TopicConfig::of_kind(TopicKind::Stream)
        };
        let mut world = World::empty();
        world.open(ORDERS, config, vec![], DeadLetters::NotYet);
        world.publish_texts(&["a", "b", "c"]);
        world.publish_texts(&["d"]);
        world.publish_texts(&["e"]);
        assert_eq!(notes(&mut world), [3], "{durability}");
        let described = world.describe(ORDERS);
        assert_eq!((described.start.0, described.end.0), (3, 5));
    }
}

#[test]
fn a_conditional_publish_is_held_to_the_limit_too() {
    let mut world = limited(messages(1, WhenFull::DropOldest));
    world.publish_texts(&["a"]);
    let origin = world.origin(ALICE);
    let (producer, batch) = (ProducerStamp::default(), batch(&[Message::new("b")]));
    let publish = Publish { origin, partition: ORDERS, producer, batch };
    world.do_now(Command::PublishAt(publish, sennit_model::Offset(1)));
    assert_eq!(notes(&mut world), [1]);
}

#[test]
fn a_message_that_one_group_has_settled_counts_for_the_other() {
    let config = TopicConfig { limit: messages(2, WhenFull::Refuse), ..queue() };
    let mut world = World::with(config.clone(), GroupConfig::default());
    let other = sennit_engine::GroupSetting {
        id: sennit_model::GroupId(77),
        ..world::setting(GroupConfig::default())
    };
    let groups = vec![world::setting(GroupConfig::default()), other];
    world.open(ORDERS, config, groups, DeadLetters::NotYet);
    world.subscribe(ALICE, 10);
    world.publish_texts(&["a", "b"]);
    world.ack(run(0, 2, 1));
    world.publish_texts(&["c"]);
    assert_eq!(world.refusals().len(), 1);
}
