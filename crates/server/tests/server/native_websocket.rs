//! The native protocol over WebSocket: browsers publish, consume and read as clients over TCP do.

use sennit_protocol::{ErrorCode, Preface, Reply, Request, Verdict, control};
use sennit_server::{BrokerCertificate, Config};
use sennit_websocket::{CloseCode, Opcode, client::UpgradeRequest};
use tempfile::TempDir;

use crate::{
    access::Guarded,
    browser::Browser,
    live_client::ask_upgrade,
    reading::{begin, published, read, stream},
    world::{Broker, Peer, config, publish, texts_of},
};

fn request<'r>(headers: &'r [(&'r str, &'r str)]) -> UpgradeRequest<'r> {
    UpgradeRequest {
        host: "localhost",
        target: "/native",
        key: [9; 16],
        subprotocols: &[],
        offers_deflate: true,
        headers,
    }
}

/// A native connection over WebSocket that has said nothing.
fn connect(broker: &Broker) -> Peer {
    let (browser, answer) = ask_upgrade(broker, &request(&[]));
    assert_eq!(answer.status, 101, "{answer:?}");
    let (stream, unread) = browser.into_parts();
    Peer::over(stream.through_websocket(&unread))
}

#[test]
fn a_browser_publishes_consumes_acks_and_reads() {
    for tls in [None, Some(BrokerCertificate::Own)] {
        let folder = TempDir::new().unwrap();
        let broker = Broker::start(Config { tls, ..config(folder.path()) });
        let mut browser = connect(&broker).greeted(0);
        let mut native = broker.greeted();
        let topic = browser.create_topic("jobs", 1);
        browser.send(&Request::Publish(publish(topic, 0, 0, &["one", "two"])));
        browser.confirmed_up_to(2);
        native.send(&Request::Publish(publish(topic, 0, 2, &["three"])));
        native.confirmed_up_to(3);
        let group = browser.subscribe("jobs", 1, 10);
        let (texts, deliveries) = browser.deliveries(3);
        assert_eq!(texts, ["one", "two", "three"]);
        let settled = browser.settle((topic, group), &deliveries, Verdict::Ack);
        assert_eq!(settled.applied, 3);
        // Frames longer than a message of a WebSocket may be.
        let topic = stream(&mut native, "log", 1);
        let long = "x".repeat(3 << 20);
        for round in 0..3 {
            published(&mut browser, topic, 0, round, &[long.as_str()]);
        }
        let mut reading = connect(&broker).greeted(0);
        begin(&mut reading, read("log"));
        let mut heard = Vec::new();
        while heard.len() < 3 {
            heard.extend(texts_of(&reading.delivery()));
        }
        assert!(heard.iter().all(|text| *text == long));
        broker.stop();
    }
}

#[test]
fn a_ping_of_the_websocket_is_answered_and_its_close_ends_the_session() {
    let (broker, _folder) = Broker::fresh();
    let mut browser = connect(&broker).greeted(0);
    browser.stream().say_frame(Opcode::Ping, b"there?");
    while browser.stream().websocket_end().0 == 0 {
        browser.ask(&Request::Ping);
    }
    browser.stream().say_frame(Opcode::Close, &1000_u16.to_be_bytes());
    assert_eq!(browser.next(), None);
    let closed = browser.stream().websocket_end().1.expect("a close");
    assert_eq!(closed.code, Some(CloseCode::NORMAL));
    let mut browser = connect(&broker).greeted(0);
    browser.stream().say_frame(Opcode::Text, b"hello");
    assert_eq!(browser.next(), None);
    let closed = browser.stream().websocket_end().1.expect("a close");
    assert_eq!(closed.code, Some(CloseCode::UNSUPPORTED));
    broker.stop();
}

#[test]
fn who_it_is_says_its_hello_and_pages_of_others_are_refused() {
    let guarded = Guarded::start();
    let refused = connect(&guarded.broker);
    says_hello_in_vain(refused);
    let hello = control::Hello { token: Some(guarded.admin_key.clone()), ..<_>::default() };
    let (mut browser, _) = connect(&guarded.broker).greeted_with(hello);
    browser.create_topic("jobs", 1);
    let (_, answer) = ask_upgrade(&guarded.broker, &request(&[("Origin", "https://evil.example")]));
    assert_eq!(answer.status, 403);
    let answer = Browser::of(&guarded.broker).get("/native");
    assert_eq!(answer.status, 426);
}

/// Shows no credentials where some are needed.
fn says_hello_in_vain(mut peer: Peer) {
    peer.send_bytes(&Preface::BYTES);
    let hello = control::Hello { client_name: "test".into(), ..<_>::default() };
    match peer.ask(&Request::Hello(hello)) {
        Reply::Error(error) => assert_eq!(error.error_code(), Some(ErrorCode::Unauthorized)),
        other => panic!("{other:?}"),
    }
    assert_eq!(peer.next(), None);
}
