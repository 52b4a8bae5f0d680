//! Messages of topics: which type they have, and that no publisher speaks in the broker's name.

use serde_json::{Value, json};

use crate::{Category, MessageView, is_reserved, put_message};

fn put(topic: &str, payload: &str) -> String {
    let position = Some((9, 4));
    let message = MessageView { topic, payload, position, category: Category::Update };
    let mut out = Vec::new();
    put_message(&message, &mut out);
    String::from_utf8(out).unwrap()
}

fn read(topic: &str, payload: &str) -> Value {
    serde_json::from_str(&put(topic, payload)).unwrap()
}

#[test]
fn a_plain_payload_has_its_topic_for_a_type() {
    for (payload, p) in [
        ("{\"n\": 1}", json!({"n": 1})),
        ("{}", json!({})),
        ("  {\"a\":[1]}", json!({"a": [1]})),
        // Clients take values that are no objects for none at all, if these are 0, empty or false.
        ("0", json!({"data": 0})),
        ("\"\"", json!({"data": ""})),
        ("[1,2]", json!({"data": [1, 2]})),
        ("null", json!({"data": null})),
    ] {
        let expected = json!({"c": "U", "t": "größe", "p": p, "tp": "größe", "e": "9", "o": 4});
        assert_eq!(read("größe", payload), expected, "{payload}");
    }
}

#[test]
fn a_payload_that_is_a_message_of_the_protocol_keeps_its_type_and_gets_its_stamp() {
    let payload = r#"{"c":"S","t":"tick","p":{"px":1.5},"id":"a","seq":3,"ts":"now","v":1,"pri":5,"cid":"q","sig":"s"}"#;
    let mut expected: Value = serde_json::from_str(payload).unwrap();
    for (name, value) in [("tp", json!("prices")), ("e", json!("9")), ("o", json!(4))] {
        expected[name] = value;
    }
    assert_eq!(read("prices", payload), expected);
    let long = r#"{"type": "tick", "payload": 7}"#;
    let expected =
        json!({"c": "U", "t": "tick", "p": {"data": 7}, "tp": "prices", "e": "9", "o": 4});
    assert_eq!(read("prices", long), expected);
}

#[test]
fn a_payload_that_has_other_fields_is_one_of_the_application() {
    for payload in [
        r#"{"t":"x"}"#,
        r#"{"t":"x","p":{},"value":3}"#,
        r#"{"t":3,"p":{}}"#,
        r#"{"p":{}}"#,
        r#"{"t":"x","p":{},"t":"y"}"#,
        r#"{"t":"x","p":{},"tp":"other","e":"1","o":900}"#,
    ] {
        let text = put("news", payload);
        assert_eq!(
            text,
            format!(
                "{{\"c\":\"U\",\"t\":\"news\",\"p\":{payload},\"tp\":\"news\",\"e\":\"9\",\"o\":4}}"
            )
        );
    }
}

#[test]
fn no_publisher_and_no_topic_speaks_in_the_brokers_name() {
    for kind in ["ping", "PONG", "batch", "subscription_update", "error", "server_ready", ""] {
        assert!(is_reserved(kind));
        for escaped in [kind.to_owned(), kind.replace('p', "\\u0070").replace('P', "\\u0050")] {
            let payload = format!("{{\"t\":\"{escaped}\",\"p\":{{\"messages\":[]}}}}");
            let told = read("news", &payload);
            assert_eq!(told["t"], "news", "{payload}");
            assert_eq!(told["p"]["t"], kind);
        }
        if !kind.is_empty() {
            assert_eq!(read(kind, "{}")["t"], "message");
            assert_eq!(read(kind, "{}")["tp"], kind);
        }
    }
    // `wse-client` looks for types in the first 25 letters, whatever is around them.
    for payload in ["{\"t\":\"ping\"}", "\"t\\\":\\\"ping\""] {
        let text = put("x", payload);
        let start: String = text.chars().take(25).collect();
        for kind in ["ping", "PING", "PONG"] {
            assert!(!start.contains(&format!("\"t\":\"{kind}\"")), "{text}");
        }
    }
}

#[test]
fn a_snapshot_has_no_stamp() {
    let message =
        MessageView { topic: "news", payload: "1", position: None, category: Category::Snapshot };
    let mut out = Vec::new();
    put_message(&message, &mut out);
    assert_eq!(out, b"{\"c\":\"S\",\"t\":\"news\",\"p\":{\"data\":1},\"tp\":\"news\"}");
}
