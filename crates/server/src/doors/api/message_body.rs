//! The messages that a request publishes, as its body says them: one, or a list. It decides nothing about them.

use std::{borrow::Cow, collections::BTreeMap, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use sennit_model::{Header, HeaderKind, Message, PartitionIndex, TopicName};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, value::RawValue};

use super::{limits::PUBLISH_MESSAGES_MAX, refusals::ApiRefusal};
use crate::{doors::live::channel::topic_of, hooks::topic_publisher::Destination};

/// What a body looks like.
const SHAPE: &str =
    "{\"topic\": ..., \"data\": ...}, or {\"messages\": [...]} with several of these";

/// What a body asks for.
#[derive(Debug, PartialEq)]
pub(super) enum Messages {
    /// One message.
    One(Box<Addressed>),
    /// A list, in their order.
    Many(Vec<Addressed>),
}

/// A message, and where it goes.
#[derive(Debug, PartialEq)]
pub(super) struct Addressed {
    pub(super) topic: TopicName,
    pub(super) destination: Destination,
    pub(super) message: Message,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ListBody<'a> {
    #[serde(borrow)]
    messages: Vec<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct MessageBody<'a> {
    #[serde(borrow)]
    topic: Option<Cow<'a, str>>,
    #[serde(borrow)]
    channel: Option<Cow<'a, str>>,
    partition: Option<u32>,
    /// Any value: it is published as its own text. `null` is one too, unlike no data.
    #[serde(default, borrow, deserialize_with = "any_value")]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
    #[serde(borrow)]
    base64: Option<Cow<'a, str>>,
    #[serde(borrow)]
    key: Option<Cow<'a, str>>,
    #[serde(borrow)]
    key_base64: Option<Cow<'a, str>>,
    headers: Option<BTreeMap<String, Value>>,
    delay_ms: Option<u64>,
    time_to_live_ms: Option<u64>,
}

pub(super) fn any_value<'de: 'a, 'a, D: Deserializer<'de>>(
    data: D,
) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(data).map(Some)
}

/// The messages of a body.
///
/// # Errors
/// It is none of both, or a message of it is wrong: then nothing of it is published.
pub(super) fn read(body: &[u8]) -> Result<Messages, ApiRefusal> {
    #[derive(Deserialize)]
    struct Kind<'a> {
        #[serde(borrow)]
        messages: Option<&'a RawValue>,
    }
    let invalid = |error| ApiRefusal::invalid_json(SHAPE, &error);
    let kind: Kind<'_> = serde_json::from_slice(body).map_err(invalid)?;
    if kind.messages.is_none() {
        let one: MessageBody<'_> = serde_json::from_slice(body).map_err(invalid)?;
        return Ok(Messages::One(Box::new(one.addressed()?)));
    }
    let list: ListBody<'_> = serde_json::from_slice(body).map_err(invalid)?;
    match list.messages.len() {
        0 => return Err(ApiRefusal::bad("messages is empty")),
        1..=PUBLISH_MESSAGES_MAX => {}
        _ => return Err(ApiRefusal::too_many("PUBLISH_MESSAGES_MAX", PUBLISH_MESSAGES_MAX)),
    }
    let read = |(index, text): (usize, &RawValue)| {
        let read: Result<MessageBody<'_>, _> = serde_json::from_str(text.get());
        let addressed = read.map_err(invalid).and_then(MessageBody::addressed);
        addressed.map_err(|refusal| refusal.about(&format!("message {index}")))
    };
    list.messages.into_iter().enumerate().map(read).collect::<Result<_, _>>().map(Messages::Many)
}

/// The payload that a body says.
///
/// # Errors
/// It says none, or several.
pub(super) fn payload(
    data: Option<&RawValue>,
    text: Option<Cow<'_, str>>,
    base64: Option<Cow<'_, str>>,
) -> Result<Bytes, ApiRefusal> {
    match (data, text, base64) {
        (Some(data), None, None) => Ok(Bytes::copy_from_slice(data.get().as_bytes())),
        (None, Some(text), None) => Ok(text.into_owned().into()),
        (None, None, Some(text)) => decoded("base64", &text),
        (None, None, None) => Err(ApiRefusal::bad("a message has data, text or base64")),
        _ => Err(ApiRefusal::bad("a message has one of data, text and base64")),
    }
}

impl MessageBody<'_> {
    fn addressed(self) -> Result<Addressed, ApiRefusal> {
        let (topic, destination) = self.destination()?;
        let payload = payload(self.data, self.text, self.base64)?;
        let key = match (self.key, self.key_base64) {
            (None, None) => Bytes::new(),
            (Some(text), None) => text.into_owned().into(),
            (None, Some(text)) => decoded("key_base64", &text)?,
            (Some(_), Some(_)) => {
                return Err(ApiRefusal::bad("a message has one of key and key_base64"));
            }
        };
        let headers = self.headers.unwrap_or_default().into_iter().map(header);
        let message = Message {
            key,
            headers: headers.collect::<Result<_, _>>()?,
            payload,
            delay: self.delay_ms.map(Duration::from_millis),
            time_to_live: self.time_to_live_ms.map(Duration::from_millis),
        };
        Ok(Addressed { topic, destination, message })
    }

    fn destination(&self) -> Result<(TopicName, Destination), ApiRefusal> {
        let invalid = |error: sennit_model::NameError| ApiRefusal {
            code: "invalid_name",
            ..ApiRefusal::bad(error.to_string())
        };
        match (self.topic.as_deref(), self.channel.as_deref()) {
            (Some(topic), None) => {
                let destination = Destination::Topic(self.partition.map(PartitionIndex));
                Ok((topic.parse().map_err(invalid)?, destination))
            }
            (None, Some(_)) if self.partition.is_some() => Err(ApiRefusal::bad(
                "a channel has no partitions: leave partition out, or name a topic",
            )),
            (None, Some(channel)) => {
                Ok((topic_of(channel).map_err(invalid)?, Destination::Channel))
            }
            _ => Err(ApiRefusal::bad("a message has a topic or a channel, and not both")),
        }
    }
}

