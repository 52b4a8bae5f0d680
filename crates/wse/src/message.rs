//! A message of a topic as clients get it: `{"c":"U","t":"type","p":{},"tp":"topic","e":"epoch","o":1}`.
//!
//! A payload that is itself a message of the protocol, an object with `t` and `p` and no other fields than the protocol's, keeps its
//! type. Of any other, the type is the topic, and `p` is the payload: an object as it is, other values in the field `data`.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::reserved::is_reserved;

/// The type of messages whose topic has the name of a type of the protocol.
const PLAIN: &str = "message";

/// The category of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
    /// What is new.
    Update,
    /// The state that there is.
    Snapshot,
}

impl Category {
    fn letter(self) -> &'static str {
        match self {
            Self::Update => "U",
            Self::Snapshot => "S",
        }
    }
}

/// A message whose parts lie elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct MessageView<'m> {
    /// The topic, as clients name it.
    pub topic: &'m str,
    /// JSON.
    pub payload: &'m str,
    /// The epoch of the topic, and the offset of the message from 1; none for a snapshot, which is shown though the client may
    /// have had it.
    pub position: Option<(u64, u64)>,
    /// Of a payload that says none itself.
    pub category: Category,
}

/// A payload that is a message of the protocol.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Enveloped<'m> {
    #[serde(borrow, alias = "type")]
    t: Cow<'m, str>,
    #[serde(borrow, alias = "payload")]
    p: &'m RawValue,
    #[serde(borrow, default)]
    c: Option<&'m RawValue>,
    #[serde(borrow, default)]
    id: Option<&'m RawValue>,
    #[serde(borrow, default)]
    seq: Option<&'m RawValue>,
    #[serde(borrow, default)]
    ts: Option<&'m RawValue>,
    #[serde(borrow, default)]
    v: Option<&'m RawValue>,
    #[serde(borrow, default)]
    pri: Option<&'m RawValue>,
    #[serde(borrow, default)]
    cid: Option<&'m RawValue>,
    #[serde(borrow, default)]
    sig: Option<&'m RawValue>,
}

impl<'m> Enveloped<'m> {
    fn of(payload: &'m str) -> Option<Self> {
        if !is_object(payload) {
            return None;
        }
        let found: Self = serde_json::from_str(payload).ok()?;
        (!is_reserved(&found.t)).then_some(found)
    }
}

fn is_object(json: &str) -> bool {
    json.trim_ascii_start().starts_with('{')
}

/// Appends a message. Costs a look through the payload, and a copy.
pub fn put_message(message: &MessageView<'_>, out: &mut Vec<u8>) {
    out.reserve(message.payload.len() + 2 * message.topic.len() + 96);
    let enveloped = Enveloped::of(message.payload);
    let says_snapshot = |c: &RawValue| c.get() == "\"S\"";
    let category = match &enveloped {
        Some(held) if held.c.is_some_and(says_snapshot) => Category::Snapshot,
        _ => message.category,
    };
    let kind = match &enveloped {
        Some(held) => &*held.t,
        None if is_reserved(message.topic) => PLAIN,
        None => message.topic,
    };
    let payload = enveloped.as_ref().map_or(message.payload, |held| held.p.get());
    out.extend_from_slice(b"{\"c\":\"");
    out.extend_from_slice(category.letter().as_bytes());
    out.extend_from_slice(b"\",\"t\":");
    put_text(kind, out);
    out.extend_from_slice(b",\"p\":");
    if is_object(payload) {
        out.extend_from_slice(payload.as_bytes());
    } else {
        out.extend_from_slice(b"{\"data\":");
        out.extend_from_slice(payload.as_bytes());
        out.push(b'}');
    }
    if let Some(held) = &enveloped {
        let fields = [
            ("id", held.id),
            ("seq", held.seq),
            ("ts", held.ts),
            ("v", held.v),
            ("pri", held.pri),
            ("cid", held.cid),
            ("sig", held.sig),
        ];
        for (name, value) in fields {
            if let Some(value) = value {
                out.extend_from_slice(b",\"");
                out.extend_from_slice(name.as_bytes());
                out.extend_from_slice(b"\":");
                out.extend_from_slice(value.get().as_bytes());
            }
        }
    }
    out.extend_from_slice(b",\"tp\":");
    put_text(message.topic, out);
    if let Some((epoch, offset)) = message.position {
        out.extend_from_slice(b",\"e\":\"");
        put_number(epoch, out);
        out.extend_from_slice(b"\",\"o\":");
        put_number(offset, out);
    }
    out.push(b'}');
}

fn put_text(text: &str, out: &mut Vec<u8>) {
    // A vector takes all that is written to it.
    let _ = serde_json::to_writer(out, text);
}

fn put_number(number: u64, out: &mut Vec<u8>) {
    let _ = serde_json::to_writer(out, &number);
}
