//! What counts as a failed attempt when a lease ends without a word, and what is only given back: the
//! poison message goes to the dead letters, and those prefetched beside it do not.

use std::time::Duration;

use sennit_engine::{Command, DeadLetters, SessionId, Verdict};
use sennit_model::GroupConfig;

use crate::world::{self, ALICE, BOB, DEAD, GROUP, ORDERS, World, queue, run};

const ATTEMPTS: u32 = 3;
const LEASE: Duration = Duration::from_secs(30);
const GRACE: Duration = Duration::from_secs(5);

/// A queue whose messages have three attempts, and ten of them.
fn ten() -> World {
    let group = GroupConfig { attempts_max: ATTEMPTS, lease: LEASE, ..GroupConfig::default() };
    let mut world = World::with(queue(), group);
    world.publish_texts(&["x"; 10]);
    world
}

fn crash(world: &mut World, session: SessionId) {
    world.do_now(Command::EndSession { session, grace: GRACE });
    world.pass(GRACE);
}

fn leave(world: &mut World, session: SessionId) {
    world.do_now(Command::EndSession { session, grace: Duration::ZERO });
}

/// The messages that a new consumer is given, by offset with their attempt, and acks.
fn drained(world: &mut World) -> Vec<(u64, u32)> {
    world.delivered();
    world.subscribe(BOB, 100);
    let mut drained = Vec::new();
    loop {
        let given = world.attempts();
        if given.is_empty() {
            return drained;
        }
        for &(offset, attempt) in &given {
            world.settle_as(BOB, Verdict::Ack, vec![run(offset, 1, attempt)]);
        }
        drained.extend(given);
    }
}

fn letters(world: &mut World) -> u64 {
    world.describe(DEAD).end.0
}

#[test]
fn three_crashes_on_one_message_bury_it_and_the_nine_prefetched_beside_it_are_delivered() {
    let mut world = ten();
    for life in 1..=u64::from(ATTEMPTS) {
        let session = SessionId(10 + life);
        world.subscribe(session, 10);
        let expected: Vec<_> = (0..10).map(|offset| (offset, life as u32)).collect();
        assert_eq!(world.attempts(), expected);
        crash(&mut world, session);
    }
    assert_eq!(letters(&mut world), 1);
    let rest: Vec<_> = drained(&mut world).into_iter().map(|(offset, _)| offset).collect();
    assert_eq!(rest, (1..10).collect::<Vec<_>>());
    assert_eq!((letters(&mut world), world.describe(ORDERS).bytes), (1, 0));
}

#[test]
fn a_consumer_that_hangs_on_one_message_costs_the_others_nothing_however_their_leases_end() {
    for spread in [Duration::ZERO, Duration::from_secs(1)] {
        let group = GroupConfig { attempts_max: ATTEMPTS, lease: LEASE, ..GroupConfig::default() };
        let mut world = World::with(queue(), group);
        for life in 1..=u64::from(ATTEMPTS) {
            let session = SessionId(10 + life);
            world.subscribe(session, 10);
            if life == 1 {
                for _ in 0..10 {
                    world.publish_texts(&["x"]);
                    world.pass(spread);
                }
            }
            // It is there, takes them again and again, and says nothing.
            for _ in 0..4 {
                world.pass(LEASE);
            }
            assert_eq!(letters(&mut world), u64::from(life == u64::from(ATTEMPTS)));
            leave(&mut world, session);
        }
        let rest: Vec<_> = drained(&mut world).into_iter().map(|(offset, _)| offset).collect();
        assert_eq!(rest, (1..10).collect::<Vec<_>>());
        assert_eq!(letters(&mut world), 1);
    }
}

#[test]
fn a_consumer_that_says_what_it_has_started_loses_just_that_in_a_crash() {
    let mut world = ten();
    for life in 1..=ATTEMPTS {
        let session = SessionId(10 + u64::from(life));
        world.subscribe(session, 10);
        world.settle_as(session, Verdict::Started, vec![run(1, 4, life)]);
        assert_eq!((world.group().leased, world.group().consumers), (10, 1));
        crash(&mut world, session);
    }
    assert_eq!(letters(&mut world), 5);
    let rest: Vec<_> = drained(&mut world).into_iter().map(|(offset, _)| offset).collect();
    assert_eq!(rest, (5..10).collect::<Vec<_>>());
}

