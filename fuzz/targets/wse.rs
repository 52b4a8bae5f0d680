//! Any bytes as a message of the WSE protocol: refused with a reason, or requests within the limits. The same bytes as the
//! payload of a topic, if they are JSON: what clients get is one object of JSON, of no type that is the broker's. Knows only
//! `sennit-wse`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sennit_wse::{Category, LIST_MAX, MessageView, Request, decode, is_reserved, put_message};
use serde_json::Value;

fn check_request(request: &Request, message: &[u8]) {
    match request {
        Request::Publish(publish) => {
            assert!(!publish.topic.is_empty() && publish.payload.len() <= message.len().max(4));
            assert!(serde_json::from_str::<&serde_json::value::RawValue>(&publish.payload).is_ok());
        }
        Request::Subscribe { topic, recovers, .. } => {
            let epoch = recovers.as_ref().map_or(0, |(epoch, _)| epoch.len());
            assert!(topic.len() + epoch <= message.len());
        }
        Request::Other { kind } => assert!(kind.chars().count() <= 64),
        _ => {}
    }
}

fn check_payload(topic: &str, payload: &str) {
    let Ok(value) = serde_json::from_str::<Value>(payload) else { return };
    let view = MessageView { topic, payload, position: Some((1, 2)), category: Category::Update };
    let mut out = Vec::new();
    put_message(&view, &mut out);
    let told: Value = serde_json::from_slice(&out).expect("an object");
    let kind = told["t"].as_str().expect("a type");
    assert!(!is_reserved(kind), "{kind}");
    assert!(told["p"].is_object());
    assert_eq!((&told["tp"], &told["e"], &told["o"]), (&topic.into(), &"1".into(), &2.into()));
    // Nothing of the payload is lost: it is there whole, or was a message itself.
    let is_whole = told["p"] == value || told["p"]["data"] == value;
    assert!(is_whole || value.get("t").or(value.get("type")).is_some(), "{payload}");
}

fuzz_target!(|data: &[u8]| {
    match decode(data) {
        Ok(requests) => {
            assert!(requests.len() <= LIST_MAX + 1);
            requests.iter().for_each(|request| check_request(request, data));
        }
        Err(error) => assert!(error.to_string().len() < 300),
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    check_payload("chat", text);
    if let Some((topic, payload)) = text.split_once('\n') {
        check_payload(topic, payload);
    }
});
