//! Replay comes to the same state as live traffic, and so does a snapshot: random commands, with
//! the state's invariants checked after each.

mod world;

use std::time::Duration;

use proptest::prelude::*;
use sennit_engine::{Command, Credit, Engine, SessionId, Verdict};
use sennit_model::{
    Generation, GroupConfig, Message, ProducerId, ProducerStamp, Retention, TopicConfig,
};
use world::{DEAD, GROUP, ORDERS, World, queue, run};

#[derive(Clone, Debug)]
enum Step {
    Publish { count: u8, delay: Option<u16>, time_to_live: Option<u16> },
    PublishAs { producer: u8, first: u8, count: u8 },
    Subscribe { session: u8, messages: u8, bytes: u16 },
    Credit { session: u8, messages: u8 },
    Leave { session: u8, grace: Option<u16> },
    Settle { verdict: u8, first: u8, count: u8, attempt: u8 },
    Pass { ms: u16 },
}

fn any_step() -> impl Strategy<Value = Step> {
    let time = || proptest::option::weighted(0.2, 1..3_000u16);
    prop_oneof![
        4 => (1..6u8, time(), time())
            .prop_map(|(count, delay, time_to_live)| Step::Publish { count, delay, time_to_live }),
        2 => (1..3u8, 0..6u8, 1..4u8)
            .prop_map(|(producer, first, count)| Step::PublishAs { producer, first, count }),
        2 => (1..4u8, 0..9u8, 1..400u16)
            .prop_map(|(session, messages, bytes)| Step::Subscribe { session, messages, bytes }),
        1 => (1..4u8, 0..9u8).prop_map(|(session, messages)| Step::Credit { session, messages }),
        1 => (1..4u8, time()).prop_map(|(session, grace)| Step::Leave { session, grace }),
        6 => (0..5u8, 0..40u8, 1..8u8, 1..4u8).prop_map(|(verdict, first, count, attempt)| {
            Step::Settle { verdict, first, count, attempt }
        }),
        3 => (0..1_500u16).prop_map(|ms| Step::Pass { ms }),
    ]
}

fn take(world: &mut World, step: Step) {
    let millis = |ms: u16| Duration::from_millis(ms.into());
    match step {
        Step::Publish { count, delay, time_to_live } => {
            let message = |n| Message {
                delay: delay.filter(|_| n % 2 == 0).map(millis),
                time_to_live: time_to_live.filter(|_| n % 3 == 0).map(millis),
                ..Message::new(format!("message {n}"))
            };
            world.publish(&(0..count).map(message).collect::<Vec<_>>());
        }
        Step::PublishAs { producer, first, count } => {
            let id = ProducerId(producer.into());
            let stamp = ProducerStamp { id, epoch: 0, first_sequence: first.into() };
            world.publish_as(stamp, &vec![Message::new("from a producer"); count.into()]);
        }
        Step::Subscribe { session, messages, bytes } => {
            let credit = Credit { messages: messages.into(), bytes: bytes.into() };
            world.subscribe_to(ORDERS, SessionId(session.into()), credit);
        }
        Step::Credit { session, messages } => world.do_now(Command::SetCredit {
            session: SessionId(session.into()),
            subscription: 7,
            partition: ORDERS,
            group: GROUP,
            credit: Credit { messages: messages.into(), bytes: 500 },
        }),
        Step::Leave { session, grace } => world.do_now(Command::EndSession {
            session: SessionId(session.into()),
            grace: grace.map(millis).unwrap_or_default(),
        }),
        Step::Settle { verdict, first, count, attempt } => {
            let verdict = match verdict {
                0 | 1 => Verdict::Ack,
                2 => Verdict::Retry,
                3 => Verdict::RetryAfter(millis(700)),
                _ if attempt == 1 => Verdict::DeadLetter { reason: "a reason".into() },
                _ => Verdict::Extend(millis(900)),
            };
            world.settle(verdict, vec![run(first.into(), count.into(), attempt.into())]);
        }
        Step::Pass { ms } => world.pass(millis(ms)),
    }
    world.effects.clear();
}

fn snapshot(engine: &Engine) -> Vec<u8> {
    let mut bytes = Vec::new();
    engine.encode_snapshot(&mut bytes);
    bytes
}

fn settings() -> impl Strategy<Value = (TopicConfig, GroupConfig)> {
    let retention = prop_oneof![
        Just(Retention::UNTIL_SETTLED),
        Just(Retention { bytes: Some(400), ..Retention::UNTIL_SETTLED }),
        Just(Retention { age: Some(Duration::from_secs(4)), ..Retention::FOREVER }),
        Just(Retention::FOREVER),
    ];
    (retention, proptest::option::of(2_000..3_000u64)).prop_map(|(retention, ttl)| {
        let time_to_live = ttl.map(Duration::from_millis);
        let group = GroupConfig { lease: Duration::from_millis(1_000), attempts_max: 3 };
        (TopicConfig { retention, time_to_live, ..queue() }, group)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn replay_and_snapshot_come_to_the_state_of_live_traffic(
        (config, group) in settings(),
        steps in proptest::collection::vec(any_step(), 1..60),
    ) {
        let mut world = World::with(config, group);
        for step in steps {
            take(&mut world, step);
        }
        world.pass(Duration::from_millis(0));
        let live = snapshot(&world.engine);
        // Time that has passed is not in the records: both sides are brought to the same time.
        let mut replayed = world.replayed();
        let records = world.journal.records.len();
        replayed.advance(world.now.plus(Duration::from_millis(1)), &mut world.journal);
        world.now = world.now.plus(Duration::from_millis(1));
        world.engine.advance(world.now, &mut world.journal);
        replayed.check();
        let live_later = snapshot(&world.engine);
        if world.journal.records.len() == records {
            prop_assert_eq!(&snapshot(&replayed), &live_later);
        }
        let restored =
            Engine::from_snapshot(live.clone().into(), Generation(2), world.now).unwrap();
        restored.check();
        prop_assert_eq!(snapshot(&restored), live);
    }

    #[test]
    fn any_bytes_are_restored_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Engine::from_snapshot(bytes.into(), Generation(1), sennit_model::Timestamp(0));
    }

    #[test]
    fn a_snapshot_with_a_wrong_byte_is_refused_or_restored_but_never_panics(
        steps in proptest::collection::vec(any_step(), 1..20),
        at in any::<prop::sample::Index>(),
        value in any::<u8>(),
    ) {
        let mut world = World::with(queue(), GroupConfig::default());
        for step in steps {
            take(&mut world, step);
        }
        let mut bytes = snapshot(&world.engine);
        let at = at.index(bytes.len());
        bytes[at] = value;
        let _ = Engine::from_snapshot(bytes.into(), Generation(1), world.now);
    }
}

#[test]
fn a_dead_letter_moves_once_across_a_restart() {
    let mut world = World::with(queue(), GroupConfig { attempts_max: 1, ..GroupConfig::default() });
    world.subscribe(SessionId(1), 5);
    world.publish_texts(&["a", "b"]);
    world.settle(Verdict::Retry, vec![run(0, 2, 1)]);
    world.engine = world.replayed();
    world.pass(Duration::from_secs(60));
    assert_eq!(world.describe(DEAD).end.0, 2);
    assert_eq!(world.describe(ORDERS).start.0, 2);
}