fn decoded(name: &str, text: &str) -> Result<Bytes, ApiRefusal> {
    let bytes = STANDARD.decode(text.as_bytes());
    bytes.map(Bytes::from).map_err(|error| ApiRefusal::bad(format!("{name}: {error}")))
}

fn header((name, value): (String, Value)) -> Result<Header, ApiRefusal> {
    let (kind, value) = match value {
        Value::String(text) => (HeaderKind::Text, text),
        Value::Number(number) => (HeaderKind::Number, number.to_string()),
        Value::Bool(value) => (HeaderKind::Boolean, value.to_string()),
        _ => {
            let detail = format!("header {name:?} is a text, a number or a boolean");
            return Err(ApiRefusal::bad(detail));
        }
    };
    Ok(Header { name, kind, value: value.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(body: &str) -> Addressed {
        match read(body.as_bytes()).unwrap() {
            Messages::One(one) => *one,
            Messages::Many(many) => panic!("{many:?}"),
        }
    }

    fn refused(body: &str) -> (u16, &'static str, String) {
        let refusal = read(body.as_bytes()).unwrap_err();
        (refusal.status.as_u16(), refusal.code, refusal.detail)
    }

    #[test]
    fn a_payload_is_a_value_of_json_a_text_or_bytes() {
        for (member, payload) in [
            (r#""data": {"a":  [1, 2.50]}"#, &br#"{"a":  [1, 2.50]}"#[..]),
            (r#""data": "text""#, b"\"text\""),
            (r#""data": null"#, b"null"),
            (r#""text": "gr\u00f6\u00dfe""#, "größe".as_bytes()),
            (r#""text": """#, b""),
            (r#""base64": "AP8=""#, &[0, 255]),
        ] {
            let addressed = one(&format!(r#"{{"topic": "news", {member}}}"#));
            assert_eq!(addressed.message.payload, payload, "{member}");
        }
    }

    #[test]
    fn a_message_says_all_that_a_message_has() {
        let addressed = one(
            r#"{"topic": "orders", "partition": 3, "data": 1, "key_base64": "AQI=",
                "headers": {"a": "text", "b": 7, "c": true}, "delay_ms": 5, "time_to_live_ms": 6}"#,
        );
        assert_eq!(addressed.destination, Destination::Topic(Some(PartitionIndex(3))));
        let message = addressed.message;
        assert_eq!(message.key, &[1, 2][..]);
        let kinds: Vec<_> = message.headers.iter().map(|header| header.kind).collect();
        assert_eq!(kinds, [HeaderKind::Text, HeaderKind::Number, HeaderKind::Boolean]);
        assert_eq!(message.delay, Some(Duration::from_millis(5)));
        assert_eq!(message.time_to_live, Some(Duration::from_millis(6)));
        let addressed = one(r#"{"channel": "chat:index", "data": 1, "key": "k"}"#);
        assert_eq!(addressed.topic.as_str(), "chat%3Aindex");
        assert_eq!(
            (addressed.destination, &addressed.message.key[..]),
            (Destination::Channel, &b"k"[..])
        );
    }

    #[test]
    fn what_is_wrong_is_said_and_which_message_it_is() {
        for (body, code, said) in [
            ("", "invalid_json", "EOF"),
            ("[]", "invalid_json", "the body is {"),
            (r#"{"topic": "a"}"#, "bad_request", "a message has data, text or base64"),
            (r#"{"data": 1}"#, "bad_request", "a topic or a channel"),
            (r#"{"topic": "a", "channel": "a", "data": 1}"#, "bad_request", "not both"),
            (r#"{"topic": "a", "data": 1, "text": "x"}"#, "bad_request", "one of data"),
            (r#"{"topic": "a b", "data": 1}"#, "invalid_name", "' ' at byte 1"),
            (r#"{"channel": "a", "partition": 1, "data": 1}"#, "bad_request", "no partitions"),
            (r#"{"topic": "a", "base64": "!"}"#, "bad_request", "base64: "),
            (r#"{"topic": "a", "data": 1, "headers": {"x": []}}"#, "bad_request", "header \"x\""),
            (r#"{"topic": "a", "data": 1, "other": 1}"#, "invalid_json", "unknown field `other`"),
            (r#"{"messages": []}"#, "bad_request", "messages is empty"),
            (r#"{"messages": [{"topic": "a", "data": 1}, {}]}"#, "bad_request", "message 1: "),
        ] {
            let refused = refused(body);
            assert_eq!((refused.0, refused.1), (400, code), "{body}");
            assert!(refused.2.contains(said), "{body}: {}", refused.2);
        }
        let many = vec![r#"{"topic":"a","data":1}"#; PUBLISH_MESSAGES_MAX + 1].join(",");
        let refused = refused(&format!("{{\"messages\":[{many}]}}"));
        assert_eq!(refused, (413, "limit_reached", "PUBLISH_MESSAGES_MAX is 1000".to_owned()));
    }
}
