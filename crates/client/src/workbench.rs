//! The workbench: pages of the messages that a group still has, to look at, and to publish again, move or cancel.

use bytes::Bytes;
use sennit_model::{
    Filter, GroupName, Header, Headers, Offset, OffsetRange, PartitionIndex, Timestamp, TopicName,
};
use sennit_protocol::{
    Reply, Request,
    control::{self, MessageState as State},
};

use crate::{client::Client, error::Error};

/// Selects messages. All that it says has to hold; the default selects all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessageSelection {
    /// Offsets of one of these ranges, in order; any offset without. At most 256.
    pub offsets: Vec<OffsetRange>,
    /// Key and headers that pass a filter.
    pub filter: Option<Filter>,
    /// A reason of failure that contains this, at most 1024 bytes.
    pub reason: Option<String>,
    /// A payload that contains this, at most 1024 bytes.
    pub text: Option<String>,
    /// This fair key, or this key where the topic has no fair keys.
    pub fair_key: Option<String>,
    /// Appended at this time or later.
    pub since: Option<Timestamp>,
    /// Appended before this time.
    pub before: Option<Timestamp>,
    /// Published by the redrive of this number.
    pub redrive: Option<u64>,
}

/// The messages of one partition that a request means, from an offset on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessagePage {
    /// The topic.
    pub topic: TopicName,
    /// The group: messages that it has settled are not meant.
    pub group: GroupName,
    /// The partition.
    pub partition: PartitionIndex,
    /// Where the page begins.
    pub from: Offset,
    /// Which messages are meant.
    pub selection: MessageSelection,
    /// The most messages on the page, at most 1000 for [`InspectVerb::Peek`] and 4096 otherwise; 0 for that.
    pub matched_max: u32,
}

/// A question about messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InspectVerb {
    /// To see them.
    Peek {
        /// The bytes of each payload, at most 1 MiB.
        payload_bytes_max: u32,
    },
    /// How many they are.
    Count,
    /// How many each fair key has, or each key.
    CountByKey,
    /// How many failed for each reason.
    CountByReason,
    /// How many are how old.
    CountByAge,
    /// How many wait for what.
    CountByState,
}

/// What a message waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MessageState {
    /// A consumer.
    Ready,
    /// The end of its publisher's delay, at this time.
    Delayed(Timestamp),
    /// Its next attempt, at this time.
    Retrying(Timestamp),
    /// It failed for good.
    Dead {
        /// When.
        failed_at: Timestamp,
        /// Why.
        reason: String,
    },
    /// A consumer has it until this time.
    Leased(Timestamp),
    /// A state of a later version, by its number.
    Unknown(i32),
}

impl MessageState {
    /// The name, as in the output of the command line.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Delayed(_) => "delayed",
            Self::Retrying(_) => "retrying",
            Self::Dead { .. } => "dead",
            Self::Leased(_) => "leased",
            Self::Unknown(_) => "unknown",
        }
    }
}

/// A message that a group is not through with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InspectedMessage {
    /// Its partition.
    pub partition: PartitionIndex,
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
    /// Its headers, as far as they can be read.
    pub headers: Vec<Header>,
    /// The front of its payload.
    pub payload: Bytes,
    /// How long the payload is.
    pub payload_bytes: u64,
}

/// How many messages share what they are counted by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountRow {
    /// What they share; empty for those that have none.
    pub name: String,
    /// How many they are.
    pub count: u64,
    /// When the oldest of them was appended.
    pub oldest_at: Timestamp,
}

/// A page of the messages that a group has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspected {
    /// Where the next page begins; `None` where the partition ends.
    pub next: Option<Offset>,
    /// Messages that were looked at.
    pub examined: u64,
    /// Messages that are meant.
    pub matched: u64,
    /// Of those, messages that a consumer has.
    pub leased: u64,
    /// Messages that cannot be read because of damage on the disk.
    pub damaged: u64,
    /// What a peek shows, by offset.
    pub messages: Vec<InspectedMessage>,
    /// What a count counts, the largest first.
    pub rows: Vec<CountRow>,
    /// Counted messages that are in no row.
    pub other: u64,
    /// How many partitions the topic has.
    pub partitions: u32,
}

