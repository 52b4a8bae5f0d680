//! The refusals of commands. A refusal changes nothing.

use std::fmt;

use sennit_model::{
    ConfigError, CursorName, NameError, Offset, PartitionId,
    limits::{self, DEDUP_VALUES_MAX},
};

/// Why a command was refused: what was wrong, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no such topic, or no such partition of it.
    #[error("there is no such topic")]
    UnknownTopic,
    /// The topic is a stream, and closed.
    #[error("the stream is closed: nothing is appended to it any more")]
    StreamClosed,
    /// The topic has no such group.
    #[error("the topic has no such group")]
    UnknownGroup,
    /// A topic or group of that name exists with other settings.
    #[error("{name} exists with {field} {existing}, not {requested}")]
    SettingsDiffer {
        /// The topic's or group's name.
        name: String,
        /// The field that differs.
        field: &'static str,
        /// Its value now.
        existing: String,
        /// The requested value.
        requested: String,
    },
    /// A setting that cannot change after creation.
    #[error("{field} cannot be changed after creation")]
    SettingFixed {
        /// The field.
        field: &'static str,
    },
    /// A setting is out of bounds.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A name is not one.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A batch skips sequences: the messages before it never arrived.
    #[error(
        "the next sequence of this producer here is {expected}, the batch begins with {received}"
    )]
    SequenceGap {
        /// The sequence that would be accepted.
        expected: u64,
        /// The first sequence of the batch.
        received: u64,
    },
    /// A producer of the same id and a higher epoch has published.
    #[error("this producer was fenced: epoch {current} has published, this one is {received}")]
    ProducerFenced {
        /// The epoch in force.
        current: u32,
        /// The epoch of the batch.
        received: u32,
    },
    /// A resent batch does not match what was appended under its sequence.
    #[error(
        "the batch straddles what was already appended: the next sequence is {expected}, it holds {received} and {count} more"
    )]
    SequenceOverlap {
        /// The sequence that would be accepted.
        expected: u64,
        /// The first sequence of the batch.
        received: u64,
        /// The number of messages in the batch.
        count: u32,
    },
    /// The batch was to be appended at another offset than the next.
    #[error("the next offset is {next}, not {expected}")]
    OffsetMismatch {
        /// The offset that was expected.
        expected: Offset,
        /// The one that the next message gets.
        next: Offset,
    },
    /// The topic keeps the latest message of each key, and a message has none.
    #[error("the topic keeps the latest message of each key: every message needs one")]
    KeyMissing,
    /// The partition holds as much as its topic's limit allows.
    #[error("the topic is full: {limit} is {value}, and the partition holds {held}")]
    TopicFull {
        /// The setting that is reached.
        limit: &'static str,
        /// Its value.
        value: u64,
        /// What the partition holds: messages or bytes.
        held: u64,
    },
    /// The partition remembers as many deduplication values as it may.
    #[error(
        "the partition remembers {DEDUP_VALUES_MAX} deduplication values, DEDUP_VALUES_MAX: the oldest \
         have to leave the window first"
    )]
    DedupFull,
    /// The partition has no such message.
    #[error("the partition has no message {offset}: not published, or not kept any more")]
    UnknownMessage {
        /// The offset.
        offset: Offset,
    },
    /// A message is not delayed by its publisher, or not any more.
    #[error("message {offset} is not delayed: {state}")]
    NotDelayed {
        /// Its offset.
        offset: Offset,
        /// What is with it instead.
        state: &'static str,
    },
    /// A delivery that an atomic publish acks cannot be acked.
    #[error("{stale} of {named} messages are settled, were delivered again since, or never")]
    StaleDelivery {
        /// How many of the messages.
        stale: u64,
        /// How many messages the ack names.
        named: u64,
    },
    /// An atomic publish names a partition, or the group of an ack, twice.
    #[error("it is named twice")]
    AtomicRepeated,
    /// Of an atomic publish a part was published before, and another was not.
    #[error("it was published before, and other parts were not")]
    AtomicPartly,
    /// An atomic publish was refused because of one part or ack.
    #[error("nothing was done, because of {item}: {why}")]
    Atomic {
        /// Which.
        item: AtomicItem,
        /// Why.
        why: Box<Refusal>,
    },
    /// A number has reached its limit.
    #[error("limit reached: {limit} is {value}")]
    Limit {
        /// The limit's name as documented.
        limit: &'static str,
        /// Its value.
        value: u64,
    },
    /// Another reader has the cursor.
    #[error("another reader has the cursor {name}")]
    CursorHeld {
        /// The cursor's name.
        name: CursorName,
    },
    /// The reader that sets the cursor does not have it, or has it no more.
    #[error("this reader does not have the cursor {name}, or has it no more")]
    CursorLost {
        /// The cursor's name.
        name: CursorName,
    },
    /// The topic holds no dead letters.
    #[error("the topic is no dead-letter topic: the name of one ends in .dead-letter")]
    NotDeadLetters,
    /// The message that is named is with a consumer.
    #[error("a consumer has the message: it is left alone until the lease ends")]
    MessageLeased,
    /// The disk is full; acks, deletes and reads go on.
    #[error(
        "the disk has no room beside what is kept free for acks and starts: nothing is published until space returns; acks, deletes and reads go on; /readyz says how much is missing"
    )]
    StorageFull,
    /// This replica does not lead the group, and another does. Nothing was done.
    #[error("replica {leader} leads here, not this one")]
    NotLeader {
        /// The id of the replica that leads.
        leader: u64,
    },
    /// This replica does not lead the group, and knows of none that does. Nothing was done.
    #[error("no replica leads here just now")]
    NoLeader,
    /// The journal failed before it said whether the command was committed.
    #[error("the journal failed: whether this was committed is known after the broker restarts")]
    OutcomeUnknown,
}

