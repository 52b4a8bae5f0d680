//! Readers over frames: where they begin, what they get, what makes room for more, what they may not
//! do.

use sennit_model::{GroupId, Offset, OffsetRange, PartitionIndex, TopicId};
use sennit_protocol::{
    ErrorCode, Features, Gap, GapReason, Reply, Request, Taken, Verdict, control,
};

use crate::world::{Broker, Peer, publish, settlement, texts_of};

/// A peer that was granted all there is.
pub fn reader(broker: &Broker) -> Peer {
    let hello = control::Hello { features: Features::ALL.names(), ..<_>::default() };
    let (peer, granted) = broker.connect().greeted_with(hello);
    assert_eq!(granted.features, Features::ALL.names());
    peer
}

/// What it takes to read `topic` from the earliest as subscription 5.
pub fn read(topic: &str) -> control::Read {
    control::Read {
        subscription: 5,
        topic: topic.into(),
        credit_messages: 10_000,
        credit_bytes: 64 << 20,
        ..<_>::default()
    }
}

/// Begins it, and hears where.
pub fn begin(peer: &mut Peer, read: control::Read) -> control::Subscribed {
    match peer.ask(&Request::Read(read)) {
        Reply::Subscribed(subscribed) => subscribed,
        other => panic!("{other:?}"),
    }
}

fn refused(reply: Reply) -> Option<ErrorCode> {
    match reply {
        Reply::Error(error) => error.error_code(),
        other => panic!("{other:?}"),
    }
}

/// Creates a topic for readers.
pub fn stream(peer: &mut Peer, name: &str, partitions: u32) -> TopicId {
    let config = control::TopicConfig {
        partitions: Some(partitions),
        retention: Some(control::Retention::default()),
        time_to_live_ms: None,
        ..<_>::default()
    };
    let create = control::CreateTopic { name: name.into(), config: Some(config), beside: None };
    match peer.ask(&Request::CreateTopic(create)) {
        Reply::Done(done) => TopicId(done.topic_id),
        other => panic!("{other:?}"),
    }
}

/// Publishes, and waits for the confirm.
pub fn published(peer: &mut Peer, topic: TopicId, partition: u32, first: u64, texts: &[&str]) {
    peer.send(&Request::Publish(publish(topic, partition, first, texts)));
    peer.confirmed_up_to(first + texts.len() as u64);
}

#[test]
fn a_reader_is_told_where_it_begins_and_gets_all_from_there() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = reader(&broker);
    let topic = stream(&mut peer, "lines", 2);
    published(&mut peer, topic, 0, 0, &["a", "b", "c"]);
    published(&mut peer, topic, 1, 0, &["d"]);
    let from = control::ReadFrom { at: Some(control::read_from::At::Back(1)) };
    let position = control::ReadPosition { partition: 0, offset: 1 };
    let positions = vec![position];
    let subscribed =
        begin(&mut peer, control::Read { from: Some(from), positions, ..read("lines") });
    let range = |first, end| control::ReadRange { first, end };
    assert_eq!(subscribed.ranges, [range(1, 3), range(0, 1)]);
    assert_eq!((subscribed.group_id, subscribed.lease_ms), (GroupId::NONE.0, 0));
    let (mut texts, deliveries) = peer.deliveries(3);
    texts.sort_unstable();
    assert_eq!(texts, ["b", "c", "d"]);
    assert!(deliveries.iter().all(|deliver| deliver.head.attempt == 0));
    let mut other = reader(&broker);
    begin(&mut other, read("lines"));
    assert_eq!(other.deliveries(4).0.len(), 4);
    // What comes later comes to both.
    published(&mut peer, topic, 1, 1, &["e"]);
    assert_eq!((peer.deliveries(1).0, other.deliveries(1).0), (vec!["e".into()], vec!["e".into()]));
    broker.stop();
}

#[test]
fn what_was_taken_makes_room_for_as_much() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = reader(&broker);
    let topic = stream(&mut peer, "lines", 1);
    published(&mut peer, topic, 0, 0, &["a", "b", "c", "d"]);
    begin(&mut peer, control::Read { credit_messages: 2, ..read("lines") });
    assert_eq!(peer.deliveries(2).0, ["a", "b"]);
    let taken = Taken { subscription: 5, partition: PartitionIndex(0), messages: 1, bytes: 17 };
    peer.send(&Request::Taken(taken));
    assert_eq!(peer.deliveries(1).0, ["c"]);
    peer.send(&Request::Taken(taken));
    assert_eq!(peer.deliveries(1).0, ["d"]);
    // Of a partition that is not there, and of a reader that is not, it is nothing, or said so.
    peer.send(&Request::Taken(Taken { partition: PartitionIndex(7), ..taken }));
    let nobodys = Taken { subscription: 6, ..taken };
    let refusal = refused(peer.ask(&Request::Taken(nobodys)));
    assert_eq!(refusal, Some(ErrorCode::UnknownSubscription));
    broker.stop();
}

