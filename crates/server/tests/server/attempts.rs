//! Attempts through sockets: which deliveries fail one, whose settle is stale, and that room which comes
//! free without a settle is used.

use std::time::Duration;

use sennit_model::{GroupId, Offset, TopicId};
use sennit_protocol::{Reply, Request, Verdict, control};
use tempfile::TempDir;

use crate::world::{Broker, Peer, config, publish, texts_of};

/// How long a connection that was lost keeps what it held.
const GRACE: Duration = Duration::from_millis(100);

fn broker() -> (Broker, TempDir) {
    let folder = TempDir::new().unwrap();
    let config = sennit_server::Config { session_grace: GRACE, ..config(folder.path()) };
    (Broker::start(config), folder)
}

fn group_of_three_attempts(peer: &mut Peer) -> TopicId {
    let topic = peer.create_topic("orders", 1);
    let config = control::GroupConfig { attempts_max: Some(3), ..<_>::default() };
    let (topic_name, name) = ("orders".into(), "workers".into());
    let create =
        control::CreateGroup { topic: topic_name, name, config: Some(config), start: None };
    let answer = peer.ask(&Request::CreateGroup(create));
    assert!(matches!(answer, Reply::Done(_)), "{answer:?}");
    let texts: Vec<String> = (0..10).map(|number| number.to_string()).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    peer.send(&Request::Publish(publish(topic, 0, 0, &texts)));
    peer.confirmed_up_to(10);
    topic
}

/// The messages of the group that come to a new consumer, which acks them.
fn drained(broker: &Broker, topic: TopicId, count: usize) -> Vec<String> {
    let mut peer = broker.greeted();
    let group = peer.subscribe("orders", 1, 100);
    let (texts, deliveries) = peer.deliveries(count);
    assert_eq!(peer.settle((topic, group), &deliveries, Verdict::Ack).applied, count as u64);
    let describe = control::DescribeGroup { topic: "orders".into(), name: "workers".into() };
    loop {
        // Dead letters are moved as soon as their topic is there.
        let Reply::GroupDescription(group) = peer.ask(&Request::DescribeGroup(describe.clone()))
        else {
            panic!("no description");
        };
        assert_eq!((group.ready, group.leased), (0, 0));
        if group.settled_before == [10] {
            return texts;
        }
    }
}

/// A consumer that is given ten messages, says something, and crashes. Returns once it is missed.
fn crashes(broker: &Broker, says: impl Fn(&mut Peer, GroupId, &[sennit_protocol::Deliver])) {
    let mut peer = broker.greeted();
    let group = peer.subscribe("orders", 1, 10);
    let (_, deliveries) = peer.deliveries(10);
    says(&mut peer, group, &deliveries);
}

#[test]
fn three_crashes_on_the_first_message_leave_the_nine_behind_it_to_others() {
    let (broker, _folder) = broker();
    let mut peer = broker.greeted();
    let topic = group_of_three_attempts(&mut peer);
    for _ in 0..3 {
        crashes(&broker, |_, _, _| {});
    }
    let expected: Vec<String> = (1..10).map(|number| number.to_string()).collect();
    assert_eq!(drained(&broker, topic, 9), expected);
    let letters = peer.subscribe("orders.dead-letter", 2, 100);
    assert_eq!(texts_of(&peer.delivery()), ["0"]);
    assert_ne!(letters, GroupId::NONE);
    broker.stop();
}

#[test]
fn three_crashes_with_five_messages_at_work_send_these_five_to_the_dead_letters() {
    let (broker, _folder) = broker();
    let mut peer = broker.greeted();
    let topic = group_of_three_attempts(&mut peer);
    for _ in 0..3 {
        crashes(&broker, |peer, group, deliveries| {
            let mut taken = deliveries[0].clone();
            taken.head.count = 5;
            let started = peer.settle((topic, group), &[taken], Verdict::Started);
            assert_eq!((started.applied, started.stale.len()), (5, 0));
        });
    }
    let expected: Vec<String> = (5..10).map(|number| number.to_string()).collect();
    assert_eq!(drained(&broker, topic, 5), expected);
    peer.subscribe("orders.dead-letter", 2, 100);
    assert_eq!(peer.deliveries(5).0, ["0", "1", "2", "3", "4"]);
    broker.stop();
}

#[test]
fn an_ack_of_a_holder_that_has_left_is_stale_whoever_says_it() {
    let (broker, _folder) = broker();
    let mut outside = broker.greeted();
    let topic = outside.create_topic("orders", 1);
    outside.send(&Request::Publish(publish(topic, 0, 0, &["a"])));
    outside.confirmed_up_to(1);
    let unsubscribe = Request::Unsubscribe(control::Unsubscribe { subscription: 1 });
    for (leave, attempt) in [(unsubscribe, 1), (Request::Goodbye, 3)] {
        let mut leaving = broker.greeted();
        let group = leaving.subscribe("orders", 1, 100);
        let old = leaving.delivery();
        assert_eq!(old.head.attempt, attempt);
        leaving.send(&leave);
        let mut staying = broker.greeted();
        staying.subscribe("orders", 1, 100);
        let new = staying.delivery();
        assert_eq!(new.head.attempt, attempt + 1);
        let settled = outside.settle((topic, group), &[old], Verdict::Ack);
        assert_eq!((settled.applied, settled.stale.len()), (0, 1));
        // It is the new holder's still, who gives it back.
        staying.send(&Request::Goodbye);
        while staying.next().is_some() {}
    }
    broker.stop();
}

#[test]
fn a_trim_of_what_a_consumer_holds_brings_it_the_rest() {
    let (broker, _folder) = broker();
    let mut peer = broker.greeted();
    let topic = peer.create_topic("orders", 1);
    for sequence in 0..6 {
        peer.send(&Request::Publish(publish(topic, 0, sequence, &[&sequence.to_string()])));
        peer.confirmed_up_to(sequence + 1);
    }
    let group = peer.subscribe("orders", 1, 3);
    let (texts, held) = peer.deliveries(3);
    assert_eq!(texts, ["0", "1", "2"]);
    let positions = vec![control::ReadPosition { partition: 0, offset: 2 }];
    let trim = control::TrimTopic { topic: "orders".into(), positions };
    assert!(matches!(peer.ask(&Request::TrimTopic(trim)), Reply::Done(_)));
    assert_eq!(peer.deliveries(2).0, ["3", "4"]);
    // What was freed is settled already: its ack does no harm, and makes no room.
    let part = |first, count| {
        let mut part = held[0].clone();
        (part.head.first, part.head.count) = (Offset(first), count);
        part
    };
    let settled = peer.settle((topic, group), &[part(0, 2)], Verdict::Ack);
    assert_eq!((settled.applied, settled.stale.len()), (0, 0));
    let settled = peer.settle((topic, group), &[part(2, 1)], Verdict::Ack);
    assert_eq!((settled.applied, settled.stale.len()), (1, 0));
    assert_eq!(peer.deliveries(1).0, ["5"]);
    broker.stop();
}