/// A change of messages that are published again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessageEdit {
    /// The new payload.
    pub payload: Option<Bytes>,
    /// Headers in place of those of their names.
    pub set_headers: Vec<Header>,
    /// Names of headers that go.
    pub remove_headers: Vec<String>,
}

/// What becomes of messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReworkVerb {
    /// Dead letters are published again.
    Redrive {
        /// The topic that they go to; where they come from without.
        to: Option<TopicName>,
        /// A number by which it can be undone, while nobody has consumed the messages; 0 for none. It is the
        /// caller's choice.
        redrive: u64,
        /// A change of them.
        edit: Option<MessageEdit>,
    },
    /// The group is through with them.
    Cancel,
    /// They are published in another topic.
    Move {
        /// Which.
        to: TopicName,
        /// A change of them.
        edit: Option<MessageEdit>,
    },
    /// They go back to the dead-letter topic, if a redrive has published them and nobody has consumed them.
    Undo,
}

/// What a page of a rework has come to.
#[derive(Clone, Debug, Default)]
pub struct Reworked {
    /// Where the next page begins; `None` where the partition ends.
    pub next: Option<Offset>,
    /// Messages that were looked at.
    pub examined: u64,
    /// Messages that are meant.
    pub matched: u64,
    /// Messages to which it was done.
    pub done: u64,
    /// Messages that a consumer has: they were left alone.
    pub leased: u64,
    /// Messages that cannot be read: they were left alone.
    pub damaged: u64,
    /// Messages that have nowhere to go: they were left alone.
    pub homeless: u64,
    /// How many partitions the topic has.
    pub partitions: u32,
    /// Why the page ended at `next`.
    pub refusal: Option<Error>,
}

/// `unknown-kind` by a broker that has no workbench.
impl Client {
    /// Looks at messages that a group still has, without taking a lease: a page of at most 4096 messages.
    ///
    /// # Errors
    /// `unknown-topic`, also for a partition that the topic does not have, `unknown-group`, `limit-reached`,
    /// `invalid-config` for ranges that are none; [`Error::Closed`], [`Error::Unreachable`].
    pub async fn inspect(&self, page: &MessagePage, verb: InspectVerb) -> Result<Inspected, Error> {
        let payload_bytes_max = match verb {
            InspectVerb::Peek { payload_bytes_max } => payload_bytes_max,
            _ => 0,
        };
        let verb = match verb {
            InspectVerb::Peek { .. } => control::InspectVerb::Peek,
            InspectVerb::Count => control::InspectVerb::Count,
            InspectVerb::CountByKey => control::InspectVerb::CountByKey,
            InspectVerb::CountByReason => control::InspectVerb::CountByReason,
            InspectVerb::CountByAge => control::InspectVerb::CountByAge,
            InspectVerb::CountByState => control::InspectVerb::CountByState,
        };
        let body = control::Inspect {
            topic: page.topic.to_string(),
            group: page.group.to_string(),
            partition: page.partition.0,
            page_start: page.from.0,
            selection: Some(selection(&page.selection)),
            verb: verb.into(),
            matched_max: page.matched_max,
            payload_bytes_max,
        };
        match self.connection.ask(Request::Inspect(body), true).await? {
            Reply::Inspected(body) => Ok(inspected(body, page.partition)),
            other => Err(unexpected(&other)),
        }
    }

    /// Does something to messages that a group still has, or with `dry_run` only says what would be done: a page of at
    /// most 4096 messages. A message that a consumer has is left alone. After a lost connection the request is sent
    /// again: what it did before is not done twice, unless messages went to another shard, and not counted.
    ///
    /// # Errors
    /// `not-dead-letters` for a redrive of another topic, `message-leased` for an edit of messages that consumers have,
    /// what a publish is refused for if nothing was done, and what [`Client::inspect`] is refused for.
    pub async fn rework(
        &self,
        page: &MessagePage,
        verb: &ReworkVerb,
        dry_run: bool,
    ) -> Result<Reworked, Error> {
        let (to, number, changes) = match verb {
            ReworkVerb::Redrive { to, redrive, edit } => (to.as_ref(), *redrive, edit.as_ref()),
            ReworkVerb::Move { to, edit } => (Some(to), 0, edit.as_ref()),
            ReworkVerb::Cancel | ReworkVerb::Undo => (None, 0, None),
        };
        let verb = match verb {
            ReworkVerb::Redrive { .. } => control::ReworkVerb::Redrive,
            ReworkVerb::Cancel => control::ReworkVerb::Cancel,
            ReworkVerb::Move { .. } => control::ReworkVerb::Move,
            ReworkVerb::Undo => control::ReworkVerb::Undo,
        };
        let body = control::Rework {
            topic: page.topic.to_string(),
            group: page.group.to_string(),
            partition: page.partition.0,
            page_start: page.from.0,
            selection: Some(selection(&page.selection)),
            verb: verb.into(),
            matched_max: page.matched_max,
            to: to.map(ToString::to_string).unwrap_or_default(),
            redrive: number,
            dry_run,
            edit: changes.map(edit),
        };
        match self.connection.ask(Request::Rework(body), true).await? {
            Reply::Reworked(body) => Ok(Reworked {
                next: body.next.map(Offset),
                examined: body.examined,
                matched: body.matched,
                done: body.done,
                leased: body.leased,
                damaged: body.damaged,
                homeless: body.homeless,
                partitions: body.partitions,
                refusal: body.refusal.map(Error::from),
            }),
            other => Err(unexpected(&other)),
        }
    }
}

