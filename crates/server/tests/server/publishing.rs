//! Publishing: what is confirmed, what is refused, and what is not appended twice.

use sennit_model::{Offset, ProducerStamp, TopicId};
use sennit_protocol::{ErrorCode, PublishAt, Reply, Request, Verdict, control};

use crate::{
    http::get,
    world::{Broker, Peer, publish, settlement},
};

fn error_to(peer: &mut Peer, request: &Request) -> control::Error {
    match peer.ask(request) {
        Reply::Error(error) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_publish_is_confirmed_with_its_offsets() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    let topic = peer.create_topic("orders", 2);
    for partition in 0..2 {
        peer.send(&Request::Publish(publish(topic, partition, 0, &["a", "b", "c"])));
        let confirm = peer.confirm();
        assert_eq!(confirm.head.partition.index.0, partition);
        assert_eq!(confirm.head.up_to_sequence, 3);
        let run = confirm.runs.iter().next().unwrap();
        assert_eq!((run.first_offset, run.count, run.duplicate), (Some(Offset(0)), 3, false));
    }
    broker.stop();
}

#[test]
fn batches_that_were_sent_together_are_confirmed_together() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    let topic = peer.create_topic("orders", 1);
    let mut bytes = Vec::new();
    for sequence in 0..50 {
        publish(topic, 0, sequence, &["x"]).encode(0, &mut bytes);
    }
    peer.send_bytes(&bytes);
    let mut messages = 0;
    let mut confirms = 0;
    while messages < 50 {
        let confirm = peer.confirm();
        confirms += 1;
        messages += confirm.runs.iter().map(|run| run.count).sum::<u32>();
        assert_eq!(confirm.head.up_to_sequence, u64::from(messages));
    }
    assert!(confirms <= 10, "{confirms} confirms");
    broker.stop();
}

#[test]
fn a_batch_that_is_sent_again_is_confirmed_as_a_duplicate_and_not_appended() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    let topic = peer.create_topic("orders", 1);
    let batch = Request::Publish(publish(topic, 0, 0, &["a", "b"]));
    peer.send(&batch);
    peer.confirmed_up_to(2);
    peer.send(&batch);
    let run = peer.confirm().runs.iter().next().unwrap();
    assert_eq!((run.first_offset, run.count, run.duplicate), (Some(Offset(0)), 2, true));
    peer.subscribe("orders", 1, 10);
    assert_eq!(peer.deliveries(2).0, ["a", "b"]);
    let describe = control::DescribeTopic { name: "orders".into() };
    let Reply::TopicDescription(topic) = peer.ask(&Request::DescribeTopic(describe)) else {
        panic!("no description");
    };
    assert_eq!(topic.partitions[0].end, 2);
    broker.stop();
}

#[test]
fn a_gap_is_refused_with_the_sequence_that_is_expected() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    let topic = peer.create_topic("orders", 1);
    peer.send(&Request::Publish(publish(topic, 0, 0, &["a"])));
    peer.confirmed_up_to(1);
    let error = error_to(&mut peer, &Request::Publish(publish(topic, 0, 5, &["f"])));
    assert_eq!(error.error_code(), Some(ErrorCode::SequenceGap));
    assert_eq!(error.expected_sequence, Some(1));
    broker.stop();
}

#[test]
fn unknown_topics_and_partitions_are_refused_and_the_connection_stays() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    let topic = peer.create_topic("orders", 1);
    for (topic, partition) in [(TopicId(999), 0), (topic, 1), (topic, 1000)] {
        let error = error_to(&mut peer, &Request::Publish(publish(topic, partition, 0, &["a"])));
        assert_eq!(error.error_code(), Some(ErrorCode::UnknownTopic));
        assert!(!error.closes_connection);
    }
    assert_eq!(peer.ask(&Request::Ping), Reply::Pong);
    broker.stop();
}

#[test]
fn a_damaged_batch_is_refused_and_none_of_it_appended() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    let topic = peer.create_topic("orders", 1);
    let good = publish(topic, 0, 0, &["a", "b"]);
    let mut damaged = good.clone();
    let mut bytes = damaged.batch.to_vec();
    bytes[0] ^= 0xff;
    damaged.batch = bytes.into();
    let mut miscounted = good.clone();
    miscounted.head.count = 3;
    for bad in [damaged, miscounted] {
        let error = error_to(&mut peer, &Request::Publish(bad));
        assert_eq!(error.error_code(), Some(ErrorCode::BatchInvalid), "{error:?}");
        assert_eq!(error.first_sequence, Some(0));
    }
    peer.send(&Request::Publish(good));
    let run = peer.confirm().runs.iter().next().unwrap();
    assert_eq!(run.first_offset, Some(Offset(0)));
    broker.stop();
}

