//! The vectors: messages of `wse-client` 2.5.1 as it sends them, with what they ask; and what the broker says, byte for byte,
//! with what that client makes of it (`conformance/wse` has it decode them).

use serde_json::{Value, json};

use crate::{
    Category, Event, MessageView, Position, Publish, Request, decode, put_event, put_message,
};

fn vectors() -> Value {
    serde_json::from_str(include_str!("../../vectors.json")).unwrap()
}

fn shown(request: &Request) -> Value {
    match request {
        Request::Hello { offers_encryption } => json!({"hello": offers_encryption}),
        Request::Ping { sent_ms } => json!({"ping": sent_ms}),
        Request::Pong => json!("pong"),
        Request::Subscribe { topic, recovers, .. } => json!({"subscribe": topic, "from": recovers}),
        Request::Unsubscribe { topic } => json!({"unsubscribe": topic}),
        Request::Publish(Publish { topic, payload, correlation_id }) => {
            json!({"publish": topic, "payload": payload, "cid": correlation_id})
        }
        Request::Snapshot { topic } => json!({"snapshot": topic}),
        Request::SnapshotsAsked { topics } => json!({"snapshots": topics}),
        Request::Other { kind } => json!({"other": kind}),
    }
}

#[test]
fn messages_of_the_client_are_what_it_asks() {
    let vectors = vectors();
    for vector in vectors["from_client"].as_array().unwrap() {
        let requests = decode(vector["message"].as_str().unwrap().as_bytes()).unwrap();
        let requests: Vec<_> = requests.iter().map(shown).collect();
        assert_eq!(json!(requests), vector["requests"], "{}", vector["name"]);
    }
}

/// What the broker says, in the order of the vectors.
fn said() -> Vec<Vec<u8>> {
    let position = Position { epoch: "12", offset: 4, recovered: true };
    let lost = Position { epoch: "12", offset: 9, recovered: false };
    let topics = ["chat".to_owned(), "news".to_owned()];
    let error = Event::Error {
        code: "PERMISSION_DENIED",
        message: "the right publish chat is missing",
        is_retryable: false,
        topic: Some("chat"),
        correlation_id: Some("q1"),
    };
    let events = [
        Event::Ready { connection: "00010000000200000003", user: "key:ada" },
        Event::Hello {
            connection: "00010000000200000003",
            version: "0.1.0",
            ping_interval_ms: 25_000,
        },
        Event::Ping { now_ms: 1_763_718_000_000 },
        Event::Pong { sent_ms: Some(1_763_718_000_000), now_ms: 1_763_718_000_007 },
        Event::Subscribed { topic: "chat", position: Some(position) },
        Event::Subscribed { topic: "chat", position: Some(lost) },
        Event::Subscribed { topic: "chat", position: None },
        Event::Unsubscribed { topic: "chat" },
        Event::NotSubscribed { topic: "chat" },
        Event::Published { topic: "chat", correlation_id: "q1" },
        Event::SnapshotComplete { topics: &topics, count: 1 },
        Event::Presence {
            is_join: true,
            topic: "chat",
            user: "ada",
            connection: "00010000000200000003",
            data: "{\"mood\":\"good\"}",
        },
        Event::Presence { is_join: false, topic: "chat", user: "ada", connection: "3", data: "7" },
        error,
    ];
    let messages = [
        ("chat", "{\"text\":\"hi\"}", Some((12, 5)), Category::Update),
        ("prices", "{\"t\":\"tick\",\"p\":{\"px\":1}}", Some((12, 5)), Category::Update),
        ("chat", "[1]", None, Category::Snapshot),
    ];
    let of_event = |event: &Event<'_>| {
        let mut out = Vec::new();
        put_event(event, &mut out);
        out
    };
    let of_message = |(topic, payload, position, category)| {
        let mut out = Vec::new();
        put_message(&MessageView { topic, payload, position, category }, &mut out);
        out
    };
    events.iter().map(of_event).chain(messages.map(of_message)).collect()
}

#[test]
fn what_the_broker_says_is_written_byte_for_byte() {
    let vectors = vectors();
    let vectors = vectors["to_client"].as_array().unwrap();
    let said = said();
    assert_eq!(said.len(), vectors.len());
    for (said, vector) in said.iter().zip(vectors) {
        let said = std::str::from_utf8(said).unwrap();
        assert_eq!(said, vector["message"].as_str().unwrap(), "{}", vector["name"]);
    }
}
