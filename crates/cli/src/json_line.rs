//! Messages as lines of JSON, for publishing and printing: one verb accepts the output of the other.

use std::{collections::BTreeMap, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use sennit_model::{Header, HeaderKind, Message, MessageView};
use serde_json::{Value, json, value::RawValue};

use crate::quantity;

/// The fields of a published line, for help and errors.
const FIELDS: &str = "key, headers, payload, delay and ttl";

/// The printed fields that say where a message lay. They are ignored when the message is published
/// again.
const LOCATION_FIELDS: [&str; 12] = [
    "topic",
    "partition",
    "offset",
    "attempt",
    "appended_at_ms",
    "durability",
    "channel",
    "epoch",
    "publisher",
    "sealed_id",
    "sealed_at_ms",
    "signed_by",
];

/// The fields of printed lines that are no messages.
const NO_MESSAGE_FIELDS: [&str; 4] = ["gap", "refused", "joined", "left"];

/// A line.
#[derive(Debug, PartialEq)]
pub enum Line {
    /// A message.
    Message(Message),
    /// A gap, or something else that was printed among messages: nothing to publish.
    Gap,
}

type Fields = BTreeMap<String, Box<RawValue>>;

/// Parses `line`, a JSON object with the optional fields `key`, `headers`, `payload`, `delay` and
/// `ttl`. `key`, `payload` and values of headers are text, or base64 under the name with `_base64`
/// behind it; a payload of another JSON type is that JSON. Headers are an object of texts, numbers
/// and booleans, or an array of objects as in [`message_json`]. Missing fields are taken from
/// `unless_said`, and its headers come first.
///
/// # Errors
/// A text for people.
pub fn read(line: &[u8], unless_said: &Message) -> Result<Line, String> {
    let wrong = |error: serde_json::Error| {
        let sees = if error.is_data() { "it is no JSON object" } else { "it is no JSON" };
        format!("{sees}: {error}; write {{\"payload\": \"text\"}}, with {FIELDS}")
    };
    let mut fields: Fields = serde_json::from_slice(line).map_err(wrong)?;
    // Neither has a message that was not opened anything to publish, nor who came or went.
    if NO_MESSAGE_FIELDS.iter().any(|name| fields.contains_key(*name)) {
        return Ok(Line::Gap);
    }
    let mut message = unless_said.clone();
    if let Some(key) = take_bytes(&mut fields, "key", false)? {
        message.key = key;
    }
    if let Some(payload) = take_bytes(&mut fields, "payload", true)? {
        message.payload = payload;
    }
    if let Some(headers) = fields.remove("headers") {
        message.headers.extend(read_headers(&headers)?);
    }
    for (name, name_ms, place) in [
        ("delay", "delay_ms", &mut message.delay),
        ("ttl", "time_to_live_ms", &mut message.time_to_live),
    ] {
        match (fields.remove(name), fields.remove(name_ms)) {
            (Some(_), Some(_)) => return Err(format!("it has {name} and {name_ms}: give one")),
            (Some(text), None) => *place = Some(quantity::duration(&text_of(&text, name)?)?),
            (None, Some(number)) => {
                let ms = number.get().parse().map_err(|_| format!("its {name_ms} is no number"))?;
                *place = Some(Duration::from_millis(ms));
            }
            (None, None) => {}
        }
    }
    match fields.keys().find(|name| !LOCATION_FIELDS.contains(&name.as_str())) {
        Some(name) => Err(format!("it has an unknown field {name:?}; known are {FIELDS}")),
        None => Ok(Line::Message(message)),
    }
}

/// Removes the bytes of this name, as text or as base64.
fn take_bytes(fields: &mut Fields, name: &str, may_be_json: bool) -> Result<Option<Bytes>, String> {
    let name_base64 = format!("{name}_base64");
    match (fields.remove(name), fields.remove(&name_base64)) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(format!("it has {name} and {name_base64}: give one")),
        (Some(value), None) => match text_of(&value, name) {
            Ok(text) => Ok(Some(Bytes::from(text))),
            // As it is written: numbers keep their digits, objects the order of their fields.
            Err(_) if may_be_json => Ok(Some(Bytes::from(value.get().to_owned()))),
            Err(error) => Err(error),
        },
        (None, Some(value)) => {
            let text = text_of(&value, &name_base64)?;
            let bytes = BASE64_STANDARD.decode(text);
            bytes
                .map(|bytes| Some(bytes.into()))
                .map_err(|error| format!("its {name_base64} is no base64: {error}"))
        }
    }
}

