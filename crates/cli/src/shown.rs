//! Messages that were delivered, and gaps among them, as they are printed. Knows no verb.

use sennit_client::Gap;
use sennit_model::{MessageView, TopicName};
use serde_json::{Value, json};

use crate::{delimiter::Delimiter, json_line::message_json, output::talk};

/// How messages are printed.
#[derive(Clone, Debug)]
pub enum Shown {
    /// All that is known of each, on a line.
    Json,
    /// Their payloads, each with this behind it.
    Payloads(Delimiter),
}

impl Shown {
    /// Adds a message to what is to be printed; `place` says where it lies, if that is wanted.
    pub fn message(
        &self,
        message: &MessageView<'_>,
        place: impl FnOnce() -> Value,
        out: &mut Vec<u8>,
    ) {
        match self {
            Self::Json => {
                let (mut value, mut place) = (message_json(message), place());
                if let (Some(value), Some(place)) = (value.as_object_mut(), place.as_object_mut()) {
                    value.append(place);
                }
                out.extend_from_slice(value.to_string().as_bytes());
                out.push(b'\n');
            }
            Self::Payloads(delimiter) => {
                out.extend_from_slice(message.payload());
                out.extend_from_slice(delimiter.bytes());
            }
        }
    }

    /// A gap as it is to be printed among messages. Where those are their payloads only, it is said
    /// beside them instead, and there is nothing to print.
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

/// Says that messages do not come.
pub fn say_gap(gap: &Gap) {
    talk(&format!("gap: {gap}"));
}
