//! Publishing against a scripted broker: batching, the window, confirms, refusals, reconnects.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use sennit_client::{
    Client, Confirm, Durability, Error, ErrorCode, Message, Offset, PartitionIndex, Pending,
    Publisher, Reconnect,
};
use sennit_protocol::{Publish, PublishedAt, Reply, Request, control};

use crate::broker::{Broker, Peer, batch, both, message, payloads, publisher, soon, topic};

fn confirmed(offset: u64) -> Confirm {
    Confirm {
        partition: PartitionIndex(0),
        offset: Some(Offset(offset)),
        duplicate: false,
        durability: Durability::Durable,
        dropped: 0,
    }
}

#[tokio::test]
async fn messages_published_together_travel_in_one_batch_and_keep_their_order() {
    let broker = Broker::listen().await;
    let (publisher, _client, mut peer) = publisher(&broker, 1).await;
    let mut pending = Vec::new();
    for n in 0..100 {
        // The connection task has this thread only once this test waits.
        pending.push(soon(publisher.publish(message(&n.to_string()))).await.unwrap());
    }
    let (_, publish) = peer.publish().await;
    let expected: Vec<_> = (0..100).map(|n| n.to_string()).collect();
    assert_eq!(payloads(&publish), expected);
    peer.confirm(&publish, 40).await;
    for (n, pending) in pending.into_iter().enumerate() {
        assert_eq!(pending.sequence(), n as u64);
        assert_eq!(soon(pending).await.unwrap(), confirmed(40 + n as u64));
    }
}

#[tokio::test]
async fn a_publish_that_is_cancelled_has_sent_nothing() {
    const ASKED: u32 = 3000;
    let broker = Broker::listen().await;
    let (publisher, _client, mut peer) = publisher(&broker, 1).await;
    let mut published = Vec::new();
    for n in 0..ASKED {
        tokio::select! {
            biased;
            pending = publisher.publish(message(&n.to_string())) => {
                pending.unwrap();
                published.push(n.to_string());
            }
            () = std::future::ready(()) => {}
        }
    }
    assert!(published.len() < ASKED as usize, "none was cancelled");
    let mut sent = Vec::new();
    while sent.len() < published.len() {
        let (_, publish) = peer.publish().await;
        sent.extend(payloads(&publish));
    }
    assert_eq!(sent, published);
    peer.send(7, Reply::Ping).await;
    assert_eq!(peer.next().await, (7, Request::Pong));
}

#[tokio::test]
async fn one_confirm_answers_all_batches_before_it() {
    let broker = Broker::listen().await;
    let (publisher, _client, mut peer) = publisher(&broker, 1).await;
    let first = soon(publisher.publish(message("a"))).await.unwrap();
    let (_, _lost) = peer.publish().await;
    let second = soon(publisher.publish(message("b"))).await.unwrap();
    let (_, publish) = peer.publish().await;
    assert_eq!(publish.head.producer.first_sequence, 1);
    peer.confirm(&publish, 8).await;
    assert_eq!(soon(second).await.unwrap().offset, Some(Offset(8)));
    // The frame with its offset never came; that it is committed is known.
    assert_eq!(soon(first).await.unwrap().offset, None);
}

#[tokio::test]
async fn a_full_window_makes_publish_wait_until_something_is_confirmed() {
    let broker = Broker::listen().await;
    let (client, mut peer) = broker.client().await;
    let name = topic();
    let opened = client.publisher(&name).window_messages(2).open();
    let publisher = both(opened, peer.open_topic(1)).await.0.unwrap();
    drop(soon(publisher.publish(message("a"))).await.unwrap());
    drop(soon(publisher.publish(message("b"))).await.unwrap());
    let (_, publish) = peer.publish().await;
    assert_eq!(publish.head.count, 2);
    let third = {
        let publisher = publisher.clone();
        tokio::spawn(async move { soon(publisher.publish(message("c"))).await })
    };
    // The third is not sent before the first two are confirmed: the ping behind it comes first.
    peer.send(0, Reply::Ping).await;
    assert_eq!(peer.next().await.1, Request::Pong);
    assert!(!third.is_finished());
    peer.confirm(&publish, 0).await;
    let pending = soon(third).await.unwrap().unwrap();
    let (_, publish) = peer.publish().await;
    assert_eq!(payloads(&publish), ["c"]);
    peer.confirm(&publish, 2).await;
    assert_eq!(soon(pending).await.unwrap(), confirmed(2));
}

