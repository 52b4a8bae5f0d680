//! A client with the shortest frames, and a topic with the most partitions: replies that no frame holds are
//! refused, and the connection continues.

use sennit_client::{
    Client, CursorName, Error, ErrorCode, Message, Offset, PartitionIndex, Reconnect, TopicConfig,
    TopicKind, TopicName,
};

use crate::{bounds::within, broker::Broker};

const PARTITIONS: u32 = 1024;

/// No connection is granted less.
const FRAME_BYTES_MAX: usize = 16_384;

#[test]
fn a_client_with_the_shortest_frames_is_told_what_is_too_long_and_reads_a_thousand_partitions() {
    within("a thousand partitions are read", with_the_shortest_frames());
}

async fn with_the_shortest_frames() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    // Whoever loses its connection fails.
    let builder = Client::builder(broker.listen.clone()).reconnect(Reconnect::off());
    let client = builder.max_frame_bytes(FRAME_BYTES_MAX).connect().await.unwrap();
    let topic: TopicName = "wide".parse().unwrap();
    let config = TopicConfig { partitions: PARTITIONS, ..TopicConfig::of_kind(TopicKind::Stream) };
    client.create_topic(&topic, config).await.unwrap();

    let cursors = ["a", "b", "c", "d"].map(|name| name.parse::<CursorName>().unwrap());
    let everywhere: Vec<_> =
        (0..PARTITIONS).map(|index| (PartitionIndex(index), Offset(0))).collect();
    for cursor in &cursors {
        client.set_cursor(&topic, cursor, &everywhere, false).await.unwrap();
    }
    match client.list_cursors(&topic).await {
        Err(error @ Error::Refused { code: ErrorCode::LimitReached, .. }) => {
            assert!(error.to_string().contains("frame_bytes_max"), "{error}");
        }
        other => panic!("{other:?}"),
    }

    // The answer to a Read names all partitions too, and fits.
    let mut reader = client.reader(&topic).cursor(&cursors[0]).start().await.unwrap();
    assert_eq!(reader.ranges().len(), PARTITIONS as usize);
    let long = Message::new(vec![b'x'; FRAME_BYTES_MAX / 2]);
    let publisher = client.publisher(&topic).partition(PartitionIndex(PARTITIONS - 1));
    let publisher = publisher.open().await.unwrap();
    publisher.publish_all([long.clone(), long.clone(), long]).await.unwrap();
    for offset in 0..3 {
        let message = reader.next().await.unwrap().unwrap();
        let at = (message.partition(), message.offset());
        assert_eq!(at, (PartitionIndex(PARTITIONS - 1), Offset(offset)));
    }
    reader.commit().await.unwrap();
}
