//! The survey tells what each group has to do and what went wrong, and names the keys that are served the most.

use std::time::Duration;

use sennit_engine::{
    Command, DeadLetters, GroupBacklog, GroupCounts, KeyDeliveries, Publish, Verdict,
};
use sennit_model::{
    GroupConfig, Message, PartitionId, ProducerStamp, TopicId, limits::GROUPS_NAMED_MAX,
};

use crate::world::{
    self, ALICE, ORDERS, World, batch,
    fair_groups::{SECOND, fair, group, many, rate, rule, served},
    run,
};

fn surveyed(world: &mut World) -> GroupBacklog {
    let found = world.engine.survey(1).expect("it has come round");
    let of_orders = |backlog: &GroupBacklog| backlog.topic == ORDERS.topic;
    found.backlogs.into_iter().find(of_orders).expect("the group is named")
}

#[test]
fn the_states_of_a_groups_messages_are_counted_with_the_age_of_the_oldest() {
    let mut world = World::new();
    let appended_at = world.now;
    world.publish_texts(&["a", "b", "c", "d", "e"]);
    world.pass(Duration::from_secs(60));
    world.publish_texts(&["f"]);
    world.subscribe(ALICE, 3);
    let backlog = surveyed(&mut world);
    assert_eq!((backlog.ready, backlog.leased, backlog.retrying, backlog.dead), (3, 3, 0, 0));
    assert_eq!((backlog.oldest, backlog.counts), (Some(appended_at), GroupCounts::default()));
    world.settle(Verdict::RetryAfter(SECOND), vec![run(0, 1, 1)]);
    world.settle(Verdict::DeadLetter { reason: "no".into() }, vec![run(1, 1, 1)]);
    world.ack(run(2, 1, 1));
    let backlog = surveyed(&mut world);
    // Each that is settled makes room for another.
    assert_eq!((backlog.ready, backlog.leased, backlog.retrying), (0, 3, 1));
    assert_eq!(backlog.counts, GroupCounts { dead_lettered: 1, ..GroupCounts::default() });
    world.pass(SECOND);
    world.ack(run(3, 1, 1));
    let backlog = surveyed(&mut world);
    assert_eq!((backlog.leased, backlog.retrying, backlog.counts.redelivered), (3, 0, 1));
    assert_eq!(world.engine.group_counts(), backlog.counts);
}

#[test]
fn a_group_that_nobody_uses_is_named_although_its_partition_is_folded() {
    let mut world = World::new();
    world.publish_texts(&["a", "b"]);
    world.engine.fold_untouched(1);
    world.engine.fold_untouched(1);
    let backlog = surveyed(&mut world);
    assert_eq!((backlog.ready, backlog.leased), (2, 0));
}

#[test]
fn waits_for_throttles_are_counted() {
    let limited = sennit_model::KeyRule { throttle: rate("1/s"), ..rule("limited") };
    let mut world = World::with(fair(), group(vec![limited]));
    world.publish(&many("limited", 3));
    world.subscribe(ALICE, 9);
    assert_eq!(surveyed(&mut world).counts.throttle_waits, 1);
    world.pass(SECOND);
    assert_eq!(surveyed(&mut world).counts.throttle_waits, 2);
}

#[test]
fn the_keys_that_are_served_the_most_are_named_with_how_long_their_messages_waited() {
    let mut world = World::with(fair(), group(Vec::new()));
    world.publish(&[many("noisy", 6), many("quiet", 2)].concat());
    world.pass(SECOND);
    world.subscribe(ALICE, 1);
    served(&mut world, 8);
    let key = |name: &str, count: u32| KeyDeliveries {
        fair_key: name.into(),
        delivered: count.into(),
        at_most_over: 0,
        first_deliveries: count.into(),
        waited: SECOND * count,
    };
    assert_eq!(surveyed(&mut world).keys, [key("noisy", 6), key("quiet", 2)]);
    // What is delivered again counts, and has not waited since it was appended.
    world.publish(&many("quiet", 1));
    let attempt = |attempt| run(8, 1, attempt);
    world.settle(Verdict::RetryAfter(SECOND), vec![attempt(1)]);
    world.pass(SECOND);
    let quiet =
        world.keys(9).into_iter().find(|key| key.fair_key == "quiet").expect("it is listed");
    assert_eq!(
        quiet.served,
        Some(KeyDeliveries { delivered: 4, first_deliveries: 3, ..key("quiet", 2) })
    );
}

#[test]
fn the_groups_with_the_most_messages_are_named_and_no_more() {
    let mut world = World::empty();
    let count = 3 * GROUPS_NAMED_MAX as u32;
    for topic in 1..=count {
        let id = PartitionId { topic: TopicId(topic), ..ORDERS };
        world.open(
            id,
            world::queue(),
            vec![world::setting(GroupConfig::default())],
            DeadLetters::NotYet,
        );
        let texts = vec![Message::new("m"); topic as usize % 7];
        if !texts.is_empty() {
            let (origin, producer) = (world.origin(ALICE), ProducerStamp::default());
            let batch = batch(&texts);
            world.do_now(Command::Publish(Publish { origin, partition: id, producer, batch }));
        }
    }
    for _ in 0..2 {
        world.engine.fold_untouched(1);
    }
    let found = (0..100).find_map(|_| world.engine.survey(100)).expect("it has come round");
    let messages: Vec<u64> = found.backlogs.iter().map(|backlog| backlog.ready).collect();
    let of_each =
        |messages: u64| (1..=u64::from(count)).filter(|topic| topic % 7 == messages).count();
    let (sixes, fives) = (of_each(6), of_each(5));
    let fours = GROUPS_NAMED_MAX - sixes - fives;
    let expected = [vec![6; sixes], vec![5; fives], vec![4; fours]].concat();
    assert_eq!(messages, expected);
}
