//! Order: a key, or a partition, has one active consumer at a time, and a failed message holds back the later ones.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use proptest::prelude::*;
use sennit_engine::{
    Command, Credit, DeadLetters, Delivery, DeliveryRun, ExplainSubject, PartitionCommand, Publish,
    SessionId, Verdict, WaitReason,
};
use sennit_model::{
    Generation, GroupConfig, KeyRule, MESSAGE_KEY, Message, Messages, Offset, Order, PartitionId,
    PartitionIndex, ProducerStamp, TopicConfig,
};

use crate::world::{
    self, ALICE, BOB, ORDERS, World,
    fair_groups::{SECOND, alter, fair, fields, group, many, of, restarted, rule},
    queue, run,
};

const CAROL: SessionId = SessionId(3);
const LEASE: Duration = Duration::from_secs(30);

fn ordered(order: Order) -> GroupConfig {
    GroupConfig { order, ..group(vec![]) }
}

/// What was given since the last look: session, key, offset, and the delivery of each message.
fn given(world: &mut World) -> Vec<(SessionId, String, u64, DeliveryRun)> {
    let mut given = Vec::new();
    for delivery in world.deliveries() {
        let Delivery { session, attempt, generation, .. } = delivery;
        for (at, message) in (delivery.first.0..).zip(Messages::of_checked(&delivery.messages)) {
            let key = String::from_utf8_lossy(message.payload()).into_owned();
            let run = DeliveryRun { first: Offset(at), count: 1, attempt, generation };
            given.push((session, key, at, run));
        }
    }
    given
}

fn offsets(world: &mut World) -> Vec<u64> {
    given(world).into_iter().map(|(_, _, at, _)| at).collect()
}

fn leave(world: &mut World, session: SessionId) {
    world.do_now(Command::EndSession { session, grace: Duration::ZERO });
}

/// Messages of so many keys, in turn.
fn of_keys(keys: usize, count: usize) -> Vec<Message> {
    (0..count).map(|n| of(&format!("k{}", n % keys), &[])).collect()
}

fn wide(messages: u32) -> Credit {
    Credit { messages, bytes: 1 << 30 }
}

#[test]
fn each_key_is_with_one_consumer_and_each_consumer_has_its_share_of_the_keys() {
    let mut world = World::with(fair(), ordered(Order::Key));
    for session in [ALICE, BOB, CAROL] {
        world.subscribe_to(ORDERS, session, wide(10_000));
    }
    for _ in 0..3 {
        world.publish(&of_keys(90, 900));
    }
    let mut of_key: BTreeMap<String, BTreeSet<SessionId>> = BTreeMap::new();
    let given = given(&mut world);
    assert_eq!(given.len(), 2700);
    for (session, key, ..) in given {
        of_key.entry(key).or_default().insert(session);
    }
    assert!(of_key.values().all(|sessions| sessions.len() == 1), "{of_key:?}");
    for session in [ALICE, BOB, CAROL] {
        let count = of_key.values().filter(|of| of.contains(&session)).count();
        assert!((15..=45).contains(&count), "{session:?} has {count} of 90 keys");
    }
}

#[test]
fn the_message_key_can_be_the_fair_key() {
    let mut fields = fields();
    fields.fair_key = MESSAGE_KEY.parse().ok();
    let topic = TopicConfig { fields: fields.if_any(), ..queue() };
    let mut world = World::with(topic, ordered(Order::Key));
    let message = |key: &str| Message { key: key.to_owned().into(), ..Message::new("m") };
    world.publish(&[message("a"), message("b"), message("a")]);
    world.subscribe(ALICE, 1);
    world.subscribe(BOB, 1);
    let first: Vec<_> = given(&mut world).iter().map(|(.., at, _)| *at).collect();
    assert_eq!(first, [0, 1], "the second message of a waits for the consumer of the first");
    let keys: Vec<_> = world.keys(9).into_iter().map(|key| (key.fair_key, key.in_flight)).collect();
    assert_eq!(keys, [("a".into(), 1), ("b".into(), 1)]);
}

