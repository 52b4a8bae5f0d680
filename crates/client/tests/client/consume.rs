//! Consuming against a scripted broker: deliveries, verdicts, reconnects.

use std::time::Duration;

use sennit_client::{
    Client, Consumer, Error, ErrorCode, Gap, GapReason, GroupName, Offset, OffsetRange,
    PartitionIndex, Received, Settled,
};
use sennit_model::limits::{CREDIT_BYTES_MAX, CREDIT_MESSAGES_MAX};
use sennit_protocol::{
    Deliver, DeliverHead, Reply, Request, SetCredit, Settled as SettledFrame, Verdict, control,
};

use crate::broker::{Broker, Peer, batch, both, deliver_head, soon, topic};

async fn consumer(broker: &Broker) -> (Consumer, u32, Client, Peer) {
    let (client, mut peer) = broker.client().await;
    let (name, group) = (topic(), GroupName::default_group());
    let subscribe = client.consumer(&name, &group).credit_messages(50).subscribe();
    let (consumer, subscribed) = both(subscribe, peer.subscribed()).await;
    assert_eq!((subscribed.topic.as_str(), subscribed.credit_messages), ("orders", 50));
    (consumer.expect("it is subscribed"), subscribed.subscription, client, peer)
}

#[tokio::test]
async fn messages_of_a_frame_come_one_by_one_or_as_a_run() {
    let broker = Broker::listen().await;
    let (mut consumer, subscription, _client, mut peer) = consumer(&broker).await;
    peer.deliver(subscription, 10, &["a", "b", "c", "d"]).await;
    let first = soon(consumer.next()).await.unwrap().unwrap();
    assert_eq!((first.offset(), &first.payload()[..]), (Offset(10), &b"a"[..]));
    let second = soon(consumer.next()).await.unwrap().unwrap();
    assert_eq!((second.offset(), second.attempt()), (Offset(11), 1));
    let rest = soon(consumer.next_run()).await.unwrap().unwrap();
    assert_eq!((rest.first_offset(), rest.count()), (Offset(12), 2));
    let payloads: Vec<_> = rest.messages().map(|message| message.payload().to_vec()).collect();
    assert_eq!(payloads, [b"c", b"d"]);
}

fn gap(first: u64, count: u64, reason: GapReason) -> Gap {
    let offsets = OffsetRange::new(Offset(first), count);
    Gap { partition: PartitionIndex(0), offsets, reason }
}

/// What has come, as offsets or gaps.
fn offset_or_gap(received: Received<sennit_client::Delivery>) -> Result<u64, Gap> {
    match received {
        Received::Delivered(delivery) => Ok(delivery.offset().0),
        Received::Gap(gap) => Err(gap),
    }
}

#[tokio::test]
async fn gaps_are_told_between_the_messages_around_them() {
    let broker = Broker::listen().await;
    let (mut consumer, subscription, _client, mut peer) = consumer(&broker).await;
    peer.deliver(subscription, 0, &["a", "b"]).await;
    peer.gap(subscription, 2, 5, GapReason::Damaged).await;
    peer.gap(subscription + 1, 9, 9, GapReason::Damaged).await;
    peer.deliver(subscription, 7, &["c"]).await;
    peer.gap(subscription, 8, 1, GapReason::Unknown(200)).await;
    let mut came = Vec::new();
    for _ in 0..5 {
        came.push(offset_or_gap(soon(consumer.receive()).await.unwrap().unwrap()));
    }
    let (damaged, unknown) = (gap(2, 5, GapReason::Damaged), gap(8, 1, GapReason::Unknown(200)));
    assert_eq!(came, [Ok(0), Ok(1), Err(damaged), Ok(7), Err(unknown)]);
    assert_eq!(damaged.to_string(), "offsets 2..7 of partition 0 cannot be read (damaged)");
}

