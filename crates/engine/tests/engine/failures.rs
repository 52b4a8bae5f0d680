//! Failed attempts about which somebody above the engine decides: who is asked, what the answer changes, and what stands
//! without one.

use std::time::Duration;

use sennit_engine::{
    Command, DeadLetters, Effect, FailedAttempts, FailureAnswer, FailureAnswers, FailureDecision,
    HEADER_ATTEMPTS, HEADER_REASON, Outbox, Record, Verdict,
};
use sennit_model::{
    Backoff, GroupConfig, Messages, Offset, PartitionId, PartitionIndex, RetryPolicy, TopicId,
    limits::{FAILURE_DECISION_MAX, FAILURES_ASKED_MAX},
};

use crate::world::{ALICE, BOB, DEAD, GROUP, ORDERS, World, queue, run, setting};

const SECOND: Duration = Duration::from_secs(1);
const OTHER: PartitionId = PartitionId { topic: TopicId(9), index: PartitionIndex(0) };

/// A queue that somebody watches, with a consumer that has its messages.
fn watched(texts: &[&str]) -> World {
    let mut world = World::with(queue(), config());
    world.open(OTHER, queue(), vec![setting(GroupConfig::default())], DeadLetters::NotYet);
    world.do_now(Command::WatchFailures([ORDERS.topic].into()));
    world.publish_texts(texts);
    world.subscribe(ALICE, 1000);
    world.deliveries();
    world.effects.clear();
    world
}

/// A group whose lease is short, and whose messages are tried three times.
fn config() -> GroupConfig {
    let backoff = Backoff::Exponential { first: SECOND, max: SECOND };
    let retry = RetryPolicy { backoff, ..RetryPolicy::default() };
    GroupConfig { attempts_max: 3, lease: 30 * SECOND, retry, ..GroupConfig::default() }
}

/// Takes what was asked since the last call.
fn asked(world: &mut World) -> Vec<FailedAttempts> {
    let is_question = |effect: &mut Effect| matches!(effect, Effect::AttemptsFailed(_));
    let questions = world.effects.extract_if(.., is_question);
    let questions = questions.map(|effect| match effect {
        Effect::AttemptsFailed(asked) => *asked,
        other => panic!("{other:?}"),
    });
    questions.collect()
}

/// Answers all questions alike.
fn answer(world: &mut World, decision: &FailureDecision) {
    for FailedAttempts { partition, group, attempts } in asked(world) {
        let answers = attempts.into_iter().map(|attempt| {
            let decision = match decision {
                FailureDecision::Route { topic, partitions, .. } => FailureDecision::Route {
                    topic: *topic,
                    partitions: *partitions,
                    message: attempt.message,
                },
                other => other.clone(),
            };
            FailureAnswer { offset: attempt.offset, attempts: attempt.attempts, decision }
        });
        let answers = answers.collect();
        let answers = FailureAnswers { partition, group, answers };
        world.do_now(Command::DecideFailures(answers));
    }
}

fn dead(reason: &str) -> FailureDecision {
    FailureDecision::DeadLetter { reason: reason.into() }
}

fn route() -> FailureDecision {
    FailureDecision::Route { topic: OTHER.topic, partitions: 1, message: Default::default() }
}

fn count(world: &World, is_it: impl Fn(&Record) -> bool) -> usize {
    world.journal.records.iter().filter(|(record, _)| is_it(record)).count()
}

fn is_failed(record: &Record) -> bool {
    matches!(record, Record::Failed { .. })
}

#[test]
fn a_failed_message_is_asked_about_with_its_attempts_and_its_reason() {
    let mut world = watched(&["a", "b"]);
    world.settle(Verdict::Retry, vec![run(1, 1, 1)]);
    let [FailedAttempts { partition, group, attempts }] = &asked(&mut world)[..] else {
        panic!("it is asked once")
    };
    assert_eq!((*partition, *group, attempts.len()), (ORDERS, GROUP, 1));
    let attempt = &attempts[0];
    assert_eq!((attempt.offset, attempt.attempts), (Offset(1), 1));
    assert_eq!(&*attempt.reason, "retried by the consumer");
    let message = Messages::of_checked(&attempt.message).next().unwrap();
    assert_eq!(message.payload(), b"b");
    world.pass(30 * SECOND);
    let reasons: Vec<_> = asked(&mut world)
        .iter()
        .flat_map(|asked| asked.attempts.iter().map(|attempt| attempt.reason.to_string()))
        .collect();
    assert_eq!(reasons, ["the lease ended"]);
}

#[test]
fn topics_that_nobody_watches_are_not_asked_about_and_do_as_before() {
    let mut world = watched(&["a"]);
    world.do_now(Command::WatchFailures([OTHER.topic].into()));
    world.settle(Verdict::Retry, vec![run(0, 1, 1)]);
    assert_eq!(asked(&mut world), []);
    world.pass(SECOND);
    assert_eq!(world.attempts(), [(0, 2)]);
}