#[test]
fn a_failed_message_holds_back_the_later_ones_of_its_key_and_no_others() {
    let mut world = World::with(fair(), ordered(Order::Key));
    world.publish(&[many("a", 3), many("b", 1)].concat());
    world.subscribe(ALICE, 2);
    assert_eq!(offsets(&mut world), [0, 3]);
    world.settle(Verdict::RetryAfter(10 * SECOND), vec![run(0, 1, 1)]);
    world.subscribe(ALICE, 100);
    assert_eq!(offsets(&mut world), []);
    let asked = world.explain(ExplainSubject::Offset(Offset(1)));
    let until = world.now.plus(10 * SECOND);
    assert_eq!(asked.reason, WaitReason::BehindFailed { offset: Offset(0), until });
    world.publish(&many("b", 1));
    assert_eq!(offsets(&mut world), [4]);
    world.pass(10 * SECOND);
    assert_eq!(offsets(&mut world), [0, 1, 2]);
}

/// A message of `a` that waits for its next attempt before another, which nobody has taken.
fn with_a_failed_message(order: Order) -> World {
    let mut world = World::with(fair(), ordered(order));
    world.subscribe(ALICE, 1);
    world.publish(&[many("a", 2), many("b", 1)].concat());
    world.settle(Verdict::RetryAfter(10 * SECOND), vec![run(0, 1, 1)]);
    leave(&mut world, ALICE);
    world.effects.clear();
    world
}

#[test]
fn a_failed_message_holds_back_its_key_after_a_restart() {
    for from_snapshot in [false, true] {
        let mut world = restarted(with_a_failed_message(Order::Key), from_snapshot);
        world.subscribe(ALICE, 100);
        assert_eq!(offsets(&mut world), [2]);
        world.pass(10 * SECOND);
        assert_eq!(offsets(&mut world), [0, 1]);
    }
}

#[test]
fn a_failed_message_holds_back_its_key_when_the_order_is_set_later() {
    let mut world = with_a_failed_message(Order::None);
    alter(&mut world, fair(), ordered(Order::Key));
    world.subscribe(ALICE, 100);
    assert_eq!(offsets(&mut world), [2]);
    world.pass(10 * SECOND);
    assert_eq!(offsets(&mut world), [0, 1]);
}

#[test]
fn a_failed_message_that_goes_for_good_frees_the_later_ones_of_its_key() {
    let mut world = World::with(fair(), ordered(Order::Key));
    world.publish(&many("a", 1));
    world.publish(&many("a", 1));
    world.subscribe(ALICE, 1);
    assert_eq!(offsets(&mut world), [0]);
    world.settle(Verdict::RetryAfter(1000 * SECOND), vec![run(0, 1, 1)]);
    assert_eq!(offsets(&mut world), []);
    let trimmed = PartitionCommand::Trim(Offset(1));
    let origin = world.origin(ALICE);
    world.do_now(Command::Partition(origin, ORDERS, trimmed));
    assert_eq!(offsets(&mut world), [1]);
}

#[test]
fn a_key_goes_to_another_consumer_once_nobody_has_messages_of_it() {
    let mut world = World::with(fair(), ordered(Order::Key));
    world.subscribe(ALICE, 100);
    world.publish(&of_keys(20, 20));
    let of_alice = given(&mut world);
    assert_eq!(of_alice.len(), 20);
    world.subscribe(BOB, 100);
    world.publish(&of_keys(20, 20));
    let second = given(&mut world);
    assert!(second.iter().all(|(session, ..)| *session == ALICE), "the others wait for their turn");
    let kept = second.len();
    assert!((4..=16).contains(&kept), "{kept} of 20 keys stay where they are");
    for (_, key, _, run) in of_alice {
        world.settle(Verdict::Ack, vec![run]);
        let handed_over = given(&mut world);
        assert!(handed_over.len() <= 1);
        assert!(handed_over.iter().all(|(session, of, ..)| *session == BOB && *of == key));
    }
    assert_eq!(world.group().ready, 0, "none waits for long");
}