#[tokio::test]
async fn a_program_that_asks_for_messages_only_gets_those_behind_a_gap() {
    let broker = Broker::listen().await;
    let (mut consumer, subscription, _client, mut peer) = consumer(&broker).await;
    peer.gap(subscription, 0, 5, GapReason::Lost).await;
    peer.deliver(subscription, 5, &["a"]).await;
    peer.gap(subscription, 6, 1, GapReason::Lost).await;
    peer.deliver(subscription, 7, &["b"]).await;
    assert_eq!(soon(consumer.next()).await.unwrap().unwrap().offset(), Offset(5));
    assert_eq!(soon(consumer.next_run()).await.unwrap().unwrap().first_offset(), Offset(7));
}

#[tokio::test]
async fn a_gap_told_again_before_it_was_taken_comes_once_and_outlives_what_credit_drops() {
    let broker = Broker::listen().await;
    let (mut consumer, subscription, _client, mut peer) = consumer(&broker).await;
    let hundred = ["x"; 100];
    for first in [0, 200, 400, 600] {
        peer.deliver(subscription, first, &hundred).await;
        peer.gap(subscription, 100, 50, GapReason::Lost).await;
    }
    peer.send(7, Reply::Ping).await;
    assert_eq!(peer.next().await, (7, Request::Pong));
    let mut came = Vec::new();
    for _ in 0..3 {
        came.push(match soon(consumer.receive_run()).await.unwrap().unwrap() {
            Received::Delivered(run) => Ok(run.first_offset().0),
            Received::Gap(gap) => Err(gap),
        });
    }
    // 50 messages of credit leave the last two runs.
    assert_eq!(came, [Err(gap(100, 50, GapReason::Lost)), Ok(400), Ok(600)]);
    // It was taken: when it is told again, it comes again.
    peer.gap(subscription, 100, 50, GapReason::Lost).await;
    let again = offset_or_gap(soon(consumer.receive()).await.unwrap().unwrap());
    assert_eq!(again, Err(gap(100, 50, GapReason::Lost)));
}

#[tokio::test]
async fn acks_become_few_frames_that_name_runs() {
    let broker = Broker::listen().await;
    let (mut consumer, subscription, _client, mut peer) = consumer(&broker).await;
    peer.deliver(subscription, 0, &["a", "b", "c"]).await;
    peer.deliver(subscription, 3, &["d", "e"]).await;
    for _ in 0..5 {
        soon(consumer.next()).await.unwrap().unwrap().ack();
    }
    let (mut runs, mut messages) = (0, 0);
    while messages < 5 {
        let (_, settle) = peer.settle().await;
        assert_eq!((settle.head.topic.0, settle.head.group.0), (1, 2));
        assert_eq!(settle.head.verdict, Verdict::Ack);
        runs += settle.runs.len();
        messages += settle.runs.iter().map(|run| run.count).sum::<u32>();
    }
    assert_eq!(messages, 5);
    assert!(runs <= 2, "{runs} runs");
}

#[tokio::test]
async fn acks_that_are_not_neighbours_become_frames_of_the_length_that_was_granted() {
    const MESSAGES: u64 = 1500;
    let broker = Broker::listen().await;
    let connect = Client::builder(broker.address()).max_frame_bytes(16_384).connect();
    let (client, mut peer) = both(connect, broker.greeted()).await;
    let (client, name, group) = (client.unwrap(), topic(), GroupName::default_group());
    let subscribe = client.consumer(&name, &group).credit_messages(2000).subscribe();
    let (consumer, subscribed) = both(subscribe, peer.subscribed()).await;
    let (mut consumer, subscription) = (consumer.unwrap(), subscribed.subscription);
    for first in (0..MESSAGES).step_by(500) {
        peer.deliver(subscription, first, &["x"; 500]).await;
    }
    let mut acked = Vec::new();
    for offset in 0..MESSAGES {
        let delivery = soon(consumer.next()).await.unwrap().unwrap();
        if offset % 2 == 0 {
            acked.push(delivery);
        }
    }
    // The connection task has this thread only once this test waits.
    acked.iter().for_each(sennit_client::Delivery::ack);
    let mut settled = Vec::new();
    while settled.len() < acked.len() {
        let (_, settle) = peer.settle().await;
        settled.extend(settle.runs.iter().map(|run| (run.first, run.count)));
    }
    let expected: Vec<_> = acked.iter().map(|delivery| (delivery.offset(), 1)).collect();
    assert_eq!(settled, expected);
}

