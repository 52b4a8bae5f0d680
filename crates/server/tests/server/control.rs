//! Names and settings.

use std::collections::BTreeSet;

use sennit_protocol::{ErrorCode, Reply, Request, control};

use crate::world::{Broker, Peer};

fn refused(peer: &mut Peer, request: Request) -> (ErrorCode, String) {
    match peer.ask(&request) {
        Reply::Error(error) => (error.error_code().unwrap(), error.message),
        other => panic!("{other:?}"),
    }
}

fn create(name: &str, partitions: u32) -> Request {
    let config = control::TopicConfig { partitions: Some(partitions), ..<_>::default() };
    Request::CreateTopic(control::CreateTopic {
        name: name.into(),
        config: Some(config),
        beside: None,
    })
}

#[test]
fn creating_again_finds_the_topic_and_other_settings_are_named() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    let Reply::Done(first) = peer.ask(&create("orders", 3)) else { panic!("not created") };
    let Reply::Done(again) = peer.ask(&create("orders", 3)) else { panic!("not found") };
    assert_eq!((first.created, again.created), (true, false));
    assert_eq!(first.topic_id, again.topic_id);
    let (code, message) = refused(&mut peer, create("orders", 4));
    assert_eq!(code, ErrorCode::TopicExists);
    assert!(message.contains("partitions"), "{message}");
    broker.stop();
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    assert_eq!(refused(&mut peer, create("no spaces", 1)).0, ErrorCode::InvalidName);
    assert_eq!(refused(&mut peer, create("many", 9999)).0, ErrorCode::InvalidConfig);
    let open = control::OpenTopic { name: "absent".into(), create_if_missing: false };
    assert_eq!(refused(&mut peer, Request::OpenTopic(open)).0, ErrorCode::UnknownTopic);
    let subscribe = control::Subscribe { topic: "absent".into(), ..<_>::default() };
    assert_eq!(refused(&mut peer, Request::Subscribe(subscribe)).0, ErrorCode::UnknownTopic);
    peer.create_topic("orders", 1);
    let group = control::DescribeGroup { topic: "orders".into(), name: "absent".into() };
    assert_eq!(refused(&mut peer, Request::DescribeGroup(group)).0, ErrorCode::UnknownGroup);
    broker.stop();
}

#[test]
fn opening_makes_a_topic_once_however_many_ask_at_once() {
    let (broker, _folder) = Broker::fresh();
    let open = control::OpenTopic { name: "orders".into(), create_if_missing: true };
    let open = Request::OpenTopic(open);
    let mut peers: Vec<Peer> = (0..8).map(|_| broker.greeted()).collect();
    let numbers: Vec<u64> = peers.iter_mut().map(|peer| peer.send(&open)).collect();
    let opened = peers.iter_mut().zip(numbers).map(|(peer, number)| peer.answer_to(number));
    let ids: Vec<u32> = opened
        .map(|reply| match reply {
            Reply::TopicOpened(opened) => opened.topic_id,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    broker.stop();
}

#[test]
fn what_no_frame_of_the_connection_holds_comes_in_pages_or_is_refused() {
    const FRAME_BYTES_MAX: u32 = 16_384;
    let (broker, _folder) = Broker::fresh();
    let names: Vec<_> = (0..100).map(|n| format!("{n:0>200}")).collect();
    let mut peer = broker.connect().greeted(FRAME_BYTES_MAX);
    for name in &names {
        assert!(matches!(peer.ask(&create(name, 1)), Reply::Done(_)));
    }
    let (mut listed, mut page_token) = (Vec::new(), String::new());
    loop {
        let list = Request::ListTopics(control::ListTopics { page_token, page_size: 0 });
        let Reply::TopicList(page) = peer.ask(&list) else { panic!("no list") };
        assert!(page.topics.iter().map(|topic| topic.name.len()).sum::<usize>() < 16_384);
        listed.extend(page.topics.into_iter().map(|topic| topic.name));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(listed, names);
    for name in &names {
        let (topic, name) = (names[0].clone(), name.clone());
        let group = control::CreateGroup { topic, name, ..<_>::default() };
        assert!(matches!(peer.ask(&Request::CreateGroup(group)), Reply::Done(_)));
    }
    let topic = names[0].clone();
    let list = Request::ListGroups(control::ListGroups { topic });
    let (code, message) = refused(&mut peer, list);
    assert_eq!(code, ErrorCode::LimitReached);
    assert!(message.contains("frame_bytes_max of this connection is 16384"), "{message}");
    broker.stop();
}

#[test]
fn a_listing_comes_in_pages_that_miss_nothing() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    let mut asked: BTreeSet<u64> =
        (0..25).map(|n| peer.send(&create(&format!("topic-{n:02}"), 1))).collect();
    // Topics are made side by side, and the answers come as they are ready.
    while !asked.is_empty() {
        let (of, reply) = peer.next().unwrap();
        assert!(matches!(reply, Reply::Done(_)) && asked.remove(&of), "{reply:?}");
    }
    let mut names = Vec::new();
    let mut page_token = String::new();
    loop {
        let list = Request::ListTopics(control::ListTopics { page_token, page_size: 10 });
        let Reply::TopicList(page) = peer.ask(&list) else { panic!("no list") };
        assert!(page.topics.len() <= 10);
        names.extend(page.topics.into_iter().map(|topic| topic.name));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(names, (0..25).map(|n| format!("topic-{n:02}")).collect::<Vec<_>>());
    broker.stop();
}