fn selection(selection: &MessageSelection) -> control::MessageSelection {
    let range =
        |range: &OffsetRange| control::SelectedOffsets { start: range.start.0, end: range.end.0 };
    control::MessageSelection {
        offsets: selection.offsets.iter().map(range).collect(),
        filter: selection.filter.as_ref().map(ToString::to_string).unwrap_or_default(),
        reason: selection.reason.clone().unwrap_or_default(),
        text: selection.text.clone().unwrap_or_default(),
        fair_key: selection.fair_key.clone(),
        since_ms: selection.since.map_or(0, |since| since.0),
        before_ms: selection.before.map_or(0, |before| before.0),
        redrive: selection.redrive.unwrap_or(0),
    }
}

fn edit(edit: &MessageEdit) -> control::MessageEdit {
    let header = |header: &Header| control::EditedHeader {
        name: header.name.clone(),
        kind: header.kind as u32,
        value: header.value.clone(),
    };
    control::MessageEdit {
        replaces_payload: edit.payload.is_some(),
        payload: edit.payload.clone().unwrap_or_default(),
        set_headers: edit.set_headers.iter().map(header).collect(),
        remove_headers: edit.remove_headers.clone(),
    }
}

fn inspected(body: control::Inspected, partition: PartitionIndex) -> Inspected {
    let row = |row: control::CountRow| CountRow {
        name: row.name,
        count: row.count,
        oldest_at: Timestamp(row.oldest_ms),
    };
    Inspected {
        next: body.next.map(Offset),
        examined: body.examined,
        matched: body.matched,
        leased: body.leased,
        damaged: body.damaged,
        messages: body.messages.into_iter().map(|found| message(found, partition)).collect(),
        rows: body.rows.into_iter().map(row).collect(),
        other: body.other,
        partitions: body.partitions,
    }
}

fn message(body: control::InspectedMessage, partition: PartitionIndex) -> InspectedMessage {
    let at = Timestamp(body.until_ms);
    let state = match body.state() {
        State::Ready => MessageState::Ready,
        State::Delayed => MessageState::Delayed(at),
        State::Retrying => MessageState::Retrying(at),
        State::Dead => MessageState::Dead { failed_at: at, reason: body.reason.clone() },
        State::Leased => MessageState::Leased(at),
        State::Unspecified => MessageState::Unknown(body.state),
    };
    let headers = Headers::new(&body.headers).map_while(Result::ok);
    let headers = headers.map(|(name, kind, value)| Header {
        name: name.to_owned(),
        kind,
        value: Bytes::copy_from_slice(value),
    });
    InspectedMessage {
        partition,
        offset: Offset(body.offset),
        appended_at: Timestamp(body.appended_at_ms),
        state,
        failed: body.failed,
        headers: headers.collect(),
        key: body.key,
        payload: body.payload,
        payload_bytes: body.payload_bytes,
    }
}

fn unexpected(reply: &Reply) -> Error {
    Error::Unexpected(format!("{} is not the answer to this request", reply.kind()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_of_a_later_version_is_told_by_its_number() {
        let body = control::InspectedMessage { state: 99, ..<_>::default() };
        assert_eq!(message(body, PartitionIndex(0)).state, MessageState::Unknown(99));
    }
}
