//! Tests of commands that another leader is asked again, and of the refusals of the rest.

use std::time::Duration;

use bytes::Bytes;
use sennit_engine::{
    Confirmed, Credit, Delivery, Publish, Read, Settle, Settled, Subscribe, Verdict,
};
use sennit_model::{
    BatchBuilder, Durability, Generation, GroupId, Message, ProducerId, ProducerStamp, WhenSlow,
};

use super::*;

const PARTITION: PartitionId =
    PartitionId { topic: sennit_model::TopicId(1), index: sennit_model::PartitionIndex(0) };
const SESSION: SessionId = SessionId(7);
const NOW: Timestamp = Timestamp(1_000);

fn origin(request: u64) -> Origin {
    Origin { session: SESSION, request }
}

fn credit(messages: u32) -> Credit {
    Credit { messages, bytes: 1_000 }
}

fn subscribe(subscription: u32, messages: u32) -> Command {
    Command::Subscribe(Subscribe {
        origin: origin(1),
        subscription,
        partition: PARTITION,
        group: GroupId(1),
        credit: credit(messages),
    })
}

fn read(subscription: u32, at: u64, messages: u32) -> Command {
    Command::Read(Read {
        origin: origin(2),
        subscription,
        partition: PARTITION,
        at: Offset(at),
        credit: credit(messages),
        cursor: None,
        when_slow: WhenSlow::default(),
        filter: None,
    })
}

fn describe(request: u64) -> Command {
    Command::Partition(origin(request), PARTITION, PartitionCommand::Describe)
}

fn publish(request: u64) -> Command {
    let mut batch = BatchBuilder::for_append(100);
    batch.push(&Message::new(Bytes::from_static(b"m"))).unwrap();
    Command::Publish(Publish {
        origin: origin(request),
        partition: PARTITION,
        producer: ProducerStamp::default(),
        batch: batch.take().unwrap(),
    })
}

fn confirmed(request: u64) -> Effect {
    Effect::Confirmed(Confirmed {
        origin: origin(request),
        partition: PARTITION,
        producer: ProducerId(0),
        first_sequence: 0,
        count: 1,
        first_offset: None,
        duplicate: false,
        durability: Durability::Durable,
        parts: Box::default(),
    })
}

fn delivered(subscription: u32, first: u64, count: u32) -> Effect {
    Effect::Deliver(Delivery {
        session: SESSION,
        subscription,
        partition: PARTITION,
        first: Offset(first),
        count,
        attempt: 0,
        generation: Generation(1),
        appended_at: NOW,
        durability: Durability::Durable,
        messages: Bytes::new(),
    })
}

fn refused(request: u64, refusal: Refusal) -> Effect {
    Effect::Refused { origin: origin(request), refusal }
}

/// Notes a command of which the leader is told no more than it says.
fn note(asked: &mut OpenRequests, mut command: Command, is_led: bool) -> Noted {
    let before = command.clone();
    let (noted, second) = asked.note(&mut command, is_led, NOW);
    assert_eq!((command, second), (before, None));
    noted
}

/// A change of a reader, and what the leader is told of it.
fn changed(asked: &mut OpenRequests, subscription: u32, change: ReaderChange) -> Vec<ReaderChange> {
    let mut command =
        Command::Reader { session: SESSION, subscription, partition: PARTITION, change };
    let (_, second) = asked.note(&mut command, true, NOW);
    let told = second.into_iter().chain([command]).map(|command| match command {
        Command::Reader { change, .. } => change,
        other => panic!("{other:?}"),
    });
    told.collect()
}

/// The refusals that sessions are told when another node leads, and the one before answers no more.
fn lost(asked: &mut OpenRequests) -> Vec<Effect> {
    asked.lose_leader(NOW);
    let mut out = Vec::new();
    asked.under_way.give_up(&mut out);
    out
}

