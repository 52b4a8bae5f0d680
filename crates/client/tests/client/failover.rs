//! A client that knows several nodes, against scripted ones: it goes from one to the next, and its program notices
//! nothing.

use std::time::Duration;

use sennit_client::{
    Client, Error, ErrorCode, GroupName, Offset, Reconnect, TopicConfig, TopicKind,
};
use sennit_protocol::{Reply, Request, control};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
};

use crate::broker::{Broker, Peer, both, message, soon, topic};

/// Two nodes, and a list of their addresses.
async fn two_nodes() -> ([Broker; 2], String) {
    let nodes = [Broker::listen().await, Broker::listen().await];
    let list = nodes.each_ref().map(Broker::address).join(",");
    (nodes, list)
}

/// The connection of a client, with the number of the node to which it came.
async fn greeted(nodes: &[Broker; 2]) -> (usize, Peer) {
    let accepted = async {
        tokio::select! {
            stream = nodes[0].accept() => (0, stream),
            stream = nodes[1].accept() => (1, stream),
        }
    };
    let (node, stream) = soon(accepted).await;
    (node, Broker::greet(stream).await)
}

/// A client of both nodes, with the node that it uses and the other end of its connection.
async fn client_of(nodes: &[Broker; 2], list: &str) -> (Client, usize, Peer) {
    let (client, (node, peer)) = both(Client::connect(list), greeted(nodes)).await;
    (client.expect("it connects"), node, peer)
}

/// An address at which nothing listens.
async fn dead_address() -> String {
    let listener =
        TcpListener::bind("127.0.0.1:0").await.expect("an address of the loopback is free");
    listener.local_addr().expect("it listens").to_string()
}

#[tokio::test]
async fn of_several_addresses_one_is_used_at_which_a_broker_listens() {
    let broker = Broker::listen().await;
    let mut builder = Client::builder(dead_address().await);
    for address in [dead_address().await, broker.address(), dead_address().await] {
        builder = builder.address(address);
    }
    let (client, mut peer) = both(builder.connect(), broker.greeted()).await;
    let client = client.unwrap();
    assert_eq!(client.address().split(',').count(), 4);
    let script = async {
        let (number, _) = peer.next().await;
        peer.send(number, Reply::TopicList(control::TopicList::default())).await;
    };
    assert_eq!(both(client.list_topics(), script).await.0.unwrap(), []);
}

#[tokio::test]
async fn addresses_that_cannot_be_reached_are_named_with_their_reasons() {
    let addresses = [dead_address().await, dead_address().await];
    let error = soon(Client::connect(addresses.join(","))).await.unwrap_err();
    let Error::NoneReachable { tried } = &error else { panic!("{error:?}") };
    assert!(tried.iter().all(|(_, error)| matches!(error, Error::Unreachable { .. })));
    let text = error.to_string();
    assert!(addresses.iter().all(|address| text.contains(address)), "{text}");
    assert_eq!(text.matches("refused").count(), 2, "{text}");
    assert!(error.is_retryable());
}

#[tokio::test]
async fn a_refusal_for_good_is_the_error_although_another_address_is_dead() {
    let broker = Broker::listen().await;
    let list = [dead_address().await, broker.address()].join(",");
    let refuse = refuse_greeting(&broker, ErrorCode::Unauthorized);
    let (client, _stream) = both(Client::connect(list), refuse).await;
    assert_eq!(client.unwrap_err().code(), Some(ErrorCode::Unauthorized));
}

/// Answers the next client's greeting with an error, and gives its connection.
async fn refuse_greeting(broker: &Broker, code: ErrorCode) -> TcpStream {
    let mut stream = soon(broker.accept()).await;
    let mut out = Vec::new();
    Reply::Error(control::Error::new(code, "as the script says")).encode(1, &mut out);
    stream.write_all(&out).await.expect("it is sent");
    stream
}

#[tokio::test]
async fn a_node_that_cannot_tell_yet_who_may_do_what_is_asked_again_for_the_first_session() {
    let broker = Broker::listen().await;
    let script = async {
        let refused = refuse_greeting(&broker, ErrorCode::NoLeader).await;
        (refused, broker.greeted().await)
    };
    let (client, _peers) = both(Client::connect(broker.address()), script).await;
    client.unwrap();
    let once = Client::builder(broker.address()).reconnect(Reconnect::off()).connect();
    let (client, _stream) = both(once, refuse_greeting(&broker, ErrorCode::NoLeader)).await;
    assert_eq!(client.unwrap_err().code(), Some(ErrorCode::NoLeader));
}