#[test]
fn a_message_waits_for_the_answer_and_then_for_its_due_time() {
    let mut world = watched(&["a"]);
    world.settle(Verdict::RetryAfter(Duration::ZERO), vec![run(0, 1, 1)]);
    world.pass(2 * SECOND);
    assert_eq!(world.attempts(), [], "nobody has answered");
    answer(&mut world, &FailureDecision::RetryAfter(7 * SECOND));
    world.pass(7 * SECOND - Duration::from_millis(1));
    assert_eq!(world.attempts(), []);
    world.pass(Duration::from_millis(1));
    assert_eq!(world.attempts(), [(0, 2)]);
}

#[test]
fn the_policy_stands_where_nobody_answers_in_time_or_the_answer_says_nothing() {
    let mut world = watched(&["a", "b"]);
    world.settle(Verdict::Retry, vec![run(0, 1, 1)]);
    answer(&mut world, &FailureDecision::Policy);
    world.pass(SECOND);
    assert_eq!(world.attempts(), [(0, 2)]);
    world.settle(Verdict::Retry, vec![run(1, 1, 1)]);
    world.pass(FAILURE_DECISION_MAX - Duration::from_millis(1));
    assert_eq!(world.attempts(), []);
    world.pass(Duration::from_millis(1));
    assert_eq!(world.attempts(), [(1, 2)]);
    assert_eq!(count(&world, is_failed), 2, "what the policy has decided is one record");
    answer(&mut world, &dead("too late"));
    assert_eq!(count(&world, is_failed), 2, "an answer that comes too late changes nothing");
}

#[test]
fn an_answer_to_an_attempt_before_changes_nothing() {
    let mut world = watched(&["a"]);
    world.settle(Verdict::Retry, vec![run(0, 1, 1)]);
    let old = world.effects.clone();
    world.pass(FAILURE_DECISION_MAX);
    world.settle(Verdict::Retry, vec![run(0, 1, 2)]);
    world.effects = old;
    answer(&mut world, &dead("of the first attempt"));
    assert_eq!((world.group().dying, world.group().delayed), (0, 1));
}

#[test]
fn a_dead_letter_has_the_reason_of_whoever_decided_and_comes_before_the_last_attempt() {
    let mut world = watched(&["a"]);
    world.settle(Verdict::Retry, vec![run(0, 1, 1)]);
    answer(&mut world, &dead("no such customer"));
    world.subscribe_to(DEAD, BOB, sennit_engine::Credit { messages: 9, bytes: 999 });
    let deliveries = world.deliveries();
    let letter = Messages::of_checked(&deliveries[0].messages).next().unwrap();
    let headers: Vec<_> = letter.headers().map(Result::unwrap).collect();
    assert!(
        headers
            .iter()
            .any(|(name, _, value)| { *name == HEADER_REASON && *value == b"no such customer" })
    );
    assert_eq!(world.group().ready + world.group().leased + world.group().delayed, 0);
}

#[test]
fn the_last_attempt_is_asked_about_before_it_dies_and_cannot_be_tried_again() {
    let mut world = watched(&["a", "b"]);
    for attempt in 1..=3 {
        world.settle(Verdict::Retry, vec![run(0, 2, attempt)]);
        if attempt < 3 {
            answer(&mut world, &FailureDecision::RetryAfter(Duration::ZERO));
            world.pass(Duration::from_millis(1));
            world.deliveries();
        }
    }
    assert_eq!(world.group().dying, 2, "they wait for the answer");
    let FailedAttempts { partition, group, attempts } = asked(&mut world).remove(0);
    let decisions = [FailureDecision::RetryAfter(SECOND), route_of(&attempts[1].message)];
    let answers = attempts.iter().zip(decisions).map(|(attempt, decision)| FailureAnswer {
        offset: attempt.offset,
        attempts: attempt.attempts,
        decision,
    });
    let answers = FailureAnswers { partition, group, answers: answers.collect() };
    world.do_now(Command::DecideFailures(answers));
    assert_eq!(world.describe(DEAD).end, Offset(1), "the limit of the policy is a limit for all");
    assert_eq!(world.describe(OTHER).end, Offset(1));
}

fn route_of(message: &bytes::Bytes) -> FailureDecision {
    FailureDecision::Route { topic: OTHER.topic, partitions: 1, message: message.clone() }
}

