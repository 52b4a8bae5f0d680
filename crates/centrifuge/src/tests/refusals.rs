//! What is refused, and what the refusal says. None repeats what the client sent.

use crate::*;

fn refused_by(limits: Limits, encoding: Encoding, message: &[u8]) -> String {
    let mut commands = decode_commands(encoding, message, limits);
    let error = commands.by_ref().find_map(Result::err).expect("it is refused");
    assert!(commands.next().is_none(), "nothing follows an error");
    error.to_string()
}

fn refused(message: &str) -> String {
    refused_by(Limits::default(), Encoding::Json, message.as_bytes())
}

fn refused_protobuf(message: &[u8]) -> String {
    refused_by(Limits::default(), Encoding::Protobuf, message)
}

#[test]
fn a_value_of_the_wrong_type_is_named_by_its_field() {
    assert_eq!(
        refused(r#"{"id":1,"connect":{"token":7}}"#),
        "command 0, field `connect.token`: the value should be a text"
    );
    assert_eq!(
        refused("{}\n{\"id\":\"SECRET\"}"),
        "command 1, field `id`: the value should be an integer from 0 to 4294967295"
    );
    assert_eq!(
        refused(r#"{"id":1,"connect":{"subs":{"a":{"offset":-1}}}}"#),
        "command 0, field `connect.subs.offset`: the value should be an integer, not negative"
    );
    assert_eq!(
        refused(r#"{"id":1,"connect":"SECRET"}"#),
        "command 0, field `connect`: the value should be an object"
    );
    assert_eq!(
        refused(r#"{"id":1,"subscribe":{"recover":1}}"#),
        "command 0, field `subscribe.recover`: the value should be true or false"
    );
    assert_eq!(refused("[1]"), "command 0: the value should be an object");
}

#[test]
fn what_is_not_json_is_refused_with_the_place() {
    assert_eq!(refused("hello"), "command 0: it is not JSON from byte 1 of its line on");
    assert_eq!(
        refused(r#"{"id":1,"publish":{"data":{"a":}}}"#),
        "command 0, field `publish.data`: it is not JSON from byte 32 of its line on"
    );
    assert!(refused(r#"{"id":1} {"id":2}"#).starts_with("command 0: it is not JSON"));
    assert!(
        refused_by(
            Limits::default(),
            Encoding::Json,
            b"{\"id\":1,\"subscribe\":{\"channel\":\"\xff\"}}"
        )
        .contains("not JSON")
    );
}

#[test]
fn what_is_not_protobuf_is_refused() {
    assert_eq!(
        refused_protobuf(b"\x05\x08"),
        "command 0: 5 bytes are announced, and 1 are left in the message"
    );
    assert!(refused_protobuf(&[0xff; 12]).contains("not Protobuf"));
    // A connect with a token of 9 bytes that is not there.
    assert_eq!(
        refused_protobuf(b"\x04\x22\x02\x0a\x09"),
        "command 0, field `connect.token`: 9 bytes are announced, and 0 are left in the message"
    );
    assert_eq!(
        refused_protobuf(b"\x05\x22\x03\x0a\x01\xff"),
        "command 0, field `connect.token`: the text is not UTF-8"
    );
    // The id as a text; field 0; a group that ends before it begins.
    assert!(refused_protobuf(b"\x03\x0a\x01x").contains("field `id`"));
    assert!(refused_protobuf(b"\x02\x00\x00").contains("not Protobuf"));
    assert!(refused_protobuf(b"\x01\x84").contains("not Protobuf"));
}

#[test]
fn unknown_fields_are_passed_over() {
    let message = br#"{"later":{"a":[1,"\"}"]},"id":1,"publish":{"key":"k","channel":"c"}}"#;
    let commands: Vec<_> = decode_commands(Encoding::Json, message, Limits::default()).collect();
    assert!(matches!(&commands[..], [Ok(Command { id: 1, request: Some(Request::Publish(_)) })]));
    // Of all wire types: 100 a varint, 101 eight bytes, 102 bytes, 103 four bytes, 104 a group.
    let unknown = b"\xa0\x06\x05\xa9\x0612345678\xb2\x06\x01x\xbd\x061234\xc3\x06\x08\x01\xc4\x06";
    let mut message = vec![2 + unknown.len() as u8];
    message.extend(unknown);
    message.extend(b"\x08\x07");
    let commands: Vec<_> =
        decode_commands(Encoding::Protobuf, &message, Limits::default()).collect();
    assert_eq!(commands, [Ok(Command { id: 7, request: None })]);
}

#[test]
fn null_is_absent_everywhere_but_in_data() {
    let message = br#"{"id":1,"subscribe":null,"connect":{"token":null,"subs":null,"headers":{"a":null},"data":null}}"#;
    let command = decode_commands(Encoding::Json, message, Limits::default()).next();
    let Some(Ok(Command { request: Some(Request::Connect(connect)), .. })) = command else {
        panic!("{command:?}")
    };
    assert!(connect.token.is_empty() && connect.subs.is_empty());
    assert_eq!(connect.data.as_bytes(), b"null");
}

#[test]
fn a_command_has_one_request() {
    assert_eq!(
        refused(r#"{"id":1,"ping":{},"publish":{}}"#),
        "command 0: there are several requests or results in it, and one is allowed"
    );
    assert!(refused_protobuf(b"\x04\x5a\x00\x3a\x00").contains("several"));
}

#[test]
fn limits_are_kept_in_both_encodings() {
    let limits = Limits { message_bytes_max: 200, commands_max: 3, depth_max: 5, entries_max: 2 };
    let json = |message: &str| refused_by(limits, Encoding::Json, message.as_bytes());
    let protobuf = |message: &[u8]| refused_by(limits, Encoding::Protobuf, message);
    let too_long = "the message has 201 bytes, at most 200 are allowed";
    assert!(json(&" ".repeat(201)).contains(too_long) && protobuf(&[0; 201]).contains(too_long));
    let too_many = "command 3: a message may have at most 3 commands";
    assert_eq!((json("{}\n{}\n\n{}\n{}"), protobuf(&[0; 4])), (too_many.into(), too_many.into()));
    let entries = "field `connect.subs`: too many entries, at most 2 are allowed";
    assert!(json(r#"{"id":1,"connect":{"subs":{"a":{},"b":{},"c":{}}}}"#).contains(entries));
    let subs = b"\x0d\x22\x0b\x1a\x00\x1a\x03\x0a\x01a\x1a\x02\x0a\x00";
    assert_eq!(decode_commands(Encoding::Protobuf, subs, limits).filter(Result::is_ok).count(), 1);
    let subs = b"\x11\x22\x0f\x1a\x03\x0a\x01a\x1a\x03\x0a\x01b\x1a\x03\x0a\x01c";
    assert!(protobuf(subs).contains(entries));
    let deep = "nested too deep, at most 5 objects and lists within each other are allowed";
    assert!(json(r#"{"id":1,"publish":{"data":[[[[[[1]]]]]]}}"#).contains(deep));
    let filter = r#"{"nodes":[{"nodes":[{"nodes":[{"nodes":[{}]}]}]}]}"#;
    assert!(json(&format!(r#"{{"id":1,"subscribe":{{"tf":{filter}}}}}"#)).contains(deep));
    let filter = b"\x0e\x2a\x0c\x6a\x0a\x32\x08\x32\x06\x32\x04\x32\x02\x32\x00";
    assert!(protobuf(filter).contains(deep));
}

#[test]
fn the_deepest_filter_that_a_message_holds_is_refused_and_not_followed() {
    let filter = format!("{}{}", "{\"nodes\":[".repeat(6_000), "]}".repeat(6_000));
    let message = format!("{{\"id\":1,\"subscribe\":{{\"tf\":{filter}}}}}");
    let limits = Limits { message_bytes_max: 1 << 20, ..Limits::default() };
    assert!(refused_by(limits, Encoding::Json, message.as_bytes()).contains("too deep"));
}

#[test]
fn the_deepest_unknown_field_is_passed_over_and_not_followed() {
    let nested = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    let message = format!("{{\"id\":1,\"later\":{nested}}}");
    let limits = Limits { message_bytes_max: 1 << 20, ..Limits::default() };
    let command = decode_commands(Encoding::Json, message.as_bytes(), limits).next();
    assert_eq!(command, Some(Ok(Command { id: 1, request: None })));
}

#[test]
fn an_empty_message_has_no_commands_and_an_empty_command_is_a_pong() {
    for encoding in [Encoding::Json, Encoding::Protobuf] {
        assert_eq!(decode_commands(encoding, b"", Limits::default()).count(), 0);
    }
    assert_eq!(decode_commands(Encoding::Json, b"\n \r\n", Limits::default()).count(), 0);
    for (encoding, pong) in [(Encoding::Json, &b"{}"[..]), (Encoding::Protobuf, b"\0")] {
        let command = decode_commands(encoding, pong, Limits::default()).next();
        assert!(command.expect("one").expect("a pong").is_pong());
    }
}