#[test]
fn what_a_consumer_leaves_goes_to_the_others_in_order() {
    let mut world = World::with(fair(), ordered(Order::Key));
    world.publish(&many("a", 6));
    world.subscribe(ALICE, 3);
    assert_eq!(offsets(&mut world), [0, 1, 2]);
    world.subscribe(BOB, 100);
    assert_eq!(offsets(&mut world), []);
    leave(&mut world, ALICE);
    assert_eq!(offsets(&mut world), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn a_partition_has_one_active_consumer() {
    let mut world = World::with(queue(), ordered(Order::Partition));
    world.subscribe(ALICE, 2);
    world.subscribe(BOB, 2);
    world.publish(&many("m", 6));
    let first = given(&mut world);
    let active = first[0].0;
    assert_eq!(
        first.iter().map(|held| (held.0, held.2)).collect::<Vec<_>>(),
        [(active, 0), (active, 1)]
    );
    let asked = world.explain(ExplainSubject::Offset(Offset(2)));
    assert_eq!(asked.reason, WaitReason::HeldBy { session: active });
    world.settle_as(active, Verdict::RetryAfter(SECOND), vec![first[0].3]);
    assert_eq!(offsets(&mut world), [], "what is behind a failed message waits");
    world.settle_as(active, Verdict::Ack, vec![first[1].3]);
    world.pass(SECOND);
    let next = given(&mut world);
    assert_eq!(
        next.iter().map(|held| (held.0, held.2)).collect::<Vec<_>>(),
        [(active, 0), (active, 2)]
    );
    leave(&mut world, active);
    let other = if active == ALICE { BOB } else { ALICE };
    let taken_over = given(&mut world);
    assert_eq!(
        taken_over.iter().map(|held| (held.0, held.2)).collect::<Vec<_>>(),
        [(other, 0), (other, 2)]
    );
}

#[test]
fn partitions_are_shared_by_the_consumers() {
    let mut of_alice = 0;
    for index in 0..40 {
        let mut world = World::with(queue(), ordered(Order::Partition));
        let partition = PartitionId { index: PartitionIndex(index), ..ORDERS };
        world.open(
            partition,
            queue(),
            vec![world::setting(ordered(Order::Partition))],
            DeadLetters::NotYet,
        );
        for session in [ALICE, BOB] {
            world.subscribe_to(partition, session, wide(9));
        }
        let origin = world.origin(ALICE);
        let batch = world::batch(&many("m", 1));
        let producer = ProducerStamp::default();
        world.do_now(Command::Publish(Publish { origin, partition, producer, batch }));
        of_alice += usize::from(given(&mut world)[0].0 == ALICE);
    }
    assert!((10..=30).contains(&of_alice), "{of_alice} of 40");
}

#[test]
fn an_order_that_is_set_later_waits_until_each_key_is_with_one_consumer() {
    let mut world = World::with(fair(), ordered(Order::None));
    world.subscribe(ALICE, 1);
    world.subscribe(BOB, 1);
    world.publish(&many("a", 4));
    let first = given(&mut world);
    assert_eq!(first.len(), 2);
    alter(&mut world, fair(), ordered(Order::Key));
    world.settle_as(first[0].0, Verdict::Ack, vec![first[0].3]);
    assert_eq!(offsets(&mut world), []);
    world.settle_as(first[1].0, Verdict::Ack, vec![first[1].3]);
    assert_eq!(offsets(&mut world), [2]);
}

#[derive(Clone, Debug)]
enum Step {
    Publish(Vec<u8>),
    Subscribe(u8, u32),
    Leave(u8),
    Settle(u8, Vec<usize>),
    Pass(u16),
    Limit(u32),
    Restart(bool),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => proptest::collection::vec(0..6u8, 1..20).prop_map(Step::Publish),
        2 => (0..3u8, 0..20u32).prop_map(|(who, credit)| Step::Subscribe(who, credit)),
        1 => (0..3u8).prop_map(Step::Leave),
        6 => (0..5u8, proptest::collection::vec(0..40usize, 1..9))
            .prop_map(|(verdict, which)| Step::Settle(verdict, which)),
        2 => (0..20_000u16).prop_map(Step::Pass),
        1 => (0..4u32).prop_map(Step::Limit),
        1 => any::<bool>().prop_map(Step::Restart),
    ]
}

/// A delivery that was not settled, and until when its lease lasts.
struct Held {
    session: SessionId,
    key: String,
    at: u64,
    run: DeliveryRun,
    until: Duration,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn whatever_happens_a_key_is_with_one_consumer_in_the_order_of_its_messages(
        by_partition: bool,
        steps in proptest::collection::vec(any_step(), 1..80),
    ) {
        let order = if by_partition { Order::Partition } else { Order::Key };
        let sessions = [ALICE, BOB, CAROL];
        let mut world = World::with(fair(), ordered(order));
        let (mut published, mut now) = (0, Duration::ZERO);
        let mut held: Vec<Held> = Vec::new();
        // The newest message of each key that was given, and whether it holds back the later ones.
        let mut newest: BTreeMap<String, u64> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Publish(keys) => {
                    published += keys.len();
                    let messages: Vec<_> = keys.iter().map(|key| of(&format!("k{key}"), &[])).collect();
                    world.publish(&messages);
                }
                Step::Subscribe(who, credit) => world.subscribe(sessions[usize::from(who)], credit),
                Step::Leave(who) => {
                    let session = sessions[usize::from(who)];
                    leave(&mut world, session);
                    held.retain(|held| held.session != session);
                }
                Step::Settle(verdict, which) => {
                    let verdict = match verdict {
                        0 => Verdict::Retry,
                        1 => Verdict::RetryAfter(SECOND),
                        _ => Verdict::Ack,
                    };
                    for index in which {
                        if index < held.len() {
                            let Held { session, run, .. } = held.swap_remove(index);
                            world.settle_as(session, verdict.clone(), vec![run]);
                        }
                    }
                }
                Step::Pass(ms) => {
                    let time = Duration::from_millis(ms.into());
                    world.pass(time);
                    now += time;
                    held.retain(|held| held.until > now);
                }
                Step::Limit(concurrency) => {
                    let concurrency = Some(concurrency).filter(|limit| *limit > 0);
                    let rules = vec![KeyRule { concurrency, ..rule("k1") }];
                    let rules = if concurrency.is_some() { rules } else { vec![] };
                    alter(&mut world, fair(), GroupConfig { order, ..group(rules) });
                }
                Step::Restart(from_snapshot) => {
                    world = restarted(world, from_snapshot);
                    held.clear();
                }
            }
            for (session, name, at, run) in given(&mut world) {
                let key = if by_partition { String::new() } else { name };
                let other = held.iter().find(|held| held.key == key && held.session != session);
                prop_assert!(other.is_none(), "{key} is with {:?} and {session:?}", other.map(|held| held.session));
                // A first delivery comes behind those of all earlier messages.
                let before = newest.entry(key.clone()).or_insert(at);
                if run.attempt == 1 && run.generation == Generation(1) {
                    prop_assert!(*before <= at, "{at} of {key} comes behind {before}");
                }
                *before = (*before).max(at);
                held.push(Held { session, key, at, run, until: now + LEASE });
            }
            prop_assert!(held.iter().all(|held| held.at < published as u64));
        }
        // With time and room everything is given.
        alter(&mut world, fair(), ordered(order));
        for session in sessions {
            leave(&mut world, session);
        }
        world.subscribe_to(ORDERS, ALICE, wide(1_000_000));
        world.pass(Duration::from_secs(60));
        let described = world.group();
        prop_assert_eq!((described.ready, described.delayed), (0, 0));
    }
}