#[tokio::test]
async fn what_a_dead_node_has_not_confirmed_is_sent_to_the_next_in_order_under_the_same_sequences()
{
    let (nodes, list) = two_nodes().await;
    let (client, node, mut peer) = client_of(&nodes, &list).await;
    let name = topic();
    let publisher = both(client.publisher(&name).open(), peer.open_topic(1)).await.0.unwrap();
    let mut sent = Vec::new();
    let mut waiting = Vec::new();
    for payload in ["a", "b", "c"] {
        waiting.push(soon(publisher.publish(message(payload))).await.unwrap());
        sent.push(peer.publish().await.1);
    }
    peer.confirm(&sent[0], 0).await;
    assert_eq!(soon(waiting.remove(0)).await.unwrap().offset, Some(Offset(0)));
    drop(peer);
    let (next, mut peer) = greeted(&nodes).await;
    assert_ne!(next, node, "the dead node is the last to be tried");
    assert!(peer.replaces.is_some(), "the old session may be alive there");
    peer.open_topic(1).await;
    for expected in &sent[1..] {
        assert_eq!(&peer.publish().await.1, expected);
    }
    peer.confirm_as(&sent[1], Some(1), true).await;
    peer.confirm(&sent[2], 2).await;
    for (offset, pending) in (1..).zip(waiting) {
        assert_eq!(soon(pending).await.unwrap().offset, Some(Offset(offset)));
    }
}

#[tokio::test]
async fn a_silent_node_is_left_sooner_where_there_is_another() {
    let (nodes, list) = two_nodes().await;
    let (client, node, _silent) = client_of(&nodes, &list).await;
    // From here on time passes only while everybody waits.
    tokio::time::pause();
    let name = topic();
    let asking = tokio::spawn(async move { client.describe_topic(&name).await });
    let before = tokio::time::Instant::now();
    let stream = nodes[1 - node].accept().await;
    let silence = before.elapsed();
    tokio::time::resume();
    assert!(silence >= Duration::from_secs(5) && silence < Duration::from_secs(14), "{silence:?}");
    let mut peer = Broker::greet(stream).await;
    let (number, _) = peer.next().await;
    peer.refuse(number, ErrorCode::UnknownTopic).await;
    let answer = soon(asking).await.unwrap();
    assert_eq!(answer.unwrap_err().code(), Some(ErrorCode::UnknownTopic));
}

#[tokio::test]
async fn a_consumer_and_a_reader_go_on_at_the_next_node() {
    let (nodes, list) = two_nodes().await;
    let (client, _, mut peer) = client_of(&nodes, &list).await;
    let (name, group) = (topic(), GroupName::default_group());
    let (consumer, subscribe) =
        both(client.consumer(&name, &group).subscribe(), peer.subscribed()).await;
    let mut consumer = consumer.unwrap();
    let read = async {
        let (number, request) = peer.next().await;
        let Request::Read(read) = request else { panic!("{request:?}") };
        send_started(&mut peer, number, &read, 5).await;
        read.subscription
    };
    let (reader, number) = both(client.reader(&name).start(), read).await;
    let mut reader = reader.unwrap();
    peer.deliver(subscribe.subscription, 5, &["five"]).await;
    peer.deliver(number, 5, &["five", "six"]).await;
    assert_eq!(soon(consumer.next()).await.unwrap().unwrap().offset(), Offset(5));
    assert_eq!(soon(reader.next()).await.unwrap().unwrap().offset(), Offset(5));
    drop(peer);
    let (_, mut peer) = greeted(&nodes).await;
    assert_eq!(peer.subscribed().await.group, subscribe.group);
    let (number, request) = peer.next().await;
    let Request::Read(read) = request else { panic!("{request:?}") };
    assert_eq!(read.positions.iter().map(|at| at.offset).collect::<Vec<_>>(), [7]);
    send_started(&mut peer, number, &read, 7).await;
    peer.deliver(read.subscription, 7, &["seven"]).await;
    peer.deliver(subscribe.subscription, 6, &["six"]).await;
    for offset in [6, 7] {
        assert_eq!(soon(reader.next()).await.unwrap().unwrap().offset(), Offset(offset));
    }
    assert_eq!(soon(consumer.next()).await.unwrap().unwrap().offset(), Offset(6));
}

