//! Leases and their ends: ack, retry, extend, and what is stale.

use std::time::Duration;

use sennit_engine::{
    Command, DeadLetters, DeliveryRun, Effect, GroupSetting, Outbox, Record, SessionId, Settle,
    Verdict,
};
use sennit_model::{Generation, GroupConfig, Message, StartAt, Timestamp, TopicConfig, TopicKind};

use crate::world::{self, ALICE, BOB, GROUP, ORDERS, World, queue, run};

#[test]
fn a_published_message_is_delivered_once_and_acked_for_good() {
    let mut world = World::new();
    world.subscribe(ALICE, 10);
    world.publish_texts(&["a", "b"]);
    assert_eq!(world.delivered(), [(0, 1, "a".to_owned()), (1, 1, "b".to_owned())]);
    assert_eq!(world.ack(run(0, 2, 1)).applied, 2);
    world.pass(Duration::from_secs(3600));
    assert_eq!(world.delivered(), []);
    let description = world.describe(ORDERS);
    assert_eq!((description.start.0, description.end.0, description.bytes), (2, 2, 0));
}

#[test]
fn a_second_ack_changes_nothing() {
    let mut world = World::new();
    world.subscribe(ALICE, 10);
    world.publish_texts(&["a"]);
    world.ack(run(0, 1, 1));
    let again = world.ack(run(0, 1, 1));
    assert_eq!((again.applied, again.stale.len()), (0, 0));
}

#[test]
fn a_group_says_how_each_of_its_messages_is() {
    let group = GroupConfig { attempts_max: 9, ..GroupConfig::default() };
    let mut world = World::with(queue(), group.clone());
    world.open(ORDERS, queue(), vec![world::setting(group)], DeadLetters::NotYet);
    world.publish_texts(&["a"; 16]);
    world.publish_texts(&["b"; 5]);
    let delay = Some(Duration::from_secs(3600));
    world.publish(&vec![Message { delay, ..Message::new("c") }; 7]);
    let second = world.engine.places().nth(1).expect("three are kept");
    world.engine.damaged(ORDERS, second, &mut Outbox::default());
    world.subscribe(ALICE, 10);
    world.subscribe(ALICE, 1);
    world.ack(run(0, 1, 1));
    world.settle(Verdict::RetryAfter(Duration::from_secs(9)), vec![run(1, 2, 1)]);
    world.settle(Verdict::DeadLetter { reason: "no".into() }, vec![run(3, 3, 1)]);
    let said = world.group();
    assert_eq!((said.ready, said.leased, said.delayed), (6, 4, 2 + 7));
    assert_eq!((said.dying, said.damaged, said.settled_before.0), (3, 5, 1));
    assert_eq!(said.consumers, 1);
}

#[test]
fn a_retried_message_comes_back_first_with_the_next_attempt() {
    let mut world = World::new();
    world.subscribe(ALICE, 2);
    world.publish_texts(&["a", "b", "c"]);
    world.delivered();
    world.settle(Verdict::Retry, vec![run(0, 1, 1)]);
    assert_eq!(world.attempts(), [(0, 2)]);
}

#[test]
fn a_message_retried_later_waits_for_its_time() {
    let mut world = World::new();
    world.subscribe(ALICE, 9);
    world.publish_texts(&["a"]);
    world.delivered();
    world.settle(Verdict::RetryAfter(Duration::from_secs(60)), vec![run(0, 1, 1)]);
    world.pass(Duration::from_millis(59_999));
    assert_eq!(world.delivered(), []);
    assert_eq!(world.group().delayed, 1);
    world.pass(Duration::from_millis(1));
    assert_eq!(world.attempts(), [(0, 2)]);
}

#[test]
fn who_gave_a_message_back_for_later_may_ack_it_until_it_is_given_again() {
    let mut world = World::new();
    world.subscribe(ALICE, 9);
    world.publish_texts(&["a", "b"]);
    world.delivered();
    world.settle(Verdict::RetryAfter(Duration::from_secs(10)), vec![run(0, 2, 1)]);
    assert_eq!(world.ack(run(0, 1, 1)).applied, 1);
    assert_eq!((world.group().delayed, world.group().settled_before.0), (1, 1));
    world.pass(Duration::from_secs(10));
    assert_eq!(world.attempts(), [(1, 2)]);
}