#[tokio::test]
async fn each_verdict_is_said_as_it_was_meant() {
    let broker = Broker::listen().await;
    let (mut consumer, subscription, _client, mut peer) = consumer(&broker).await;
    peer.deliver(subscription, 0, &["a", "b", "c", "d"]).await;
    let later = Duration::from_secs(7);
    let mut next = async || soon(consumer.next()).await.unwrap().unwrap();
    next().await.retry();
    next().await.retry_after(later);
    next().await.dead_letter("no such customer");
    next().await.extend(later);
    let expected = [
        Verdict::Retry,
        Verdict::RetryAfter(later),
        Verdict::DeadLetter { reason: "no such customer".into() },
        Verdict::Extend(later),
    ];
    for (offset, verdict) in (0..).zip(expected) {
        let (_, settle) = peer.settle().await;
        assert_eq!(settle.head.verdict, verdict);
        let run = settle.runs.iter().next().unwrap();
        assert_eq!((run.first, run.count, run.generation.0), (Offset(offset), 1, 3));
    }
}

#[tokio::test]
async fn a_stale_settlement_is_reported_to_whoever_asks() {
    let broker = Broker::listen().await;
    let (mut consumer, subscription, _client, mut peer) = consumer(&broker).await;
    peer.deliver(subscription, 0, &["a", "b", "c"]).await;
    let run = soon(consumer.next_run()).await.unwrap().unwrap();
    let script = async {
        let (number, settle) = peer.settle().await;
        assert!(settle.head.confirm);
        let mut stale = settle.runs.iter().next().unwrap();
        stale.count = 1;
        let stale = [stale].into_iter().collect();
        peer.send(number, Reply::Settled(SettledFrame { applied: 2, stale })).await;
    };
    let (settled, ()) = soon(async { tokio::join!(run.ack_confirmed(), script) }).await;
    assert_eq!(settled.unwrap(), Settled { applied: 2, stale: 1 });
}

#[tokio::test]
async fn a_refused_settlement_fails_whoever_asks() {
    let broker = Broker::listen().await;
    let (mut consumer, subscription, _client, mut peer) = consumer(&broker).await;
    peer.deliver(subscription, 0, &["a"]).await;
    let delivery = soon(consumer.next()).await.unwrap().unwrap();
    let script = async {
        let (number, _) = peer.settle().await;
        peer.refuse(number, ErrorCode::UnknownTopic).await;
    };
    let (settled, ()) = soon(async { tokio::join!(delivery.ack_confirmed(), script) }).await;
    assert_eq!(settled.unwrap_err().code(), Some(ErrorCode::UnknownTopic));
}

#[tokio::test]
async fn dropping_a_delivery_settles_nothing() {
    let broker = Broker::listen().await;
    let (mut consumer, subscription, _client, mut peer) = consumer(&broker).await;
    peer.deliver(subscription, 0, &["a", "b"]).await;
    drop(soon(consumer.next()).await.unwrap().unwrap());
    soon(consumer.next()).await.unwrap().unwrap().ack();
    let (_, settle) = peer.settle().await;
    let runs: Vec<_> = settle.runs.iter().map(|run| (run.first.0, run.count)).collect();
    assert_eq!(runs, [(1, 1)]);
}

#[tokio::test]
async fn after_a_lost_connection_it_subscribes_again_and_old_deliveries_can_be_settled() {
    let broker = Broker::listen().await;
    let (mut consumer, subscription, _client, mut peer) = consumer(&broker).await;
    peer.deliver(subscription, 0, &["a"]).await;
    let old = soon(consumer.next()).await.unwrap().unwrap();
    // It is no successor of anybody yet.
    assert_eq!(peer.replaces, None);
    drop(peer);
    let mut peer = broker.greeted().await;
    // The script's tokens are 77, 84 and so on.
    assert_eq!(peer.replaces, Some(77));
    let again = peer.subscribed().await;
    assert_eq!((again.subscription, again.credit_messages), (subscription, 50));
    old.ack();
    let (_, settle) = peer.settle().await;
    let run = settle.runs.iter().next().unwrap();
    assert_eq!((run.first.0, run.attempt, run.generation.0), (0, 1, 3));
    peer.deliver(subscription, 1, &["b"]).await;
    assert_eq!(soon(consumer.next()).await.unwrap().unwrap().offset(), Offset(1));
    drop(peer);
    assert_eq!(broker.greeted().await.replaces, Some(84));
}

