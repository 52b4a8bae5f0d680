//! Decided facts, as the journal keeps them. A kind's number and layout never change once
//! released; a new fact gets a new kind.
//!
//! A record is encoded as a head and, for those that carry messages, the batch behind it as it
//! came: the batch is written once and read from where it lies.

use std::sync::Arc;

use bytes::Bytes;
use sennit_model::{
    Batch, CursorName, GroupId, GroupName, Incarnation, Offset, OffsetRange, PartitionId,
    ProducerStamp, Timestamp, TopicConfig, TopicId, TopicName,
};

use crate::{
    command::{DeadLetters, GroupSetting},
    latest::Tombstones,
    log::Place,
    stream::{StreamNote, StreamSettings},
};

/// One decided fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The catalogue has a new topic.
    TopicCreated(TopicCreated),
    /// A topic has other settings.
    TopicAltered {
        /// Which.
        topic: TopicId,
        /// Its settings now.
        config: TopicConfig,
    },
    /// A topic is gone, and its groups.
    TopicDeleted {
        /// Which.
        topic: TopicId,
    },
    /// A topic has a new group.
    GroupCreated {
        /// The topic.
        topic: TopicId,
        /// The group's name.
        name: GroupName,
        /// The settings that its partitions use.
        setting: GroupSetting,
    },
    /// A group has other settings.
    GroupAltered {
        /// Of which topic.
        topic: TopicId,
        /// Which, and its settings now.
        setting: GroupSetting,
    },
    /// A group is gone.
    GroupDeleted {
        /// Of which topic.
        topic: TopicId,
        /// Which.
        group: GroupId,
    },
    /// A partition is there, with these settings and exactly these groups.
    PartitionOpened {
        /// Which.
        partition: PartitionId,
        /// The topic's settings.
        config: TopicConfig,
        /// The topic of its dead letters.
        dead_letters: DeadLetters,
        /// Its groups.
        groups: Vec<GroupSetting>,
    },
    /// A partition is gone.
    PartitionDropped {
        /// Which.
        partition: PartitionId,
    },
    /// Messages were published.
    Appended {
        /// Where.
        partition: PartitionId,
        /// The first message's offset.
        first: Offset,
        /// When.
        appended_at: Timestamp,
        /// By whom.
        producer: ProducerStamp,
        /// The messages.
        batch: Batch,
        /// The note of the append to a stream.
        note: Option<Box<StreamNote>>,
    },
    /// Messages of a publish were not appended: their deduplication values are those of messages that
    /// were.
    Deduplicated {
        /// Where.
        partition: PartitionId,
        /// By whom they were published.
        producer: ProducerStamp,
        /// How many.
        count: u32,
        /// The offset of the message that the first of them repeats; the others follow.
        first: Offset,
    },
    /// A group is through with messages.
    Settled {
        /// Of which partition.
        partition: PartitionId,
        /// The group.
        group: GroupId,
        /// Why.
        outcome: Outcome,
        /// The messages.
        ranges: Vec<OffsetRange>,
    },
    /// Attempts at messages have failed.
    Failed {
        /// Of which partition.
        partition: PartitionId,
        /// In which group.
        group: GroupId,
        /// When.
        failed_at: Timestamp,
        /// When they are ready again.
        due: Timestamp,
        /// Whether they are to go to the dead-letter topic whatever their attempts.
        dead: bool,
        /// Why, in the consumer's or the broker's words.
        reason: String,
        /// Which messages, with the attempts that have failed so far.
        runs: Vec<(OffsetRange, u32)>,
    },
    /// Parked messages of a dead-letter topic are ready again, as if nobody had tried them.
    Unparked {
        /// Of which partition.
        partition: PartitionId,
        /// In which group.
        group: GroupId,
        /// The messages.
        ranges: Vec<OffsetRange>,
    },
    /// A message was moved to the dead-letter topic: settled here and appended there.
    Buried {
        /// From where.
        source: PartitionId,
        /// For which group.
        group: GroupId,
        /// The message.
        offset: Offset,
        /// To where.
        target: PartitionId,
        /// Its offset there.
        first: Offset,
        /// When.
        appended_at: Timestamp,
        /// The dead letter.
        batch: Batch,
    },
    /// Messages whose publisher had delayed them are not to be delivered: every group is through with them.
    DelaysCancelled {
        /// Of which partition.
        partition: PartitionId,
        /// The messages.
        ranges: Vec<OffsetRange>,
    },
    /// Messages whose publisher had delayed them are due at another time.
    DelaysChanged {
        /// Of which partition.
        partition: PartitionId,
        /// When they are due now.
        due: Timestamp,
        /// The messages.
        ranges: Vec<OffsetRange>,
    },
    /// Messages were published again: settled here and appended there.
    Requeued {
        /// From where.
        source: PartitionId,
        /// For which group.
        group: GroupId,
        /// The messages, as many as the batch has, in its order.
        ranges: Vec<OffsetRange>,
        /// To where.
        target: PartitionId,
        /// The first one's offset there.
        first: Offset,
        /// When.
        appended_at: Timestamp,
        /// The messages as they are there.
        batch: Batch,
    },
    /// Retention freed the oldest messages.
    Trimmed {
        /// Of which partition.
        partition: PartitionId,
        /// The oldest offset kept.
        start: Offset,
    },
    /// Batches lie elsewhere now.
    Moved {
        /// Of which partition.
        partition: PartitionId,
        /// The first offset of each, and its place.
        moves: Vec<(Offset, Place)>,
    },
    /// What was kept of these messages is not there any more, or may not be; offsets go on behind
    /// them.
    Lost {
        /// Of which partition.
        partition: PartitionId,
        /// Which; whole batches of those that are kept.
        range: OffsetRange,
    },
    /// A named cursor is at an offset.
    CursorSet {
        /// Of which partition.
        partition: PartitionId,
        /// Which.
        name: CursorName,
        /// The first offset that whoever reads under its name has not done with.
        offset: Offset,
    },
    /// A named cursor is gone.
    CursorDeleted {
        /// Of which partition.
        partition: PartitionId,
        /// Which.
        name: CursorName,
    },
    /// Offsets below `end` may have been used by messages that a crash has taken.
    Reserved {
        /// Of which partition.
        partition: PartitionId,
        /// The first offset that is not reserved.
        end: Offset,
    },
    /// A partition is there that is a stream.
    StreamOpened(Box<StreamOpened>),
    /// Something was said of a stream, and no message with it.
    StreamNoted {
        /// Of which.
        partition: PartitionId,
        /// When.
        noted_at: Timestamp,
        /// What.
        note: Box<StreamNote>,
    },
    /// A stream has a fork more, or less.
    StreamForked {
        /// The stream.
        partition: PartitionId,
        /// The fork.
        fork: TopicId,
        /// Whether it is there now.
        is_there: bool,
    },
    /// A stream is there for its forks only.
    StreamDeleted {
        /// Which.
        partition: PartitionId,
    },
    /// Messages that later ones of the same key supersede are gone, and tombstones.
    Compacted {
        /// Of which partition.
        partition: PartitionId,
        /// The batches that held them, and what is kept of each.
        batches: Vec<CompactedBatch>,
    },
    /// Messages that later ones of the same key supersede are gone, and tombstones. It names no place, so
    /// that it is the same wherever the batches lie: what stays of a batch lies where it lay.
    Superseded {
        /// Of which partition.
        partition: PartitionId,
        /// The batches that held them, and which messages stay.
        batches: Vec<SupersededBatch>,
    },
    /// Messages that are kept of a batch of which others are to go, written anew. Whether they lie here
    /// now a [`Record::Compacted`] says.
    Kept {
        /// Of which partition.
        partition: PartitionId,
        /// The first one's offset.
        first: Offset,
        /// The time of their append.
        appended_at: Timestamp,
        /// The messages.
        batch: Batch,
    },
    /// A partition was compacted to its end, or nearly.
    Cleaned {
        /// Which.
        partition: PartitionId,
        /// Below this no two messages have the same key.
        end: Offset,
        /// Which tombstones may go, and when.
        tombstones: Option<Tombstones>,
        /// Whether all of it was read: what was not may hold an older message of some key.
        all_read: bool,
    },
    /// A checkpoint begins: a replay may begin here once its end is written.
    CheckpointBegan {
        /// The number of the next topic.
        next_topic: u32,
        /// The number of the next group.
        next_group: u32,
    },
    /// Part of a piece of a checkpoint. The parts of a piece follow each other.
    CheckpointPart {
        /// Whether it is the piece's last.
        ends: bool,
        /// Its bytes; a whole piece is a list of items.
        bytes: Bytes,
    },
    /// The checkpoint that began last is whole.
    CheckpointEnded {
        /// How long its pieces are.
        bytes: u64,
    },
}

