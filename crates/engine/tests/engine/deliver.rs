//! Who gets what of a group's messages, and how much of it: turns, windows, and what expires just then.

use std::time::Duration;

use sennit_engine::{Command, Credit, Effect, SessionId};
use sennit_model::{Message, PartitionId, TopicId};

use crate::world::{ALICE, BOB, GROUP, ORDERS, World, run};

fn receivers(world: &mut World) -> Vec<(SessionId, u32)> {
    world.deliveries().iter().map(|delivery| (delivery.session, delivery.count)).collect()
}

#[test]
fn consumers_with_room_take_turns() {
    let mut world = World::new();
    world.subscribe(ALICE, 10);
    world.subscribe(BOB, 10);
    for text in ["a", "b", "c", "d"] {
        world.publish_texts(&[text]);
    }
    assert_eq!(receivers(&mut world), [(ALICE, 1), (BOB, 1), (ALICE, 1), (BOB, 1)]);
}

#[test]
fn one_of_several_consumers_leaves_some_of_a_long_batch_to_the_others() {
    for (consumers, expected) in [(1, vec![(ALICE, 600)]), (2, vec![(ALICE, 344), (BOB, 256)])] {
        let mut world = World::new();
        for session in [ALICE, BOB].into_iter().take(consumers) {
            world.subscribe(session, 1_000);
        }
        world.publish(&vec![Message::new("x"); 600]);
        let mut each = std::collections::BTreeMap::new();
        for (session, count) in receivers(&mut world) {
            *each.entry(session).or_insert(0) += count;
        }
        assert_eq!(each.into_iter().collect::<Vec<_>>(), expected);
    }
}

#[test]
fn a_window_that_is_full_to_the_byte_is_full() {
    let messages = vec![Message::new("x"); 3];
    let mut world = World::new();
    world.subscribe(ALICE, 1);
    world.publish(&messages);
    let each = world.deliveries()[0].messages.len() as u64;
    for batches in [1, 3] {
        let mut world = World::new();
        world.subscribe_to(ORDERS, ALICE, Credit { messages: 10, bytes: 2 * each });
        messages.chunks(3 / batches).for_each(|some| world.publish(some));
        let given: u32 = receivers(&mut world).iter().map(|(_, count)| count).sum();
        assert_eq!(given, 2, "in {batches} batches");
    }
}

#[test]
fn what_expires_at_this_very_time_is_not_given_though_nothing_has_fired_and_what_lies_before_is() {
    let mut world = World::new();
    let brief = Message { time_to_live: Some(Duration::from_secs(1)), ..Message::new("brief") };
    world.publish(&[Message::new("lasting"), brief, Message::new("behind")]);
    world.now = world.now.plus(Duration::from_secs(1));
    world.subscribe(ALICE, 10);
    let given: Vec<_> = world.delivered().into_iter().map(|(offset, ..)| offset).collect();
    assert_eq!(given, [0, 2]);
    let group = world.group();
    assert_eq!((group.leased, group.ready), (2, 0));
}

#[test]
fn who_has_left_is_given_nothing_by_a_window_that_comes_late() {
    let mut world = World::new();
    world.subscribe(ALICE, 1);
    let (session, subscription, partition, group) = (ALICE, 7, ORDERS, GROUP);
    world.do_now(Command::Unsubscribe { session, subscription, partition, group });
    let credit = Credit { messages: 10, bytes: 1 << 20 };
    world.do_now(Command::SetCredit { session, subscription, partition, group, credit });
    world.publish_texts(&["a"]);
    assert_eq!(world.delivered(), []);
    assert_eq!(world.group().consumers, 0);
}

#[test]
fn messages_go_to_one_consumer_each() {
    let mut world = World::new();
    world.subscribe(ALICE, 1);
    world.subscribe(BOB, 1);
    world.publish_texts(&["a", "b", "c"]);
    let sessions: Vec<SessionId> = world.deliveries().iter().map(|d| d.session).collect();
    assert_eq!(sessions, [ALICE, BOB]);
    assert_eq!(world.group().ready, 1);
}

#[test]
fn who_has_room_is_given_what_the_one_whose_turn_it_is_has_no_room_for() {
    let mut world = World::new();
    world.subscribe(ALICE, 1);
    world.subscribe(BOB, 2);
    for text in ["a", "b", "c", "d"] {
        world.publish_texts(&[text]);
    }
    let sessions: Vec<SessionId> = world.deliveries().iter().map(|d| d.session).collect();
    assert_eq!(sessions, [ALICE, BOB, BOB]);
}

#[test]
fn credit_is_a_window_in_messages_that_an_ack_opens() {
    let mut world = World::new();
    world.subscribe(ALICE, 2);
    world.publish_texts(&["a", "b", "c", "d"]);
    assert_eq!(world.attempts(), [(0, 1), (1, 1)]);
    world.ack(run(0, 1, 1));
    assert_eq!(world.attempts(), [(2, 1)]);
}

#[test]
fn the_message_that_reaches_the_window_of_bytes_is_the_last() {
    let mut world = World::new();
    let credit = Credit { messages: 100, bytes: 40 };
    world.subscribe_to(ORDERS, ALICE, credit);
    world.publish_texts(&["0123456789", "0123456789", "0123456789"]);
    assert_eq!(world.attempts(), [(0, 1), (1, 1)]);
    world.ack(run(0, 2, 1));
    assert_eq!(world.attempts(), [(2, 1)]);
}

#[test]
fn who_has_nothing_is_given_a_message_however_small_the_window_of_bytes_is() {
    let mut world = World::new();
    world.subscribe_to(ORDERS, ALICE, Credit { messages: 100, bytes: 0 });
    world.publish_texts(&["a", "b"]);
    assert_eq!(world.attempts(), [(0, 1)]);
    world.ack(run(0, 1, 1));
    assert_eq!(world.attempts(), [(1, 1)]);
}

#[test]
fn acks_out_of_the_middle_of_what_was_leased_free_the_bytes_that_they_had() {
    let mut world = World::new();
    let credit = Credit { messages: 100, bytes: 240 };
    world.subscribe_to(ORDERS, ALICE, credit);
    world.publish_texts(&["0123456789"; 20]);
    let leased = world.delivered().len() as u64;
    assert!((8..18).contains(&leased), "{leased}");
    world.ack(run(leased - 4, 2, 1));
    assert_eq!(world.attempts(), [(leased, 1), (leased + 1, 1)]);
}

#[test]
fn a_consumer_is_told_that_it_takes_no_part_in_what_has_gone_meanwhile() {
    let mut world = World::new();
    let nowhere = PartitionId { topic: TopicId(77), ..ORDERS };
    let credit = Credit { messages: 1, bytes: 1 };
    world.subscribe_to(nowhere, ALICE, credit);
    let ended = Effect::SubscriptionEnded { session: ALICE, subscription: 7, partition: nowhere };
    assert_eq!(world.effects, [ended]);
}