/// Says that a reader of one partition begins at this offset.
async fn send_started(peer: &mut Peer, number: u64, read: &control::Read, first: u64) {
    let answer = control::Subscribed {
        subscription: read.subscription,
        topic_id: 1,
        group_id: u32::MAX,
        partitions: 1,
        lease_ms: 0,
        ranges: vec![control::ReadRange { first, end: first }],
    };
    peer.send(number, Reply::Subscribed(answer)).await;
}

/// The next request, whatever credit comes before it.
async fn next_question(peer: &mut Peer) -> (u64, Request) {
    loop {
        let (number, request) = peer.next().await;
        if !matches!(request, Request::SetCredit(_)) {
            return (number, request);
        }
    }
}

/// Refuses the next request with `code`, answers it with `reply` when it comes again, and says how it was.
async fn refuse_once(
    peer: &mut Peer,
    code: ErrorCode,
    reply: impl FnOnce(&Request) -> Reply,
) -> Request {
    let (number, request) = next_question(peer).await;
    peer.refuse(number, code).await;
    let (number, again) = next_question(peer).await;
    assert_eq!(again, request);
    peer.send(number, reply(&again)).await;
    again
}

fn done(_: &Request) -> Reply {
    Reply::Done(control::Done { created: true, topic_id: 1, ..<_>::default() })
}

#[tokio::test]
async fn requests_that_have_no_leader_are_asked_again_and_the_program_does_not_notice() {
    let broker = Broker::listen().await;
    let (client, mut peer) = broker.client().await;
    let (name, group) = (topic(), GroupName::default_group());
    let config = TopicConfig::of_kind(TopicKind::Queue);
    let create = client.create_topic(&name, config);
    let (created, _) = both(create, refuse_once(&mut peer, ErrorCode::NoLeader, done)).await;
    assert!(created.unwrap());
    let list = |_: &Request| Reply::TopicList(control::TopicList::default());
    for code in [ErrorCode::NoLeader, ErrorCode::OutcomeUnknown] {
        let (topics, _) = both(client.list_topics(), refuse_once(&mut peer, code, list)).await;
        assert_eq!(topics.unwrap(), []);
        let limits = Some(control::Limits::new(16_384));
        let opened = control::TopicOpened { topic_id: 1, incarnation: 9, partitions: 1, limits };
        let open = refuse_once(&mut peer, code, |_| Reply::TopicOpened(opened));
        both(client.publisher(&name).open(), open).await.0.unwrap();
        let subscribed = |request: &Request| {
            let Request::Subscribe(subscribe) = request else { panic!("{request:?}") };
            let subscription = subscribe.subscription;
            Reply::Subscribed(control::Subscribed { subscription, ..<_>::default() })
        };
        let subscribe = refuse_once(&mut peer, code, subscribed);
        let consumer = both(client.consumer(&name, &group).subscribe(), subscribe).await.0;
        std::mem::forget(consumer.unwrap());
        let read = |request: &Request| {
            let Request::Read(read) = request else { panic!("{request:?}") };
            let ranges = vec![control::ReadRange { first: 0, end: 0 }];
            let subscription = read.subscription;
            Reply::Subscribed(control::Subscribed { subscription, ranges, ..<_>::default() })
        };
        let start = refuse_once(&mut peer, code, read);
        std::mem::forget(both(client.reader(&name).start(), start).await.0.unwrap());
    }
}

#[tokio::test]
async fn a_change_with_an_unknown_outcome_is_told_and_not_repeated() {
    let broker = Broker::listen().await;
    let (client, mut peer) = broker.client().await;
    let name = topic();
    let script = async {
        let (number, request) = peer.next().await;
        assert!(matches!(request, Request::DeleteTopic(_)), "{request:?}");
        peer.refuse(number, ErrorCode::OutcomeUnknown).await;
    };
    let deleted = both(client.delete_topic(&name), script).await.0;
    assert!(matches!(deleted, Err(Error::OutcomeUnknown)), "{deleted:?}");
}

#[tokio::test]
async fn what_a_leaving_node_refuses_is_asked_at_the_next_one() {
    let (nodes, list) = two_nodes().await;
    let (client, node, mut leaving) = client_of(&nodes, &list).await;
    let name = topic();
    let script = async {
        let (number, request) = leaving.next().await;
        leaving.refuse(number, ErrorCode::ShuttingDown).await;
        let (next, mut peer) = greeted(&nodes).await;
        assert_ne!(next, node);
        let (number, again) = peer.next().await;
        assert_eq!(again, request);
        peer.send(number, done(&again)).await;
        peer
    };
    both(client.delete_topic(&name), script).await.0.unwrap();
}