/// A batch of which only parts are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactedBatch {
    /// Its first message's offset.
    pub first: Offset,
    /// The number of messages that it held.
    pub count: u32,
    /// What is kept, by offset; each is a batch of its own from now on.
    pub parts: Vec<KeptPart>,
}

/// Neighbouring messages of a batch that are kept, as a batch of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptPart {
    /// The first one's offset.
    pub first: Offset,
    /// The number of messages.
    pub count: u32,
    /// Their place in the journal.
    pub place: Place,
}

/// A batch of which only some runs of messages stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SupersededBatch {
    /// Its first message's offset.
    pub first: Offset,
    /// The number of messages in it.
    pub count: u32,
    /// Its length in bytes.
    pub bytes: u32,
    /// What stays, by offset; each is a batch of its own from now on.
    pub kept: Vec<KeptRun>,
}

/// Neighbouring messages of a batch that stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptRun {
    /// The first one's offset.
    pub first: Offset,
    /// The number of messages.
    pub count: u32,
    /// Where they begin: the number of bytes of the batch before them.
    pub begin: u32,
    /// Their length in bytes.
    pub bytes: u32,
}

/// A topic as the catalogue has it from the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicCreated {
    /// Its number.
    pub topic: TopicId,
    /// Its name.
    pub name: TopicName,
    /// What tells it from others of the same name at other times.
    pub incarnation: Incarnation,
    /// Its settings. Topics with equal settings share one value.
    pub settings: Arc<TopicSettings>,
    /// The topic beside whose partitions its own are placed: its source for a dead-letter topic,
    /// otherwise itself.
    pub home: TopicId,
}

