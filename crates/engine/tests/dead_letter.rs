//! Dead letters: what becomes one, what it carries, and how its topic comes to be.

mod world;

use std::time::Duration;

use sennit_engine::{Credit, DeadLetters, Effect, HEADER_REASON, Verdict};
use sennit_model::{
    GroupConfig, HeaderKind, Message, Messages, TopicConfig, limits::REASON_BYTES_MAX,
};
use world::{ALICE, BOB, DEAD, ORDERS, World, queue, run};

#[test]
fn a_message_that_waits_for_its_dead_letter_topic_may_be_acked_and_does_not_go_there() {
    let group = GroupConfig { attempts_max: 1, ..GroupConfig::default() };
    let mut world = World::with(queue(), group);
    world.open(ORDERS, queue(), vec![world::setting(group)], DeadLetters::NotYet);
    world.subscribe(ALICE, 9);
    world.publish_texts(&["a", "b"]);
    world.settle(Verdict::Retry, vec![run(0, 2, 1)]);
    assert_eq!(world.ack(run(0, 1, 1)).applied, 1);
    assert_eq!((world.group().dying, world.group().settled_before.0), (1, 1));
    world.open(ORDERS, queue(), vec![world::setting(group)], DeadLetters::To(DEAD.topic));
    assert_eq!(world.describe(DEAD).end.0, 1);
}

#[test]
fn after_the_last_attempt_a_message_goes_to_the_dead_letter_topic_with_the_reason() {
    let group = GroupConfig { attempts_max: 2, ..GroupConfig::default() };
    let mut world = World::with(queue(), group);
    world.subscribe(ALICE, 9);
    world.publish_texts(&["poison", "fine"]);
    world.settle(Verdict::Retry, vec![run(0, 1, 1)]);
    world.settle(Verdict::Retry, vec![run(0, 1, 2)]);
    assert_eq!(world.attempts(), [(0, 1), (1, 1), (0, 2)]);
    world.ack(run(1, 1, 1));
    assert_eq!(world.describe(ORDERS).bytes, 0);
    world.subscribe_to(DEAD, BOB, Credit { messages: 9, bytes: 999 });
    let deliveries = world.deliveries();
    let letter = Messages::of_checked(&deliveries[0].messages).next().unwrap();
    assert_eq!(letter.payload(), b"poison");
    let headers: Vec<_> = letter.headers().map(Result::unwrap).collect();
    assert!(headers.contains(&("sennit-attempts", HeaderKind::Number, b"2")));
    assert!(headers.contains(&("sennit-source-offset", HeaderKind::Number, b"0")));
    assert!(headers.contains(&(HEADER_REASON, HeaderKind::Text, b"retried by the consumer")));
}

#[test]
fn a_dead_letter_keeps_its_key_and_headers_and_gives_the_consumers_reason() {
    let mut world = World::new();
    world.subscribe(ALICE, 9);
    let message = Message {
        key: "customer-7".into(),
        headers: vec![sennit_model::Header::text("trace", "abc")],
        ..Message::new("bad")
    };
    world.publish(&[message]);
    world.deliveries();
    world.settle(Verdict::DeadLetter { reason: "no such customer".into() }, vec![run(0, 1, 1)]);
    world.subscribe_to(DEAD, BOB, Credit { messages: 9, bytes: 999 });
    let deliveries = world.deliveries();
    let letter = Messages::of_checked(&deliveries[0].messages).next().unwrap();
    assert_eq!(letter.key(), b"customer-7");
    let headers: Vec<_> = letter.headers().map(Result::unwrap).collect();
    assert_eq!(headers[0], ("trace", HeaderKind::Text, &b"abc"[..]));
    assert!(headers.contains(&(HEADER_REASON, HeaderKind::Text, b"no such customer")));
}

#[test]
fn a_dead_letter_says_once_where_it_died_and_that_is_where_it_died_last() {
    let mut world = World::new();
    world.subscribe(ALICE, 9);
    let before = sennit_model::Header::text(HEADER_REASON, "of a life before");
    world.publish(&[Message { headers: vec![before], ..Message::new("bad") }]);
    world.settle(Verdict::DeadLetter { reason: "of this one".into() }, vec![run(0, 1, 1)]);
    world.deliveries();
    world.subscribe_to(DEAD, BOB, Credit { messages: 9, bytes: 999 });
    let deliveries = world.deliveries();
    let letter = Messages::of_checked(&deliveries[0].messages).next().unwrap();
    let headers = letter.headers().map(Result::unwrap);
    let reasons: Vec<_> = headers.filter(|(name, ..)| *name == HEADER_REASON).collect();
    assert_eq!(reasons, [(HEADER_REASON, HeaderKind::Text, &b"of this one"[..])]);
}

