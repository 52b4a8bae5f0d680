//! The options of a topic's limit: how they are read, and how a limit is shown.

use sennit_model::{TopicLimit, WhenFull};
use serde_json::{Value, json};

use crate::quantity::{show_size, size};

/// Options of the limit; one that is not named keeps its setting.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct LimitOptions {
    /// The most messages that each partition may hold: of a queue those that a group has not
    /// settled, of a stream all that are kept; none for no such limit
    #[arg(long, value_name = "N", value_parser = count)]
    limit_messages: Option<LimitOption>,
    /// The most bytes that each partition may hold, of whole batches; none for no such limit
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    limit_bytes: Option<LimitOption>,
    /// With a limit: what becomes of a publish to a full partition: refuse (the publisher waits or
    /// gives up), drop-oldest (the oldest messages are dropped for it, whoever holds them)
    #[arg(long, value_name = "RULE")]
    when_full: Option<WhenFull>,
}

/// One limit as an option: a number, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitOption(Option<u64>);

impl LimitOptions {
    /// `limit` with these options. Where none is left, there is no rule either.
    pub fn apply_to(self, limit: TopicLimit) -> TopicLimit {
        let changed = TopicLimit {
            messages: self.limit_messages.map_or(limit.messages, |option| option.0),
            bytes: self.limit_bytes.map_or(limit.bytes, |option| option.0),
            when_full: self.when_full.unwrap_or(limit.when_full),
        };
        let is_removed = !changed.is_set() && self.when_full.is_none();
        if is_removed { TopicLimit::default() } else { changed }
    }
}

fn count(text: &str) -> Result<LimitOption, String> {
    let wrong = || format!("{text:?} is no number of messages, and not none");
    let number = text.strip_suffix("messages").unwrap_or(text).trim();
    match text {
        "none" => Ok(LimitOption(None)),
        _ => number.parse().map(|count| LimitOption(Some(count))).map_err(|_| wrong()),
    }
}

fn bytes(text: &str) -> Result<LimitOption, String> {
    if text == "none" { Ok(LimitOption(None)) } else { size(text).map(|n| LimitOption(Some(n))) }
}

/// The limit in the form of its options: `5000messages,1GiB drop-oldest`.
pub fn show_limit(limit: &TopicLimit) -> String {
    let parts =
        [limit.messages.map(|count| format!("{count}messages")), limit.bytes.map(show_size)];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    format!("{} {}", parts.join(","), limit.when_full)
}

/// The limit as JSON; null for none.
pub fn limit_json(limit: &TopicLimit) -> Value {
    if !limit.is_set() {
        return Value::Null;
    }
    json!({
        "messages": limit.messages,
        "bytes": limit.bytes,
        "when_full": limit.when_full.name(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_changes_where_it_is_named_and_goes_with_its_rule() {
        let held = TopicLimit { messages: Some(7), bytes: None, when_full: WhenFull::DropOldest };
        assert_eq!(LimitOptions::default().apply_to(held), held);
        let options = LimitOptions { limit_bytes: Some(bytes("1KiB").unwrap()), ..<_>::default() };
        let both = TopicLimit { bytes: Some(1024), ..held };
        assert_eq!(options.apply_to(held), both);
        assert_eq!(show_limit(&both), "7messages,1KiB drop-oldest");
        let none = LimitOptions { limit_messages: Some(count("none").unwrap()), ..<_>::default() };
        assert_eq!(none.apply_to(held), TopicLimit::default());
        assert!(count("many").is_err());
    }
}
