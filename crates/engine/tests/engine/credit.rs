//! Credit that comes free without a settle: by trimming, retention or a loss. What is ready then goes out
//! at once, as after an ack.

use std::time::Duration;

use proptest::prelude::*;
use sennit_engine::{Command, Credit, DeadLetters, PartitionCommand, Verdict};
use sennit_model::{GroupConfig, Offset, Retention, TopicConfig, TopicKind};

use crate::world::{ALICE, BOB, ORDERS, World, queue, run, setting};

const CREDIT: u32 = 3;

fn trim(world: &mut World, before: u64) {
    let origin = world.origin(BOB);
    let trim = PartitionCommand::Trim(Offset(before));
    world.do_now(Command::Partition(origin, ORDERS, trim));
}

/// A world where Alice holds as much as she may, of messages that each have a batch of their own.
fn with_full_window(config: TopicConfig, messages: u64) -> World {
    let mut world = World::with(config, GroupConfig::default());
    world.subscribe(ALICE, CREDIT);
    for number in 0..messages {
        world.publish_texts(&[&number.to_string()]);
    }
    let held: Vec<_> = world.attempts().into_iter().map(|(offset, _)| offset).collect();
    assert_eq!(held, [0, 1, 2]);
    world
}

fn offsets(world: &mut World) -> Vec<u64> {
    world.attempts().into_iter().map(|(offset, _)| offset).collect()
}

#[test]
fn a_trim_that_frees_what_a_consumer_holds_has_the_rest_delivered_at_once() {
    let mut world = with_full_window(queue(), 7);
    trim(&mut world, 2);
    assert_eq!(offsets(&mut world), [3, 4]);
    assert_eq!((world.group().leased, world.group().ready), (3, 2));
}

#[test]
fn acks_of_what_a_trim_has_freed_are_neither_applied_nor_stale() {
    let mut world = with_full_window(queue(), 7);
    trim(&mut world, 2);
    let settled = world.ack(run(0, 3, 1));
    assert_eq!((settled.applied, settled.stale), (1, vec![]));
}

#[test]
fn retention_by_age_that_frees_what_a_consumer_holds_has_the_rest_delivered_at_once() {
    let age = Some(Duration::from_secs(6));
    let config = TopicConfig { retention: Retention { age, ..queue().retention }, ..queue() };
    let mut world = with_full_window(config, 3);
    world.pass(Duration::from_secs(3));
    world.publish_texts(&["later"]);
    world.publish_texts(&["too"]);
    assert_eq!(offsets(&mut world), []);
    world.pass(Duration::from_secs(3));
    assert_eq!(offsets(&mut world), [3, 4]);
}

#[test]
fn retention_by_count_that_frees_what_a_consumer_holds_has_the_rest_delivered_at_once() {
    let count = Some(4);
    let config = TopicConfig {
        retention: Retention { count, ..Retention::default() },
        ..TopicConfig::of_kind(TopicKind::Stream)
    };
    let mut world = with_full_window(config.clone(), 4);
    world.publish_texts(&["fifth"]);
    assert_eq!(offsets(&mut world), [3]);
    // The setting itself frees as well.
    let count = Some(2);
    let config = TopicConfig { retention: Retention { count, ..config.retention }, ..config };
    world.open(ORDERS, config, vec![setting(GroupConfig::default())], DeadLetters::NotYet);
    assert_eq!(offsets(&mut world), [4]);
}

#[test]
fn a_batch_that_is_lost_has_the_rest_delivered_at_once() {
    let mut world = with_full_window(queue(), 5);
    world.engine.give_up(ORDERS, Offset(1), &mut world.journal);
    world.pass(Duration::from_millis(1));
    assert_eq!(offsets(&mut world), [3]);
}

#[derive(Clone, Debug)]
enum Step {
    Publish { count: u8 },
    Subscribe { session: u8, messages: u8, bytes: u16 },
    Trim { before: u8 },
    Settle { verdict: u8, first: u8, count: u8, attempt: u8 },
    Leave { grace: Option<u16> },
    Pass { ms: u16 },
    Retain { count: Option<u8>, age: Option<u16> },
}

fn any_step() -> impl Strategy<Value = Step> {
    let maybe = || proptest::option::of(1..3_000u16);
    prop_oneof![
        4 => (1..6u8).prop_map(|count| Step::Publish { count }),
        2 => (1..4u8, 0..9u8, 1..400u16)
            .prop_map(|(session, messages, bytes)| Step::Subscribe { session, messages, bytes }),
        3 => (0..40u8).prop_map(|before| Step::Trim { before }),
        3 => (0..4u8, 0..40u8, 1..8u8, 1..4u8).prop_map(|(verdict, first, count, attempt)| {
            Step::Settle { verdict, first, count, attempt }
        }),
        1 => maybe().prop_map(|grace| Step::Leave { grace }),
        3 => (0..1_500u16).prop_map(|ms| Step::Pass { ms }),
        1 => (proptest::option::of(1..20u8), maybe())
            .prop_map(|(count, age)| Step::Retain { count, age }),
    ]
}

fn take(world: &mut World, step: &Step) {
    let millis = |ms: u16| Duration::from_millis(ms.into());
    match *step {
        Step::Publish { count } => world.publish_texts(&vec!["x"; count.into()]),
        Step::Subscribe { session, messages, bytes } => {
            let credit = Credit { messages: messages.into(), bytes: bytes.into() };
            world.subscribe_to(ORDERS, sennit_engine::SessionId(session.into()), credit);
        }
        Step::Trim { before } => trim(world, before.into()),
        Step::Settle { verdict, first, count, attempt } => {
            let verdict = match verdict {
                0 => Verdict::Ack,
                1 => Verdict::Retry,
                2 => Verdict::RetryAfter(millis(700)),
                _ => Verdict::Extend(millis(900)),
            };
            world.settle(verdict, vec![run(first.into(), count.into(), attempt.into())]);
        }
        Step::Leave { grace } => world.do_now(Command::EndSession {
            session: ALICE,
            grace: grace.map(millis).unwrap_or_default(),
        }),
        Step::Pass { ms } => world.pass(millis(ms)),
        Step::Retain { count, age } => {
            let (count, age) = (count.map(u64::from), age.map(millis));
            let retention = Retention { count, age, ..queue().retention };
            let groups = vec![setting(GroupConfig::default())];
            world.open(ORDERS, TopicConfig { retention, ..queue() }, groups, DeadLetters::NotYet);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    // The engine's own check says so after each step: see `Engine::check`.
    #[test]
    fn no_message_is_ready_beside_a_consumer_with_room_whatever_freed_it(
        steps in proptest::collection::vec(any_step(), 1..60),
    ) {
        let mut world = World::new();
        for step in &steps {
            take(&mut world, step);
        }
    }
}