#[test]
fn a_lease_that_ends_returns_just_its_messages() {
    let mut world = World::new();
    world.subscribe(ALICE, 9);
    world.publish_texts(&["a", "b"]);
    world.delivered();
    world.settle(Verdict::Extend(Duration::from_secs(100)), vec![run(1, 1, 1)]);
    world.pass(Duration::from_secs(30));
    assert_eq!(world.attempts(), [(0, 2)]);
    world.pass(Duration::from_secs(29));
    assert_eq!(world.delivered(), []);
    world.pass(Duration::from_secs(41));
    assert_eq!(world.attempts(), [(0, 3), (1, 2)]);
}

#[test]
fn what_is_left_of_a_lease_on_both_sides_of_an_ack_comes_back_in_its_time() {
    let mut world = World::new();
    world.subscribe(ALICE, 9);
    world.publish_texts(&["a", "b", "c", "d", "e"]);
    world.delivered();
    world.ack(run(2, 1, 1));
    world.settle(Verdict::Extend(Duration::from_secs(100)), vec![run(1, 1, 1)]);
    world.pass(Duration::from_secs(30));
    assert_eq!(world.attempts(), [(0, 2), (3, 2), (4, 2)]);
    world.pass(Duration::from_secs(70));
    assert_eq!(world.attempts(), [(0, 3), (1, 2), (3, 3), (4, 3)]);
}

#[test]
fn what_a_group_is_set_to_holds_for_what_is_given_from_then_on() {
    let mut world = World::new();
    world.subscribe(ALICE, 9);
    world.publish_texts(&["a"]);
    world.delivered();
    let lease = Duration::from_secs(5);
    let short = world::setting(GroupConfig { lease, ..GroupConfig::default() });
    world.open(ORDERS, queue(), vec![short], DeadLetters::NotYet);
    world.publish_texts(&["b"]);
    world.delivered();
    world.pass(lease);
    assert_eq!(world.attempts(), [(1, 2)]);
}

#[test]
fn the_settle_of_an_older_attempt_is_stale() {
    let mut world = World::new();
    world.subscribe(ALICE, 9);
    world.publish_texts(&["a", "b"]);
    world.pass(Duration::from_secs(30));
    assert_eq!(world.attempts(), [(0, 1), (1, 1), (0, 2), (1, 2)]);
    for verdict in [Verdict::Ack, Verdict::Retry, Verdict::Extend(Duration::from_secs(1))] {
        let settled = world.settle(verdict, vec![run(0, 2, 1)]);
        assert_eq!((settled.applied, settled.stale), (0, vec![run(0, 2, 1)]));
    }
    assert_eq!(world.ack(run(0, 2, 2)).applied, 2);
}

#[test]
fn an_ack_after_the_lease_ended_counts_while_nobody_else_has_the_message() {
    let mut world = World::new();
    world.subscribe(ALICE, 9);
    world.publish_texts(&["a"]);
    world.do_now(Command::EndSession { session: ALICE, grace: Duration::from_secs(1) });
    world.pass(Duration::from_secs(31));
    assert_eq!(world.group().ready, 1);
    assert_eq!(world.ack(run(0, 1, 1)).applied, 1);
    assert_eq!(world.group().ready, 0);
}

#[test]
fn offsets_that_were_never_delivered_are_stale() {
    let mut world = World::new();
    world.publish_texts(&["a"]);
    let settled = world.settle(Verdict::Ack, vec![run(0, 1, 1), run(5, 2, 1), run(u64::MAX, 9, 1)]);
    assert_eq!((settled.applied, settled.stale.len()), (0, 3));
}

#[test]
fn a_message_whose_delay_is_not_over_was_never_delivered_and_its_settle_is_stale() {
    let mut world = World::new();
    let delay = Some(Duration::from_secs(60));
    world.publish(&[Message { delay, ..Message::new("later") }]);
    let settled = world.ack(run(0, 1, 1));
    assert_eq!((settled.applied, settled.stale), (0, vec![run(0, 1, 1)]));
}