fn text_of(value: &RawValue, name: &str) -> Result<String, String> {
    serde_json::from_str(value.get()).map_err(|_| format!("its {name} is no text in quotes"))
}

fn read_headers(headers: &RawValue) -> Result<Vec<Header>, String> {
    if let Ok(named) = serde_json::from_str::<BTreeMap<String, Value>>(headers.get()) {
        return named.into_iter().map(named_header).collect();
    }
    let listed: Vec<Fields> = serde_json::from_str(headers.get()).map_err(|_| {
        "its headers are neither {\"name\": \"value\"} nor [{\"name\": ..., \"value\": ...}]"
            .to_owned()
    })?;
    listed.into_iter().map(listed_header).collect()
}

fn named_header((name, value): (String, Value)) -> Result<Header, String> {
    let (kind, value) = match value {
        Value::String(text) => (HeaderKind::Text, text),
        Value::Number(number) => (HeaderKind::Number, number.to_string()),
        Value::Bool(value) => (HeaderKind::Boolean, value.to_string()),
        _ => return Err(format!("its header {name:?} is no text, number or boolean")),
    };
    Ok(Header { name, kind, value: value.into() })
}

fn listed_header(mut fields: Fields) -> Result<Header, String> {
    let name = fields.remove("name").ok_or("a header of it has no name")?;
    let name = text_of(&name, "header's name")?;
    let about = |error| format!("header {name:?}: {error}");
    let kind = match fields.remove("kind").map(|kind| text_of(&kind, "kind")).transpose()? {
        None => HeaderKind::Text,
        Some(kind) => match KINDS.iter().find(|(_, known)| *known == kind) {
            Some((kind, _)) => *kind,
            None => return Err(about(format!("{kind:?} is no kind"))),
        },
    };
    let value = take_bytes(&mut fields, "value", false).map_err(about)?;
    let value = value.ok_or_else(|| about("it has no value".into()))?;
    match fields.keys().next() {
        Some(other) => {
            Err(about(format!("it has an unknown field {other:?}; known are name, kind and value")))
        }
        None => Ok(Header { name, kind, value }),
    }
}

/// The names of the kinds of headers.
const KINDS: [(HeaderKind, &str); 4] = [
    (HeaderKind::Text, "text"),
    (HeaderKind::Binary, "binary"),
    (HeaderKind::Number, "number"),
    (HeaderKind::Boolean, "boolean"),
];

/// A message as JSON. Bytes that are text are text; others are base64 under a name that says so.
#[must_use]
pub fn message_json(message: &MessageView<'_>) -> Value {
    let mut value = json!({});
    put_bytes(&mut value, "key", message.key());
    let headers = message.headers().flatten().map(|(name, kind, bytes)| {
        let kind = KINDS.iter().find(|(known, _)| *known == kind).map(|(_, name)| *name);
        let mut header = json!({ "name": name, "kind": kind });
        put_bytes(&mut header, "value", bytes);
        header
    });
    value["headers"] = headers.collect();
    put_bytes(&mut value, "payload", message.payload());
    let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if let Some(delay) = message.delay() {
        value["delay_ms"] = ms(delay).into();
    }
    if let Some(age) = message.time_to_live() {
        value["time_to_live_ms"] = ms(age).into();
    }
    value
}

/// Puts another payload in place of the one that a message has.
pub fn set_payload(value: &mut Value, payload: &[u8]) {
    if let Some(fields) = value.as_object_mut() {
        fields.remove("payload");
        fields.remove("payload_base64");
    }
    put_bytes(value, "payload", payload);
}

/// Sets a field to bytes: text as text, others as base64 under a name that says so.
pub fn put_bytes(value: &mut Value, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => value[name] = text.into(),
        Err(_) => value[format!("{name}_base64")] = BASE64_STANDARD.encode(bytes).into(),
    }
}

#[cfg(test)]
mod tests {
    use sennit_model::BatchBuilder;

    use super::*;

