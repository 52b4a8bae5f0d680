//! Reading against a scripted broker: the window and its reports.

use std::time::Duration;

use sennit_client::{
    Client, Error, ErrorCode, PatternReader, PatternReaderBuilder, Reader, Reconnect,
};
use sennit_model::PartitionIndex;
use sennit_protocol::{Deliver, Reply, Request, SetCredit, Taken, control};
use tokio::time::sleep;

use crate::broker::{self, Broker, Peer, batch, both, soon, topic};

/// Longer than the round trip from which on a window is the largest.
const LONG: Duration = Duration::from_millis(20);

const LEAST: u64 = 512 << 10;
const MOST: u64 = 8 << 20;

/// The next connection, over a line of this length.
async fn greeted_over(broker: &Broker, line: Duration) -> Peer {
    let stream = soon(broker.accept()).await;
    sleep(line).await;
    Broker::greet(stream).await
}

/// A client over a line of this length, and the other end.
async fn client_over(broker: &Broker, line: Duration) -> (Client, Peer) {
    let connect = Client::connect(broker.address());
    let (client, peer) = both(connect, greeted_over(broker, line)).await;
    (client.expect("it is there"), peer)
}

/// Answers a Read after `line`, and says what it asked for.
async fn subscribed(peer: &mut Peer, partitions: usize, line: Duration) -> control::Read {
    let (number, request) = peer.next().await;
    let Request::Read(read) = request else { panic!("{request:?}") };
    sleep(line).await;
    let first = read.positions.first().map_or(0, |position| position.offset);
    let answer = control::Subscribed {
        subscription: read.subscription,
        topic_id: 1,
        group_id: u32::MAX,
        partitions: u32::try_from(partitions).expect("there are few"),
        lease_ms: 0,
        ranges: vec![control::ReadRange { first, end: first }; partitions],
    };
    peer.send(number, Reply::Subscribed(answer)).await;
    read
}

async fn set_credit(peer: &mut Peer) -> SetCredit {
    let (_, request) = peer.next().await;
    let Request::SetCredit(frame) = request else { panic!("{request:?}") };
    frame
}

/// Delivers messages of 32 KiB from `first` on as the window has room for them, which the reader
/// takes, until this many have come; says what was told of them.
async fn fill(
    (reader, peer): (&mut Reader, &mut Peer),
    subscription: u32,
    mut window: u64,
    (first, count): (u64, u64),
) -> Vec<Taken> {
    let payload = "x".repeat(32 << 10);
    let bytes = batch(&[&payload]).bytes().len() as u64;
    let (mut held, mut told) = (0, Vec::new());
    let broker = async {
        for offset in first..first + count {
            while held >= window {
                match peer.next().await.1 {
                    Request::Taken(taken) => {
                        held -= taken.bytes;
                        told.push(taken);
                    }
                    // A test that had to wait for a processor.
                    Request::SetCredit(frame) => window = frame.bytes,
                    request => panic!("{request:?}"),
                }
            }
            peer.deliver(subscription, offset, &[&payload]).await;
            held += bytes;
        }
    };
    let program = async {
        for offset in first..first + count {
            let next = soon(reader.next()).await.expect("it goes on");
            assert_eq!(next.expect("nothing is wrong").offset().0, offset);
        }
    };
    both(broker, program).await;
    told
}

#[tokio::test]
async fn a_program_that_says_its_window_gets_it_on_each_connection() {
    let broker = Broker::listen().await;
    let (client, mut peer) = client_over(&broker, LONG).await;
    let start = client.reader(&topic()).credit_bytes(300_000).start();
    let (reader, read) = both(start, subscribed(&mut peer, 64, LONG)).await;
    assert_eq!(read.credit_bytes, 300_000);
    drop(peer);
    let mut peer = greeted_over(&broker, LONG).await;
    assert_eq!(subscribed(&mut peer, 64, LONG).await.credit_bytes, 300_000);
    // Nothing else is said of it.
    drop(reader.unwrap());
    assert!(matches!(peer.next().await.1, Request::Unsubscribe(_)));
}

#[tokio::test]
async fn the_least_window_is_told_of_before_it_is_full() {
    let broker = Broker::listen().await;
    let (client, mut peer) = broker.client().await;
    let start = client.reader(&topic()).start();
    let (reader, read) = both(start, subscribed(&mut peer, 1, Duration::ZERO)).await;
    assert_eq!(read.credit_bytes, LEAST);
    let (mut reader, number) = (reader.unwrap(), read.subscription);
    let told = fill((&mut reader, &mut peer), number, LEAST, (0, 512)).await;
    assert!(!told.is_empty());
}

