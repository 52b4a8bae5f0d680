//! Consuming: leases, settlements, credit, and what the end of a connection means for them.

use std::time::Duration;

use sennit_protocol::{ErrorCode, Reply, Request, SetCredit, Settled, Verdict, control};
use tempfile::TempDir;

use crate::{
    http::get,
    reading,
    world::{Broker, Peer, config, publish, settlement, texts_of},
};

#[test]
fn what_is_published_is_delivered_once_and_is_gone_when_acked() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    let topic = peer.create_topic("orders", 2);
    let group = peer.subscribe("orders", 1, 100);
    peer.send(&Request::Publish(publish(topic, 0, 0, &["a", "b"])));
    peer.send(&Request::Publish(publish(topic, 1, 0, &["c"])));
    let (mut texts, deliveries) = peer.deliveries(3);
    texts.sort();
    assert_eq!(texts, ["a", "b", "c"]);
    assert!(deliveries.iter().all(|deliver| deliver.head.attempt == 1));
    // Both partitions, on two shards, answer as one.
    let settled = peer.settle((topic, group), &deliveries, Verdict::Ack);
    assert_eq!((settled.applied, settled.stale.len()), (3, 0));
    let describe = control::DescribeGroup { topic: "orders".into(), name: "workers".into() };
    let Reply::GroupDescription(group) = peer.ask(&Request::DescribeGroup(describe)) else {
        panic!("no description");
    };
    assert_eq!((group.ready, group.leased, group.settled_before), (0, 0, vec![2, 1]));
    broker.stop();
}

#[test]
fn a_settle_of_an_earlier_attempt_is_stale_and_changes_nothing() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    let topic = peer.create_topic("orders", 1);
    let group = peer.subscribe("orders", 1, 100);
    peer.send(&Request::Publish(publish(topic, 0, 0, &["a"])));
    let first = peer.delivery();
    assert_eq!(
        peer.settle((topic, group), std::slice::from_ref(&first), Verdict::Retry).applied,
        1
    );
    let second = peer.delivery();
    assert_eq!((second.head.attempt, texts_of(&second)), (2, vec!["a".to_owned()]));
    let settled = peer.settle((topic, group), &[first], Verdict::Ack);
    assert_eq!((settled.applied, settled.stale.len()), (0, 1));
    assert_eq!(peer.settle((topic, group), &[second], Verdict::Ack).applied, 1);
    broker.stop();
}

#[test]
fn a_subscription_that_ends_before_its_answer_does_not_begin() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    let topic = peer.create_topic("orders", 1);
    peer.subscribe("orders", 1, 1);
    let subscribe = control::Subscribe {
        subscription: 2,
        topic: "orders".into(),
        group: "workers".into(),
        credit_messages: 100,
        credit_bytes: 1 << 20,
        ..<_>::default()
    };
    let read = control::Read { subscription: 2, ..reading::read("orders") };
    let end = Request::Unsubscribe(control::Unsubscribe { subscription: 2 });
    for begin in [Request::Subscribe(subscribe), Request::Read(read)] {
        let asked = peer.send_together(&[begin.clone(), end.clone()]);
        let (of, first) = peer.next().unwrap();
        assert!(matches!(first, Reply::Done(_)) && of == asked[1], "{first:?}");
        let Reply::Error(error) = peer.answer_to(asked[0]) else { panic!("it has begun") };
        assert_eq!(error.error_code(), Some(ErrorCode::UnknownSubscription), "{error:?}");
        // Its number is free.
        let asked = peer.send_together(&[begin.clone(), end.clone(), begin]);
        assert!(matches!(peer.answer_to(asked[1]), Reply::Done(_)));
        assert!(matches!(peer.answer_to(asked[0]), Reply::Error(_)));
        assert!(matches!(peer.answer_to(asked[2]), Reply::Subscribed(_)));
        assert!(matches!(peer.ask(&end), Reply::Done(_)));
    }
    // All goes to the one that is there.
    peer.send(&Request::Publish(publish(topic, 0, 0, &["a"])));
    let deliver = peer.delivery();
    assert_eq!((deliver.head.subscription, texts_of(&deliver)), (1, vec!["a".to_owned()]));
    broker.stop();
}

#[test]
fn an_ack_may_come_over_another_connection() {
    let (broker, _folder) = Broker::fresh();
    let (mut one, mut other) = (broker.greeted(), broker.greeted());
    let topic = one.create_topic("orders", 1);
    let group = one.subscribe("orders", 1, 100);
    one.send(&Request::Publish(publish(topic, 0, 0, &["a"])));
    let delivery = one.delivery();
    assert_eq!(other.settle((topic, group), &[delivery], Verdict::Ack).applied, 1);
    broker.stop();
}

