//! The types of a walk over the messages that a group still has: which it selects, what becomes of them, and the
//! page that answers. `workbench` does the walk.

use std::sync::Arc;

use bytes::Bytes;
use sennit_model::{
    Batch, Filter, GroupId, Header, HeaderName, MessageView, Offset, OffsetRange, Timestamp,
    TopicId,
};

use crate::refusal::Refusal;

/// The header with the number of the redrive that has published a message again.
pub const HEADER_REDRIVE: &str = "sennit-redrive";

/// Selects messages. All that it says has to hold; one that says nothing selects all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The offset lies in one of these, which are in order and do not touch; anywhere without.
    pub offsets: Vec<OffsetRange>,
    /// Key and headers pass.
    pub filter: Option<Filter>,
    /// The reason of the last failure contains this.
    pub reason: Option<String>,
    /// The payload contains this.
    pub text: Option<String>,
    /// Appended at this time or later.
    pub since: Option<Timestamp>,
    /// Appended before this time.
    pub before: Option<Timestamp>,
    /// The fair key is this.
    pub fair_key: Option<String>,
    /// Published by this redrive.
    pub redrive: Option<u64>,
}

/// A walk over messages of one partition that a group is not through with, by offset: one page of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Walk {
    /// The group.
    pub group: GroupId,
    /// Where the page begins.
    pub from: Offset,
    /// Which messages it wants.
    pub selection: Arc<Selection>,
    /// The header that has the fair key; of dead letters that of their source. The message's key without.
    pub fair_key: Option<HeaderName>,
    /// Most messages that are examined.
    pub examined_max: u64,
    /// Most messages that match.
    pub matched_max: u64,
    /// What becomes of those.
    pub verb: WalkVerb,
    /// Whether it is only told what would become of them.
    pub dry_run: bool,
}

/// What a walk does with the messages that it selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WalkVerb {
    /// Shows them, with so many bytes of each payload.
    Peek {
        /// The bytes.
        payload_bytes_max: usize,
    },
    /// Counts them.
    Count(CountBy),
    /// Has the group be through with them.
    Cancel,
    /// Publishes them again, and has the group be through with them, both in one record.
    Requeue(Requeue),
    /// Gives them as they would be published again, for a topic that another shard has.
    Copy(Requeue),
}

/// By what messages are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CountBy {
    /// Not at all: only the sum is told.
    #[default]
    Nothing,
    /// By fair key, or by key where messages have no fair key.
    Key,
    /// By the reason of the last failure.
    Reason,
    /// By the time since the append.
    Age,
    /// By what the message waits for.
    State,
}

/// How messages are published again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requeue {
    /// Where they go.
    pub to: Destination,
    /// The number of the redrive, which they carry as a header from then on; 0 for none.
    pub redrive: u64,
    /// What is changed in them.
    pub edit: Option<Edit>,
}

/// Where messages are published again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Destination {
    /// Where the dead letter comes from, for the group in which it failed.
    #[default]
    Source,
    /// The dead-letter topic of the partition: a redrive is undone.
    DeadLetters,
    /// Another topic: the partition of the same number, round its partitions.
    Topic {
        /// Which.
        topic: TopicId,
        /// How many partitions it has.
        partitions: u32,
    },
}

/// A change of a message that is published again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edit {
    /// The new payload.
    pub payload: Option<Bytes>,
    /// Headers that replace those of their names.
    pub set: Vec<Header>,
    /// Names of headers that go.
    pub remove: Vec<String>,
}

/// What a message of a group waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageState {
    /// A consumer.
    Ready,
    /// The end of its publisher's delay.
    Delayed {
        /// When that is.
        until: Timestamp,
    },
    /// Its next attempt.
    Retrying {
        /// When that is.
        until: Timestamp,
    },
    /// It failed for good: parked in a dead-letter topic, or on its way to one.
    Dead {
        /// When.
        failed_at: Timestamp,
        /// Why.
        reason: Arc<str>,
    },
    /// A consumer has it, and no verb touches it.
    Leased {
        /// Until then, unless it is extended.
        until: Timestamp,
    },
}

/// A message as a walk shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundMessage {
    /// Its offset.
    pub offset: Offset,
    /// When it was appended.
    pub appended_at: Timestamp,
    /// What it waits for.
    pub state: MessageState,
    /// How many attempts failed.
    pub failed: u32,
    /// Its key.
    pub key: Bytes,
    /// Its headers, encoded.
    pub headers: Bytes,
    /// The front of its payload.
    pub payload: Bytes,
    /// How long the payload is.
    pub payload_bytes: u64,
}

/// How many messages share what they are counted by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountRow {
    /// What they share.
    pub name: String,
    /// How many they are.
    pub count: u64,
    /// The append time of the oldest of them.
    pub oldest: Timestamp,
}