#[test]
fn what_was_started_out_of_order_counts_and_what_lies_between_does_not() {
    let group = GroupConfig { attempts_max: 1, lease: LEASE, ..GroupConfig::default() };
    let mut world = World::with(queue(), group);
    world.publish_texts(&["x"; 10]);
    world.subscribe(ALICE, 10);
    let started = vec![run(4, 1, 1), run(8, 2, 1), run(4, 2, 1)];
    assert_eq!(world.settle(Verdict::Started, started).applied, 4);
    crash(&mut world, ALICE);
    assert_eq!(letters(&mut world), 5);
    let rest: Vec<_> = drained(&mut world).into_iter().map(|(offset, _)| offset).collect();
    assert_eq!(rest, [1, 2, 3, 6, 7]);
}

#[test]
fn a_message_whose_lease_was_extended_counts() {
    let group = GroupConfig { attempts_max: 1, lease: LEASE, ..GroupConfig::default() };
    let mut world = World::with(queue(), group);
    world.publish_texts(&["x"; 3]);
    world.subscribe(ALICE, 10);
    world.settle(Verdict::Extend(LEASE * 2), vec![run(1, 1, 1)]);
    world.pass(LEASE);
    assert_eq!(letters(&mut world), 1, "the oldest");
    world.pass(LEASE);
    assert_eq!(letters(&mut world), 2, "the one that was extended");
    leave(&mut world, ALICE);
    assert_eq!(drained(&mut world), [(2, 4)]);
}

#[test]
fn the_oldest_delivery_counts_and_not_the_lowest_offset() {
    let group = GroupConfig { attempts_max: 1, lease: LEASE, ..GroupConfig::default() };
    let mut world = World::with(queue(), group);
    world.subscribe(BOB, 1);
    world.publish_texts(&["x"; 3]);
    world.subscribe(ALICE, 10);
    // Offset 0 comes to Alice behind what she has.
    leave(&mut world, BOB);
    assert_eq!(world.attempts(), [(0, 1), (1, 1), (2, 1), (0, 2)]);
    crash(&mut world, ALICE);
    assert_eq!(letters(&mut world), 1);
    let rest: Vec<_> = drained(&mut world).into_iter().map(|(offset, _)| offset).collect();
    assert_eq!(rest, [0, 2]);
}

#[test]
fn a_consumer_that_goes_on_after_a_lease_has_ended_is_at_work_on_its_oldest_again() {
    let group = GroupConfig { attempts_max: 1, lease: LEASE, ..GroupConfig::default() };
    let mut world = World::with(queue(), group);
    world.subscribe(ALICE, 10);
    world.publish_texts(&["slow"]);
    world.pass(LEASE);
    assert_eq!(letters(&mut world), 1);
    world.publish_texts(&["a", "b"]);
    // Its late ack says that it has come through with the first.
    world.settle(Verdict::Ack, vec![run(0, 1, 1)]);
    crash(&mut world, ALICE);
    assert_eq!(letters(&mut world), 2);
    assert_eq!(drained(&mut world), [(2, 2)]);
}

#[test]
fn each_subscription_that_is_cut_off_loses_the_oldest_that_it_holds_when_the_grace_is_over() {
    let group = GroupConfig { attempts_max: 1, lease: LEASE, ..GroupConfig::default() };
    let mut world = World::with(queue(), group);
    world.subscribe(ALICE, 2);
    world.subscribe(BOB, 2);
    world.publish_texts(&["x"; 4]);
    for session in [ALICE, BOB] {
        world.do_now(Command::EndSession { session, grace: GRACE });
    }
    // Settled within the grace, from elsewhere: what is behind it is the oldest then.
    let carol = SessionId(3);
    assert_eq!(world.settle_as(carol, Verdict::Ack, vec![run(0, 1, 1)]).applied, 1);
    world.pass(GRACE);
    assert_eq!(letters(&mut world), 2);
    let rest: Vec<_> = drained(&mut world).into_iter().map(|(offset, _)| offset).collect();
    assert_eq!(rest, [3]);
}

#[test]
fn attempts_rise_with_each_delivery_whether_it_counts_or_not_until_a_restart() {
    let mut world = ten();
    world.subscribe(ALICE, 1);
    world.settle(Verdict::Retry, vec![run(0, 1, 1)]);
    leave(&mut world, ALICE);
    world.subscribe(BOB, 2);
    assert_eq!(world.attempts(), [(0, 1), (0, 2), (0, 3), (1, 1)]);
    crash(&mut world, BOB);
    world.subscribe(ALICE, 2);
    assert_eq!(world.attempts(), [(0, 4), (1, 2)]);
    // What is recorded is what counts: a retry and a crash on the first.
    let records = world.journal.records.len();
    let mut world = world.crashed(records);
    world.subscribe(ALICE, 2);
    assert_eq!(world.attempts(), [(0, 3), (1, 1)]);
}