#[tokio::test]
async fn a_settlement_that_may_be_lost_is_said_once_more() {
    let broker = Broker::listen().await;
    let (mut consumer, subscription, _client, mut peer) = consumer(&broker).await;
    peer.deliver(subscription, 0, &["a"]).await;
    soon(consumer.next()).await.unwrap().unwrap().ack();
    let (_, before) = peer.settle().await;
    drop(peer);
    let mut peer = broker.greeted().await;
    peer.subscribed().await;
    assert_eq!(peer.settle().await.1, before);
    drop(peer);
    let mut peer = broker.greeted().await;
    peer.subscribed().await;
    // Not a third time: what comes next is what this test sends next.
    peer.send(7, Reply::Ping).await;
    assert_eq!(peer.next().await, (7, Request::Pong));
}

#[tokio::test]
async fn deliveries_before_the_answer_to_subscribe_are_not_lost() {
    let broker = Broker::listen().await;
    let (client, mut peer) = broker.client().await;
    let (name, group) = (topic(), GroupName::default_group());
    let script = async {
        let (number, request) = peer.next().await;
        let Request::Subscribe(subscribe) = request else { panic!("{request:?}") };
        let subscription = subscribe.subscription;
        peer.deliver(subscription, 0, &["early"]).await;
        let answer = control::Subscribed { subscription, topic_id: 1, ..Default::default() };
        peer.send(number, Reply::Subscribed(answer)).await;
    };
    let subscribe = client.consumer(&name, &group).subscribe();
    let (consumer, ()) = soon(async { tokio::join!(subscribe, script) }).await;
    let delivery = soon(consumer.unwrap().next()).await.unwrap().unwrap();
    assert_eq!(&delivery.payload()[..], b"early");
}

#[tokio::test]
async fn a_damaged_delivery_is_an_error_and_the_next_one_is_not() {
    let broker = Broker::listen().await;
    let (mut consumer, subscription, _client, mut peer) = consumer(&broker).await;
    let mut damaged = batch(&["damaged"]).bytes().to_vec();
    *damaged.last_mut().unwrap() ^= 1;
    let head = deliver_head(subscription, 0, 1);
    peer.send(0, Reply::Deliver(Deliver { head, messages: damaged.into() })).await;
    assert!(matches!(soon(consumer.next()).await, Some(Err(Error::Protocol(_)))));
    peer.deliver(subscription, 1, &["whole"]).await;
    assert_eq!(soon(consumer.next()).await.unwrap().unwrap().offset(), Offset(1));
}

#[tokio::test]
async fn a_consumer_that_takes_nothing_keeps_what_its_credit_allows() {
    let broker = Broker::listen().await;
    let (mut consumer, subscription, _client, mut peer) = consumer(&broker).await;
    for first in 0..200 {
        peer.deliver(subscription, first, &["x"]).await;
    }
    peer.send(7, Reply::Ping).await;
    assert_eq!(peer.next().await, (7, Request::Pong));
    let first = soon(consumer.next()).await.unwrap().unwrap();
    // 50 messages of credit, twice: the oldest leases have long ended.
    assert_eq!(first.offset(), Offset(100));
}