#[tokio::test]
async fn at_most_64_batches_of_a_partition_are_unconfirmed() {
    let broker = Broker::listen().await;
    let (publisher, _client, mut peer) = publisher(&broker, 1).await;
    for n in 0..70_u32 {
        drop(soon(publisher.publish_batch(batch(&[&n.to_string()]))).await.unwrap());
    }
    let mut sent = Vec::new();
    for _ in 0..64 {
        sent.push(peer.publish().await.1);
    }
    peer.send(0, Reply::Ping).await;
    assert_eq!(peer.next().await.1, Request::Pong);
    peer.confirm(&sent[63], 63).await;
    for _ in 64..70 {
        let publish = peer.publish().await.1;
        peer.confirm(&publish, publish.head.producer.first_sequence).await;
    }
    soon(publisher.flush()).await.unwrap();
}

#[tokio::test]
async fn a_program_that_counts_is_told_of_runs() {
    let broker = Broker::listen().await;
    let (client, mut peer) = broker.client().await;
    let name = topic();
    let runs = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&runs);
    let opened = client
        .publisher(&name)
        .on_confirm(move |run| seen.lock().unwrap().push((run.first_sequence, run.count)))
        .open();
    let publisher = both(opened, peer.open_topic(1)).await.0.unwrap();
    for (from, payloads) in [(0, &["a", "b"][..]), (2, &["c"])] {
        drop(soon(publisher.publish_batch(batch(payloads))).await.unwrap());
        let (_, publish) = peer.publish().await;
        peer.confirm(&publish, from).await;
    }
    soon(publisher.flush()).await.unwrap();
    assert_eq!(*runs.lock().unwrap(), [(0, 2), (2, 1)]);
}

#[tokio::test]
async fn keys_choose_the_partition_and_messages_without_one_take_turns() {
    let broker = Broker::listen().await;
    let (publisher, _client, mut peer) = publisher(&broker, 4).await;
    let mut keyed = message("k");
    keyed.key = "customer-7".into();
    let expected = PartitionIndex::of_key(b"customer-7", 4);
    for _ in 0..3 {
        drop(soon(publisher.publish(keyed.clone())).await.unwrap());
        assert_eq!(peer.publish().await.1.head.partition.index, expected);
    }
    let mut turns = Vec::new();
    for _ in 0..4 {
        drop(soon(publisher.publish(message("x"))).await.unwrap());
        turns.push(peer.publish().await.1.head.partition.index.0);
    }
    turns.sort_unstable();
    assert_eq!(turns, [0, 1, 2, 3]);
}

#[tokio::test]
async fn after_a_lost_connection_batches_are_sent_again_and_a_duplicate_is_a_confirm() {
    let broker = Broker::listen().await;
    let (publisher, _client, mut peer) = publisher(&broker, 1).await;
    let first = soon(publisher.publish(message("a"))).await.unwrap();
    let (_, before_a) = peer.publish().await;
    let second = soon(publisher.publish(message("b"))).await.unwrap();
    let (_, before_b) = peer.publish().await;
    drop(peer);
    let mut peer = broker.greeted().await;
    peer.open_topic(1).await;
    let ((_, after_a), (_, after_b)) = (peer.publish().await, peer.publish().await);
    assert_eq!((&before_a, &before_b), (&after_a, &after_b));
    peer.confirm_as(&after_a, Some(5), true).await;
    peer.confirm(&after_b, 6).await;
    let first = soon(first).await.unwrap();
    assert!(first.duplicate && first.offset == Some(Offset(5)));
    assert_eq!(soon(second).await.unwrap(), confirmed(6));
}

#[tokio::test]
async fn what_is_published_while_the_broker_is_away_is_sent_when_it_is_back() {
    let broker = Broker::listen().await;
    let (publisher, _client, peer) = publisher(&broker, 1).await;
    drop(peer);
    let pending = soon(publisher.publish(message("meanwhile"))).await.unwrap();
    let mut peer = broker.greeted().await;
    peer.open_topic(1).await;
    let (_, publish) = peer.publish().await;
    peer.confirm(&publish, 0).await;
    assert_eq!(soon(pending).await.unwrap(), confirmed(0));
}

