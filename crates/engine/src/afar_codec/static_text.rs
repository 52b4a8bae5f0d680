//! Texts of refusals that are part of the program: names of settings, of limits and of states. They travel as text;
//! one that this version does not have becomes a general one, as a node of a newer version may send it.

use super::{decode_error::DecodeError, fields::FieldReader};

/// All texts that the engine and its settings put into refusals.
const TEXTS: [&str; 51] = [
    "DELAYED_CHANGED_MAX",
    "DURATION_MAX, in seconds,",
    "CURSORS_PER_TOPIC_MAX",
    "GROUPS_PER_TOPIC_MAX",
    "MEMORY_SHARD_BYTES",
    "STREAM_FORKS_MAX",
    "STREAM_READS_WAITING_MAX",
    "TOPICS_MAX",
    "WORKBENCH_WALKS_WAITING_MAX",
    "a consumer holds it",
    "attempts_max",
    "closed state",
    "content type",
    "dedup",
    "dedup.header",
    "dedup.mode",
    "dedup.window",
    "durability",
    "every group is through with it",
    "expiry",
    "fields",
    "its delay is over, or it never had one",
    "its delay was cancelled",
    "key_rules",
    "key_rules.concurrency",
    "key_rules.weight",
    "lease",
    "limit",
    "limit.bytes",
    "limit.messages",
    "limit.when_full",
    "live.presence",
    "live.when_behind",
    "name of a header",
    "order",
    "partitions",
    "paused",
    "retention.age",
    "retention.bytes",
    "retention.count",
    "retention.latest_per_key",
    "retention.tombstone_age",
    "retention.until_settled",
    "retry.age_max",
    "retry.backoff",
    "retry.jitter_percent",
    "source, offset or sub-offset of the fork",
    "stream group",
    "throttle",
    "time to live",
    "time_to_live",
];

/// A text that this version does not know.
const UNKNOWN: &str = "a setting, limit or state of a newer version";

pub(super) fn decode(r: &mut FieldReader) -> Result<&'static str, DecodeError> {
    let text = r.text()?;
    let known = TEXTS.into_iter().find(|known| *known == text);
    Ok(known.unwrap_or(UNKNOWN))
}
