//! An operation: one call of one client, when it ran, what was asked, and what came of it.

use serde::{Deserialize, Serialize};

/// The name of a message: no two messages of a history have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "(u32, u64)", into = "(u32, u64)")]
pub struct MessageName {
    /// The publisher: one producer as the broker sees it, so another one after each new beginning.
    pub publisher: u32,
    /// The message's number among all of its publisher, from 0, in the order of publishing.
    pub number: u64,
}

impl From<(u32, u64)> for MessageName {
    fn from((publisher, number): (u32, u64)) -> Self {
        Self { publisher, number }
    }
}

impl From<MessageName> for (u32, u64) {
    fn from(name: MessageName) -> Self {
        (name.publisher, name.number)
    }
}

/// A payload as a reader or consumer received it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Content {
    /// The bytes of this message, all of them.
    Message(MessageName),
    /// Other bytes than those of any message; their hash.
    Foreign(u64),
}

/// A call of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// The client that called.
    pub process: u32,
    /// The instant before the call, in nanoseconds of the history's clock.
    pub begun_ns: u64,
    /// The instant after the answer; `None` if no answer came.
    pub ended_ns: Option<u64>,
    /// The call and its outcome.
    #[serde(flatten)]
    pub what: What,
}

/// The call and its outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum What {
    /// A message or a batch was published.
    Published(Published),
    /// A reader began.
    ReadStart(ReadStart),
    /// A reader received messages.
    Read(Read),
    /// A reader was told of a gap.
    Gap(Gap),
    /// The end of a partition was asked for.
    Ended(Ended),
    /// A consumer received messages.
    Delivered(Delivered),
    /// A consumer acked messages and asked for a confirm.
    Settlement(Settlement),
    /// A group said that nothing is left in it.
    Drained {
        /// The group.
        group: u32,
    },
}

/// A message or a batch that was published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    /// The first message; the others have the numbers behind it.
    pub first: MessageName,
    /// How many messages, at least 1. They are appended together or not at all.
    pub count: u32,
    /// The partition that they went to; `None` if that is not known.
    pub partition: Option<u32>,
    /// Whether they may be appended at most once: by an idempotent producer, or at an expected offset.
    pub once: bool,
    /// The offset that the first message had to get, if one was expected.
    pub expected: Option<u64>,
    /// What came of it.
    pub answer: Answer,
}

/// What came of a publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// Confirmed: the first message has this offset, the others follow. `None` if the broker no longer knows.
    Confirmed(Option<u64>),
    /// Refused: nothing was appended.
    Refused,
    /// Refused, because the partition's next offset was this one. Nothing was appended.
    NextIs(u64),
    /// The outcome is unknown.
    Unknown,
}

/// A reader that began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadStart {
    /// The reader: one subscription, by a number that no other reader of the history has.
    pub reader: u32,
    /// The partition.
    pub partition: u32,
    /// The offset that was asked for; `None` for the end.
    pub from: Option<u64>,
    /// The offset that the broker said the reader begins at.
    pub first: u64,
    /// The end of the partition that the broker said.
    pub end: u64,
    /// Whether this reader reads all back once everything has healed: what it finds is the log.
    pub reads_back: bool,
}

/// Messages that a reader received.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Read {
    /// The reader, as in [`ReadStart`].
    pub reader: u32,
    /// The partition.
    pub partition: u32,
    /// The offset of the first message; the others follow.
    pub first: u64,
    /// The messages.
    pub contents: Vec<Content>,
}

/// A gap that a reader was told of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The reader, as in [`ReadStart`].
    pub reader: u32,
    /// The partition.
    pub partition: u32,
    /// The first offset that does not come.
    pub start: u64,
    /// The offset behind the last one.
    pub end: u64,
    /// Whether the topic's retention allows it: then what lay there is not missed.
    pub is_retention: bool,
}

/// The end of a partition, as the broker said it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The partition.
    pub partition: u32,
    /// The offset that the next message gets.
    pub end: u64,
}

/// Messages that a consumer of a group received.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivered {
    /// The consumer: one subscription, by a number that no other consumer of the history has.
    pub consumer: u32,
    /// The group.
    pub group: u32,
    /// The partition.
    pub partition: u32,
    /// The offset of the first message; the others follow.
    pub first: u64,
    /// The messages.
    pub contents: Vec<Content>,
    /// The generation of the broker, or the leader's term.
    pub generation: u64,
    /// Which delivery of these messages it is in their group and generation, from 1.
    pub attempt: u32,
}

/// Messages that a consumer acked, and what the broker said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settlement {
    /// The group.
    pub group: u32,
    /// The partition.
    pub partition: u32,
    /// The offset of the first message.
    pub first: u64,
    /// How many messages.
    pub count: u32,
    /// The generation of the delivery that was acked.
    pub generation: u64,
    /// The attempt of the delivery that was acked.
    pub attempt: u32,
    /// Whether the broker confirmed that all of them are settled. If not, some of them may be.
    pub is_confirmed: bool,
}
