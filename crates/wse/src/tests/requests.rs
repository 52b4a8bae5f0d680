//! Messages of clients: what they ask, and why they are refused.

use proptest::{collection::vec, prelude::any, proptest};

use crate::{DecodeError, LIST_MAX, Publish, Request, decode};

fn text(message: &str) -> Result<Vec<Request>, DecodeError> {
    decode(message.as_bytes())
}

#[test]
fn a_message_of_the_category_u_is_published_whatever_its_type() {
    for kind in ["chat", "ping", "subscription_update", "größe 1"] {
        let message =
            format!("{{\"c\":\"U\",\"t\":\"{kind}\",\"p\":{{ \"n\": 1 }},\"cid\":\"q\"}}");
        let publish = Publish {
            topic: kind.into(),
            payload: "{ \"n\": 1 }".into(),
            correlation_id: Some("q".into()),
        };
        assert_eq!(text(&message), Ok(vec![Request::Publish(publish)]));
    }
    assert_eq!(text("U{\"t\":\"chat\"}").unwrap().len(), 1, "as older versions write it");
}

#[test]
fn a_message_that_names_several_topics_is_a_request_for_each() {
    let message = r#"{"c":"WSE","t":"subscription_update","p":{"action":"subscribe","topics":["a","b","c"],
        "recover":true,"recovery":{"c":{"epoch":7,"offset":3},"a":{"epoch":"x","offset":0}}}}"#;
    let subscribe = |topic: &str, recovers: Option<(&str, u64)>| Request::Subscribe {
        topic: topic.into(),
        recovers: recovers.map(|(epoch, offset)| (epoch.into(), offset)),
        presence: None,
    };
    assert_eq!(
        text(message),
        Ok(vec![
            subscribe("a", Some(("x", 0))),
            subscribe("b", None),
            subscribe("c", Some(("7", 3)))
        ])
    );
    let plain = message.replace("\"recover\":true", "\"recover\":false");
    assert!(text(&plain).unwrap().contains(&subscribe("a", None)), "it does not want to recover");
    let shown = message.replace("\"recover\":true", "\"presence\":{\"mood\": 1}");
    let requests = text(&shown).unwrap();
    let Request::Subscribe { presence: Some(presence), .. } = &requests[0] else {
        panic!("{requests:?}")
    };
    assert_eq!(presence, "{\"mood\": 1}");
    let gone = text(r#"{"t":"subscription","p":{"action":"unsubscribe","topics":["a"]}}"#);
    assert_eq!(gone, Ok(vec![Request::Unsubscribe { topic: "a".into() }]));
}

#[test]
fn what_the_protocol_does_not_know_is_told_apart_from_what_is_no_message() {
    let long = "x".repeat(500);
    let other = |kind: &str| Ok(vec![Request::Other { kind: kind.into() }]);
    assert_eq!(text("{\"t\":\"debug_request\"}"), other("debug_request"));
    assert_eq!(text(&format!("{{\"t\":\"{long}\"}}")), other(&long[..64]));
    for (message, error) in [
        ("C:zz", "a message is JSON: compression is not served"),
        ("E:zz", "a message is JSON: encryption within the WebSocket is not served"),
        ("M:zz", "a message is JSON: MessagePack is not served"),
        ("", "a message is an object of JSON with its type in `t`: it ends too early, at column 0"),
        (
            "secret",
            "a message is an object of JSON with its type in `t`: this is not JSON, at column 1",
        ),
        ("{\"c\":\"U\"}", "a message has its type in `t`, a text that is not empty"),
        (
            "{\"t\":\"subscription_update\",\"p\":{\"topics\":[\"secret\"]}}",
            "the payload of `subscription_update`: `action` is `subscribe` or `unsubscribe`",
        ),
        (
            "{\"t\":\"sync_request\",\"p\":{\"topics\":\"secret\"}}",
            "the payload of `sync_request`: a field has a value of another kind, at column 18",
        ),
    ] {
        assert_eq!(text(message).unwrap_err().to_string(), error, "{message}");
    }
}

#[test]
fn lists_have_a_limit() {
    let of = |count: usize| vec!["\"a\""; count].join(",");
    let topics = |count| {
        format!(
            "{{\"t\":\"subscription\",\"p\":{{\"action\":\"subscribe\",\"topics\":[{}]}}}}",
            of(count)
        )
    };
    assert_eq!(text(&topics(LIST_MAX)).unwrap().len(), LIST_MAX);
    assert_eq!(text(&topics(LIST_MAX + 1)), Err(DecodeError::TooMany));
    let messages = vec!["{\"t\":\"a\"}"; LIST_MAX + 1].join(",");
    let batch = format!("{{\"c\":\"WSE\",\"t\":\"batch\",\"p\":{{\"messages\":[{messages}]}}}}");
    assert_eq!(text(&batch), Err(DecodeError::TooMany));
}

proptest! {
    #[test]
    fn any_bytes_are_requests_or_refused(bytes in vec(any::<u8>(), 0..200)) {
        let _ = decode(&bytes);
    }
}