#[test]
fn a_delivery_of_an_earlier_generation_counts_unless_someone_has_the_message() {
    let mut world = World::new();
    world.publish_texts(&["a", "b"]);
    let old = |first| DeliveryRun { generation: Generation(9), ..run(first, 1, 1) };
    assert_eq!(world.ack(old(0)).applied, 1);
    world.subscribe(ALICE, 9);
    assert_eq!(world.attempts(), [(1, 1)]);
    assert_eq!(world.ack(old(1)).stale, [old(1)]);
}

#[test]
fn a_consumer_that_is_cut_off_keeps_its_messages_for_the_grace() {
    let mut world = World::new();
    world.subscribe(ALICE, 9);
    world.publish_texts(&["a"]);
    world.delivered();
    world.subscribe(BOB, 9);
    world.do_now(Command::EndSession { session: ALICE, grace: Duration::from_secs(5) });
    world.pass(Duration::from_millis(4_999));
    assert_eq!(world.delivered(), []);
    world.pass(Duration::from_millis(1));
    assert_eq!(world.attempts(), [(0, 2)]);
}

/// The ways in which Alice may leave on purpose.
fn leavings() -> [Command; 2] {
    [
        Command::Unsubscribe { session: ALICE, subscription: 7, partition: ORDERS, group: GROUP },
        Command::EndSession { session: ALICE, grace: Duration::ZERO },
    ]
}

#[test]
fn a_consumer_that_leaves_on_purpose_gives_its_messages_back_untried() {
    for leave in leavings() {
        let mut world = World::new();
        world.subscribe(ALICE, 9);
        world.publish_texts(&["a"]);
        world.delivered();
        world.subscribe(BOB, 9);
        world.do_now(leave);
        assert_eq!(world.attempts(), [(0, 2)]);
    }
}

#[test]
fn who_has_given_a_message_back_cannot_settle_it_for_the_next_holder() {
    let verdicts = [
        Verdict::Ack,
        Verdict::Retry,
        Verdict::RetryAfter(Duration::from_secs(1)),
        Verdict::DeadLetter { reason: "mine no more".into() },
        Verdict::Extend(Duration::from_secs(600)),
    ];
    // After Goodbye there is nobody to settle; after Unsubscribe the session goes on.
    let [leave, _] = leavings();
    let mut world = World::new();
    world.subscribe(ALICE, 9);
    world.publish_texts(&["a"]);
    world.delivered();
    world.subscribe(BOB, 9);
    world.do_now(leave);
    assert_eq!(world.attempts(), [(0, 2)]);
    for verdict in verdicts {
        let settled = world.settle_as(ALICE, verdict, vec![run(0, 1, 1)]);
        assert_eq!((settled.applied, settled.stale), (0, vec![run(0, 1, 1)]));
    }
    assert_eq!(world.group().leased, 1);
    assert_eq!(world.settle_as(BOB, Verdict::Ack, vec![run(0, 1, 2)]).applied, 1);
}

#[test]
fn who_has_given_a_message_back_cannot_settle_it_while_nobody_has_it() {
    for leave in leavings() {
        let mut world = World::new();
        world.subscribe(ALICE, 9);
        world.publish_texts(&["a"]);
        world.settle(Verdict::Retry, vec![run(0, 1, 1)]);
        assert_eq!(world.attempts(), [(0, 1), (0, 2)]);
        world.do_now(leave);
        assert_eq!(world.ack(run(0, 1, 2)).stale, [run(0, 1, 2)]);
        assert_eq!(world.group().ready, 1);
    }
}

#[test]
fn a_consumer_that_was_cut_off_settles_from_its_next_session() {
    let carol = SessionId(3);
    for verdict in [Verdict::Ack, Verdict::Retry, Verdict::Extend(Duration::from_secs(600))] {
        let mut world = World::new();
        world.subscribe(ALICE, 9);
        world.publish_texts(&["a", "b"]);
        world.delivered();
        world.do_now(Command::EndSession { session: ALICE, grace: Duration::from_secs(5) });
        world.subscribe(carol, 9);
        let settled = world.settle_as(carol, verdict, vec![run(0, 2, 1)]);
        assert_eq!((settled.applied, settled.stale), (2, vec![]));
    }
}