#[tokio::test]
async fn what_a_leaving_broker_refuses_is_sent_to_the_one_after_it() {
    let broker = Broker::listen().await;
    let (publisher, _client, mut leaving) = publisher(&broker, 1).await;
    let pending = soon(publisher.publish(message("a"))).await.unwrap();
    let frame = leaving.publish().await;
    // It says so and keeps the connection open.
    leaving.refuse_publish(&frame, ErrorCode::ShuttingDown, None).await;
    let mut peer = broker.greeted().await;
    peer.open_topic(1).await;
    let (_, again) = peer.publish().await;
    assert_eq!(again, frame.1);
    peer.confirm(&again, 0).await;
    assert_eq!(soon(pending).await.unwrap(), confirmed(0));
}

#[tokio::test]
async fn a_topic_created_anew_ends_its_publisher() {
    let broker = Broker::listen().await;
    let (publisher, _client, mut peer) = publisher(&broker, 1).await;
    let pending = soon(publisher.publish(message("a"))).await.unwrap();
    peer.publish().await;
    drop(peer);
    let mut peer = broker.greeted().await;
    peer.open_incarnation(1, 10).await;
    let error = soon(pending).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::UnknownTopic));
    assert!(soon(publisher.publish(message("b"))).await.is_err());
}

#[tokio::test]
async fn a_fenced_publisher_is_finished() {
    let broker = Broker::listen().await;
    let (publisher, _client, mut peer) = publisher(&broker, 1).await;
    let pending = soon(publisher.publish(message("a"))).await.unwrap();
    let frame = peer.publish().await;
    peer.refuse_publish(&frame, ErrorCode::ProducerFenced, None).await;
    assert!(matches!(soon(pending).await, Err(Error::Fenced)));
    assert!(matches!(soon(publisher.publish(message("b"))).await, Err(Error::Fenced)));
    assert!(matches!(soon(publisher.flush()).await, Err(Error::Fenced)));
}

#[tokio::test]
async fn batches_refused_for_want_of_room_are_sent_again_in_order() {
    let broker = Broker::listen().await;
    let (publisher, _client, mut peer) = publisher(&broker, 1).await;
    let mut frames = Vec::new();
    for payload in ["a", "b", "c"] {
        drop(soon(publisher.publish(message(payload))).await.unwrap());
        frames.push(peer.publish().await);
    }
    peer.refuse_publish(&frames[0], ErrorCode::StorageFull, None).await;
    peer.refuse_publish(&frames[1], ErrorCode::SequenceGap, Some(0)).await;
    peer.refuse_publish(&frames[2], ErrorCode::SequenceGap, Some(0)).await;
    for (offset, (_, before)) in frames.iter().enumerate() {
        let (_, again) = peer.publish().await;
        assert_eq!(&again, before);
        peer.confirm(&again, offset as u64).await;
    }
    soon(publisher.flush()).await.unwrap();
}

#[tokio::test]
async fn a_batch_refused_before_the_one_ahead_of_it_is_confirmed_is_sent_again() {
    let broker = Broker::listen().await;
    let (publisher, _client, mut peer) = publisher(&broker, 1).await;
    let mut frames = Vec::new();
    for payload in ["a", "b"] {
        drop(soon(publisher.publish(message(payload))).await.unwrap());
        frames.push(peer.publish().await);
    }
    peer.refuse_publish(&frames[1], ErrorCode::StorageFull, None).await;
    peer.confirm(&frames[0].1, 0).await;
    let (_, again) = peer.publish().await;
    assert_eq!(again, frames[1].1);
    peer.confirm(&again, 1).await;
    soon(publisher.flush()).await.unwrap();
}

/// A publisher that gives up after some time, and the two batches it has sent.
struct Impatient {
    publisher: Publisher,
    _client: Client,
    peer: Peer,
    pending: Vec<Pending>,
    frames: Vec<(u64, Publish)>,
}

async fn impatient(broker: &Broker, limit: Duration) -> Impatient {
    let (client, mut peer) = broker.client().await;
    let name = topic();
    let opened = client.publisher(&name).give_up_after(limit).open();
    let publisher = both(opened, peer.open_topic(1)).await.0.expect("it is opened");
    let (mut pending, mut frames) = (Vec::new(), Vec::new());
    for payload in ["a", "b"] {
        pending.push(soon(publisher.publish(message(payload))).await.expect("there is room"));
        frames.push(peer.publish().await);
    }
    Impatient { publisher, _client: client, peer, pending, frames }
}