#[test]
fn credit_bounds_what_is_held_and_more_of_it_brings_more() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    let topic = peer.create_topic("orders", 1);
    peer.send(&Request::Publish(publish(topic, 0, 0, &["a", "b", "c", "d"])));
    peer.confirmed_up_to(4);
    let group = peer.subscribe("orders", 1, 2);
    let (texts, held) = peer.deliveries(2);
    assert_eq!(texts, ["a", "b"]);
    // The ping's answer would come behind anything delivered before it.
    let ping = peer.send(&Request::Ping);
    assert_eq!(peer.next(), Some((ping, Reply::Pong)));
    peer.send(&Request::SetCredit(SetCredit { subscription: 1, messages: 3, bytes: 1 << 20 }));
    assert_eq!(peer.deliveries(1).0, ["c"]);
    peer.send(&settlement((topic, group), &held, Verdict::Ack));
    assert_eq!(peer.deliveries(1).0, ["d"]);
    broker.stop();
}

#[test]
fn a_consumer_that_does_not_read_holds_up_nobody_else() {
    let (broker, _folder) = Broker::fresh();
    let mut stuck = broker.greeted();
    let topic = stuck.create_topic("orders", 1);
    let group = stuck.subscribe("orders", 1, 1_000_000);
    let mut other = broker.greeted();
    other.subscribe("orders", 1, 16);
    let mut publisher = broker.greeted();
    // Far more than sockets hold; the one that never reads gets the most of it.
    let text = "x".repeat(64 << 10);
    let mut seen = 0;
    for sequence in 0..800u64 {
        publisher.send(&Request::Publish(publish(topic, 0, sequence, &[&text])));
        publisher.confirmed_up_to(sequence + 1);
        if sequence % 8 == 7 {
            let delivery = other.delivery();
            seen += delivery.head.count;
            other.settle((topic, group), &[delivery], Verdict::Ack);
        }
    }
    assert!(seen >= 100, "{seen}");
    drop(stuck);
    broker.stop();
}

#[test]
fn goodbye_returns_what_was_held_at_once() {
    let (broker, _folder) = Broker::fresh();
    let mut leaving = broker.greeted();
    let topic = leaving.create_topic("orders", 1);
    leaving.subscribe("orders", 1, 100);
    leaving.send(&Request::Publish(publish(topic, 0, 0, &["a"])));
    leaving.delivery();
    let mut staying = broker.greeted();
    staying.subscribe("orders", 9, 100);
    leaving.send(&Request::Goodbye);
    while leaving.next().is_some() {}
    let delivery = staying.delivery();
    // No attempt has failed, and it is another delivery.
    assert_eq!((delivery.head.subscription, delivery.head.attempt), (9, 2));
    broker.stop();
}

#[test]
fn a_cut_connection_keeps_what_it_held_for_the_grace_and_no_longer() {
    let folder = TempDir::new().unwrap();
    let grace = Duration::from_millis(300);
    let broker =
        Broker::start(sennit_server::Config { session_grace: grace, ..config(folder.path()) });
    let mut cut = broker.greeted();
    let topic = cut.create_topic("orders", 1);
    cut.subscribe("orders", 1, 100);
    let mut staying = broker.greeted();
    cut.send(&Request::Publish(publish(topic, 0, 0, &["a"])));
    cut.delivery();
    staying.subscribe("orders", 1, 100);
    let begin = std::time::Instant::now();
    drop(cut);
    assert_eq!(staying.delivery().head.attempt, 2);
    assert!(begin.elapsed() >= grace, "{:?}", begin.elapsed());
    broker.stop();
}

/// A consumer that comes back while its old connection is open; what it settles of the old
/// deliveries, and the old connection.
fn comes_back(broker: &Broker, names_its_token: bool) -> (Settled, Peer) {
    let (mut old, ok) = broker.connect().greeted_with(control::Hello::default());
    assert_ne!(ok.session_token, 0);
    let topic = old.create_topic("orders", 2);
    let group = old.subscribe("orders", 1, 100);
    for partition in 0..2 {
        old.send(&Request::Publish(publish(topic, partition, 0, &["a"])));
    }
    let (_, held) = old.deliveries(2);
    let replaces = names_its_token.then_some(ok.session_token);
    let hello = control::Hello { replaces, ..<_>::default() };
    let (mut new, _) = broker.connect().greeted_with(hello);
    new.subscribe("orders", 1, 100);
    (new.settle((topic, group), &held, Verdict::Ack), old)
}

#[test]
fn who_comes_back_with_its_token_settles_what_its_old_connection_holds() {
    let (broker, _folder) = Broker::fresh();
    let (settled, mut old) = comes_back(&broker, true);
    assert_eq!((settled.applied, settled.stale.len()), (2, 0));
    while old.next().is_some() {}
    broker.stop();
}

#[test]
fn who_comes_back_without_its_token_is_another_and_disturbs_nobody() {
    let (broker, _folder) = Broker::fresh();
    let (settled, mut old) = comes_back(&broker, false);
    assert_eq!((settled.applied, settled.stale.len()), (0, 2));
    let unknown = control::Hello { replaces: Some(1), ..<_>::default() };
    broker.connect().greeted_with(unknown);
    assert_eq!(old.ask(&Request::Ping), Reply::Pong);
    broker.stop();
}