/// A part or an ack of an atomic publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicItem {
    /// A batch, by its number among the parts, from 0.
    Part {
        /// Its number.
        at: usize,
        /// Its partition.
        partition: PartitionId,
    },
    /// An ack, by its number among the acks, from 0.
    Ack {
        /// Its number.
        at: usize,
        /// Its partition.
        partition: PartitionId,
    },
}

impl AtomicItem {
    pub(crate) fn part(at: usize, partition: PartitionId) -> Self {
        Self::Part { at, partition }
    }

    /// The partition that it is about.
    #[must_use]
    pub fn partition(&self) -> PartitionId {
        match self {
            Self::Part { partition, .. } | Self::Ack { partition, .. } => *partition,
        }
    }
}

impl fmt::Display for AtomicItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Part { at, .. } => write!(f, "part {at}"),
            Self::Ack { at, .. } => write!(f, "ack {at}"),
        }
    }
}

impl Refusal {
    /// The topic limit, reached.
    #[must_use]
    pub fn topics_max() -> Self {
        Self::Limit { limit: "TOPICS_MAX", value: limits::TOPICS_MAX as u64 }
    }

    /// The limit on what topics in memory keep in one shard, reached.
    #[must_use]
    pub fn memory_shard_bytes() -> Self {
        Self::Limit { limit: "MEMORY_SHARD_BYTES", value: limits::MEMORY_SHARD_BYTES }
    }

    /// The limit on cursors per topic, reached.
    #[must_use]
    pub fn cursors_max() -> Self {
        Self::Limit { limit: "CURSORS_PER_TOPIC_MAX", value: limits::CURSORS_PER_TOPIC_MAX as u64 }
    }

    /// The limit on groups per topic, reached.
    #[must_use]
    pub fn groups_max() -> Self {
        Self::Limit { limit: "GROUPS_PER_TOPIC_MAX", value: limits::GROUPS_PER_TOPIC_MAX as u64 }
    }
}
