//! Dead letters: what becomes one, what it carries, and how its topic comes to be.

use std::time::Duration;

use sennit_engine::{
    Command, Credit, DeadLetters, Effect, GroupSetting, HEADER_REASON, Outbox, PartitionCommand,
    Settle, SourceNames, Subscribe, Verdict,
};
use sennit_model::{
    GroupConfig, GroupId, HeaderKind, Message, Messages, Offset, OffsetRange, TopicConfig,
    limits::{NAME_BYTES_MAX, REASON_BYTES_MAX},
};

use crate::world::{self, ALICE, BOB, DEAD, ORDERS, World, queue, run};

#[test]
fn a_message_that_waits_for_its_dead_letter_topic_may_be_acked_and_does_not_go_there() {
    let group = GroupConfig { attempts_max: 1, ..GroupConfig::default() };
    let mut world = World::with(queue(), group.clone());
    world.open(ORDERS, queue(), vec![world::setting(group.clone())], DeadLetters::NotYet);
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
    assert!(headers.contains(&("sennit-source-topic", HeaderKind::Text, b"orders")));
    assert!(headers.contains(&("sennit-source-topic-id", HeaderKind::Number, b"1")));
    assert!(headers.contains(&("sennit-source-group", HeaderKind::Text, b"default")));
    assert!(headers.contains(&("sennit-source-group-id", HeaderKind::Number, b"0")));
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

/// A dead-letter topic with a message, and a consumer who has it.
fn letters(attempts_max: u32) -> World {
    let group = world::setting(GroupConfig { attempts_max, ..GroupConfig::default() });
    let mut world = World::new();
    world.open(ORDERS, queue(), vec![group], DeadLetters::Stay);
    world.subscribe(ALICE, 9);
    world.publish_texts(&["a", "b"]);
    world
}

fn dead_letter_verdict(reason: &str) -> Verdict {
    Verdict::DeadLetter { reason: reason.into() }
}

#[test]
fn a_dead_letter_that_fails_for_good_is_parked_where_it_is_and_not_delivered_again() {
    let mut world = letters(9);
    world.settle(dead_letter_verdict("still no such customer"), vec![run(0, 1, 1)]);
    assert_eq!(world.attempts(), [(0, 1), (1, 1)]);
    world.pass(Duration::from_secs(3600));
    assert_eq!(world.attempts(), [(1, 2)]);
}

#[test]
fn a_dead_letter_is_parked_after_the_last_attempt_that_its_own_topic_allows() {
    let mut world = letters(2);
    world.settle(Verdict::Retry, vec![run(0, 1, 1)]);
    world.settle(Verdict::Retry, vec![run(0, 1, 2)]);
    assert_eq!(world.attempts(), [(0, 1), (1, 1), (0, 2)]);
}

#[test]
fn the_description_counts_the_parked_messages_and_says_why_each_failed() {
    let mut world = letters(2);
    world.settle(dead_letter_verdict("no such customer"), vec![run(1, 1, 1)]);
    world.settle(Verdict::Retry, vec![run(0, 1, 1)]);
    world.settle(Verdict::Retry, vec![run(0, 1, 2)]);
    let said = world.group();
    assert_eq!((said.parked, said.dying, said.ready, said.leased), (2, 0, 0, 0));
    let parked = world.describe(ORDERS).parked;
    let parked: Vec<_> =
        parked.iter().map(|run| (run.range.start.0, run.attempts, &*run.reason)).collect();
    assert_eq!(parked, [(0, 2, "retried by the consumer"), (1, 1, "no such customer")]);
}

#[test]
fn a_parked_message_is_kept_until_it_is_settled() {
    let mut world = letters(9);
    world.settle(dead_letter_verdict("no"), vec![run(0, 1, 1)]);
    world.ack(run(1, 1, 1));
    assert!(world.describe(ORDERS).bytes > 0);
    // Its last consumer may have done it after all.
    assert_eq!(world.ack(run(0, 1, 1)).applied, 1);
    assert_eq!((world.group().parked, world.describe(ORDERS).bytes), (0, 0));
}

fn unpark(world: &mut World, range: Option<OffsetRange>) -> u64 {
    let origin = world.origin(ALICE);
    let command = PartitionCommand::RetryParked(world::GROUP, range);
    world.do_now(Command::Partition(origin, ORDERS, command));
    let answer = |effect: &Effect| match effect {
        Effect::Unparked { origin: asked, count } if *asked == origin => Some(*count),
        _ => None,
    };
    world.effects.iter().find_map(answer).expect("it is answered")
}

#[test]
fn parked_messages_are_delivered_again_once_somebody_asks_with_all_their_attempts() {
    let mut world = letters(1);
    world.settle(Verdict::Retry, vec![run(0, 2, 1)]);
    world.deliveries();
    assert_eq!(unpark(&mut world, Some(OffsetRange::new(Offset(1), 9))), 1);
    assert_eq!(world.attempts(), [(1, 2)]);
    assert_eq!(world.group().parked, 1);
    assert_eq!(unpark(&mut world, None), 1);
    assert_eq!(world.attempts(), [(0, 2)]);
    assert_eq!(unpark(&mut world, None), 0);
}

#[test]
fn what_is_on_its_way_to_a_dead_letter_topic_is_not_parked() {
    let group = GroupConfig { attempts_max: 1, ..GroupConfig::default() };
    let mut world = World::with(queue(), group.clone());
    world.open(ORDERS, queue(), vec![world::setting(group)], DeadLetters::NotYet);
    world.subscribe(ALICE, 9);
    world.publish_texts(&["a"]);
    world.settle(Verdict::Retry, vec![run(0, 1, 1)]);
    assert_eq!(unpark(&mut world, None), 0);
    assert_eq!((world.group().dying, world.group().parked), (1, 0));
}

#[test]
fn a_restart_finds_parked_what_was_parked_and_ready_what_was_asked_for() {
    let mut world = letters(9);
    world.settle(dead_letter_verdict("no such customer"), vec![run(0, 1, 1), run(1, 1, 1)]);
    unpark(&mut world, Some(OffsetRange::new(Offset(1), 1)));
    let records = world.journal.records.len();
    let mut world = world.crashed(records);
    assert_eq!((world.group().parked, world.group().ready), (1, 1));
    assert_eq!(&*world.describe(ORDERS).parked[0].reason, "no such customer");
    world.subscribe(BOB, 9);
    assert_eq!(world.attempts(), [(1, 2)]);
}

#[test]
fn a_parked_message_whose_time_to_live_ends_is_settled() {
    let config = TopicConfig { time_to_live: Some(Duration::from_secs(10)), ..queue() };
    let mut world = World::with(config.clone(), GroupConfig::default());
    let group = world::setting(GroupConfig::default());
    world.open(ORDERS, config, vec![group], DeadLetters::Stay);
    world.subscribe(ALICE, 1);
    world.publish_texts(&["a"]);
    world.settle(dead_letter_verdict("no"), vec![run(0, 1, 1)]);
    assert_eq!(world.group().parked, 1);
    world.pass(Duration::from_secs(20));
    assert_eq!((world.group().parked, world.group().settled_before.0), (0, 1));
}

#[test]
fn dead_letters_wait_for_their_topic_and_ask_for_it_once() {
    let mut world = World::with(queue(), GroupConfig { attempts_max: 1, ..Default::default() });
    let group = world::setting(GroupConfig { attempts_max: 1, ..Default::default() });
    world.open(ORDERS, queue(), vec![group.clone()], DeadLetters::NotYet);
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
fn dead_letters_wait_where_they_are_while_the_disk_is_full() {
    let mut world = World::with(queue(), GroupConfig { attempts_max: 1, ..Default::default() });
    world.subscribe(ALICE, 9);
    world.publish_texts(&["a", "b"]);
    world.engine.set_storage_full(true);
    world.settle(Verdict::Retry, vec![run(0, 2, 1)]);
    assert_eq!((world.group().dying, world.describe(DEAD).end.0), (2, 0));
    world.engine.set_storage_full(false);
    world.finish(Outbox::default());
    assert_eq!((world.group().dying, world.describe(DEAD).end.0), (0, 2));
}

#[test]
fn a_dead_letter_topic_that_was_deleted_is_asked_for_again_by_the_next_dead_letter() {
    let group = GroupConfig { attempts_max: 1, ..GroupConfig::default() };
    let mut world = World::with(queue(), group.clone());
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
    let mut world = World::with(config.clone(), group.clone());
    world.open(ORDERS, config.clone(), vec![world::setting(group.clone())], DeadLetters::NotYet);
    world.subscribe(ALICE, 1);
    world.publish_texts(&["a"]);
    world.settle(Verdict::Retry, vec![run(0, 1, 1)]);
    world.pass(Duration::from_secs(20));
    world.open(ORDERS, config, vec![world::setting(group)], DeadLetters::To(DEAD.topic));
    assert_eq!(world.describe(DEAD).end.0, 1);
}

#[test]
fn what_a_new_group_is_called_is_asked_for_by_its_first_dead_letter() {
    let config = GroupConfig { attempts_max: 1, ..GroupConfig::default() };
    let old = world::setting(config.clone());
    let mut world = World::with(queue(), config);
    world.open(ORDERS, queue(), vec![old.clone()], DeadLetters::To(DEAD.topic));
    let new = GroupSetting { id: GroupId(7), ..old.clone() };
    let (dead_letters, groups) = (DeadLetters::To(DEAD.topic), vec![old.clone(), new.clone()]);
    let open = PartitionCommand::Open { config: queue(), groups, dead_letters };
    let origin = world.origin(ALICE);
    world.do_now(Command::Partition(origin, ORDERS, open));
    world.publish_texts(&["a"]);
    let origin = world.origin(ALICE);
    world.do_now(Command::Subscribe(Subscribe {
        origin,
        subscription: 7,
        partition: ORDERS,
        group: new.id,
        credit: Credit { messages: 9, bytes: 999 },
    }));
    world.effects.clear();
    let origin = world.origin(ALICE);
    world.do_now(Command::Settle(Settle {
        origin,
        partition: ORDERS,
        group: new.id,
        verdict: Verdict::Retry,
        runs: vec![run(0, 1, 1)],
        confirm: false,
    }));
    assert_eq!(world.effects, [Effect::DeadLetterTopicNeeded { source: ORDERS.topic }]);
    // An answer that does not know the group changes nothing, and is not asked for again.
    world.effects.clear();
    world.name(ORDERS, &[old.id]);
    let asks = |effect: &Effect| matches!(effect, Effect::DeadLetterTopicNeeded { .. });
    assert!(!world.effects.iter().any(asks));
    world.name(ORDERS, &[old.id, new.id]);
    assert_eq!(world.describe(DEAD).end.0, 1);
}

#[test]
fn the_longest_names_and_the_longest_reason_fit_a_dead_letter() {
    let mut world = World::new();
    let topic = "t".repeat(NAME_BYTES_MAX).parse().expect("it is a name");
    let group = "g".repeat(NAME_BYTES_MAX).parse().expect("it is a name");
    let names = SourceNames { topic, groups: vec![(world::GROUP, group)] };
    let origin = world.origin(ALICE);
    let names = PartitionCommand::Name(std::sync::Arc::new(names));
    world.do_now(Command::Partition(origin, ORDERS, names));
    world.subscribe(ALICE, 1);
    world.publish_texts(&["a"]);
    world.settle(dead_letter_verdict(&"x".repeat(REASON_BYTES_MAX)), vec![run(0, 1, 1)]);
    assert_eq!(world.describe(DEAD).end.0, 1);
}