#[test]
fn a_routed_message_is_settled_and_published_in_one_record_and_says_how_it_failed() {
    let mut world = watched(&["a"]);
    world.settle(Verdict::Retry, vec![run(0, 1, 1)]);
    answer(&mut world, &route());
    assert_eq!(count(&world, |record| matches!(record, Record::Requeued { .. })), 1);
    assert_eq!(world.group().settled_before, Offset(1));
    world.subscribe_to(OTHER, BOB, sennit_engine::Credit { messages: 9, bytes: 999 });
    let deliveries = world.deliveries();
    let routed = Messages::of_checked(&deliveries[0].messages).next().unwrap();
    assert_eq!(routed.payload(), b"a");
    let headers: Vec<_> = routed.headers().map(Result::unwrap).collect();
    let value = |wanted| headers.iter().find(|(name, ..)| *name == wanted).map(|found| found.2);
    assert_eq!(value(HEADER_ATTEMPTS), Some(&b"1"[..]));
    assert_eq!(value(HEADER_REASON), Some(&b"retried by the consumer"[..]));
}

#[test]
fn a_route_to_a_topic_that_is_not_here_leaves_the_policy() {
    let mut world = watched(&["a"]);
    world.settle(Verdict::Retry, vec![run(0, 1, 1)]);
    let message = Default::default();
    let nowhere = FailureDecision::Route { topic: TopicId(77), partitions: 1, message };
    answer(&mut world, &nowhere);
    world.pass(SECOND);
    assert_eq!(world.attempts(), [(0, 2)]);
}

#[test]
fn messages_are_asked_about_page_by_page_and_all_of_them_once() {
    let texts: Vec<_> = (0..FAILURES_ASKED_MAX * 2 + 1).map(|n| n.to_string()).collect();
    let mut world = watched(&texts.iter().map(String::as_str).collect::<Vec<_>>());
    let messages = u32::try_from(texts.len()).unwrap();
    world.settle(Verdict::Retry, vec![run(0, messages, 1)]);
    let mut offsets = Vec::new();
    for _ in 0..3 {
        let FailedAttempts { partition, group, attempts } = asked(&mut world).remove(0);
        assert_eq!(asked(&mut world), [], "one page at a time");
        offsets.extend(attempts.iter().map(|attempt| attempt.offset.0));
        let answers = attempts.iter().map(|attempt| FailureAnswer {
            offset: attempt.offset,
            attempts: attempt.attempts,
            decision: FailureDecision::RetryAfter(Duration::ZERO),
        });
        let answers = FailureAnswers { partition, group, answers: answers.collect() };
        world.do_now(Command::DecideFailures(answers));
    }
    assert_eq!(offsets, (0..u64::from(messages)).collect::<Vec<_>>());
    world.pass(Duration::from_millis(1));
    assert_eq!(world.attempts().len(), texts.len());
}

#[test]
fn a_message_that_a_consumer_calls_dead_is_not_asked_about() {
    let mut world = watched(&["a"]);
    world.settle(Verdict::DeadLetter { reason: "broken".into() }, vec![run(0, 1, 1)]);
    assert_eq!(asked(&mut world), []);
    assert_eq!(world.describe(DEAD).end, Offset(1));
}

#[test]
fn an_ack_that_comes_late_ends_the_question() {
    let mut world = watched(&["a"]);
    world.pass(30 * SECOND);
    world.ack(run(0, 1, 1));
    answer(&mut world, &dead("settled before"));
    assert_eq!((world.group().settled_before, world.group().dying), (Offset(1), 0));
    assert_eq!(world.describe(DEAD).end, Offset(0));
}

#[test]
fn after_a_crash_nobody_is_asked_and_what_was_decided_is_as_it_was() {
    let mut world = watched(&["a", "b", "c"]);
    world.settle(Verdict::Retry, vec![run(0, 1, 1)]);
    answer(&mut world, &route());
    world.settle(Verdict::Retry, vec![run(1, 1, 1)]);
    answer(&mut world, &dead("no use"));
    world.settle(Verdict::Retry, vec![run(2, 1, 1)]);
    let records = world.journal.records.len();
    let mut world = world.crashed(records);
    assert_eq!(asked(&mut world), []);
    assert_eq!((world.describe(OTHER).end, world.describe(DEAD).end), (Offset(1), Offset(1)));
    world.subscribe(ALICE, 9);
    world.pass(SECOND);
    assert_eq!(world.attempts(), [(2, 2)]);
}

#[test]
fn the_policy_stands_when_the_leader_that_has_asked_steps_down() {
    let mut world = watched(&["a"]);
    world.settle(Verdict::Retry, vec![run(0, 1, 1)]);
    assert_eq!(asked(&mut world).len(), 1);
    world.pass(SECOND);
    assert_eq!((world.group().ready, world.group().delayed), (0, 1), "it waits for the answer");
    world.engine.rest(world.now, &mut Outbox::default());
    world.pass(Duration::from_millis(1));
    assert_eq!((world.group().ready, world.group().delayed), (1, 0));
}