#[tokio::test]
async fn a_batch_without_room_for_too_long_fails_with_the_refusal_and_those_behind_it_go_on() {
    let broker = Broker::listen().await;
    let Impatient { publisher, _client, mut peer, mut pending, frames } =
        impatient(&broker, Duration::ZERO).await;
    peer.refuse_publish(&frames[0], ErrorCode::StorageFull, None).await;
    let (second, first) = (pending.pop().unwrap(), pending.pop().unwrap());
    assert_eq!(soon(first).await.unwrap_err().code(), Some(ErrorCode::StorageFull));
    assert!(second.try_get().is_none());
    peer.refuse_publish(&frames[1], ErrorCode::SequenceGap, Some(0)).await;
    let (_, alone) = peer.publish().await;
    assert_eq!(payloads(&alone), ["b"]);
    assert_eq!((alone.head.producer.epoch, alone.head.producer.first_sequence), (1, 0));
    peer.confirm(&alone, 0).await;
    assert_eq!(soon(second).await.unwrap(), confirmed(0));
    assert_eq!(soon(publisher.flush()).await.unwrap_err().code(), Some(ErrorCode::StorageFull));
}

#[tokio::test]
async fn a_batch_without_room_is_sent_again_until_the_time_is_over() {
    let broker = Broker::listen().await;
    let Impatient { publisher, _client, mut peer, frames, .. } =
        impatient(&broker, Duration::from_secs(3600)).await;
    let mut sent = frames.clone();
    for _ in 0..3 {
        peer.refuse_publish(&sent[0], ErrorCode::StorageFull, None).await;
        peer.refuse_publish(&sent[1], ErrorCode::SequenceGap, Some(0)).await;
        sent = vec![peer.publish().await, peer.publish().await];
        assert_eq!((&sent[0].1, &sent[1].1), (&frames[0].1, &frames[1].1));
    }
    peer.confirm(&sent[0].1, 0).await;
    peer.confirm(&sent[1].1, 1).await;
    soon(publisher.flush()).await.unwrap();
}

#[tokio::test]
async fn a_refusal_for_good_is_not_waited_out() {
    let broker = Broker::listen().await;
    let Impatient { _client, mut peer, pending, frames, .. } =
        impatient(&broker, Duration::from_secs(3600)).await;
    peer.refuse_publish(&frames[0], ErrorCode::BatchInvalid, None).await;
    let first = pending.into_iter().next().unwrap();
    assert_eq!(soon(first).await.unwrap_err().code(), Some(ErrorCode::BatchInvalid));
}

#[tokio::test]
async fn a_batch_refused_for_good_does_not_hold_up_those_behind_it() {
    let broker = Broker::listen().await;
    let (publisher, _client, mut peer) = publisher(&broker, 1).await;
    let (mut pending, mut frames) = (Vec::new(), Vec::new());
    for payload in ["a", "b", "c"] {
        pending.push(soon(publisher.publish(message(payload))).await.unwrap());
        frames.push(peer.publish().await);
    }
    peer.refuse_publish(&frames[1], ErrorCode::BatchInvalid, None).await;
    peer.refuse_publish(&frames[2], ErrorCode::SequenceGap, Some(1)).await;
    peer.confirm(&frames[0].1, 0).await;
    let (_, again) = peer.publish().await;
    assert_eq!(payloads(&again), ["c"]);
    assert_eq!((again.head.producer.epoch, again.head.producer.first_sequence), (1, 0));
    peer.confirm(&again, 1).await;
    let mut answers = Vec::new();
    for pending in pending {
        answers.push(soon(pending).await);
    }
    assert_eq!(answers[0].as_ref().unwrap().offset, Some(Offset(0)));
    assert_eq!(answers[1].as_ref().unwrap_err().code(), Some(ErrorCode::BatchInvalid));
    assert_eq!(answers[2].as_ref().unwrap().offset, Some(Offset(1)));
    assert_eq!(soon(publisher.flush()).await.unwrap_err().code(), Some(ErrorCode::BatchInvalid));
    soon(publisher.flush()).await.unwrap();
}

