//! The options of `sennit publish` for the scheduler: values for the fields that the topic names headers for.

use sennit_client::{Client, FieldValues, TopicName};
use sennit_model::{
    Header, Priority,
    limits::{COST_MAX, FAIR_KEY_BYTES_MAX, THROTTLE_KEYS_MAX, WEIGHT_MAX},
};

use crate::exit::{Exit, Failure};

/// Values of fields. They are written as the headers that the topic names for them.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Fair groups (the topic names a header for each: see topic create)")]
pub struct FieldValueOptions {
    /// The messages' fair key, for example their tenant
    #[arg(long, value_name = "KEY", value_parser = key)]
    fair_key: Option<String>,
    /// The weight of their fair key
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=WEIGHT_MAX as i64))]
    weight: Option<u32>,
    /// Their priority, 0 to 9; higher goes first
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=Priority::MAX.number() as i64))]
    priority: Option<u32>,
    /// What each takes of its key's share
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=COST_MAX as i64))]
    cost: Option<u32>,
    /// A throttle key of theirs; may be given up to 8 times
    #[arg(long, value_name = "KEY", value_parser = throttle_key)]
    throttle_key: Vec<String>,
}

fn key(text: &str) -> Result<String, String> {
    match text.len() {
        1..=FAIR_KEY_BYTES_MAX => Ok(text.to_owned()),
        _ => Err(format!("a key has 1 to {FAIR_KEY_BYTES_MAX} bytes")),
    }
}

fn throttle_key(text: &str) -> Result<String, String> {
    if text.contains(',') || text.contains(char::is_control) {
        return Err("a throttle key has neither commas nor control characters".into());
    }
    key(text)
}

impl FieldValueOptions {
    /// The headers that say so in this topic. Asks the broker only if there is something to say.
    ///
    /// # Errors
    /// The broker's refusal, or the topic names no header for a field.
    pub async fn headers(
        &self,
        client: &Client,
        topic: &TopicName,
    ) -> Result<Vec<Header>, Failure> {
        if self.throttle_key.len() > THROTTLE_KEYS_MAX {
            let text = format!("a message has at most {THROTTLE_KEYS_MAX} throttle keys");
            return Err(Failure::new(Exit::Usage, text));
        }
        let throttle_keys = self.throttle_key.join(",");
        let values = FieldValues {
            fair_key: self.fair_key.as_deref(),
            weight: self.weight,
            priority: self.priority,
            cost: self.cost,
            throttle_keys: (!throttle_keys.is_empty()).then_some(&throttle_keys),
        };
        if values == FieldValues::default() {
            return Ok(Vec::new());
        }
        let described = client.describe_topic(topic).await;
        let described = described.map_err(|error| Failure::from(error).about(topic))?;
        let headers = values.headers(described.config.fields.as_deref());
        headers.map_err(|error| Failure::new(Exit::Usage, error.to_string()).about(topic))
    }
}