#[test]
fn who_takes_part_does_not_settle_what_another_member_holds_and_who_takes_none_may() {
    let carol = SessionId(3);
    let mut world = World::new();
    world.subscribe(ALICE, 9);
    world.publish_texts(&["a", "b"]);
    world.subscribe(BOB, 9);
    assert_eq!(world.settle_as(BOB, Verdict::Ack, vec![run(0, 1, 1)]).stale, [run(0, 1, 1)]);
    assert_eq!(world.settle_as(ALICE, Verdict::Ack, vec![run(0, 1, 1)]).applied, 1);
    assert_eq!(world.settle_as(carol, Verdict::Ack, vec![run(1, 1, 1)]).applied, 1);
}

#[test]
fn a_settlement_of_many_runs_is_written_in_records_of_a_limited_length() {
    let mut world = World::new();
    let texts: Vec<String> = (0..2000).map(|n| n.to_string()).collect();
    world.subscribe(ALICE, 2000);
    world.publish_texts(&texts.iter().map(String::as_str).collect::<Vec<_>>());
    let odd = (0..1000).map(|n| run(2 * n + 1, 1, 1)).collect();
    assert_eq!(world.settle(Verdict::Ack, odd).applied, 1000);
    let settled = |kept: &&(Record, u64)| matches!(kept.0, Record::Settled { .. });
    assert_eq!(world.journal.records.iter().filter(settled).count(), 4);
}

#[test]
fn what_has_expired_while_it_was_leased_is_settled_when_its_consumer_leaves() {
    let ways = [5, 6].into_iter().flat_map(|after| leavings().map(|leave| (after, leave)));
    for (after, leave) in ways {
        let config = TopicConfig { time_to_live: Some(Duration::from_secs(5)), ..queue() };
        let mut world = World::with(config, GroupConfig::default());
        world.subscribe(ALICE, 9);
        world.publish_texts(&["a"]);
        world.pass(Duration::from_secs(after));
        assert_eq!(world.group().leased, 1);
        world.do_now(leave);
        world.pass(Duration::from_millis(1));
        assert_eq!((world.group().ready, world.group().settled_before.0), (0, 1));
        assert_eq!(world.describe(ORDERS).bytes, 0);
    }
}

#[test]
fn a_new_group_does_not_wait_for_a_consumer_to_be_through_with_what_has_expired() {
    let time_to_live = Some(Duration::from_secs(5));
    let config = TopicConfig { time_to_live, ..TopicConfig::of_kind(TopicKind::Stream) };
    let mut world = World::empty();
    world.open(ORDERS, config.clone(), vec![], DeadLetters::NotYet);
    world.publish_texts(&["a"]);
    world.pass(Duration::from_secs(3));
    world.publish_texts(&["b"]);
    world.pass(Duration::from_secs(3));
    let group = world::setting(GroupConfig::default());
    world.open(ORDERS, config, vec![group], DeadLetters::NotYet);
    world.pass(Duration::from_millis(1));
    assert_eq!((world.group().ready, world.group().settled_before.0), (1, 1));
}

#[test]
fn a_group_counts_what_is_delayed_only_of_what_it_waits_for() {
    let config = TopicConfig::of_kind(TopicKind::Stream);
    let mut world = World::empty();
    world.open(ORDERS, config.clone(), vec![], DeadLetters::NotYet);
    let delay = Some(Duration::from_secs(3600));
    let later = || Message { delay, ..Message::new("later") };
    world.publish(&std::iter::repeat_with(later).take(100).collect::<Vec<_>>());
    let group = GroupSetting { start: StartAt::Latest, ..world::setting(GroupConfig::default()) };
    world.open(ORDERS, config, vec![group], DeadLetters::NotYet);
    world.publish_texts(&["now"; 50]);
    assert_eq!((world.group().ready, world.group().delayed), (50, 0));
    world.publish(&[later()]);
    assert_eq!((world.group().ready, world.group().delayed), (50, 1));
}

#[test]
fn a_delay_that_was_over_stays_so_after_a_crash_though_the_clock_was_set_back() {
    let mut world = World::new();
    world.subscribe(ALICE, 9);
    let delay = Some(Duration::from_secs(60));
    world.publish(&[Message { delay, ..Message::new("later") }]);
    world.pass(Duration::from_secs(60));
    assert_eq!(world.attempts(), [(0, 1)]);
    world.now = Timestamp(world.now.0 - 30_000);
    world.settle(Verdict::RetryAfter(Duration::from_secs(40)), vec![run(0, 1, 1)]);
    let records = world.journal.records.len();
    let mut world = world.crashed(records);
    assert_eq!((world.group().ready, world.group().delayed), (0, 1));
    world.pass(Duration::from_secs(30));
    world.subscribe(ALICE, 9);
    assert_eq!(world.attempts(), []);
    world.pass(Duration::from_secs(10));
    assert_eq!(world.attempts(), [(0, 2)]);
}

