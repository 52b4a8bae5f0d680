//! The format of printed messages and gaps.

use sennit_client::Gap;
use sennit_model::{MessageView, TopicName};
use serde_json::{Value, json};

use crate::{delimiter::Delimiter, json_line::message_json, output::print_to_stderr};

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

/// Reports a gap on standard error.
pub fn say_gap(gap: &Gap) {
    print_to_stderr(&format!("gap: {gap}"));
}
