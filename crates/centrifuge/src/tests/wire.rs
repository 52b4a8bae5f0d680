//! How messages look on the wire.

use bytes::Bytes;

use crate::*;

fn json(reply: &Reply) -> String {
    let mut out = Vec::new();
    put_reply(Encoding::Json, reply, &mut out);
    String::from_utf8(out).expect("JSON is text")
}

#[test]
fn a_connect_is_read() {
    let message = br#"{"id":1,"connect":{"token":"t","data":{"a": 1},"name":"js","subs":{"news":{"recover":true,"epoch":"e","offset":7}},"unknown":[1,{"x":2}]}}"#;
    let commands: Vec<_> = decode_commands(Encoding::Json, message, Limits::default())
        .collect::<Result<_, _>>()
        .expect("it is a command");
    let [Command { id: 1, request: Some(Request::Connect(connect)) }] = &commands[..] else {
        panic!("{commands:?}")
    };
    assert_eq!(connect.token.as_str(), "t");
    assert_eq!(connect.data.as_bytes(), br#"{"a": 1}"#);
    assert_eq!(connect.subs["news"].offset, 7);
    assert!(connect.subs["news"].recover);
    assert!(!format!("{connect:?}").contains("\"t\""));
}

#[test]
fn a_reply_is_a_line() {
    let reply = Reply { id: 3, result: Ok(Answer::Unsubscribe) };
    assert_eq!(json(&reply), "{\"id\":3,\"unsubscribe\":{}}\n");
    let reply = Reply { id: 3, result: Err(ErrorCode::Internal.into()) };
    assert_eq!(
        json(&reply),
        "{\"id\":3,\"error\":{\"code\":100,\"message\":\"internal server error\",\"temporary\":true}}\n"
    );
}

#[test]
fn the_publication_of_the_fan_out_is_the_push() {
    for payload in [&b"{\"a\":\n 1}"[..], b"text", b"\xff\x00", b"", &[b'x'; 300]] {
        for encoding in [Encoding::Json, Encoding::Protobuf] {
            let info = ClientInfo { user: "u".into(), client: "c".into(), ..Default::default() };
            let view = PublicationView {
                data: DataView::of_payload(payload),
                info: Some(&info),
                offset: 300,
                tags: &[("k", "v\"")],
                time_ms: 1_800_000_000_000,
            };
            let mut fast = Vec::new();
            put_publication(encoding, "news", &view, &mut fast);
            let publication = Publication {
                data: Data::of_payload(Bytes::copy_from_slice(payload)),
                info: Some(info.clone()),
                offset: 300,
                tags: [("k".to_owned(), "v\"".to_owned())].into(),
                time_ms: 1_800_000_000_000,
                ..Default::default()
            };
            let push = Push { channel: "news".into(), kind: PushKind::Publication(publication) };
            let mut slow = Vec::new();
            put_push(encoding, &push, &mut slow);
            assert_eq!(fast, slow);
            let read = decode_replies(encoding, &fast, Limits::default());
            assert!(matches!(read.collect::<Vec<_>>()[..], [Ok(FromServer::Push(_))]));
        }
    }
}