#[tokio::test]
async fn the_window_grows_on_a_longer_line_and_what_is_told_with_it() {
    let broker = Broker::listen().await;
    let (client, mut peer) = broker.client().await;
    let start = client.reader(&topic()).start();
    let (reader, read) = both(start, subscribed(&mut peer, 1, Duration::ZERO)).await;
    let (mut reader, number) = (reader.unwrap(), read.subscription);
    fill((&mut reader, &mut peer), number, LEAST, (0, 8)).await;
    drop(peer);
    let mut peer = greeted_over(&broker, LONG).await;
    assert_eq!(subscribed(&mut peer, 1, LONG).await.credit_bytes, LEAST);
    let frame = set_credit(&mut peer).await;
    assert_eq!((frame.subscription, frame.messages, frame.bytes), (number, 65_536, MOST));
    let told = fill((&mut reader, &mut peer), number, MOST, (8, 300)).await;
    assert!(told.iter().all(|taken| taken.bytes >= MOST / 2), "{told:?}");
    // And shrinks again.
    drop(peer);
    let mut peer = broker.greeted().await;
    assert_eq!(subscribed(&mut peer, 1, Duration::ZERO).await.credit_bytes, LEAST);
    fill((&mut reader, &mut peer), number, LEAST, (308, 64)).await;
}

#[tokio::test]
async fn each_of_many_partitions_has_a_share() {
    let broker = Broker::listen().await;
    let (client, mut peer) = broker.client().await;
    let start = client.reader(&topic()).start();
    let (reader, read) = both(start, subscribed(&mut peer, 64, Duration::ZERO)).await;
    assert_eq!((read.credit_bytes, set_credit(&mut peer).await.bytes), (LEAST, MOST));
    drop(peer);
    let mut peer = broker.greeted().await;
    // By now it is known how many there are.
    assert_eq!(subscribed(&mut peer, 64, Duration::ZERO).await.credit_bytes, MOST);
    drop(reader);
}

#[tokio::test]
async fn of_long_messages_of_many_partitions_no_more_is_sent_for_than_the_window_and_one_of_them() {
    let broker = Broker::listen().await;
    let (client, mut peer) = client_over(&broker, Duration::ZERO).await;
    let topic = topic();
    let start = client.reader(&topic).credit_bytes(1 << 20).start();
    let (reader, read) = both(start, subscribed(&mut peer, 64, Duration::ZERO)).await;
    let (mut reader, subscription) = (reader.expect("it begins"), read.subscription);
    let long = "x".repeat(1 << 20);
    let deliver = async |peer: &mut Peer, partition: u32| {
        let mut head = broker::deliver_head(subscription, 0, 1);
        (head.partition, head.attempt) = (PartitionIndex(partition), 0);
        let messages = batch(&[&long]).bytes().clone();
        peer.send(0, Reply::Deliver(Deliver { head, messages })).await;
    };
    // Each is one message of its partition: the broker lets it through. The ninth is too much.
    for partition in 0..9 {
        deliver(&mut peer, partition).await;
    }
    let frame = set_credit(&mut peer).await;
    assert_eq!((frame.messages, frame.bytes), (0, 1 << 20));
    // What was on its way.
    deliver(&mut peer, 9).await;
    for _ in 0..10 {
        soon(reader.next()).await.expect("it goes on").expect("a message");
    }
    let gone_on = loop {
        match peer.next().await.1 {
            Request::SetCredit(frame) => break frame,
            Request::Taken(_) => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((gone_on.messages, gone_on.bytes), (read.credit_messages, 1 << 20));
}

#[tokio::test]
async fn a_pattern_that_is_refused_later_is_an_error_and_not_the_end() {
    let broker = Broker::listen().await;
    let (client, mut peer) = broker.client().await;
    let pattern = "orders.>".parse().unwrap();
    let answer = async {
        let (number, request) = peer.next().await;
        let Request::Watch(watch) = request else { panic!("{request:?}") };
        let watching = control::Watching { subscription: watch.subscription, ..Default::default() };
        peer.send(number, Reply::Watching(watching)).await;
    };
    let (reader, ()) = both(client.pattern_reader(&pattern).start(), answer).await;
    let mut reader = reader.unwrap();
    drop(peer);
    let mut peer = broker.greeted().await;
    let (number, request) = peer.next().await;
    assert!(matches!(request, Request::Watch(_)), "{request:?}");
    peer.refuse(number, ErrorCode::LimitReached).await;
    let error = soon(reader.next()).await.expect("it has not ended").unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::LimitReached));
    assert!(soon(reader.next()).await.is_none());
}