#[test]
fn a_reader_has_nothing_to_settle() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = reader(&broker);
    let topic = stream(&mut peer, "lines", 1);
    published(&mut peer, topic, 0, 0, &["a"]);
    begin(&mut peer, read("lines"));
    let mut delivery = peer.delivery();
    assert_eq!(texts_of(&delivery), ["a"]);
    delivery.head.attempt = 1;
    for verdict in [Verdict::Ack, Verdict::Retry] {
        let settle = settlement((topic, GroupId::NONE), &[delivery.clone()], verdict);
        assert_eq!(refused(peer.ask(&settle)), Some(ErrorCode::NotLeased));
    }
    broker.stop();
}

#[test]
fn a_reader_goes_on_in_its_own_topic_only_and_ends_with_it() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = reader(&broker);
    let topic = stream(&mut peer, "lines", 2);
    let elsewhere = control::Read { topic_id: Some(topic.0 + 1), ..read("lines") };
    assert_eq!(refused(peer.ask(&Request::Read(elsewhere))), Some(ErrorCode::UnknownTopic));
    let nowhere = refused(peer.ask(&Request::Read(read("nowhere"))));
    assert_eq!(nowhere, Some(ErrorCode::UnknownTopic));
    begin(&mut peer, control::Read { topic_id: Some(topic.0), ..read("lines") });
    let again = refused(peer.ask(&Request::Read(read("lines"))));
    assert_eq!(again, Some(ErrorCode::SubscriptionExists));
    peer.send(&Request::DeleteTopic(control::DeleteTopic { name: "lines".into() }));
    loop {
        match peer.next().unwrap().1 {
            Reply::SubscriptionEnded(ended) => break assert_eq!(ended.subscription, 5),
            Reply::Done(_) => {}
            other => panic!("{other:?}"),
        }
    }
    let topic = stream(&mut peer, "lines", 1);
    begin(&mut peer, read("lines"));
    published(&mut peer, topic, 0, 0, &["anew"]);
    assert_eq!(peer.deliveries(1).0, ["anew"]);
    let end = control::Unsubscribe { subscription: 5 };
    assert!(matches!(peer.ask(&Request::Unsubscribe(end)), Reply::Done(_)));
    broker.stop();
}

#[test]
fn who_begins_before_what_is_kept_is_told_of_the_gap() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = reader(&broker);
    let topic = peer.create_topic("orders", 1);
    let default = control::DeleteGroup { topic: "orders".into(), name: "default".into() };
    peer.ask(&Request::DeleteGroup(default));
    let group = peer.subscribe("orders", 1, 10);
    published(&mut peer, topic, 0, 0, &["a", "b"]);
    let (_, deliveries) = peer.deliveries(2);
    peer.settle((topic, group), &deliveries, Verdict::Ack);
    let from = control::ReadFrom { at: Some(control::read_from::At::Offset(0)) };
    begin(&mut peer, control::Read { from: Some(from), ..read("orders") });
    let (_, reply) = peer.next().unwrap();
    let offsets = OffsetRange::new(Offset(0), 2);
    let (partition, reason) = (PartitionIndex(0), GapReason::Retention);
    assert_eq!(reply, Reply::Gap(Gap { subscription: 5, partition, offsets, reason }));
    broker.stop();
}

#[test]
fn a_reader_that_would_not_wait_ends_in_all_partitions_and_its_number_is_free() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = reader(&broker);
    let topic = stream(&mut peer, "lines", 2);
    let mut slow = reader(&broker);
    let asked = || {
        let mut read = control::Read { credit_messages: 2, ..read("lines") };
        read.set_when_slow(control::WhenSlow::Disconnect);
        read
    };
    begin(&mut slow, asked());
    let text = "x".repeat(1 << 20);
    for batch in 0..4 {
        published(&mut peer, topic, 0, 5 * batch, &[text.as_str(); 5]);
    }
    let ended = loop {
        match slow.next().map(|(_, reply)| reply) {
            Some(Reply::Deliver(_)) => {}
            Some(Reply::SubscriptionEnded(ended)) => break ended,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((ended.subscription, ended.code), (5, ErrorCode::SlowConsumer.number()));
    let latest = control::ReadFrom { at: Some(control::read_from::At::Latest(true)) };
    begin(&mut slow, control::Read { from: Some(latest), ..read("lines") });
    published(&mut peer, topic, 1, 0, &["b"]);
    assert_eq!(slow.deliveries(1).0, ["b"]);
    broker.stop();
}