#[test]
fn a_message_that_a_settle_names_twice_is_settled_once() {
    for verdict in [Verdict::Ack, Verdict::Retry, Verdict::Extend(Duration::from_secs(60))] {
        let mut world = World::new();
        world.subscribe(ALICE, 5);
        world.publish_texts(&["a", "b", "c"]);
        let runs = vec![run(1, 2, 1), run(0, 2, 1), run(2, 1, 1)];
        let settled = world.settle(verdict, runs);
        assert_eq!((settled.applied, settled.stale), (3, vec![]));
    }
}

#[test]
fn a_settle_of_an_attempt_or_a_life_that_never_was_is_stale() {
    let mut world = World::new();
    world.publish_texts(&["a"]);
    for never in [
        run(0, 1, 0),
        DeliveryRun { generation: Generation(0), ..run(0, 1, 0) },
        DeliveryRun { generation: Generation(0), ..run(0, 1, 1) },
    ] {
        let settled = world.ack(never);
        assert_eq!((settled.applied, settled.stale), (0, vec![never]));
    }
    world.subscribe(ALICE, 1);
    assert_eq!(world.attempts(), [(0, 1)]);
}

#[test]
fn a_lease_is_extended_by_no_less_and_no_more_than_is_allowed() {
    for (asked, allowed) in [
        (Duration::from_millis(1), Duration::from_millis(100)),
        (Duration::from_secs(20 * 3600), Duration::from_secs(12 * 3600)),
    ] {
        let mut world = World::new();
        world.subscribe(ALICE, 1);
        world.publish_texts(&["a"]);
        world.delivered();
        world.settle(Verdict::Extend(asked), vec![run(0, 1, 1)]);
        world.pass(allowed - Duration::from_millis(1));
        assert_eq!(world.delivered(), []);
        world.pass(Duration::from_millis(1));
        assert_eq!(world.attempts(), [(0, 2)]);
    }
}

#[test]
fn what_an_ack_leaves_of_a_lease_that_was_extended_ends_when_that_does() {
    let mut world = World::new();
    world.subscribe(ALICE, 3);
    world.publish_texts(&["a", "b", "c"]);
    world.delivered();
    world.settle(Verdict::Extend(Duration::from_secs(600)), vec![run(0, 3, 1)]);
    world.ack(run(1, 1, 1));
    world.pass(Duration::from_secs(599));
    assert_eq!(world.delivered(), []);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.attempts(), [(0, 2), (2, 2)]);
}

#[test]
fn a_settle_that_asks_for_no_confirm_is_answered_only_for_what_is_stale() {
    let mut world = World::new();
    world.subscribe(ALICE, 2);
    for (first, attempt, answers) in [(0, 1, 0), (1, 9, 1)] {
        world.publish_texts(&["a"]);
        world.effects.clear();
        let (origin, runs) = (world.origin(ALICE), vec![run(first, 1, attempt)]);
        let (partition, group, verdict) = (ORDERS, GROUP, Verdict::Ack);
        let settle = Settle { origin, partition, group, verdict, runs, confirm: false };
        world.do_now(Command::Settle(settle));
        let settled = |effect: &&Effect| matches!(effect, Effect::Settled(_));
        assert_eq!(world.effects.iter().filter(settled).count(), answers);
    }
}

#[test]
fn a_consumer_whose_grace_is_over_takes_nothing_from_the_others() {
    let mut world = World::new();
    world.subscribe(ALICE, 1);
    world.subscribe(BOB, 1);
    world.publish_texts(&["a", "b"]);
    world.delivered();
    let grace = Duration::from_secs(5);
    world.do_now(Command::EndSession { session: ALICE, grace });
    world.pass(grace);
    assert_eq!((world.group().leased, world.group().ready), (1, 1));
    assert_eq!(world.settle_as(BOB, Verdict::Ack, vec![run(1, 1, 1)]).applied, 1);
}