#[tokio::test]
async fn a_window_smaller_than_the_partitions_are_many_drops_none_of_what_each_gives() {
    let broker = Broker::listen().await;
    let (client, mut peer) = broker.client().await;
    let (name, group) = (topic(), GroupName::default_group());
    let window = client.consumer(&name, &group).credit_messages(1).credit_bytes(64);
    let (consumer, subscribed) = both(window.subscribe(), peer.subscribed_to(16)).await;
    let mut consumer = consumer.unwrap();
    let payload = "x".repeat(100);
    for partition in 0..16 {
        let messages = batch(&[&payload]).bytes().clone();
        let head = deliver_head(subscribed.subscription, 0, 1);
        let head = DeliverHead { partition: PartitionIndex(partition), ..head };
        peer.send(0, Reply::Deliver(Deliver { head, messages })).await;
    }
    peer.send(7, Reply::Ping).await;
    assert_eq!(peer.next().await, (7, Request::Pong));
    for partition in 0..16 {
        let delivery = soon(consumer.next()).await.unwrap().unwrap();
        assert_eq!(delivery.partition(), PartitionIndex(partition));
    }
}

#[tokio::test]
async fn who_takes_nothing_is_sent_no_more_than_the_window_and_a_message_until_it_does() {
    let broker = Broker::listen().await;
    let (client, mut peer) = broker.client().await;
    let (name, group) = (topic(), GroupName::default_group());
    let window = client.consumer(&name, &group).credit_bytes(1 << 20);
    let (consumer, subscribed) = both(window.subscribe(), peer.subscribed_to(64)).await;
    let (mut consumer, subscription) = (consumer.unwrap(), subscribed.subscription);
    let long = "x".repeat(1 << 20);
    // Each is one message of its partition: the broker lets it through. The ninth is too much.
    for partition in 0..9 {
        let messages = batch(&[&long]).bytes().clone();
        let head = deliver_head(subscription, 0, 1);
        let head = DeliverHead { partition: PartitionIndex(partition), ..head };
        peer.send(0, Reply::Deliver(Deliver { head, messages })).await;
    }
    let (bytes, messages) = (1 << 20, subscribed.credit_messages);
    let paused = SetCredit { subscription, messages: 0, bytes };
    assert_eq!(peer.next().await.1, Request::SetCredit(paused));
    let mut taken = Vec::new();
    for _ in 0..9 {
        taken.push(soon(consumer.next()).await.unwrap().unwrap());
    }
    let goes_on = SetCredit { subscription, messages, bytes };
    assert_eq!(peer.next().await.1, Request::SetCredit(goes_on));
}

#[tokio::test]
async fn a_window_that_is_replaced_is_said_at_once_and_on_every_later_connection() {
    let broker = Broker::listen().await;
    let (consumer, subscription, _client, mut peer) = consumer(&broker).await;
    consumer.set_credit(0, 4096);
    let paused = SetCredit { subscription, messages: 0, bytes: 4096 };
    assert_eq!(peer.next().await.1, Request::SetCredit(paused));
    drop(peer);
    let mut peer = broker.greeted().await;
    let again = peer.subscribed().await;
    assert_eq!((again.credit_messages, again.credit_bytes), (0, 4096));
    // Not said twice: what comes next is what this test sends next.
    peer.send(7, Reply::Ping).await;
    assert_eq!(peer.next().await, (7, Request::Pong));
}

#[tokio::test]
async fn a_window_that_is_replaced_while_the_subscription_is_made_again_is_said_once_it_is() {
    let broker = Broker::listen().await;
    let (consumer, subscription, _client, peer) = consumer(&broker).await;
    drop(peer);
    let mut peer = broker.greeted().await;
    let (number, request) = peer.next().await;
    let Request::Subscribe(asked) = request else { panic!("{request:?}") };
    assert_ne!(asked.credit_messages, 0);
    consumer.set_credit(0, 4096);
    // What the client was told before comes first.
    peer.send(7, Reply::Ping).await;
    assert_eq!(peer.next().await, (7, Request::Pong));
    peer.send_subscribed(number, &asked, 1).await;
    let paused = SetCredit { subscription, messages: 0, bytes: 4096 };
    assert_eq!(peer.next().await.1, Request::SetCredit(paused));
}

#[tokio::test]
async fn a_window_beyond_the_limits_is_cut_to_them() {
    let broker = Broker::listen().await;
    let (consumer, subscription, _client, mut peer) = consumer(&broker).await;
    consumer.set_credit(u32::MAX, u64::MAX);
    let (messages, bytes) = (CREDIT_MESSAGES_MAX, CREDIT_BYTES_MAX);
    let widest = SetCredit { subscription, messages, bytes };
    assert_eq!(peer.next().await.1, Request::SetCredit(widest));
}

