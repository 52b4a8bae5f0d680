//! How the settings of a topic are shown: to people as one would type them, to programs as JSON.

use std::time::Duration;

use sennit_model::{Retention, TopicConfig, TopicKind};
use serde_json::{Value, json};

use crate::{
    field_options::fields_json,
    limit_options::{dedup_json, limit_json},
    live_options::live_json,
    quantity::{show_duration, show_size},
};

/// The short name of a topic's settings.
pub fn kind_name(config: &TopicConfig) -> &'static str {
    match config.kind() {
        TopicKind::Queue => "queue",
        TopicKind::Stream => "stream",
    }
}

/// The retention in the form of its option: `until-settled,7d`.
pub fn show_retention(retention: &Retention) -> String {
    let rules = [
        retention.until_settled.then(|| "until-settled".to_owned()),
        retention.latest_per_key.map(|_| "latest-per-key".to_owned()),
        retention.age.map(show_duration),
        retention.bytes.map(show_size),
        retention.count.map(|count| format!("{count}messages")),
    ];
    let rules: Vec<_> = rules.into_iter().flatten().collect();
    if rules.is_empty() { "forever".into() } else { rules.join(",") }
}

/// A topic with all its settings, as JSON.
pub fn topic_json(name: &str, id: u32, config: &TopicConfig) -> Value {
    let ms = |age: Duration| u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
    json!({
        "topic": name,
        "id": id,
        "kind": kind_name(config),
        "partitions": config.partitions,
        "retention": {
            "until_settled": config.retention.until_settled,
            "age_ms": config.retention.age.map(ms),
            "bytes": config.retention.bytes,
            "count": config.retention.count,
            "latest_per_key": config.retention.latest_per_key.is_some(),
            "tombstone_age_ms": config.retention.latest_per_key.map(ms),
        },
        "time_to_live_ms": config.time_to_live.map(ms),
        "durability": config.durability.name(),
        "fields": fields_json(config.fields.as_deref()),
        "paused": config.is_paused,
        "limit": limit_json(&config.limit),
        "dedup": dedup_json(config.dedup.as_ref()),
        "live": live_json(config.live),
    })
}
