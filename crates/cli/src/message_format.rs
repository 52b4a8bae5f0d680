//! The format of printed messages and gaps.

use sennit_client::Gap;
use sennit_model::{MessageView, TopicName};
use serde_json::{Value, json};

use crate::{
    delimiter::Delimiter,
    json_line::{message_json, set_payload},
    output::print_to_stderr,
    unseal_options::{Unopened, Unsealer},
};

/// The format of printed messages.
#[derive(Clone, Debug)]
pub enum MessageFormat {
    /// A JSON object with everything that is known, on a line.
    Json,
    /// The payloads, each with this delimiter behind it.
    Payloads(Delimiter),
}

impl MessageFormat {
    /// Appends a message to the output; `place` is its location, if that is wanted.
    pub fn message(
        &self,
        message: &MessageView<'_>,
        place: impl FnOnce() -> Value,
        out: &mut Vec<u8>,
    ) {
        match self {
            Self::Json => {
                put_line([message_json(message), place()], out);
            }
            Self::Payloads(delimiter) => {
                out.extend_from_slice(message.payload());
                out.extend_from_slice(delimiter.bytes());
            }
        }
    }

    /// Appends a message whose payload `unsealer` opens, if there is one. A message that is not opened is told: as a line of JSON,
    /// or on standard error.
    pub fn unsealed(
        &self,
        message: &MessageView<'_>,
        topic: &str,
        unsealer: Option<&mut Unsealer>,
        place: impl FnOnce() -> Value,
        out: &mut Vec<u8>,
    ) {
        let Some(unsealer) = unsealer else { return self.message(message, place, out) };
        match unsealer.open(topic, message.payload()) {
            Ok(opened) => {
                self.opened(message, &opened.payload, &unsealer.facts(&opened), place, out);
            }
            Err(unopened) => self.unopened(&unopened, &place(), out),
        }
    }

    /// Appends a message with another payload than its own, and what else is known of it.
    pub fn opened(
        &self,
        message: &MessageView<'_>,
        payload: &[u8],
        facts: &Value,
        place: impl FnOnce() -> Value,
        out: &mut Vec<u8>,
    ) {
        match self {
            Self::Json => {
                let mut value = message_json(message);
                set_payload(&mut value, payload);
                put_line([value, facts.clone(), place()], out);
            }
            Self::Payloads(delimiter) => {
                out.extend_from_slice(payload);
                out.extend_from_slice(delimiter.bytes());
            }
        }
    }

    /// Tells of a message at a place that was not opened.
    pub fn unopened(&self, unopened: &Unopened, place: &Value, out: &mut Vec<u8>) {
        let Unopened { code, reason } = unopened;
        if matches!(self, Self::Json) {
            let told = json!({ "refused": code, "reason": reason });
            return put_line([told, place.clone()], out);
        }
        let of = place["topic"].as_str().or(place["channel"].as_str()).unwrap_or_default();
        print_to_stderr(&format!("{of} {}: not opened: {reason}", place["offset"]));
    }

    /// A gap as a line among messages. If only payloads are printed, the gap is reported on
    /// standard error instead.
    #[must_use]
    pub fn gap(&self, topic: &TopicName, gap: &Gap) -> Option<String> {
        if !matches!(self, Self::Json) {
            say_gap(gap);
            return None;
        }
        let value = json!({
            "gap": gap.reason.name(),
            "topic": topic.as_str(),
            "partition": gap.partition.0,
            "first_offset": gap.offsets.start.0,
            "count": gap.offsets.count(),
        });
        Some(format!("{value}\n"))
    }
}

/// Appends objects as one, on a line.
pub fn put_line(objects: impl IntoIterator<Item = Value>, out: &mut Vec<u8>) {
    let mut whole = serde_json::Map::new();
    for mut object in objects {
        if let Some(object) = object.as_object_mut() {
            whole.append(object);
        }
    }
    out.extend_from_slice(Value::Object(whole).to_string().as_bytes());
    out.push(b'\n');
}

/// Reports a gap on standard error.
pub fn say_gap(gap: &Gap) {
    print_to_stderr(&format!("gap: {gap}"));
}
