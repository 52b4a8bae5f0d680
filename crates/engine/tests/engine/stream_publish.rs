//! What a native publisher is told by a topic that is an HTTP stream: closed, over, deleted.

use std::time::Duration;

use sennit_engine::{
    Command, Effect, Outbox, Publish, Record, Refusal, StreamCommand, StreamSettings,
};
use sennit_model::{Message, Offset, ProducerId, ProducerStamp, TopicId};

use crate::world::{
    ALICE, ORDERS, World, batch,
    streams::{append, ask, closing, opened, plain, settings},
};

/// A stream to which something was published.
fn stream(settings: StreamSettings) -> World {
    let mut world = opened(settings);
    world.publish_texts(&["a"]);
    assert_eq!(world.describe(ORDERS).end, Offset(1));
    world
}

/// What a publish is refused with once all is committed; at once it is told nothing.
fn refused(world: &mut World, how: impl FnOnce(Publish) -> Command) -> Vec<Refusal> {
    let producer = ProducerStamp::default();
    let (origin, batch) = (world.origin(ALICE), batch(&[Message::new("b")]));
    let command = how(Publish { origin, partition: ORDERS, producer, batch });
    let mut out = Outbox::default();
    world.engine.handle(command, world.now, &mut world.journal, &mut out);
    assert!(out.now.is_empty(), "{:?}", out.now);
    world.effects = out.after_commit;
    world.refusals()
}

#[test]
fn what_was_sent_before_the_close_is_confirmed_as_it_was_when_it_comes_again() {
    let mut world = stream(settings());
    let stamp = ProducerStamp { id: ProducerId(7), epoch: 1, first_sequence: 0 };
    let messages = [Message::new("a")];
    world.publish_as(stamp, &messages);
    append(&mut world, "", closing(plain()));
    world.publish_as(stamp, &messages);
    let confirmed = world.effects.pop();
    assert!(
        matches!(&confirmed, Some(Effect::Confirmed(confirmed)) if confirmed.duplicate),
        "{confirmed:?}"
    );
    world.publish_as(ProducerStamp { first_sequence: 1, ..stamp }, &messages);
    assert_eq!(world.refusals(), [Refusal::StreamClosed]);
}

#[test]
fn a_refusal_for_what_others_did_waits_until_that_is_committed() {
    let mut world = stream(settings());
    let elsewhere = refused(&mut world, |publish| Command::PublishAt(publish, Offset(0)));
    assert_eq!(elsewhere, [Refusal::OffsetMismatch { expected: Offset(0), next: Offset(1) }]);
    append(&mut world, "", closing(plain()));
    assert_eq!(refused(&mut world, Command::Publish), [Refusal::StreamClosed]);
}

#[test]
fn nothing_is_published_to_a_stream_that_is_deleted() {
    let mut world = stream(settings());
    ask(&mut world, StreamCommand::AddFork(TopicId(9)));
    ask(&mut world, StreamCommand::Delete);
    assert_eq!(refused(&mut world, Command::Publish), [Refusal::UnknownTopic]);
}

#[test]
fn a_stream_that_is_deleted_is_unknown_though_it_was_closed() {
    let mut world = stream(settings());
    append(&mut world, "", closing(plain()));
    ask(&mut world, StreamCommand::AddFork(TopicId(9)));
    ask(&mut world, StreamCommand::Delete);
    assert_eq!(refused(&mut world, Command::Publish), [Refusal::UnknownTopic]);
}

#[test]
fn that_the_time_of_a_stream_is_over_is_said_with_its_record() {
    let ends = StreamSettings { time_to_live: Some(10), ..settings() };
    let mut world = stream(ends);
    world.now = world.now.plus(Duration::from_secs(11));
    assert_eq!(refused(&mut world, Command::Publish), [Refusal::UnknownTopic]);
    let last = world.journal.records.last().map(|(record, _)| record.clone());
    assert_eq!(last, Some(Record::StreamDeleted { partition: ORDERS }));
}