#[test]
fn publishers_are_paused_and_not_refused_when_they_outrun_the_disk() {
    let folder = tempfile::TempDir::new().unwrap();
    let config =
        sennit_server::Config { ingest_bytes: 64 << 10, ..crate::world::config(folder.path()) };
    let broker = Broker::start(config);
    let mut peer = broker.greeted();
    let topic = peer.create_topic("orders", 2);
    let text = "x".repeat(16 << 10);
    let mut bytes = Vec::new();
    for sequence in 0..500 {
        publish(topic, 0, sequence, &[&text]).encode(0, &mut bytes);
        publish(topic, 1, sequence, &[&text]).encode(0, &mut bytes);
    }
    peer.send_bytes(&bytes);
    let mut confirmed = 0;
    while confirmed < 1000 {
        confirmed += peer.confirm().runs.iter().map(|run| run.count).sum::<u32>();
    }
    broker.stop();
}

#[test]
fn a_connection_that_waits_for_a_settle_stays_until_it_is_answered() {
    let (broker, _folder) = Broker::fresh();
    let mut consumer = broker.greeted();
    let topics = ["odd", "even"].map(|name| consumer.create_topic(name, 1));
    let group = consumer.subscribe("odd", 1, 10);
    consumer.send(&Request::Publish(publish(topics[0], 0, 0, &["x"])));
    let delivery = consumer.delivery();
    // From both cores to both cores: whichever they begin at, some belong elsewhere.
    for sequence in 0..2 {
        for topic in topics {
            let mut peer = broker.greeted();
            let settle =
                settlement((topics[0], group), std::slice::from_ref(&delivery), Verdict::Ack);
            let mut bytes = Vec::new();
            settle.encode(8, &mut bytes);
            publish(topic, 0, 1 + sequence, &["x"]).encode(0, &mut bytes);
            peer.send_bytes(&bytes);
            assert!(matches!(peer.answer_to(8), Reply::Settled(_)));
        }
    }
    broker.stop();
}

#[test]
fn a_connection_moves_to_the_core_of_its_partition_with_all_that_it_has_sent() {
    let (broker, _folder) = Broker::fresh();
    let mut admin = broker.greeted();
    let topics = ["odd", "even"].map(|name| (name, admin.create_topic(name, 1)));
    let mut peers = Vec::new();
    for round in 0..2 {
        for (name, topic) in topics {
            // Everything after the greeting in one write: the move must not lose what is behind it.
            let mut peer = broker.greeted();
            let mut bytes = Vec::new();
            for sequence in 0..3 {
                publish(topic, 0, 3 * round + sequence, &["x"]).encode(0, &mut bytes);
            }
            peer.send_bytes(&bytes);
            peer.confirmed_up_to(3 * round + 3);
            let mut consumer = broker.greeted();
            consumer.subscribe(name, 1, 100);
            peers.push((peer, consumer));
        }
    }
    let (_, metrics) = get(&broker, "/metrics");
    let sum = |name: &str| {
        let of_core = |line: &str| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
        let lines = metrics.lines().filter(|line| line.starts_with(&format!("{name}{{")));
        lines.map(of_core).sum::<u64>()
    };
    assert_eq!(sum("sennit_connections"), 9);
    assert_eq!(sum("sennit_connections_opened_total"), 9);
    // They were handed round two cores, and each topic is on one.
    assert_eq!(sum("sennit_connections_moved_total"), 4);
    drop(peers);
    broker.stop();
}

#[test]
fn of_two_that_expect_the_same_offset_one_is_refused_and_learns_the_next() {
    let (broker, _folder) = Broker::fresh();
    let mut first = broker.greeted();
    let mut second = broker.greeted();
    let topic = first.create_topic("ledger", 1);
    let at = |expected| {
        let mut publish = publish(topic, 0, 0, &["debit", "credit"]);
        publish.head.producer = ProducerStamp::default();
        Request::PublishAt(PublishAt { expected: Offset(expected), publish })
    };
    for (peer, expected) in [(&mut first, 0), (&mut second, 2)] {
        match peer.ask(&at(expected)) {
            Reply::PublishedAt(there) => assert_eq!((there.first.0, there.count), (expected, 2)),
            other => panic!("{other:?}"),
        }
    }
    let error = error_to(&mut first, &at(2));
    assert_eq!(error.error_code(), Some(ErrorCode::OffsetMismatch));
    assert_eq!((error.next_offset, error.closes_connection), (Some(4), false));
    broker.stop();
}