#[tokio::test]
async fn batches_without_a_leader_are_sent_again_in_order() {
    let broker = Broker::listen().await;
    let (client, mut peer) = broker.client().await;
    let name = topic();
    let publisher = both(client.publisher(&name).open(), peer.open_topic(1)).await.0.unwrap();
    let (mut frames, mut waiting) = (Vec::new(), Vec::new());
    for payload in ["a", "b", "c"] {
        waiting.push(soon(publisher.publish(message(payload))).await.unwrap());
        frames.push(peer.publish().await);
    }
    peer.refuse_publish(&frames[0], ErrorCode::OutcomeUnknown, None).await;
    peer.refuse_publish(&frames[1], ErrorCode::NoLeader, None).await;
    peer.refuse_publish(&frames[2], ErrorCode::SequenceGap, Some(0)).await;
    for (_, expected) in &frames {
        assert_eq!(&peer.publish().await.1, expected);
    }
    peer.confirm_as(&frames[0].1, Some(0), true).await;
    peer.confirm(&frames[1].1, 1).await;
    peer.confirm(&frames[2].1, 2).await;
    for (offset, pending) in (0..).zip(waiting) {
        assert_eq!(soon(pending).await.unwrap().offset, Some(Offset(offset)));
    }
}

#[tokio::test]
async fn without_a_producer_id_what_may_have_been_appended_fails_and_is_not_sent_again() {
    let broker = Broker::listen().await;
    let (client, mut peer) = broker.client().await;
    let name = topic();
    let opened = client.publisher(&name).idempotent(false).open();
    let publisher = both(opened, peer.open_topic(1)).await.0.unwrap();
    let publish = async |peer: &mut Peer, payload: &str| {
        let pending = soon(publisher.publish(message(payload))).await.unwrap();
        (pending, peer.publish().await)
    };
    let (refused, frame) = publish(&mut peer, "a").await;
    peer.refuse_publish(&frame, ErrorCode::OutcomeUnknown, None).await;
    assert!(matches!(soon(refused).await, Err(Error::OutcomeUnknown)));
    let (lost, _) = publish(&mut peer, "b").await;
    let (told, (number, frame)) = publish(&mut peer, "c").await;
    // This one was not appended, so that it goes on.
    peer.refuse_publish(&(number, frame.clone()), ErrorCode::NoLeader, None).await;
    peer.send(9, Reply::Ping).await;
    assert_eq!(peer.next().await, (9, Request::Pong));
    drop(peer);
    let mut peer = broker.greeted().await;
    peer.open_topic(1).await;
    assert!(matches!(soon(lost).await, Err(Error::OutcomeUnknown)));
    let (_, again) = peer.publish().await;
    assert_eq!(again, frame);
    peer.confirm(&again, 1).await;
    assert_eq!(soon(told).await.unwrap().offset, Some(Offset(1)));
    // Messages behind it are as if nothing had been.
    let (pending, (_, frame)) = publish(&mut peer, "d").await;
    peer.confirm(&frame, 2).await;
    assert_eq!(soon(pending).await.unwrap().offset, Some(Offset(2)));
    assert!(matches!(soon(publisher.flush()).await, Err(Error::OutcomeUnknown)));
}

/// Says that a subscription is over because another node leads now.
async fn interrupt(peer: &mut Peer, subscription: u32) {
    let code = ErrorCode::OutcomeUnknown.number();
    let ended = control::SubscriptionEnded { subscription, code, reason: "elsewhere".into() };
    peer.send(0, Reply::SubscriptionEnded(ended)).await;
}

#[tokio::test]
async fn subscriptions_whose_leader_changes_are_made_again_where_they_were() {
    let broker = Broker::listen().await;
    let (client, mut peer) = broker.client().await;
    let (name, group) = (topic(), GroupName::default_group());
    let subscribe = client.consumer(&name, &group).subscribe();
    let (consumer, before) = both(subscribe, peer.subscribed()).await;
    let mut consumer = consumer.unwrap();
    peer.deliver(before.subscription, 0, &["zero"]).await;
    interrupt(&mut peer, before.subscription).await;
    let again = peer.subscribed().await;
    assert_eq!(again, before);
    peer.deliver(again.subscription, 1, &["one"]).await;
    for offset in [0, 1] {
        let delivery = soon(consumer.next()).await.unwrap().unwrap();
        assert_eq!(delivery.offset(), Offset(offset));
    }
}