#[test]
fn a_session_that_has_moved_to_another_core_can_be_replaced() {
    let (broker, _folder) = Broker::fresh();
    for name in ["a", "b", "c", "d"] {
        let (mut old, ok) = broker.connect().greeted_with(control::Hello::default());
        old.create_topic(name, 1);
        old.subscribe(name, 1, 1);
        let hello = control::Hello { replaces: Some(ok.session_token), ..<_>::default() };
        broker.connect().greeted_with(hello);
        while old.next().is_some() {}
    }
    let (_, metrics) = get(&broker, "/metrics");
    let moved = |line: &str| line.starts_with("sennit_connections_moved") && !line.ends_with(" 0");
    assert!(metrics.lines().any(moved), "{metrics}");
    broker.stop();
}

#[test]
fn unsubscribing_returns_what_was_held_and_frees_the_number() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    let topic = peer.create_topic("orders", 2);
    peer.subscribe("orders", 1, 100);
    peer.send(&Request::Publish(publish(topic, 1, 0, &["a"])));
    assert_eq!(peer.delivery().head.attempt, 1);
    let unsubscribe = Request::Unsubscribe(control::Unsubscribe { subscription: 1 });
    assert!(matches!(peer.ask(&unsubscribe), Reply::Done(_)));
    let Reply::Error(error) = peer.ask(&unsubscribe) else { panic!("not refused") };
    assert_eq!(error.error_code(), Some(ErrorCode::UnknownSubscription));
    peer.subscribe("orders", 1, 100);
    assert_eq!(peer.delivery().head.attempt, 2);
    broker.stop();
}

#[test]
fn a_subscription_number_serves_once_at_a_time() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    peer.create_topic("orders", 1);
    peer.subscribe("orders", 1, 100);
    let subscribe = control::Subscribe {
        subscription: 1,
        topic: "orders".into(),
        group: "workers".into(),
        credit_messages: 1,
        ..<_>::default()
    };
    let Reply::Error(error) = peer.ask(&Request::Subscribe(subscribe)) else {
        panic!("not refused");
    };
    assert_eq!(error.error_code(), Some(ErrorCode::SubscriptionExists));
    broker.stop();
}

#[test]
fn dead_letters_go_to_a_topic_that_is_made_for_them() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    let topic = peer.create_topic("orders", 2);
    let group = peer.subscribe("orders", 1, 100);
    peer.send(&Request::Publish(publish(topic, 1, 0, &["bad"])));
    let delivery = peer.delivery();
    let verdict = Verdict::DeadLetter { reason: "not to be done".into() };
    assert_eq!(peer.settle((topic, group), &[delivery], verdict).applied, 1);
    let list = Request::ListTopics(control::ListTopics::default());
    let letters = loop {
        let Reply::TopicList(list) = peer.ask(&list) else { panic!("no list") };
        if let Some(topic) = list.topics.into_iter().find(|topic| topic.name != "orders") {
            break topic;
        }
    };
    peer.subscribe(&letters.name, 2, 100);
    let letter = peer.delivery();
    assert_eq!((letter.head.subscription, letter.head.partition.0), (2, 1));
    assert_eq!(texts_of(&letter), ["bad"]);
    broker.stop();
}

#[test]
fn a_delivery_keeps_to_the_frame_limit_that_was_agreed() {
    let (broker, _folder) = Broker::fresh();
    let mut publisher = broker.greeted();
    let topic = publisher.create_topic("orders", 1);
    let text = "x".repeat(20 << 10);
    publisher.send(&Request::Publish(publish(topic, 0, 0, &[text.as_str(); 16])));
    publisher.confirmed_up_to(16);
    let mut small = broker.connect().greeted(64 << 10);
    small.subscribe("orders", 1, 100);
    let (texts, deliveries) = small.deliveries(16);
    assert_eq!(texts.len(), 16);
    assert!(deliveries.iter().all(|deliver| deliver.messages.len() <= 64 << 10));
    let firsts: Vec<u64> = deliveries.iter().map(|deliver| deliver.head.first.0).collect();
    assert!(firsts.is_sorted() && firsts.len() >= 6, "{firsts:?}");
    broker.stop();
}

#[test]
fn a_subscription_whose_topic_is_deleted_is_told_once_and_its_number_is_free() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    peer.create_topic("orders", 4);
    peer.create_topic("others", 1);
    peer.subscribe("orders", 1, 100);
    let delete = Request::DeleteTopic(control::DeleteTopic { name: "orders".into() });
    let number = peer.send(&delete);
    let (mut ended, mut done) = (0, false);
    while !(done && ended > 0) {
        match peer.next().unwrap() {
            (_, Reply::SubscriptionEnded(body)) => {
                assert_eq!(body.subscription, 1);
                ended += 1;
            }
            (of, Reply::Done(_)) if of == number => done = true,
            other => panic!("{other:?}"),
        }
    }
    let ping = peer.send(&Request::Ping);
    assert_eq!(peer.next(), Some((ping, Reply::Pong)));
    assert_eq!(ended, 1);
    peer.subscribe("others", 1, 100);
    broker.stop();
}