/// A reader of a pattern that means these topics, by number, each of one partition and empty; its
/// readers' subscriptions, and the other end.
async fn pattern_reader(
    client: &Client,
    peer: &mut Peer,
    told: impl FnOnce(PatternReaderBuilder) -> PatternReaderBuilder,
    topics: &[u32],
    end: u64,
) -> (PatternReader, Vec<u32>) {
    let pattern = "orders.>".parse().expect("it is one");
    let watched =
        |&id: &u32| control::WatchedTopic { name: format!("orders.{id}"), id, partitions: 1 };
    let answer = async {
        let (number, request) = peer.next().await;
        let Request::Watch(control::Watch { subscription, .. }) = request else {
            panic!("{request:?}")
        };
        let topics = topics.iter().map(watched).collect::<Vec<_>>();
        let count = topics.len();
        let watching = control::Watching { subscription, topics, more: false };
        peer.send(number, Reply::Watching(watching)).await;
        let mut subscriptions = Vec::new();
        for _ in 0..count {
            let (number, request) = peer.next().await;
            let Request::Read(read) = request else { panic!("{request:?}") };
            let answer = control::Subscribed {
                subscription: read.subscription,
                topic_id: read.topic_id.expect("that of the topic"),
                group_id: u32::MAX,
                partitions: 1,
                lease_ms: 0,
                ranges: vec![control::ReadRange { first: 0, end }],
            };
            peer.send(number, Reply::Subscribed(answer)).await;
            subscriptions.push(read.subscription);
        }
        subscriptions
    };
    let start = told(client.pattern_reader(&pattern)).start();
    let (reader, subscriptions) = both(start, answer).await;
    (reader.expect("it begins"), subscriptions)
}

#[tokio::test]
async fn a_pattern_without_topics_is_an_error_and_not_the_end_when_the_client_gives_up() {
    let broker = Broker::listen().await;
    let connect = Client::builder(broker.address()).reconnect(Reconnect::off()).connect();
    let (client, mut peer) = both(connect, broker.greeted()).await;
    let client = client.unwrap();
    let (mut reader, _) = pattern_reader(&client, &mut peer, |told| told, &[], 0).await;
    drop(peer);
    let next = soon(reader.next()).await;
    assert!(matches!(next, Some(Err(Error::Unreachable { .. }))), "{next:?}");
    assert!(soon(reader.next()).await.is_none());
}

#[tokio::test]
async fn a_pattern_without_topics_ends_when_the_program_closes_the_client() {
    let broker = Broker::listen().await;
    let (client, mut peer) = broker.client().await;
    let (mut reader, _) = pattern_reader(&client, &mut peer, |told| told, &[], 0).await;
    let answers = async { while !matches!(peer.next().await.1, Request::Goodbye) {} };
    both(client.close(), answers).await;
    assert!(soon(reader.next()).await.is_none());
}

#[tokio::test]
async fn a_topic_that_is_deleted_does_not_keep_the_others_from_being_committed() {
    let broker = Broker::listen().await;
    let (client, mut peer) = broker.client().await;
    let cursor = "audit".parse().unwrap();
    let told = |told: PatternReaderBuilder| told.until_end(true).cursor(&cursor);
    let (mut reader, subscriptions) = pattern_reader(&client, &mut peer, told, &[5, 6], 2).await;
    for &subscription in &subscriptions {
        let mut head = broker::deliver_head(subscription, 0, 1);
        head.attempt = 0;
        let messages = batch(&["x"]).bytes().clone();
        peer.send(0, Reply::Deliver(Deliver { head, messages })).await;
        soon(reader.next()).await.unwrap().unwrap();
    }
    // The first is gone, and the second comes to its end.
    let gone = control::SubscriptionEnded {
        subscription: subscriptions[0],
        code: ErrorCode::UnknownTopic.number(),
        reason: "it was deleted".into(),
    };
    peer.send(0, Reply::SubscriptionEnded(gone)).await;
    let mut head = broker::deliver_head(subscriptions[1], 1, 1);
    head.attempt = 0;
    let messages = batch(&["y"]).bytes().clone();
    peer.send(0, Reply::Deliver(Deliver { head, messages })).await;
    soon(reader.next()).await.unwrap().unwrap();
    assert!(soon(reader.next()).await.is_none());
    let answer = async {
        let (number, body) = loop {
            match peer.next().await {
                (number, Request::SetCursor(body)) => break (number, body),
                (_, Request::Taken(_) | Request::Unsubscribe(_)) => {}
                (_, request) => panic!("{request:?}"),
            }
        };
        assert_eq!((body.topic.as_str(), body.positions[0].offset), ("orders.6", 2));
        peer.send(number, Reply::Done(control::Done::default())).await;
    };
    let committed = soon(async { tokio::join!(reader.commit(), answer).0 }).await;
    committed.unwrap();
}

