//! Messages, and gaps among them, as lines: their payloads, or JSON objects with all that is known
//! of them. Knows no verb.

use std::{
    io::{self, Write},
    time::Duration,
};

use sennit_client::Gap;
use sennit_model::{HeaderKind, MessageView, TopicName};
use serde_json::{Value, json};

use crate::output::talk;

/// Says that messages do not come: among them where those are JSON, beside them where they are
/// their payloads only.
///
/// # Errors
/// `out` does not take it.
pub fn say_gap(
    as_json: bool,
    topic: &TopicName,
    gap: &Gap,
    out: &mut impl Write,
) -> io::Result<()> {
    if !as_json {
        talk(&format!("gap: {gap}"));
        return Ok(());
    }
    let value = json!({
        "gap": gap.reason.name(),
        "topic": topic.as_str(),
        "partition": gap.partition.0,
        "first_offset": gap.offsets.start.0,
        "count": gap.offsets.count(),
    });
    writeln!(out, "{value}")
}

/// What a message says of itself. Bytes that are text are text, others are hexadecimal under a
/// name that says so.
#[must_use]
pub fn message_json(message: &MessageView<'_>) -> Value {
    let mut value = json!({});
    put_bytes(&mut value, "key", message.key());
    let headers = message.headers().flatten().map(|(name, kind, bytes)| {
        let kind = match kind {
            HeaderKind::Text => "text",
            HeaderKind::Binary => "binary",
            HeaderKind::Number => "number",
            HeaderKind::Boolean => "boolean",
        };
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

fn put_bytes(value: &mut Value, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => value[name] = text.into(),
        Err(_) => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            value[format!("{name}_hex")] = hex.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use sennit_model::{BatchBuilder, Header, Message};

    use super::*;

    #[test]
    fn json_says_all_that_a_message_holds() {
        let mut builder = BatchBuilder::new();
        let message = Message {
            key: "k".into(),
            headers: vec![Header::text("type", "created")],
            payload: vec![0xff, 0x00].into(),
            delay: Some(Duration::from_secs(1)),
            time_to_live: None,
        };
        builder.push(&message).unwrap();
        let batch = builder.take().unwrap();
        assert_eq!(
            message_json(&batch.messages().next().unwrap()),
            json!({
                "key": "k",
                "headers": [{ "name": "type", "kind": "text", "value": "created" }],
                "payload_hex": "ff00",
                "delay_ms": 1000,
            })
        );
    }
}
