//! How the payload of a message looks in JSON, and what of a publish is kept.

use bytes::Bytes;

use crate::*;

/// The `data` of a push of `payload`, as text; the writing of a view and of kept data is the same.
fn shown(payload: &[u8]) -> String {
    let push = |data: DataView<'_>| {
        let view = PublicationView { data, info: None, offset: 0, tags: &[], time_ms: 0 };
        let mut out = Vec::new();
        put_publication(Encoding::Json, "", &view, &mut out);
        String::from_utf8(out).expect("JSON is text")
    };
    let line = push(DataView::of_payload(payload));
    let data = Data::of_payload(Bytes::copy_from_slice(payload));
    assert_eq!(push(data.view()), line);
    assert_eq!(push(data.shown_as_json().view()), line);
    assert!(serde_json::from_str::<serde_json::Value>(&line).is_ok(), "{line}");
    let line = line.strip_prefix("{\"push\":{\"pub\":{\"data\":").expect("the frame before");
    line.strip_suffix("}}}\n").expect("the frame behind").to_owned()
}

#[test]
fn json_stays_as_it_is_on_one_line() {
    assert_eq!(shown(br#"{"a": [1, 2]}"#), r#"{"a": [1, 2]}"#);
    assert_eq!(
        shown(b"{\"a b\":\r\n\t[1,\n2] , \"c\\\"\\n\\\\\" :null}\n"),
        r#"{"a b":[1,2],"c\"\n\\":null}"#
    );
    assert_eq!(shown(b"3"), "3");
    assert_eq!(shown(b"null"), "null");
    // The space around a value is not of the value.
    assert_eq!(shown(b" \t{\"a\": 1} "), r#"{"a": 1}"#);
    assert_eq!(shown(b"\r\n[1, 2]\n"), "[1, 2]");
}

#[test]
fn other_text_becomes_a_string() {
    assert_eq!(shown(b"hello\n\"you\""), r#""hello\n\"you\"""#);
    assert_eq!(shown(b""), r#""""#);
    assert_eq!(shown(b"{\"a\":1} x"), r#""{\"a\":1} x""#);
    assert_eq!(shown("grüß\u{2028}".as_bytes()), "\"grüß\u{2028}\"");
}

#[test]
fn other_bytes_become_base64() {
    assert_eq!(shown(b"\xff\x00"), r#"{"b64data":"/wA="}"#);
    // Not UTF-8 within what would be a string of JSON.
    assert_eq!(shown(b"\"\xff\""), r#"{"b64data":"Iv8i"}"#);
}

#[test]
fn json_that_is_too_deep_for_parsers_is_text() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert_eq!(shown(nested(Limits::DEPTH_MAX).as_bytes()), nested(Limits::DEPTH_MAX));
    let deep = nested(100_000);
    assert_eq!(shown(deep.as_bytes()), format!("\"{deep}\""));
    // Brackets in strings nest nothing.
    let text = format!("\"{}\"", "[\\\"".repeat(500));
    assert_eq!(shown(text.as_bytes()), text);
}

#[test]
fn a_publish_in_json_keeps_the_text_of_its_value() {
    let payload = |line: &str| {
        let mut commands = decode_commands(Encoding::Json, line.as_bytes(), Limits::default());
        match commands.next().expect("a line").expect("a command").request {
            Some(Request::Publish(publish)) => publish.data.into_payload(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        payload(r#"{"id":1,"publish":{"channel":"c","data": {"a" : 1.50} }}"#),
        r#"{"a" : 1.50}"#
    );
    assert_eq!(payload("{\"id\":1,\"publish\":{\"data\":[1,\r2]}}"), "[1,2]");
    assert_eq!(payload(r#"{"id":1,"publish":{"data":null}}"#), "null");
    assert_eq!(payload(r#"{"id":1,"publish":{}}"#), "");
}

#[test]
fn protobuf_carries_payloads_as_they_are() {
    for payload in [&b"\xff\n"[..], b"{\"a\":\n1}", b"text"] {
        let view = PublicationView {
            data: DataView::of_payload(payload),
            info: None,
            offset: 1,
            tags: &[],
            time_ms: 0,
        };
        let mut out = Vec::new();
        put_publication(Encoding::Protobuf, "c", &view, &mut out);
        let sent = decode_replies(Encoding::Protobuf, &out, Limits::default()).next();
        let Some(Ok(FromServer::Push(Push { kind: PushKind::Publication(publication), .. }))) =
            sent
        else {
            panic!("{sent:?}")
        };
        assert_eq!(publication.data.as_bytes(), payload);
    }
}

#[test]
fn data_and_tokens_are_not_for_logs() {
    let data = Data::of_payload(Bytes::from_static(b"secret"));
    assert_eq!(format!("{data:?}"), "Data(6 bytes)");
    assert_eq!(format!("{:?}", Token::from("secret")), "Token(hidden)");
}

#[test]
fn commands_beside_the_stream_come_as_a_string_or_as_they_are() {
    let limits = Limits::default();
    let decode = |body: &str| EmulationRequest::decode(Encoding::Json, body.as_bytes(), limits);
    let body = r#"{"session":"s","node":"n","data":"{\"id\":1}\n{\"id\":2}"}"#;
    let request = decode(body).expect("a request");
    assert_eq!((request.session.as_str(), request.node.as_str()), ("s", "n"));
    assert_eq!(request.message, b"{\"id\":1}\n{\"id\":2}");
    assert_eq!(decode(r#"{"data":{"id":1}}"#).expect("a request").message, b"{\"id\":1}");
    let error = decode(r#"{"session":7}"#).expect_err("a number");
    assert_eq!(error.to_string(), "command 0, field `session`: the value should be a text");
    let body = b"\x0a\x01n\x12\x01s\x1a\x01\x00";
    let request = EmulationRequest::decode(Encoding::Protobuf, body, limits).expect("a request");
    assert_eq!((request.session.as_str(), request.message), ("s", vec![0]));
    let short = Limits { message_bytes_max: 8, ..limits };
    let long = format!("{{\"session\":\"{}\"}}", "s".repeat(2_000));
    assert!(matches!(
        EmulationRequest::decode(Encoding::Json, long.as_bytes(), short),
        Err(DecodeError { problem: Problem::MessageTooLong { .. }, .. })
    ));
}
