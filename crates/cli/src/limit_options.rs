//! The options of a topic's limit and its deduplication: how they are read, and how they are shown.

use std::time::Duration;

use sennit_model::{Dedup, DedupHeader, DedupMode, TopicLimit, WhenFull};
use serde_json::{Value, json};

use crate::{
    exit::{Exit, Failure},
    quantity::{duration, show_duration, show_size, size},
};

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

/// The time for which a value is remembered, unless the command line says another.
const WINDOW: Duration = Duration::from_secs(300);

/// Options of the deduplication; one that is not named keeps its setting.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct DedupOptions {
    /// The header whose value says that a message was published before, in each partition; none for
    /// no such header
    #[arg(long, value_name = "HEADER", value_parser = header)]
    dedup_header: Option<HeaderOption>,
    /// With such a header: how long a value is remembered, up to 7d [default: 5min]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    dedup_window: Option<Duration>,
    /// With such a header: what becomes of a message that was published before: refuse (it is not
    /// appended, and the confirm names the first one), replace (it is appended, and the earlier one
    /// is settled if no consumer holds it) [default: refuse]
    #[arg(long, value_name = "MODE")]
    dedup_mode: Option<DedupMode>,
}

/// The header as an option: a name, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderOption(Option<DedupHeader>);

fn header(text: &str) -> Result<HeaderOption, String> {
    match text {
        "none" => Ok(HeaderOption(None)),
        _ => text
            .parse()
            .map(|name| HeaderOption(Some(name)))
            .map_err(|error: sennit_model::ConfigError| error.to_string()),
    }
}

impl DedupOptions {
    /// `dedup` with these options.
    ///
    /// # Errors
    /// There is no header to which a window or a mode belongs.
    pub fn apply_to(self, dedup: Option<Dedup>) -> Result<Option<Dedup>, Failure> {
        let header = match self.dedup_header {
            Some(option) => option.0,
            None => dedup.map(|dedup| dedup.header),
        };
        let Some(header) = header else {
            if self.dedup_window.is_some() || self.dedup_mode.is_some() {
                let text = "--dedup-window and --dedup-mode go with --dedup-header";
                return Err(Failure::new(Exit::Usage, text));
            }
            return Ok(None);
        };
        let window = self.dedup_window.or(dedup.map(|dedup| dedup.window)).unwrap_or(WINDOW);
        let mode = self.dedup_mode.or(dedup.map(|dedup| dedup.mode)).unwrap_or_default();
        Ok(Some(Dedup { header, window, mode }))
    }
}

/// The deduplication in one line: `order-id, 5min, refuse`.
pub fn show_dedup(dedup: &Dedup) -> String {
    format!("{}, {}, {}", dedup.header.as_str(), show_duration(dedup.window), dedup.mode)
}

/// The deduplication as JSON; null for none.
pub fn dedup_json(dedup: Option<&Dedup>) -> Value {
    let window = |dedup: &Dedup| u64::try_from(dedup.window.as_millis()).unwrap_or(u64::MAX);
    dedup.map_or(Value::Null, |dedup| {
        json!({
            "header": dedup.header.as_str(),
            "window_ms": window(dedup),
            "mode": dedup.mode.name(),
        })
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