#[tokio::test]
async fn a_smaller_window_drops_nothing_that_came_under_the_larger_one() {
    let broker = Broker::listen().await;
    let (mut consumer, subscription, _client, mut peer) = consumer(&broker).await;
    consumer.set_credit(1, 1);
    assert!(matches!(peer.next().await.1, Request::SetCredit(_)));
    // They were on their way.
    for first in 0..50 {
        peer.deliver(subscription, first, &["x"]).await;
    }
    for offset in 0..50 {
        assert_eq!(soon(consumer.next()).await.unwrap().unwrap().offset(), Offset(offset));
    }
}

#[tokio::test]
async fn an_ended_subscription_says_why_and_then_nothing() {
    let broker = Broker::listen().await;
    let (mut consumer, subscription, _client, mut peer) = consumer(&broker).await;
    peer.deliver(subscription, 0, &["last"]).await;
    let code = ErrorCode::UnknownTopic.number();
    let ended = control::SubscriptionEnded { subscription, code, reason: "deleted".into() };
    peer.send(0, Reply::SubscriptionEnded(ended)).await;
    assert!(soon(consumer.next()).await.unwrap().is_ok());
    let error = soon(consumer.next()).await.unwrap().unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::UnknownTopic));
    assert!(soon(consumer.next()).await.is_none());
}

#[tokio::test]
async fn closing_a_consumer_says_its_acks_first() {
    let broker = Broker::listen().await;
    let (mut consumer, subscription, _client, mut peer) = consumer(&broker).await;
    peer.deliver(subscription, 0, &["a"]).await;
    soon(consumer.next()).await.unwrap().unwrap().ack();
    let script = async {
        peer.settle().await;
        let (number, request) = peer.next().await;
        assert_eq!(request, Request::Unsubscribe(control::Unsubscribe { subscription }));
        peer.send(number, Reply::Done(control::Done::default())).await;
    };
    let (closed, ()) = soon(async { tokio::join!(consumer.close(), script) }).await;
    closed.unwrap();
}

#[tokio::test]
async fn a_consumer_that_is_closed_while_the_connection_is_lost_is_closed_for_good() {
    let broker = Broker::listen().await;
    let (consumer, subscription, _client, mut peer) = consumer(&broker).await;
    let script = async {
        let request = peer.next().await.1;
        assert_eq!(request, Request::Unsubscribe(control::Unsubscribe { subscription }));
        drop(peer);
    };
    let (closed, ()) = soon(async { tokio::join!(consumer.close(), script) }).await;
    closed.unwrap();
    let mut peer = broker.greeted().await;
    peer.send(7, Reply::Ping).await;
    assert_eq!(peer.next().await, (7, Request::Pong));
}

#[tokio::test]
async fn closing_a_client_says_its_acks_and_goodbye_and_ends_its_consumers() {
    let broker = Broker::listen().await;
    let (mut consumer, subscription, client, mut peer) = consumer(&broker).await;
    peer.deliver(subscription, 0, &["a", "b"]).await;
    let kept = soon(consumer.next()).await.unwrap().unwrap();
    soon(consumer.next()).await.unwrap().unwrap().ack();
    let closing = tokio::spawn(client.close());
    peer.settle().await;
    assert_eq!(peer.next().await.1, Request::Goodbye);
    soon(closing).await.unwrap();
    assert!(peer.leaves().await);
    assert!(soon(consumer.next()).await.is_none());
    assert!(matches!(soon(kept.ack_confirmed()).await, Err(Error::Closed)));
}

#[tokio::test]
async fn dropping_everything_says_goodbye() {
    let broker = Broker::listen().await;
    let (consumer, subscription, client, mut peer) = consumer(&broker).await;
    drop((consumer, client));
    let (_, request) = peer.next().await;
    assert_eq!(request, Request::Unsubscribe(control::Unsubscribe { subscription }));
    assert_eq!(peer.next().await.1, Request::Goodbye);
    assert!(peer.leaves().await);
}