#[tokio::test]
async fn a_broker_that_has_forgotten_the_producer_gets_a_new_epoch() {
    let broker = Broker::listen().await;
    let (publisher, _client, mut peer) = publisher(&broker, 1).await;
    drop(soon(publisher.publish(message("a"))).await.unwrap());
    let (_, publish) = peer.publish().await;
    peer.confirm(&publish, 0).await;
    soon(publisher.flush()).await.unwrap();
    let pending = soon(publisher.publish(message("b"))).await.unwrap();
    let frame = peer.publish().await;
    peer.refuse_publish(&frame, ErrorCode::SequenceGap, Some(0)).await;
    let (_, again) = peer.publish().await;
    assert_eq!((again.head.producer.epoch, again.head.producer.first_sequence), (1, 0));
    peer.confirm(&again, 1).await;
    assert_eq!(soon(pending).await.unwrap(), confirmed(1));
}

#[tokio::test]
async fn publishers_without_a_producer_id_do_not_take_each_others_confirms() {
    let broker = Broker::listen().await;
    let (client, mut peer) = broker.client().await;
    let name = topic();
    let mut publishers = Vec::new();
    for _ in 0..2 {
        let opened = client.publisher(&name).idempotent(false).open();
        publishers.push(both(opened, peer.open_topic(1)).await.0.unwrap());
    }
    let one = soon(publishers[0].publish(message("one"))).await.unwrap();
    let (_, publish_one) = peer.publish().await;
    let two = soon(publishers[1].publish(message("two"))).await.unwrap();
    let (_, publish_two) = peer.publish().await;
    assert_eq!(publish_one.head.producer.id, publish_two.head.producer.id);
    peer.confirm(&publish_two, 0).await;
    assert_eq!(soon(two).await.unwrap(), confirmed(0));
    assert!(one.try_get().is_none());
    peer.confirm(&publish_one, 1).await;
    assert_eq!(soon(one).await.unwrap(), confirmed(1));
}

#[tokio::test]
async fn a_message_beyond_the_limit_is_refused_before_it_is_sent() {
    let broker = Broker::listen().await;
    let (publisher, _client, mut peer) = publisher(&broker, 1).await;
    let long = Message::new(vec![0; 9 << 20]);
    assert!(matches!(soon(publisher.publish(long)).await, Err(Error::TooLarge(_))));
    drop(soon(publisher.publish(message("a"))).await.unwrap());
    let (_, publish) = peer.publish().await;
    assert_eq!(publish.head.producer.first_sequence, 0);
}

#[tokio::test]
async fn a_batch_that_no_frame_holds_is_refused_before_it_is_sent() {
    const FRAME_BYTES_MAX: usize = 16_384;
    let broker = Broker::listen().await;
    let connect = Client::builder(broker.address()).max_frame_bytes(FRAME_BYTES_MAX).connect();
    let (client, mut peer) = both(connect, broker.greeted()).await;
    let (client, name) = (client.unwrap(), topic());
    let publisher = both(client.publisher(&name).open(), peer.open_topic(1)).await.0.unwrap();
    let frame_of = |bytes: usize| {
        let empty = batch(&[""]).bytes().len();
        batch(&[&"x".repeat(bytes - empty)])
    };
    // The offset that is expected stands before the head of a publish.
    let (at, head) = (Offset(0), 32 + 8);
    let too_long = frame_of(FRAME_BYTES_MAX - head + 1);
    let refused = soon(publisher.publish_at(PartitionIndex(0), at, &too_long)).await;
    assert!(matches!(refused, Err(Error::TooLarge(_))), "{refused:?}");
    let longest = frame_of(FRAME_BYTES_MAX - head);
    let answer = async {
        let (number, request) = peer.next().await;
        let Request::PublishAt(publish_at) = request else { panic!("{request:?}") };
        assert_eq!(publish_at.publish.batch, longest.bytes());
        let answer = PublishedAt { first: at, count: 1 };
        peer.send(number, Reply::PublishedAt(answer)).await;
    };
    let publishing = publisher.publish_at(PartitionIndex(0), at, &longest);
    both(publishing, answer).await.0.unwrap();
}

#[tokio::test]
async fn a_topic_of_more_partitions_than_there_may_be_is_not_believed() {
    let broker = Broker::listen().await;
    let (client, mut peer) = broker.client().await;
    let name = topic();
    let opened = both(client.publisher(&name).open(), peer.open_topic(1025)).await.0;
    assert!(matches!(opened, Err(Error::Unexpected(_))), "{:?}", opened.map(drop));
    let opened = both(client.publisher(&name).open(), peer.open_topic(1024)).await.0;
    assert_eq!(opened.unwrap().partitions(), 1024);
}