/// A page of a walk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WalkPage {
    /// Where the next page begins; `None` where the partition ends.
    pub next: Option<Offset>,
    /// Messages that were looked at.
    pub examined: u64,
    /// Messages that were selected.
    pub matched: u64,
    /// Selected messages that a consumer has: they were left alone.
    pub leased: u64,
    /// Messages that cannot be read: they were left alone.
    pub damaged: u64,
    /// Selected messages that have nowhere to go: their source is gone, or lies on another shard. They were left alone.
    pub homeless: u64,
    /// Messages that the group is through with now; of a dry run, would be.
    pub done: u64,
    /// Bytes of what was published again.
    pub bytes: u64,
    /// What a peek shows.
    pub messages: Vec<FoundMessage>,
    /// What a count counts, the largest first.
    pub rows: Vec<CountRow>,
    /// Counted messages that are in no row: there are too many.
    pub other: u64,
    /// What a copy gives, with the offsets in order.
    pub copies: Option<(Batch, Vec<Offset>)>,
    /// Why the page ended early: what is behind `next` was not touched.
    pub refusal: Option<Refusal>,
}

impl Selection {
    /// Whether messages that were appended at this time may be selected.
    pub(crate) fn wants_time(&self, appended_at: Timestamp) -> bool {
        self.since.is_none_or(|since| appended_at >= since)
            && self.before.is_none_or(|before| appended_at < before)
    }

    /// The first part of `start..end` that may be selected, and what is left of the range behind it.
    pub(crate) fn first_wanted(&self, start: u64, end: u64) -> Option<(u64, u64)> {
        if self.offsets.is_empty() {
            return (start < end).then_some((start, end));
        }
        let after = self.offsets.partition_point(|range| range.end.0 <= start);
        let range = self.offsets.get(after)?;
        let (start, end) = (start.max(range.start.0), end.min(range.end.0));
        (start < end).then_some((start, end))
    }

    /// The first offset from `start` on that may be selected; `None` if none may.
    pub(crate) fn next_wanted(&self, start: u64) -> Option<u64> {
        if self.offsets.is_empty() {
            return Some(start);
        }
        let after = self.offsets.partition_point(|range| range.end.0 <= start);
        self.offsets.get(after).map(|range| range.start.0.max(start))
    }

    /// Whether a message of this reason is selected. Its offset and time are.
    pub(crate) fn matches(
        &self,
        message: &MessageView<'_>,
        fair_key: Option<&HeaderName>,
        reason: &str,
    ) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.matches(message))
            && self.reason.as_ref().is_none_or(|part| reason.contains(part.as_str()))
            && self.fair_key.as_ref().is_none_or(|key| key_of(message, fair_key) == key.as_bytes())
            && self.redrive.is_none_or(|redrive| redrive_of(message) == Some(redrive))
            && self.text.as_ref().is_none_or(|text| contains(message.payload(), text.as_bytes()))
    }

    /// About how many bytes [`Self::matches`] looks at.
    pub(crate) fn cost(&self, message: &MessageView<'_>) -> u64 {
        let of_filter = self.filter.as_ref().map_or(64, |filter| filter.cost(message));
        let headers = message.encoded_headers().len() as u64;
        let text = if self.text.is_some() { message.payload().len() as u64 } else { 0 };
        of_filter + headers + text
    }
}

/// The fair key of a message, or its key if it is not said which header has that.
pub(crate) fn key_of<'a>(message: &MessageView<'a>, fair_key: Option<&HeaderName>) -> &'a [u8] {
    match fair_key {
        Some(name) => header(message, name.as_str()).unwrap_or_default(),
        None => message.key(),
    }
}

/// The value of the first header of this name.
pub(crate) fn header<'a>(message: &MessageView<'a>, name: &str) -> Option<&'a [u8]> {
    let mut headers = message.headers().map_while(Result::ok);
    headers.find(|(held, ..)| *held == name).map(|(_, _, value)| value)
}

/// The number in the first header of this name.
pub(crate) fn number<T: std::str::FromStr>(message: &MessageView<'_>, name: &str) -> Option<T> {
    std::str::from_utf8(header(message, name)?).ok()?.parse().ok()
}

/// The number of the redrive that published a message.
pub(crate) fn redrive_of(message: &MessageView<'_>) -> Option<u64> {
    number(message, HEADER_REDRIVE)
}

/// Whether `part` is in `bytes`.
fn contains(bytes: &[u8], part: &[u8]) -> bool {
    let Some((first, _)) = part.split_first() else { return true };
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| byte == first) {
        if rest[at..].starts_with(part) {
            return true;
        }
        rest = &rest[at + 1..];
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> OffsetRange {
        OffsetRange { start: Offset(start), end: Offset(end) }
    }

    #[test]
    fn a_part_of_a_payload_is_found_wherever_it_lies() {
        assert!(contains(b"aab", b"ab"));
        assert!(contains(b"aab", b""));
        assert!(contains(b"aab", b"aab"));
        assert!(!contains(b"aab", b"ba"));
        assert!(!contains(b"", b"a"));
    }

    #[test]
    fn offsets_that_are_not_wanted_are_skipped() {
        let selection = Selection { offsets: vec![range(5, 9), range(20, 21)], ..<_>::default() };
        assert_eq!(selection.first_wanted(0, 7), Some((5, 7)));
        assert_eq!(selection.first_wanted(9, 15), None);
        assert_eq!(selection.next_wanted(9), Some(20));
        assert_eq!(selection.next_wanted(21), None);
        assert_eq!(Selection::default().first_wanted(3, 4), Some((3, 4)));
    }
}
