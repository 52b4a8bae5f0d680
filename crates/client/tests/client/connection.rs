//! The connection against a scripted broker: greeting, requests, invalid bytes, silence.

use std::time::Duration;

use sennit_client::{
    Client, Error, ErrorCode, GroupConfig, GroupName, Offset, Reconnect, Retention, StartAt,
    TopicConfig, TopicKind,
};
use sennit_protocol::{Reply, Request, control};
use tokio::{io::AsyncWriteExt, net::TcpListener};

use crate::broker::{Broker, both, soon, topic};

#[tokio::test]
async fn an_address_where_nobody_listens_is_unreachable_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let error = soon(Client::connect(address.clone())).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }) && error.is_retryable());
    assert!(error.to_string().contains(&address));
}

#[tokio::test]
async fn something_else_than_a_broker_is_a_typed_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let serve = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        stream
    };
    let (client, _stream) = soon(async { tokio::join!(Client::connect(address), serve) }).await;
    let error = client.unwrap_err();
    assert!(matches!(error, Error::Protocol(_)) && !error.is_retryable(), "{error:?}");
}

#[tokio::test]
async fn a_broker_that_grants_less_than_a_greeting_may_hold_is_not_believed() {
    let broker = Broker::listen().await;
    for frame_bytes_max in [None, Some(0), Some(16_383), Some(16_384)] {
        let limits = frame_bytes_max.map(control::Limits::new);
        let greet = async {
            let mut stream = broker.accept().await;
            let (ok, mut out) = (control::HelloOk { limits, ..Default::default() }, Vec::new());
            Reply::HelloOk(ok).encode(1, &mut out);
            stream.write_all(&out).await.unwrap();
            stream
        };
        let connect = Client::connect(broker.address());
        let (client, _stream) = soon(async { tokio::join!(connect, greet) }).await;
        match frame_bytes_max {
            Some(16_384) => drop(client.unwrap()),
            _ => assert!(matches!(client, Err(Error::Unexpected(_))), "{frame_bytes_max:?}"),
        }
    }
}

#[tokio::test]
async fn garbage_in_the_middle_ends_the_connection_with_a_typed_error() {
    let broker = Broker::listen().await;
    let connect = Client::builder(broker.address()).reconnect(Reconnect::off());
    let (client, mut peer) = both(connect.connect(), broker.greeted()).await;
    let client = client.unwrap();
    let script = async {
        peer.next().await;
        peer.send_bytes(&[0xff; 64]).await;
    };
    let (topics, ()) = soon(async { tokio::join!(client.list_topics(), script) }).await;
    assert!(matches!(topics, Err(Error::Protocol(_))), "{topics:?}");
}

#[tokio::test]
async fn a_question_is_asked_again_and_a_change_is_not() {
    let broker = Broker::listen().await;
    let (client, mut peer) = broker.client().await;
    let name = topic();
    let script = async {
        assert!(matches!(peer.next().await.1, Request::ListTopics(_)));
        assert!(matches!(peer.next().await.1, Request::DeleteTopic(_)));
        drop(peer);
        let mut peer = broker.greeted().await;
        let (number, request) = peer.next().await;
        assert!(matches!(request, Request::ListTopics(_)), "{request:?}");
        peer.send(number, Reply::TopicList(control::TopicList::default())).await;
        peer
    };
    let both = async { tokio::join!(client.list_topics(), client.delete_topic(&name), script) };
    let (topics, deleted, _peer) = soon(both).await;
    assert_eq!(topics.unwrap(), []);
    assert!(matches!(deleted, Err(Error::OutcomeUnknown)));
}