#[tokio::test]
async fn a_client_that_does_not_reconnect_says_that_the_outcome_is_unknown_or_why() {
    let broker = Broker::listen().await;
    let connect = Client::builder(broker.address()).reconnect(Reconnect::off());
    let (client, mut peer) = both(connect.connect(), broker.greeted()).await;
    let client = client.unwrap();
    let name = topic();
    let publisher = both(client.publisher(&name).open(), peer.open_topic(1)).await.0.unwrap();
    let pending = soon(publisher.publish(message("a"))).await.unwrap();
    peer.publish().await;
    drop(peer);
    assert!(matches!(soon(pending).await, Err(Error::Unreachable { .. })));
    assert!(matches!(soon(publisher.publish(message("b"))).await, Err(Error::Unreachable { .. })));
}

#[tokio::test]
async fn closing_waits_for_what_was_published() {
    let broker = Broker::listen().await;
    let (publisher, client, mut peer) = publisher(&broker, 1).await;
    let pending = soon(publisher.publish(message("a"))).await.unwrap();
    let closing = tokio::spawn(client.close());
    let (_, publish) = peer.publish().await;
    assert!(!closing.is_finished());
    peer.confirm(&publish, 0).await;
    assert_eq!(peer.next().await.1, Request::Goodbye);
    soon(closing).await.unwrap();
    assert_eq!(soon(pending).await.unwrap(), confirmed(0));
    assert!(matches!(soon(publisher.publish(message("b"))).await, Err(Error::Closed)));
}

/// Lets everybody else do what can be done, so many times.
async fn turns(count: u32) {
    for _ in 0..count {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn what_the_socket_has_no_room_for_goes_when_the_broker_reads_on() {
    const MESSAGES: u32 = 32;
    let broker = Broker::listen().await;
    let (publisher, client, mut peer) = publisher(&broker, 1).await;
    let publish = async {
        let payload = "x".repeat(1 << 20);
        let mut pending = Vec::new();
        for _ in 0..MESSAGES {
            pending.push(soon(publisher.publish(message(&payload))).await.unwrap());
        }
        for pending in pending {
            soon(pending).await.unwrap();
        }
    };
    let ask = async {
        turns(100).await;
        client.list_topics().await.unwrap();
    };
    let script = async {
        // The client has asked by then, and written what the socket takes.
        turns(200).await;
        let (mut came, mut asked) = (0, false);
        while came < MESSAGES || !asked {
            match peer.next().await {
                (_, Request::Publish(publish)) => {
                    peer.confirm(&publish, came.into()).await;
                    came += publish.head.count;
                }
                (number, Request::ListTopics(_)) => {
                    peer.send(number, Reply::TopicList(control::TopicList::default())).await;
                    asked = true;
                }
                (_, other) => panic!("{other:?}"),
            }
        }
    };
    soon(async { tokio::join!(publish, ask, script) }).await;
}

#[tokio::test]
async fn a_partition_that_the_broker_has_no_room_for_does_not_hold_up_the_others() {
    let broker = Broker::listen().await;
    let (publisher, _client, mut peer) = publisher(&broker, 2).await;
    let key_of = |partition| {
        let key = |n: u32| n.to_string();
        (0..).map(key).find(|key| PartitionIndex::of_key(key.as_bytes(), 2).0 == partition).unwrap()
    };
    let to = |partition| Message { key: key_of(partition).into(), ..message("x") };
    let resting = soon(publisher.publish(to(0))).await.unwrap();
    let (number, _) = peer.publish().await;
    let an_hour = control::Error {
        retry_after_ms: 3_600_000,
        ..control::Error::new(ErrorCode::Busy, "as the script says")
    };
    peer.send(number, Reply::Error(an_hour)).await;
    peer.send(7, Reply::Ping).await;
    // By now the refusal was heard as well.
    assert_eq!(peer.next().await, (7, Request::Pong));
    for n in 0..3 {
        let other = soon(publisher.publish(to(1))).await.unwrap();
        let (_, publish) = peer.publish().await;
        assert_eq!(publish.head.partition.index, PartitionIndex(1));
        peer.confirm(&publish, n).await;
        soon(other).await.unwrap();
    }
    assert!(resting.try_get().is_none());
}