#[tokio::test]
async fn a_reader_whose_leader_changes_goes_on_behind_what_it_has_and_tells_of_that_no_more() {
    let broker = Broker::listen().await;
    let (client, mut peer) = broker.client().await;
    let name = topic();
    let start = async {
        let (number, request) = peer.next().await;
        let Request::Read(read) = request else { panic!("{request:?}") };
        send_started(&mut peer, number, &read, 0).await;
        read
    };
    // With a window of one message each that is taken is told at once.
    let reader = client.reader(&name).credit_messages(1).start();
    let (reader, read) = both(reader, start).await;
    let mut reader = reader.unwrap();
    peer.deliver(read.subscription, 0, &["zero"]).await;
    interrupt(&mut peer, read.subscription).await;
    let (number, request) = peer.next().await;
    let Request::Read(again) = request else { panic!("{request:?}") };
    assert_eq!(again.positions.iter().map(|at| at.offset).collect::<Vec<_>>(), [1]);
    send_started(&mut peer, number, &again, 1).await;
    peer.send(9, Reply::Ping).await;
    assert_eq!(peer.next().await, (9, Request::Pong));
    for offset in [0, 1] {
        if offset == 1 {
            peer.deliver(read.subscription, 1, &["one"]).await;
        }
        let message = soon(reader.next()).await.unwrap().unwrap();
        assert_eq!(message.offset(), Offset(offset));
    }
    message_taken(&mut reader).await;
    let (_, request) = peer.next().await;
    let Request::Taken(taken) = request else { panic!("{request:?}") };
    assert_eq!(taken.messages, 1, "the first came before the change");
}

/// Lets the reader tell of what was taken: it does when the program asks for more.
async fn message_taken(reader: &mut sennit_client::Reader) {
    let waiting = tokio::time::timeout(Duration::from_millis(1), reader.next()).await;
    assert!(waiting.is_err(), "nothing more was sent");
}

#[tokio::test]
async fn a_confirmed_ack_without_a_leader_is_said_again() {
    let broker = Broker::listen().await;
    let (client, mut peer) = broker.client().await;
    let (name, group) = (topic(), GroupName::default_group());
    let subscribe = client.consumer(&name, &group).subscribe();
    let (consumer, subscribe) = both(subscribe, peer.subscribed()).await;
    let mut consumer = consumer.unwrap();
    peer.deliver(subscribe.subscription, 0, &["zero"]).await;
    let delivery = soon(consumer.next()).await.unwrap().unwrap();
    let script = async {
        let (number, before) = peer.settle().await;
        peer.refuse(number, ErrorCode::NoLeader).await;
        let (number, again) = peer.settle().await;
        assert_eq!(again, before);
        let settled = sennit_protocol::Settled { applied: 1, stale: <_>::default() };
        peer.send(number, Reply::Settled(settled)).await;
    };
    let (settled, ()) = both(delivery.ack_confirmed(), script).await;
    assert_eq!(settled.unwrap().applied, 1);
}

#[tokio::test]
async fn a_cursor_that_the_lost_session_holds_at_another_node_is_asked_for_again() {
    let (nodes, list) = two_nodes().await;
    let (client, _, mut peer) = client_of(&nodes, &list).await;
    let (name, cursor) = (topic(), "audit".parse().unwrap());
    let read = async {
        let (number, request) = peer.next().await;
        let Request::Read(read) = request else { panic!("{request:?}") };
        send_started(&mut peer, number, &read, 0).await;
    };
    let start = client.reader(&name).cursor(&cursor).start();
    let mut reader = both(start, read).await.0.unwrap();
    drop(peer);
    let (_, mut peer) = greeted(&nodes).await;
    let (number, _) = peer.next().await;
    peer.refuse(number, ErrorCode::CursorHeld).await;
    let (number, request) = peer.next().await;
    let Request::Read(read) = request else { panic!("{request:?}") };
    send_started(&mut peer, number, &read, 0).await;
    peer.deliver(read.subscription, 0, &["zero"]).await;
    assert_eq!(soon(reader.next()).await.unwrap().unwrap().offset(), Offset(0));
}
