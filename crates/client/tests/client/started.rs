//! Reports of started work against a scripted broker: a client reports nothing while its program works on one
//! message at a time.

use sennit_client::{Client, Consumer, Delivery, GroupName};
use sennit_protocol::{Request, Verdict};

use crate::broker::{Broker, Peer, soon, topic};

async fn subscribed(client: &Client, peer: &mut Peer) -> (Consumer, u32) {
    let (name, group) = (topic(), GroupName::default_group());
    let subscribe = client.consumer(&name, &group).subscribe();
    let (consumer, subscribed) = tokio::join!(subscribe, peer.subscribed());
    (consumer.expect("it is subscribed"), subscribed.subscription)
}

async fn consumer(broker: &Broker) -> (Consumer, u32, Client, Peer) {
    let (client, mut peer) = broker.client().await;
    let (consumer, subscription) = subscribed(&client, &mut peer).await;
    (consumer, subscription, client, peer)
}

async fn take(consumer: &mut Consumer) -> Delivery {
    soon(consumer.next()).await.expect("it goes on").expect("it is whole")
}

#[tokio::test]
async fn a_program_that_settles_each_message_before_it_takes_the_next_says_nothing_else() {
    let broker = Broker::listen().await;
    let (mut consumer, subscription, _client, mut peer) = consumer(&broker).await;
    peer.deliver(subscription, 0, &["a", "b", "c"]).await;
    peer.deliver(subscription, 3, &["d"]).await;
    for _ in 0..4 {
        let delivery = take(&mut consumer).await;
        delivery.extend(std::time::Duration::from_secs(60));
        delivery.ack();
        delivery.ack();
    }
    let mut acked = 0;
    while acked < 8 {
        let (_, request) = peer.next().await;
        let Request::Settle(settle) = request else { panic!("{request:?}") };
        match settle.head.verdict {
            Verdict::Ack => acked += settle.runs.iter().map(|run| run.count).sum::<u32>(),
            Verdict::Extend(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_program_that_takes_more_than_one_says_which_it_has_beside_the_oldest() {
    let broker = Broker::listen().await;
    let (mut consumer, subscription, _client, mut peer) = consumer(&broker).await;
    peer.deliver(subscription, 0, &["a", "b", "c"]).await;
    peer.deliver(subscription, 3, &["d", "e", "f"]).await;
    let mut held = Vec::new();
    for _ in 0..5 {
        held.push(take(&mut consumer).await);
    }
    assert_eq!(peer.started(4).await, [1, 2, 3, 4]);
    // With all of them settled the next is the oldest.
    held.iter().for_each(Delivery::ack);
    take(&mut consumer).await.ack();
    let mut acked = 0;
    while acked < 6 {
        let (_, request) = peer.next().await;
        let Request::Settle(settle) = request else { panic!("{request:?}") };
        assert_eq!(settle.head.verdict, Verdict::Ack);
        acked += settle.runs.iter().map(|run| run.count).sum::<u32>();
    }
}

#[tokio::test]
async fn a_run_that_is_taken_as_a_whole_is_worked_on_as_a_whole_and_one_message_alone_is_the_oldest()
 {
    let broker = Broker::listen().await;
    let (mut consumer, subscription, _client, mut peer) = consumer(&broker).await;
    peer.deliver(subscription, 0, &["a"]).await;
    soon(consumer.next_run()).await.expect("it goes on").expect("it is whole").ack();
    let (_, request) = peer.next().await;
    let Request::Settle(settle) = request else { panic!("{request:?}") };
    assert_eq!(settle.head.verdict, Verdict::Ack);
    peer.deliver(subscription, 1, &["b", "c", "d"]).await;
    let run = soon(consumer.next_run()).await.expect("it goes on").expect("it is whole");
    assert_eq!(peer.started(3).await, [1, 2, 3]);
    run.ack();
    let (_, settle) = peer.settle().await;
    assert_eq!(settle.head.verdict, Verdict::Ack);
}

#[tokio::test]
async fn an_older_broker_is_told_nothing_that_it_does_not_know_also_after_a_reconnect() {
    let broker = Broker::listen().await;
    let connect = Client::connect(broker.address());
    let (client, mut peer) = tokio::join!(connect, async {
        let stream = broker.accept().await;
        Broker::greet(stream).await
    });
    let client = client.expect("it is greeted");
    let (mut consumer, subscription) = subscribed(&client, &mut peer).await;
    peer.deliver(subscription, 0, &["a", "b"]).await;
    let held = [take(&mut consumer).await, take(&mut consumer).await];
    assert_eq!(peer.started(1).await, [1]);
    // It has not heard that this has arrived, and so would say it again.
    drop(peer);
    let stream = soon(broker.accept()).await;
    let mut peer = Broker::greet_without(stream, "started").await;
    peer.subscribed().await;
    peer.deliver(subscription, 2, &["c", "d"]).await;
    let more = [take(&mut consumer).await, take(&mut consumer).await];
    held.iter().chain(&more).for_each(Delivery::ack);
    let mut acked = 0;
    while acked < 4 {
        let (_, request) = peer.next().await;
        let Request::Settle(settle) = request else { panic!("{request:?}") };
        assert_eq!(settle.head.verdict, Verdict::Ack);
        acked += settle.runs.iter().map(|run| run.count).sum::<u32>();
    }
}
