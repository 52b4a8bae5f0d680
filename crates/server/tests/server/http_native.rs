//! Topics that were made natively, asked for over HTTP: they can be read, and not changed. What is made
//! over HTTP is a topic for everybody.

use sennit_model::{TopicConfig, TopicId, TopicKind};
use sennit_protocol::{Reply, Request, control};
use tempfile::TempDir;

use crate::{
    browser::{Answer, Browser},
    http_streams::{TEXT, ask},
    world::{Broker, config, publish, texts_of},
};

const OCTETS: &str = "Content-Type: application/octet-stream\r\n";

fn is_native(answer: &Answer, what: &str) {
    assert_eq!(answer.status, 409, "{what}: {} {}", answer.head, answer.body);
    assert!(answer.body.contains("native_topic"), "{what}: {}", answer.body);
}

/// Creates a topic as `sennit topic create` does.
fn create(broker: &Broker, name: &str, kind: TopicKind) -> TopicId {
    let config = control::TopicConfig::from(&TopicConfig::of_kind(kind));
    let create = control::CreateTopic { name: name.into(), config: Some(config), beside: None };
    match broker.greeted().ask(&Request::CreateTopic(create)) {
        Reply::Done(done) => TopicId(done.topic_id),
        other => panic!("{other:?}"),
    }
}

/// Each request of the streams' routes that changes something is refused.
fn is_changed_by_nothing(http: &mut Browser, name: &str) {
    let producer = "Producer-Id: p\r\nProducer-Epoch: 0\r\nProducer-Seq: 0\r\n";
    let closes = "Stream-Closed: true\r\n";
    for (method, headers, body) in [
        ("PUT", OCTETS, ""),
        ("PUT", TEXT, ""),
        ("PUT", OCTETS, "content"),
        ("PUT", "Stream-TTL: 1\r\n", ""),
        ("POST", OCTETS, "content"),
        ("POST", &format!("{OCTETS}{producer}"), "content"),
        ("POST", closes, ""),
        ("POST", &format!("{closes}{OCTETS}"), "content"),
        ("DELETE", "", ""),
    ] {
        let answer = ask(http, method, name, headers, body);
        is_native(&answer, &format!("{method} {name} {headers}"));
    }
}

#[test]
fn a_native_topic_is_read_over_http_and_not_changed() {
    let folder = TempDir::new().unwrap();
    for start in 0..2 {
        let broker = Broker::start(config(folder.path()));
        let http = &mut Browser::of(&broker);
        for (name, kind) in [("queue", TopicKind::Queue), ("log", TopicKind::Stream)] {
            let topic = create(&broker, name, kind);
            let empty = format!("{name}.empty");
            create(&broker, &empty, kind);
            is_changed_by_nothing(http, &empty);
            assert_eq!(ask(http, "GET", &empty, "", "").status, 200, "{empty}");
            if start == 0 {
                let mut peer = broker.greeted();
                peer.send(&Request::Publish(publish(topic, 0, 0, &["one", "two"])));
                peer.confirmed_up_to(1);
            }
            is_changed_by_nothing(http, name);
            // A fork of it is a stream of its own, and what the topic remembers of it changes nothing.
            let fork = format!("fork/{name}");
            let of = format!("Stream-Forked-From: /v1/stream/{name}\r\n");
            let status = if start == 0 { 201 } else { 200 };
            assert_eq!(ask(http, "PUT", &fork, &of, "").status, status, "{fork}");
            is_changed_by_nothing(http, name);
            assert_eq!(ask(http, "GET", name, "", "").body, "onetwo", "{name}");
        }
        let mut peer = broker.greeted();
        peer.subscribe("queue", 1, 10);
        assert_eq!(texts_of(&peer.delivery()), ["one", "two"], "start {start}");
        broker.stop();
    }
}

#[test]
fn what_is_made_over_http_is_written_by_both_and_worked_on_in_groups() {
    let (broker, _folder) = Broker::fresh();
    let http = &mut Browser::of(&broker);
    // The settings are those that a native topic has.
    assert_eq!(ask(http, "PUT", "jobs", OCTETS, "").status, 201);
    let topic = create(&broker, "jobs", TopicKind::Stream);
    let mut peer = broker.greeted();
    peer.subscribe("jobs", 1, 10);
    assert_eq!(ask(http, "POST", "jobs", OCTETS, "by http").status, 204);
    assert_eq!(texts_of(&peer.delivery()), ["by http"]);
    peer.send(&Request::Publish(publish(topic, 0, 0, &["natively"])));
    assert_eq!(texts_of(&peer.delivery()), ["natively"]);
    assert_eq!(ask(http, "GET", "jobs", "", "").body, "by httpnatively");
    assert_eq!(ask(http, "DELETE", "jobs", "", "").status, 204);
    assert_eq!(ask(http, "GET", "jobs", "", "").status, 404);
    broker.stop();
}

#[test]
fn a_stream_that_was_made_over_http_stays_one_after_a_start() {
    let folder = TempDir::new().unwrap();
    for start in 0..3 {
        let broker = Broker::start(config(folder.path()));
        let http = &mut Browser::of(&broker);
        let status = if start == 0 { 201 } else { 200 };
        assert_eq!(ask(http, "PUT", "empty", OCTETS, "").status, status);
        assert_eq!(ask(http, "PUT", "log", OCTETS, "").status, status);
        assert_eq!(ask(http, "POST", "log", OCTETS, "x").status, 204);
        broker.stop();
    }
    let broker = Broker::start(config(folder.path()));
    let http = &mut Browser::of(&broker);
    for name in ["empty", "log"] {
        assert_eq!(ask(http, "DELETE", name, "", "").status, 204, "{name}");
    }
    broker.stop();
}