/// A reader with a filter and a cursor that was given one message, and the other end.
async fn given_one(client: &Client, peer: &mut Peer) -> Reader {
    let (cursor, filter) =
        ("audit".parse().expect("a name"), "key = 'a'".parse().expect("a filter"));
    let (name, none) = (topic(), Duration::ZERO);
    let start = client.reader(&name).cursor(&cursor).filter(&filter).start();
    let (reader, read) = both(start, subscribed(peer, 1, none)).await;
    let mut reader = reader.expect("it begins");
    let mut head = broker::deliver_head(read.subscription, 0, 1);
    head.attempt = 0;
    let messages = batch(&["x"]).bytes().clone();
    peer.send(0, Reply::Deliver(Deliver { head, messages })).await;
    soon(reader.next()).await.expect("it goes on").expect("a message");
    reader
}

#[tokio::test]
async fn a_reader_that_a_later_broker_cannot_serve_ends_and_so_does_its_commit() {
    for feature in ["filters", "cursors"] {
        let broker = Broker::listen().await;
        let (client, mut peer) = broker.client().await;
        let mut reader = given_one(&client, &mut peer).await;
        drop(peer);
        let answer = async {
            let mut peer = Broker::greet_without(soon(broker.accept()).await, feature).await;
            let (number, request) = peer.next().await;
            assert!(matches!(request, Request::SetCursor(_)), "{request:?}");
            peer.refuse(number, ErrorCode::CursorHeld).await;
            peer
        };
        // Nobody has said yet that the reader is over: it is committed on whatever connection comes.
        let (committed, _peer) = soon(async { tokio::join!(reader.commit(), answer) }).await;
        assert_eq!(committed.unwrap_err().code(), Some(ErrorCode::CursorHeld));
        let error = soon(reader.next()).await.expect("it says why").unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::UnknownKind));
        assert!(error.to_string().contains(feature), "{error}");
        assert!(soon(reader.next()).await.is_none());
    }
}

#[tokio::test]
async fn readers_of_a_pattern_pause_together_once_they_hold_too_much_and_go_on_together() {
    let broker = Broker::listen().await;
    let (client, mut peer) = client_over(&broker, Duration::ZERO).await;
    let told = |builder: PatternReaderBuilder| builder.held_bytes(1 << 20);
    let (mut reader, subscriptions) = pattern_reader(&client, &mut peer, told, &[4, 7, 9], 0).await;
    let credits = async |peer: &mut Peer| {
        let mut credits = Vec::new();
        while credits.len() < 3 {
            match peer.next().await.1 {
                Request::SetCredit(frame) => credits.push(frame),
                Request::Taken(_) => {}
                other => panic!("{other:?}"),
            }
        }
        credits.sort_unstable_by_key(|frame| frame.subscription);
        credits
    };
    let long = "x".repeat(600 << 10);
    for &subscription in &subscriptions[..2] {
        peer.deliver(subscription, 0, &[&long]).await;
    }
    let paused = credits(&mut peer).await;
    assert_eq!(paused.iter().map(|frame| frame.subscription).collect::<Vec<_>>(), subscriptions);
    assert!(paused.iter().all(|frame| frame.messages == 0), "{paused:?}");
    // What was on its way.
    peer.deliver(subscriptions[2], 0, &["short"]).await;
    for _ in 0..3 {
        soon(reader.next()).await.expect("it goes on").expect("a message");
    }
    let gone_on = credits(&mut peer).await;
    let share = (1 << 20) / 3;
    assert!(gone_on.iter().all(|frame| frame.messages > 0 && frame.bytes == share), "{gone_on:?}");
}