#[test]
fn what_is_known_of_attempts_outlives_that_the_partition_is_folded() {
    let mut world = ten();
    world.subscribe(ALICE, 2);
    leave(&mut world, ALICE);
    world.subscribe(BOB, 1);
    leave(&mut world, BOB);
    world.delivered();
    // Each turn of this world folds what is at rest.
    assert_eq!(world.group().consumers, 0);
    world.subscribe(ALICE, 3);
    assert_eq!(world.attempts(), [(0, 3), (1, 2), (2, 1)]);
}

#[test]
fn who_leaves_on_purpose_loses_no_attempt_whatever_it_has_started() {
    let group = GroupConfig { attempts_max: 1, lease: LEASE, ..GroupConfig::default() };
    let mut world = World::with(queue(), group);
    world.publish_texts(&["x"; 3]);
    world.subscribe(ALICE, 3);
    world.settle(Verdict::Started, vec![run(0, 2, 1)]);
    world.settle(Verdict::Extend(LEASE), vec![run(2, 1, 1)]);
    leave(&mut world, ALICE);
    assert_eq!(letters(&mut world), 0);
    assert_eq!(drained(&mut world), [(0, 2), (1, 2), (2, 2)]);
}

#[test]
fn a_settle_from_outside_the_group_does_not_apply_to_the_next_delivery_after_the_holder_has_left() {
    let outside = SessionId(9);
    let unsubscribe =
        Command::Unsubscribe { session: ALICE, subscription: 7, partition: ORDERS, group: GROUP };
    let goodbye = Command::EndSession { session: ALICE, grace: Duration::ZERO };
    for leaves in [unsubscribe, goodbye] {
        let mut world = ten();
        world.subscribe(ALICE, 1);
        world.do_now(leaves);
        let old = run(0, 1, 1);
        assert_eq!(world.settle_as(outside, Verdict::Ack, vec![old]).stale, [old]);
        world.subscribe(BOB, 1);
        assert_eq!(world.attempts(), [(0, 1), (0, 2)]);
        for verdict in [Verdict::Ack, Verdict::Retry, Verdict::Extend(LEASE), Verdict::Started] {
            let settled = world.settle_as(outside, verdict, vec![old]);
            assert_eq!((settled.applied, settled.stale), (0, vec![old]));
        }
        assert_eq!(world.settle_as(BOB, Verdict::Ack, vec![run(0, 1, 2)]).applied, 1);
    }
}

#[test]
fn an_ack_is_good_until_the_message_is_delivered_again_where_it_was_only_prefetched() {
    let mut world = ten();
    world.subscribe(ALICE, 10);
    crash(&mut world, ALICE);
    let outside = SessionId(9);
    assert_eq!(world.settle_as(outside, Verdict::Ack, vec![run(5, 2, 1)]).applied, 2);
    world.subscribe(BOB, 10);
    let stale = world.settle_as(outside, Verdict::Ack, vec![run(7, 2, 1)]).stale;
    assert_eq!(stale, [run(7, 2, 1)]);
}

#[test]
fn a_lease_that_is_started_and_settled_in_pieces_keeps_the_rest_of_it() {
    let mut world = ten();
    world.open(ORDERS, queue(), vec![world::setting(GroupConfig::default())], DeadLetters::NotYet);
    world.subscribe(ALICE, 10);
    world.settle(Verdict::Started, vec![run(3, 3, 1)]);
    world.ack(run(4, 1, 1));
    world.settle(Verdict::Started, vec![run(1, 2, 1), run(6, 1, 1)]);
    world.ack(run(0, 1, 1));
    world.settle(Verdict::Retry, vec![run(9, 1, 1)]);
    assert_eq!(world.group().leased, 8);
    world.pass(LEASE);
    assert_eq!(world.group().leased, 8);
}

#[test]
fn what_was_given_back_is_not_taken_again_when_the_leases_end_beside_which_it_was_held() {
    let mut world = ten();
    world.subscribe(ALICE, 10);
    world.settle(Verdict::Extend(LEASE), vec![run(0, 10, 1)]);
    world.pass(LEASE / 2);
    world.settle(Verdict::RetryAfter(LEASE * 3), vec![run(2, 2, 1)]);
    world.subscribe(BOB, 2);
    world.attempts();
    world.settle(Verdict::Retry, vec![run(6, 2, 1)]);
    let given: Vec<_> = world.attempts();
    assert_eq!(given, [(6, 2), (7, 2)], "to one of the two");
    world.pass(LEASE / 2);
    // The others come back; what waits still waits, and what is held again is still held.
    let given: Vec<_> = world.attempts().into_iter().map(|(offset, _)| offset).collect();
    assert_eq!(given, [0, 1, 4, 5, 8, 9]);
}
