//! The retry policy of a group: when a message that failed is delivered again, and from which age on it is not.

use std::time::Duration;

use sennit_engine::{Command, Record, Verdict};
use sennit_model::{Backoff, GroupConfig, Offset, RetryDelays, RetryPolicy, Timestamp};

use crate::world::{ALICE, BOB, DEAD, ORDERS, World, queue, run};

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(30);

const DOUBLING: Backoff = Backoff::Exponential { first: SECOND, max: Duration::from_secs(5) };

fn with(retry: RetryPolicy) -> World {
    World::with(queue(), GroupConfig { lease: LEASE, retry, ..GroupConfig::default() })
}

fn backoff(backoff: Backoff) -> RetryPolicy {
    RetryPolicy { backoff, ..RetryPolicy::default() }
}

/// The records of failures: how long the messages wait, whether they are dead, and their reason.
fn failures(world: &World) -> Vec<(Duration, bool, &str)> {
    let records = world.journal.records.iter();
    let failures = records.filter_map(|(record, _)| match record {
        Record::Failed { failed_at, due, dead, reason, .. } => {
            Some((due.since(*failed_at), *dead, reason.as_str()))
        }
        _ => None,
    });
    failures.collect()
}

fn delays(world: &World) -> Vec<Duration> {
    failures(world).into_iter().map(|(delay, ..)| delay).collect()
}

/// Fails the first message this many times, each time as soon as it is delivered.
fn fail(world: &mut World, times: u32, verdict: &Verdict) {
    for attempt in 1..=times {
        assert_eq!(world.attempts(), [(0, attempt)]);
        world.settle(verdict.clone(), vec![run(0, 1, attempt)]);
        let waits = *delays(world).last().expect("it has failed");
        if !waits.is_zero() {
            world.pass(waits - Duration::from_millis(1));
            assert_eq!(world.attempts(), [], "not before its due time");
            world.pass(Duration::from_millis(1));
        }
    }
}

#[test]
fn the_delay_doubles_with_each_failed_attempt_up_to_its_maximum() {
    let mut world = with(backoff(DOUBLING));
    world.publish_texts(&["a"]);
    world.subscribe(ALICE, 10);
    fail(&mut world, 5, &Verdict::Retry);
    assert_eq!(delays(&world), [1, 2, 4, 5, 5].map(Duration::from_secs));
}

#[test]
fn the_delays_of_a_list_are_taken_in_order_and_the_last_repeats() {
    let list = RetryDelays::new(&[2 * SECOND, 7 * SECOND]).unwrap();
    let mut world = with(backoff(Backoff::List(list)));
    world.publish_texts(&["a"]);
    world.subscribe(ALICE, 10);
    fail(&mut world, 4, &Verdict::Retry);
    assert_eq!(delays(&world), [2, 7, 7, 7].map(Duration::from_secs));
}

#[test]
fn the_delay_that_the_consumer_names_has_precedence() {
    let mut world = with(backoff(DOUBLING));
    world.publish_texts(&["a"]);
    world.subscribe(ALICE, 10);
    fail(&mut world, 2, &Verdict::RetryAfter(9 * SECOND));
    assert_eq!(delays(&world), [9 * SECOND; 2]);
}

#[test]
fn a_lease_that_ends_and_a_consumer_that_is_cut_off_cause_the_delay_as_well() {
    let lease_ends = |world: &mut World| world.pass(LEASE);
    let cut_off = |world: &mut World| {
        world.do_now(Command::EndSession { session: ALICE, grace: SECOND });
        world.pass(SECOND);
    };
    for end in [lease_ends, cut_off] {
        let mut world = with(backoff(DOUBLING));
        world.publish_texts(&["a"]);
        world.subscribe(ALICE, 1);
        assert_eq!(world.attempts(), [(0, 1)]);
        end(&mut world);
        world.subscribe(BOB, 1);
        assert_eq!(world.attempts(), []);
        world.pass(SECOND);
        assert_eq!(world.attempts(), [(0, 2)]);
        assert_eq!(delays(&world), [SECOND]);
    }
}

#[test]
fn messages_with_unlike_failed_attempts_wait_for_unlike_times() {
    let mut world = with(backoff(DOUBLING));
    world.publish_texts(&["a", "b"]);
    world.subscribe(ALICE, 10);
    world.settle(Verdict::Retry, vec![run(0, 1, 1)]);
    world.pass(SECOND);
    world.settle(Verdict::Retry, vec![run(0, 1, 2), run(1, 1, 1)]);
    assert_eq!(delays(&world), [SECOND, SECOND, 2 * SECOND]);
}

#[test]
fn jitter_spreads_runs_that_fail_together_and_is_the_same_each_time() {
    let fails_together = || {
        let policy = RetryPolicy { jitter_percent: 50, ..backoff(DOUBLING) };
        let mut world = with(policy);
        world.publish_texts(&["x"; 20]);
        world.subscribe(ALICE, 100);
        let runs = (0..20).step_by(2).map(|offset| run(offset, 1, 1)).collect();
        world.settle(Verdict::Retry, runs);
        delays(&world)
    };
    let delays = fails_together();
    assert!(delays.len() > 5, "{delays:?}");
    let bounds = Duration::from_millis(500)..=Duration::from_millis(1500);
    assert!(delays.iter().all(|delay| bounds.contains(delay)), "{delays:?}");
    assert_eq!(delays, fails_together());
}

#[test]
fn a_message_that_fails_at_its_greatest_age_is_a_dead_letter_and_younger_ones_are_not() {
    let age_max = Some(10 * SECOND);
    let mut world = with(RetryPolicy { age_max, ..backoff(DOUBLING) });
    world.publish_texts(&["old", "old"]);
    world.pass(SECOND);
    world.publish_texts(&["young"]);
    world.subscribe(ALICE, 10);
    world.pass(9 * SECOND);
    world.settle(Verdict::Retry, vec![run(0, 3, 1)]);
    let reason = "retried by the consumer, and the message is too old for another attempt";
    let expected = [(SECOND, false, "retried by the consumer"), (Duration::ZERO, true, reason)];
    assert_eq!(failures(&world), expected);
    assert_eq!(world.describe(DEAD).end, Offset(2));
    let group = world.describe(ORDERS).groups[0];
    assert_eq!((group.delayed, group.ready), (1, 0));
}

#[test]
fn a_message_waits_as_long_after_a_restart_whatever_the_policy_is_by_then() {
    let mut world = with(backoff(DOUBLING));
    world.publish_texts(&["a"]);
    world.subscribe(ALICE, 10);
    world.settle(Verdict::Retry, vec![run(0, 1, 1)]);
    let due: Vec<Timestamp> = world.journal.records.iter().filter_map(due_of).collect();
    assert_eq!(due, [world.now.plus(SECOND)]);
    let mut world = world.crashed(usize::MAX);
    world.subscribe(BOB, 10);
    assert_eq!(world.attempts(), []);
    world.pass(SECOND);
    assert_eq!(world.attempts(), [(0, 2)]);
}

fn due_of((record, _): &(Record, u64)) -> Option<Timestamp> {
    match record {
        Record::Failed { due, .. } => Some(*due),
        _ => None,
    }
}
