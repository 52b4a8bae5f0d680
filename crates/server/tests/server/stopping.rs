//! Stopping and starting again: what was confirmed is there.

use sennit_model::{Offset, TopicId};
use sennit_protocol::{Reply, Request, Verdict, control};
use tempfile::TempDir;

use crate::world::{Broker, config, ended, publish};

#[test]
fn a_broker_that_stops_says_so_and_ends() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    let stopping = broker.begin_to_stop();
    assert!(matches!(peer.next(), Some((0, Reply::GoAway(_)))));
    while peer.next().is_some() {}
    ended(stopping);
}

#[test]
fn what_was_sent_before_the_end_is_confirmed_or_refused_and_never_lost() {
    let folder = TempDir::new().unwrap();
    let broker = Broker::start(config(folder.path()));
    let mut peer = broker.greeted();
    let topic = peer.create_topic("orders", 1);
    for sequence in 0..200 {
        peer.send(&Request::Publish(publish(topic, 0, sequence, &["x"])));
    }
    let stopping = broker.begin_to_stop();
    let mut confirmed = 0;
    while let Some((_, reply)) = peer.next() {
        if let Reply::Confirm(confirm) = reply {
            confirmed = confirm.head.up_to_sequence;
        }
    }
    ended(stopping);
    let broker = Broker::start(config(folder.path()));
    let mut peer = broker.greeted();
    if confirmed > 0 {
        // What was confirmed is there: sent again, its last message is known.
        peer.send(&Request::Publish(publish(topic, 0, confirmed - 1, &["x"])));
        let run = peer.confirm().runs.iter().next().unwrap();
        assert!(run.duplicate);
        assert_eq!(run.first_offset.unwrap_or(Offset(confirmed - 1)), Offset(confirmed - 1));
    }
    broker.stop();
}

#[test]
fn a_restart_keeps_topics_messages_settlements_and_producers() {
    let folder = TempDir::new().unwrap();
    let broker = Broker::start(config(folder.path()));
    let mut peer = broker.greeted();
    let topic = peer.create_topic("orders", 2);
    let group = peer.subscribe("orders", 1, 1);
    peer.send(&Request::Publish(publish(topic, 0, 0, &["a", "b"])));
    let first = peer.delivery();
    assert_eq!(peer.settle((topic, group), &[first], Verdict::Ack).applied, 1);
    drop(peer);
    broker.stop();

    let broker = Broker::start(config(folder.path()));
    let mut peer = broker.greeted();
    let open = control::OpenTopic { name: "orders".into(), create_if_missing: false };
    let Reply::TopicOpened(opened) = peer.ask(&Request::OpenTopic(open)) else {
        panic!("not there");
    };
    assert_eq!((TopicId(opened.topic_id), opened.partitions), (topic, 2));
    peer.send(&Request::Publish(publish(topic, 0, 0, &["a", "b"])));
    assert!(peer.confirm().runs.iter().next().unwrap().duplicate);
    peer.send(&Request::Publish(publish(topic, 0, 2, &["c"])));
    peer.subscribe("orders", 1, 10);
    assert_eq!(peer.deliveries(2).0, ["b", "c"]);
    broker.stop();
}

#[test]
fn a_slow_consumer_does_not_keep_a_broker_from_stopping() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    let topic = peer.create_topic("orders", 1);
    peer.subscribe("orders", 1, 1_000_000);
    let text = "x".repeat(64 << 10);
    let mut publisher = broker.greeted();
    for sequence in 0..400 {
        publisher.send(&Request::Publish(publish(topic, 0, sequence, &[&text])));
    }
    publisher.confirmed_up_to(400);
    let begin = std::time::Instant::now();
    broker.stop();
    assert!(begin.elapsed() < crate::world::SOON);
    drop(peer);
}