#[test]
fn subscriptions_are_asked_again_as_they_are_by_then() {
    let mut asked = OpenRequests::default();
    for command in [subscribe(1, 10), read(2, 5, 10), subscribe(3, 10), read(4, 0, 10)] {
        assert_eq!(note(&mut asked, command, true), Noted::Kept);
    }
    assert_eq!(asked.ask(), []);
    let partition = PARTITION;
    let change = ReaderChange::Credit(credit(30));
    for command in [
        Command::SetCredit {
            session: SESSION,
            subscription: 1,
            partition,
            group: GroupId(1),
            credit: credit(20),
        },
        Command::Reader { session: SESSION, subscription: 2, partition, change },
        Command::Unsubscribe { session: SESSION, subscription: 3, partition, group: GroupId(1) },
    ] {
        note(&mut asked, command, true);
    }
    assert!(asked.hear(&delivered(2, 5, 3), false));
    let taken = ReaderChange::Taken { messages: 3, bytes: 0 };
    assert_eq!(changed(&mut asked, 2, taken), [taken]);
    let (session, subscription) = (SESSION, 4);
    assert!(asked.hear(&Effect::ReaderTooSlow { session, subscription, partition }, false));
    assert_eq!(lost(&mut asked), []);
    assert_eq!(asked.ask(), [subscribe(1, 20), read(2, 8, 30)]);
    assert_eq!(asked.ask(), []);
}

#[test]
fn the_window_of_a_reader_is_one_over_a_change_of_leaders() {
    let mut asked = OpenRequests::default();
    note(&mut asked, read(2, 0, 10), true);
    assert!(asked.hear(&delivered(2, 0, 6), true));
    assert_eq!(lost(&mut asked), []);
    assert_eq!(asked.ask(), [read(2, 6, 4)]);
    assert!(asked.hear(&delivered(2, 6, 4), true));
    let taken = |messages| ReaderChange::Taken { messages, bytes: 0 };
    let window = |messages| ReaderChange::Credit(credit(messages));
    assert_eq!(changed(&mut asked, 2, taken(2)), [window(6)]);
    assert_eq!(changed(&mut asked, 2, window(20)), [window(16)]);
    assert_eq!(changed(&mut asked, 2, taken(5)), [window(20), taken(1)]);
    assert_eq!(changed(&mut asked, 2, taken(1)), [taken(1)]);
    assert_eq!(lost(&mut asked), []);
    assert_eq!(asked.ask(), [read(2, 10, 18)]);
}

#[test]
fn what_is_asked_while_nobody_leads_is_asked_once_somebody_does() {
    let mut asked = OpenRequests::default();
    note(&mut asked, subscribe(1, 10), false);
    note(&mut asked, describe(5), false);
    assert_eq!(note(&mut asked, publish(6), false), Noted::Passing);
    assert_eq!(asked.ask(), [subscribe(1, 10), describe(5)]);
    note(&mut asked, Command::EndSession { session: SESSION, grace: Duration::ZERO }, true);
    assert_eq!(lost(&mut asked), []);
    assert_eq!(asked.ask(), [describe(5)]);
}

#[test]
fn an_interruption_is_not_told_and_the_subscription_is_asked_again() {
    let mut asked = OpenRequests::default();
    note(&mut asked, subscribe(1, 10), true);
    let (session, partition) = (SESSION, PARTITION);
    let interrupted = Effect::SubscriptionInterrupted { session, subscription: 1, partition };
    assert!(!asked.hear(&interrupted, false));
    assert_eq!(asked.ask(), [subscribe(1, 10)]);
}

#[test]
fn a_subscription_that_is_refused_is_asked_again_if_it_is_about_who_leads_and_forgotten_otherwise()
{
    let mut requests = OpenRequests::default();
    note(&mut requests, read(2, 5, 10), true);
    assert!(!requests.hear(&refused(2, Refusal::NoLeader), true));
    assert_eq!(requests.ask(), [read(2, 5, 10)]);
    assert!(requests.hear(&refused(2, Refusal::UnknownTopic), true));
    assert_eq!(lost(&mut requests), []);
    assert_eq!(requests.ask(), []);
}