impl TopicCreated {
    /// Its configuration.
    #[must_use]
    pub fn config(&self) -> &TopicConfig {
        &self.settings.config
    }

    /// Whether it was created as a stream; see [`TopicSettings::is_stream`].
    #[must_use]
    pub fn is_stream(&self) -> bool {
        self.settings.is_stream
    }
}

/// The settings of a topic. The catalogue keeps equal ones once, so that a field here costs a topic
/// no memory of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicSettings {
    /// Its configuration. `AlterTopic` replaces it.
    pub config: TopicConfig,
    /// Whether the topic was created as a stream; this never changes. Its partition is opened as a
    /// stream right after the topic is created or, after a crash in between, by the next request
    /// for it. Records that were written before this field existed are read as `false`.
    pub is_stream: bool,
}

/// A stream as it is from the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamOpened {
    /// Its partition.
    pub partition: PartitionId,
    /// When.
    pub opened_at: Timestamp,
    /// The topic's settings.
    pub config: TopicConfig,
    /// The offset of its first message: 0, unless it goes on from another stream.
    pub first: Offset,
    /// Whether it is closed from the start.
    pub closes: bool,
    /// The stream's settings.
    pub settings: StreamSettings,
    /// Its first messages.
    pub batch: Option<Batch>,
}

/// Why a group is through with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A consumer has acked it.
    Acked,
    /// Its time to live is over.
    Expired,
    /// The partition was full, and a later message came.
    Dropped,
    /// A later message had its deduplication value.
    Replaced,
    /// Somebody has taken it out, without a consumer: it was purged, cancelled or moved.
    Cancelled,
}