#[test]
fn a_dead_letter_that_fails_stays_where_it_is() {
    let mut world = World::with(queue(), GroupConfig { attempts_max: 1, ..Default::default() });
    world.open(
        ORDERS,
        queue(),
        vec![world::setting(GroupConfig { attempts_max: 1, ..Default::default() })],
        DeadLetters::Stay,
    );
    world.subscribe(ALICE, 9);
    world.publish_texts(&["a"]);
    world.settle(Verdict::DeadLetter { reason: "x".into() }, vec![run(0, 1, 1)]);
    assert_eq!(world.attempts(), [(0, 1), (0, 2)]);
}

#[test]
fn dead_letters_wait_for_their_topic_and_ask_for_it_once() {
    let mut world = World::with(queue(), GroupConfig { attempts_max: 1, ..Default::default() });
    let group = world::setting(GroupConfig { attempts_max: 1, ..Default::default() });
    world.open(ORDERS, queue(), vec![group], DeadLetters::NotYet);
    world.subscribe(ALICE, 9);
    world.publish_texts(&["a", "b"]);
    world.effects.clear();
    world.settle(Verdict::Retry, vec![run(0, 1, 1)]);
    world.settle(Verdict::Retry, vec![run(1, 1, 1)]);
    let asked = Effect::DeadLetterTopicNeeded { source: ORDERS.topic };
    assert_eq!(world.effects, [asked]);
    assert_eq!(world.group().dying, 2);
    world.open(ORDERS, queue(), vec![group], DeadLetters::To(DEAD.topic));
    assert_eq!(world.group().dying, 0);
    assert_eq!(world.describe(DEAD).end.0, 2);
}

#[test]
fn a_dead_letter_topic_that_was_deleted_is_asked_for_again_by_the_next_dead_letter() {
    let group = GroupConfig { attempts_max: 1, ..GroupConfig::default() };
    let mut world = World::with(queue(), group);
    let groups = vec![world::setting(group)];
    let asked = |world: &mut World| {
        let asks = |effect: &Effect| matches!(effect, Effect::DeadLetterTopicNeeded { .. });
        world.effects.extract_if(.., |effect| asks(effect)).count()
    };
    world.open(ORDERS, queue(), groups.clone(), DeadLetters::NotYet);
    world.subscribe(ALICE, 9);
    world.publish_texts(&["a", "b", "c"]);
    world.settle(Verdict::Retry, vec![run(0, 1, 1)]);
    assert_eq!(asked(&mut world), 1);
    world.open(ORDERS, queue(), groups.clone(), DeadLetters::To(DEAD.topic));
    assert_eq!(world.describe(DEAD).end.0, 1);
    world.open(ORDERS, queue(), groups, DeadLetters::NotYet);
    world.settle(Verdict::Retry, vec![run(1, 1, 1)]);
    assert_eq!(asked(&mut world), 1);
    // Until there is one, it is asked for once.
    world.settle(Verdict::Retry, vec![run(2, 1, 1)]);
    assert_eq!((asked(&mut world), world.group().dying), (0, 2));
}

#[test]
fn a_long_reason_is_cut_between_two_characters() {
    let mut world = World::new();
    world.subscribe(ALICE, 1);
    world.publish_texts(&["a"]);
    let reason = "x".to_owned() + &"é".repeat(REASON_BYTES_MAX);
    world.settle(Verdict::DeadLetter { reason: reason.clone() }, vec![run(0, 1, 1)]);
    world.effects.clear();
    world.subscribe_to(DEAD, BOB, Credit { messages: 1, bytes: 1 << 20 });
    let given = world.deliveries();
    let letter = Messages::of_checked(&given[0].messages).next().expect("it is there");
    let held = letter.headers().filter_map(Result::ok).find(|held| held.0 == HEADER_REASON);
    let held = held.map(|(_, _, value)| value.to_vec());
    assert_eq!(held.as_deref(), Some(&reason.as_bytes()[..REASON_BYTES_MAX - 1]));
}

#[test]
fn what_is_on_its_way_to_the_dead_letters_goes_there_though_its_time_to_live_ends() {
    let group = GroupConfig { attempts_max: 1, ..GroupConfig::default() };
    let config = TopicConfig { time_to_live: Some(Duration::from_secs(10)), ..queue() };
    let mut world = World::with(config, group);
    world.open(ORDERS, config, vec![world::setting(group)], DeadLetters::NotYet);
    world.subscribe(ALICE, 1);
    world.publish_texts(&["a"]);
    world.settle(Verdict::Retry, vec![run(0, 1, 1)]);
    world.pass(Duration::from_secs(20));
    world.open(ORDERS, config, vec![world::setting(group)], DeadLetters::To(DEAD.topic));
    assert_eq!(world.describe(DEAD).end.0, 1);
}