    fn all() -> Message {
        let header = |name: &str, kind, value: &'static [u8]| Header {
            name: name.into(),
            kind,
            value: value.into(),
        };
        Message {
            key: "k".into(),
            headers: vec![
                Header::text("type", "created"),
                header("type", HeaderKind::Binary, b"\xff"),
                header("n", HeaderKind::Number, b"1.50"),
                header("b", HeaderKind::Boolean, b"true"),
            ],
            payload: vec![0xff, 0x00].into(),
            delay: Some(Duration::from_secs(1)),
            time_to_live: Some(Duration::from_secs(60)),
        }
    }

    fn printed(message: &Message) -> Value {
        let mut builder = BatchBuilder::new();
        builder.push(message).unwrap();
        let batch = builder.take().unwrap();
        message_json(&batch.messages().next().unwrap())
    }

    fn message(line: &str) -> Message {
        match read(line.as_bytes(), &Message::default()) {
            Ok(Line::Message(message)) => message,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn json_says_all_that_a_message_holds() {
        let message = Message { headers: vec![Header::text("type", "created")], ..all() };
        assert_eq!(
            printed(&message),
            json!({
                "key": "k",
                "headers": [{ "name": "type", "kind": "text", "value": "created" }],
                "payload_base64": "/wA=",
                "delay_ms": 1000,
                "time_to_live_ms": 60_000,
            })
        );
    }

    #[test]
    fn what_is_printed_is_read_as_the_same_message() {
        let text = Message { key: vec![0xfe].into(), ..Message::new("a \"text\"\n") };
        for message in [all(), text, Message::default()] {
            let mut value = printed(&message);
            for (place, known) in LOCATION_FIELDS.iter().zip(1..) {
                value[*place] = known.into();
            }
            let read = read(value.to_string().as_bytes(), &Message::default());
            assert_eq!(read, Ok(Line::Message(message)));
        }
    }

    #[test]
    fn what_people_write_is_short() {
        assert_eq!(message(r#"{"payload":"a"}"#), Message::new("a"));
        assert_eq!(message("{}"), Message::default());
        let object = r#"{"z":1.50,"a":[12345678901234567890123]}"#;
        assert_eq!(message(&format!(r#"{{"payload":{object}}}"#)), Message::new(object));
        let line = r#"{"key":"k","headers":{"a":"b","n":2,"t":true},"delay":"1.5s","ttl":"1h"}"#;
        let read = message(line);
        assert_eq!((read.delay, read.key), (Some(Duration::from_millis(1500)), "k".into()));
        assert_eq!(read.time_to_live, Some(Duration::from_secs(3600)));
        let kinds: Vec<_> = read.headers.iter().map(|header| header.kind).collect();
        assert_eq!(kinds, [HeaderKind::Text, HeaderKind::Number, HeaderKind::Boolean]);
    }

    #[test]
    fn what_a_line_does_not_say_is_as_the_command_line_says() {
        let unless_said = Message {
            key: "k".into(),
            headers: vec![Header::text("a", "b")],
            delay: Some(Duration::ZERO),
            ..Message::default()
        };
        let Ok(Line::Message(message)) =
            read(br#"{"payload":"x","headers":{"c":"d"}}"#, &unless_said)
        else {
            panic!("it is a message")
        };
        assert_eq!(message.headers, [Header::text("a", "b"), Header::text("c", "d")]);
        assert_eq!((message.key, message.delay), ("k".into(), Some(Duration::ZERO)));
    }

    #[test]
    fn a_gap_among_messages_is_none_of_them() {
        let gap = br#"{"gap":"expired","topic":"a","partition":0,"first_offset":1,"count":2}"#;
        assert_eq!(read(gap, &Message::default()), Ok(Line::Gap));
    }

    #[test]
    fn a_wrong_line_is_told_what_is_wrong() {
        for (line, said) in [
            ("hello", "it is no JSON: "),
            ("[1]", "no JSON object"),
            (r#"{"payload":"a"} {}"#, "it is no JSON: "),
            (r#"{"headres":{}}"#, "\"headres\""),
            (r#"{"key":1}"#, "key is no text"),
            (r#"{"payload":"a","payload_base64":"YQ=="}"#, "give one"),
            (r#"{"payload_base64":"*"}"#, "no base64"),
            (r#"{"delay":"soon"}"#, "is no duration"),
            (r#"{"delay":5}"#, "delay is no text"),
            (r#"{"headers":[{"value":"a"}]}"#, "no name"),
            (r#"{"headers":[{"name":"a","kind":"odd","value":"a"}]}"#, "\"odd\" is no kind"),
            (r#"{"headers":{"a":null}}"#, "\"a\""),
        ] {
            let wrong = read(line.as_bytes(), &Message::default()).unwrap_err();
            assert!(wrong.contains(said), "{line}: {wrong}");
        }
    }
}
