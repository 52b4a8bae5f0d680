//! Readers with a filter, over frames: what passes comes, what does not is told where it must be, and
//! what is no filter is refused.

use sennit_model::{
    BatchBuilder, Message, Offset, OffsetRange, PartitionId, PartitionIndex, ProducerStamp, TopicId,
};
use sennit_protocol::{ErrorCode, Gap, GapReason, Publish, PublishHead, Reply, Request, control};

use crate::{
    reading::{begin, read, reader},
    world::{Broker, Peer},
};

/// Publishes messages that have these keys, which are their payloads too.
fn publish_keyed(peer: &mut Peer, topic: TopicId, keys: &[&str]) {
    let mut builder = BatchBuilder::new();
    for key in keys {
        let key = (*key).to_owned();
        builder.push(&Message { key: key.clone().into(), ..Message::new(key) }).unwrap();
    }
    let batch = builder.take().unwrap().bytes().clone();
    let partition = PartitionId { topic, index: PartitionIndex(0) };
    let count = u32::try_from(keys.len()).unwrap();
    let producer = ProducerStamp::default();
    let head = PublishHead { partition, producer, count };
    peer.send(&Request::Publish(Publish { head, batch }));
}

fn filtered(filter: &str) -> control::Read {
    control::Read { filter: Some(filter.into()), ..read("orders") }
}

#[test]
fn a_reader_gets_what_its_filter_lets_through() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = reader(&broker);
    let topic = peer.create_topic("orders", 1);
    publish_keyed(&mut peer, topic, &["a-1", "b-1", "a-2", "a-3", "b-2"]);
    peer.confirm();
    let subscribed = begin(&mut peer, filtered("key prefix 'a-'"));
    assert_eq!((subscribed.ranges[0].first, subscribed.ranges[0].end), (0, 5));
    let (texts, runs) = peer.deliveries(3);
    assert_eq!(texts, ["a-1", "a-2", "a-3"]);
    assert_eq!(runs.iter().map(|run| run.head.first.0).collect::<Vec<_>>(), [0, 2]);
    let gap = |first, count| {
        let (offsets, reason) = (OffsetRange::new(Offset(first), count), GapReason::Filtered);
        Reply::Gap(Gap { subscription: 5, partition: PartitionIndex(0), offsets, reason })
    };
    assert_eq!(peer.next().unwrap().1, gap(4, 1));
    broker.stop();
}

#[test]
fn what_is_no_filter_is_refused_with_its_place() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = reader(&broker);
    peer.create_topic("orders", 1);
    match peer.ask(&Request::Read(filtered("key = eu"))) {
        Reply::Error(error) => {
            assert_eq!(error.error_code(), Some(ErrorCode::InvalidFilter));
            assert!(error.message.starts_with("at byte 6 of the filter: found `eu`"), "{error:?}");
        }
        other => panic!("{other:?}"),
    }
    // Its number is free, and the connection goes on.
    begin(&mut peer, filtered("key = 'eu'"));
    broker.stop();
}