#[tokio::test]
async fn topics_and_groups_are_described_in_the_models_words() {
    let broker = Broker::listen().await;
    let (client, mut peer) = broker.client().await;
    let config = TopicConfig { partitions: 3, ..TopicConfig::of_kind(TopicKind::Queue) };
    let group = control::GroupDescription {
        name: "default".into(),
        id: 4,
        topic: "orders".into(),
        config: Some((&GroupConfig::default()).into()),
        ready: 17,
        settled_before: vec![1, 2, 3],
        ..Default::default()
    };
    let script = async {
        let (number, request) = peer.next().await;
        let Request::CreateTopic(create) = request else { panic!("{request:?}") };
        assert_eq!(create.topic_config().unwrap(), config);
        let done = control::Done { created: true, topic_id: 1, ..<_>::default() };
        peer.send(number, Reply::Done(done)).await;
        let (number, request) = peer.next().await;
        let Request::CreateGroup(create) = request else { panic!("{request:?}") };
        assert_eq!(create.start_at(), StartAt::Offset(Offset(9)));
        peer.refuse(number, ErrorCode::TopicExists).await;
        let (number, _) = peer.next().await;
        let description = control::TopicDescription {
            name: "orders".into(),
            id: 1,
            incarnation: 5,
            config: Some((&config).into()),
            partitions: vec![control::PartitionDescription { end: 30, ..Default::default() }],
            groups: vec![group.clone()],
            ..Default::default()
        };
        peer.send(number, Reply::TopicDescription(description)).await;
    };
    let (name, default) = (topic(), GroupName::default_group());
    let asked = async {
        assert!(client.create_topic(&name, config.clone()).await.unwrap());
        let start = StartAt::Offset(Offset(9));
        let group = client.create_group(&name, &default, GroupConfig::default(), start).await;
        assert_eq!(group.unwrap_err().code(), Some(ErrorCode::TopicExists));
        client.describe_topic(&name).await.unwrap()
    };
    let (described, ()) = soon(async { tokio::join!(asked, script) }).await;
    assert_eq!(
        (described.kind, described.config.retention),
        (TopicKind::Queue, Retention::UNTIL_SETTLED)
    );
    assert_eq!(described.partitions[0].end, Offset(30));
    assert_eq!((described.groups[0].ready, described.groups[0].settled_before.len()), (17, 3));
}

#[tokio::test]
async fn listing_goes_over_all_pages() {
    let broker = Broker::listen().await;
    let (client, mut peer) = broker.client().await;
    let script = async {
        for (token, next, name) in [("", "b", "a"), ("b", "", "b")] {
            let (number, request) = peer.next().await;
            let Request::ListTopics(list) = request else { panic!("{request:?}") };
            assert_eq!(list.page_token, token);
            let entry = control::TopicEntry { name: name.into(), ..Default::default() };
            let page = control::TopicList { topics: vec![entry], next_page_token: next.into() };
            peer.send(number, Reply::TopicList(page)).await;
        }
    };
    let (topics, ()) = soon(async { tokio::join!(client.list_topics(), script) }).await;
    let names: Vec<_> = topics.unwrap().iter().map(|topic| topic.name.to_string()).collect();
    assert_eq!(names, ["a", "b"]);
}

#[tokio::test]
async fn a_broker_that_falls_silent_is_asked_and_then_left() {
    let broker = Broker::listen().await;
    let (client, _silent) = broker.client().await;
    // From here on time passes only while everybody waits.
    tokio::time::pause();
    let name = topic();
    let asking = tokio::spawn(async move { client.describe_topic(&name).await });
    let before = tokio::time::Instant::now();
    let stream = broker.accept().await;
    let silence = before.elapsed();
    tokio::time::resume();
    assert!(silence >= Duration::from_secs(14) && silence < Duration::from_secs(30), "{silence:?}");
    let mut peer = Broker::greet(stream).await;
    let (number, _) = peer.next().await;
    peer.refuse(number, ErrorCode::UnknownTopic).await;
    let answer = soon(asking).await.unwrap();
    assert_eq!(answer.unwrap_err().code(), Some(ErrorCode::UnknownTopic));
}

#[tokio::test]
async fn a_broker_that_is_leaving_is_left_when_its_grace_is_over() {
    let broker = Broker::listen().await;
    let (client, mut leaving) = broker.client().await;
    let body = control::GoAway { reason: "maintenance".into(), grace_ms: 1 };
    leaving.send(0, Reply::GoAway(body)).await;
    let mut peer = broker.greeted().await;
    let script = async {
        let (number, _) = peer.next().await;
        peer.send(number, Reply::TopicList(control::TopicList::default())).await;
    };
    let (topics, ()) = soon(async { tokio::join!(client.list_topics(), script) }).await;
    assert_eq!(topics.unwrap(), []);
}

#[tokio::test]
async fn frames_of_a_newer_broker_are_skipped() {
    let broker = Broker::listen().await;
    let (client, mut peer) = broker.client().await;
    let script = async {
        let (number, _) = peer.next().await;
        let mut newer = Vec::new();
        sennit_protocol::FrameHeader { size: 3, kind: 200, flags: 0, request: 0 }
            .encode(&mut newer);
        newer.extend_from_slice(b"new");
        peer.send_bytes(&newer).await;
        peer.send(number, Reply::TopicList(control::TopicList::default())).await;
    };
    let (topics, ()) = soon(async { tokio::join!(client.list_topics(), script) }).await;
    assert_eq!(topics.unwrap(), []);
}

#[test]
fn a_client_whose_runtime_has_ended_is_closed() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let (client, _peer) = first.block_on(async { Broker::listen().await.client().await });
    drop(first);
    let topics = runtime().block_on(soon(client.list_topics()));
    assert!(matches!(topics, Err(Error::Closed)), "{topics:?}");
}