#[test]
fn a_question_that_the_leader_lost_is_asked_again_until_nobody_leads_for_long() {
    let mut asked = OpenRequests::default();
    note(&mut asked, describe(5), true);
    for refusal in [Refusal::OutcomeUnknown, Refusal::NoLeader, Refusal::NotLeader { leader: 2 }] {
        assert!(!asked.hear(&refused(5, refusal), true));
        assert_eq!(asked.ask(), [describe(5)]);
    }
    assert_eq!(lost(&mut asked), []);
    let mut out = Vec::new();
    asked.give_up_questions(Timestamp(NOW.0 - 1), &mut out);
    assert_eq!(out, []);
    asked.give_up_questions(NOW, &mut out);
    assert_eq!(out, [refused(5, Refusal::NoLeader)]);
    assert_eq!(asked.ask(), []);
}

#[test]
fn of_what_was_sent_and_not_answered_the_outcome_is_unknown() {
    let mut asked = OpenRequests::default();
    for request in [1, 1, 2] {
        asked.sent(&publish(request), 10);
    }
    assert_eq!(asked.under_way.bytes(), 30);
    assert!(asked.hear(&confirmed(1), true));
    assert!(asked.hear(&refused(2, Refusal::StorageFull), true));
    assert_eq!(asked.under_way.bytes(), 10);
    assert_eq!(lost(&mut asked), [refused(1, Refusal::OutcomeUnknown)]);
    assert_eq!((asked.under_way.bytes(), lost(&mut asked)), (0, Vec::new()));
    assert!(!asked.hear(&confirmed(1), true), "it was told already that nobody knows");
}

#[test]
fn the_leader_before_answers_what_was_sent_to_it_and_nothing_else() {
    let mut asked = OpenRequests::default();
    note(&mut asked, subscribe(1, 10), true);
    note(&mut asked, describe(5), true);
    asked.sent(&publish(2), 10);
    asked.lose_leader(NOW);
    assert!(!asked.hear_late(&delivered(1, 0, 3)));
    assert!(!asked.hear_late(&refused(5, Refusal::OutcomeUnknown)));
    assert!(!asked.hear_late(&refused(1, Refusal::OutcomeUnknown)));
    assert!(asked.hear_late(&confirmed(2)));
    assert!(!asked.hear_late(&confirmed(2)));
    assert_eq!(asked.ask(), [subscribe(1, 10), describe(5)]);
}

fn settle(partition: PartitionId, confirm: bool) -> Command {
    Command::Settle(Settle {
        origin: origin(1),
        partition,
        group: GroupId(1),
        verdict: Verdict::Ack,
        runs: Vec::new(),
        confirm,
    })
}

fn settled(partition: PartitionId) -> Effect {
    Effect::Settled(Settled { origin: origin(1), partition, applied: 0, stale: Vec::new() })
}

#[test]
fn a_settlement_without_a_confirm_is_answered_if_it_was_stale() {
    let mut asked = OpenRequests::default();
    assert_eq!(note(&mut asked, settle(PARTITION, false), true), Noted::Passing);
    asked.sent(&settle(PARTITION, false), 0);
    assert!(asked.hear(&settled(PARTITION), true));
    assert_eq!(lost(&mut asked), []);
    assert_eq!(asked.ask(), []);
}

#[test]
fn settlements_of_one_request_that_the_leader_lost_are_asked_again_each() {
    let other = PartitionId { index: sennit_model::PartitionIndex(1), ..PARTITION };
    let third = PartitionId { index: sennit_model::PartitionIndex(2), ..PARTITION };
    let mut asked = OpenRequests::default();
    for partition in [PARTITION, other, third] {
        assert_eq!(note(&mut asked, settle(partition, true), true), Noted::Kept);
    }
    assert!(asked.hear(&settled(other), true));
    assert!(!asked.hear(&refused(1, Refusal::OutcomeUnknown), false));
    assert!(!asked.hear(&refused(1, Refusal::OutcomeUnknown), false));
    assert_eq!(asked.ask(), [settle(PARTITION, true), settle(third, true)]);
    assert!(asked.hear(&settled(third), true));
    assert_eq!(lost(&mut asked), []);
    assert_eq!(asked.ask(), [settle(PARTITION, true)]);
}
