//! The effects of a command outside the engine. An effect that promises something waits for the commit of its
//! records; the shard holds it back.

use std::sync::Arc;

use bytes::Bytes;
use sennit_model::{
    CursorName, Durability, Generation, GroupId, Offset, OffsetRange, PartitionId, ProducerId,
    Timestamp, TopicId,
};

use crate::{
    attempts::FailedAttempts,
    command::{DeliveryRun, Origin, SessionId},
    explanation::{Explanation, KeyDescription},
    lease::Holder,
    refusal::Refusal,
    stream::StreamAnswer,
    walk::WalkPage,
};

/// Something to be done in the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Tell a publisher that a batch is committed.
    Confirmed(Confirmed),
    /// Tell a publisher what a batch has done to older messages, before its confirm.
    PublishNoted(PublishNote),
    /// Tell a consumer that its settlement is committed, or that parts of it were stale.
    Settled(Settled),
    /// Tell a consumer that its subscription has begun.
    Subscribed {
        /// The request that it answers.
        origin: Origin,
        /// The subscription's number.
        subscription: u32,
        /// Of which partition.
        partition: PartitionId,
    },
    /// Hand messages to a consumer.
    Deliver(Delivery),
    /// Tell a consumer that its subscription has ended because the topic or group is gone.
    SubscriptionEnded {
        /// Whose.
        session: SessionId,
        /// Which.
        subscription: u32,
        /// Of which partition.
        partition: PartitionId,
    },
    /// Tell a consumer or a reader that nothing more comes on its subscription, because the shard does not lead
    /// any more: it has to ask again.
    SubscriptionInterrupted {
        /// Whose.
        session: SessionId,
        /// Which.
        subscription: u32,
        /// Of which partition.
        partition: PartitionId,
    },
    /// Tell a reader that it has ended because another has its cursor.
    CursorTaken {
        /// Whose.
        session: SessionId,
        /// The subscription.
        subscription: u32,
        /// Of which partition.
        partition: PartitionId,
    },
    /// Tell a reader that it has ended because it has fallen behind and would not wait.
    ReaderTooSlow {
        /// Whose.
        session: SessionId,
        /// The subscription.
        subscription: u32,
        /// Of which partition.
        partition: PartitionId,
    },
    /// Tell a consumer that messages cannot be read, and are passed over.
    Gap {
        /// Whose.
        session: SessionId,
        /// The subscription.
        subscription: u32,
        /// Of which partition.
        partition: PartitionId,
        /// The messages.
        range: OffsetRange,
        /// Why.
        reason: GapReason,
    },
    /// Tell the asker that its change is committed. `topic` and `group` say what it was about.
    Done {
        /// The request that it answers.
        origin: Origin,
        /// The topic.
        topic: TopicId,
        /// The group, where it was about one.
        group: Option<GroupId>,
        /// Whether something was created that was not there before.
        created: bool,
    },
    /// Tell the asker that its batch is committed at the offset that it expected.
    PublishedAt {
        /// The request that it answers.
        origin: Origin,
        /// The offset of its first message.
        first: Offset,
        /// The number of messages in it.
        count: u32,
    },
    /// Tell the publisher that its atomic publish is committed.
    PublishedAtomic {
        /// The request that it answers.
        origin: Origin,
        /// What became of each batch, in the order of the command.
        parts: Box<[AtomicPart]>,
    },
    /// Tell the asker how a partition is.
    Described {
        /// The request that it answers.
        origin: Origin,
        /// The answer.
        description: PartitionDescription,
    },
    /// Tell the asker why a message or a key waits.
    Explained {
        /// The request that it answers.
        origin: Origin,
        /// The answer.
        explanation: Explanation,
    },
    /// Tell the asker which fair keys of a group have the most ready messages.
    Keys {
        /// The request that it answers.
        origin: Origin,
        /// The keys, the one with the most first.
        keys: Vec<KeyDescription>,
    },
    /// Tell the asker which messages wait because of their publisher's delay.
    Delayed {
        /// The request that it answers.
        origin: Origin,
        /// The messages by due time and offset.
        runs: Vec<DelayedRun>,
    },
    /// Tell the asker that delays were cancelled or changed.
    DelaysChanged {
        /// The request that it answers.
        origin: Origin,
        /// The number of messages.
        count: u64,
    },
    /// Tell the asker where one that reads from there would begin.
    Located {
        /// The request that it answers.
        origin: Origin,
        /// The offset of the first message or gap that it would receive.
        first: Offset,
        /// The partition's end: the first offset that is not committed.
        end: Offset,
    },
    /// Tell the asker what a stream answers.
    Stream(Origin, Box<StreamAnswer>),
    /// Have the topic of a stream deleted: its time is over.
    StreamEnded {
        /// Which.
        topic: TopicId,
    },
    /// Tell the asker that parked messages are ready again.
    Unparked {
        /// The request that it answers.
        origin: Origin,
        /// The number of messages.
        count: u64,
    },
    /// Tell the asker what a page of a walk has come to.
    Walked {
        /// The request that it answers.
        origin: Origin,
        /// The page.
        page: Box<WalkPage>,
    },
    /// Tell the asker which cursors a partition has.
    Cursors {
        /// The request that it answers.
        origin: Origin,
        /// Their names, in order, and offsets.
        cursors: Vec<(CursorName, Offset)>,
    },
    /// Tell the asker that its command was refused.
    Refused {
        /// The request that it answers.
        origin: Origin,
        /// Why.
        refusal: Refusal,
    },
    /// Have somebody decide what becomes of messages after a failed attempt, by
    /// [`crate::Command::DecideFailures`].
    AttemptsFailed(Box<FailedAttempts>),
    /// Have the catalogue create the dead-letter topic of `source` unless it is there, open its partition
    /// here, and say what the source and its groups are called ([`crate::PartitionCommand::Name`]).
    DeadLetterTopicNeeded {
        /// The topic whose messages wait for it.
        source: TopicId,
    },
}

impl Effect {
    pub(crate) fn gap(
        Holder { session, subscription }: Holder,
        partition: PartitionId,
        range: OffsetRange,
        reason: GapReason,
    ) -> Self {
        Self::Gap { session, subscription, partition, range, reason }
    }

    pub(crate) fn ended(Holder { session, subscription }: Holder, partition: PartitionId) -> Self {
        Self::SubscriptionEnded { session, subscription, partition }
    }

    pub(crate) fn interrupted(holder: Holder, partition: PartitionId) -> Self {
        let Holder { session, subscription } = holder;
        Self::SubscriptionInterrupted { session, subscription, partition }
    }
}

/// Neighbouring messages that are due at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayedRun {
    /// The messages.
    pub range: OffsetRange,
    /// When they are due.
    pub due: Timestamp,
}

/// Why messages are passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GapReason {
    /// They are kept, and cannot be read.
    Damaged,
    /// What the journal held there is gone. Not every offset need have had a message.
    Lost,
    /// They are kept no more. Only readers receive this.
    Retention,
    /// They were delivered before they were committed, and are not there any more. The range begins
    /// with the first of them, which may lie before what is delivered next.
    RolledBack,
    /// The reader has fallen behind and wants to go on with the newest.
    Skipped,
    /// The reader's filter has passed over them.
    Filtered,
    /// They are kept no more, and nothing is lost with them: of each key there was a later message
    /// when they went, or it was a tombstone whose time was over. Only readers receive this.
    Compacted,
}

/// A batch is committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confirmed {
    /// The producer.
    pub origin: Origin,
    /// The partition.
    pub partition: PartitionId,
    /// Under which producer id.
    pub producer: ProducerId,
    /// The sequence of the batch's first message.
    pub first_sequence: u64,
    /// The number of messages.
    pub count: u32,
    /// The first message's offset; the others follow. `None` for a duplicate so old that its
    /// offset is forgotten.
    pub first_offset: Option<Offset>,
    /// Whether the batch had been appended before.
    pub duplicate: bool,
    /// The durability that it has reached.
    pub durability: Durability,
    /// In a topic that looks for duplicates: its parts, if they are several. They stand for
    /// `first_offset` and `duplicate`, which are those of the first part.
    pub parts: Box<[ConfirmedPart]>,
}

/// A part of a batch that is committed: messages that are adjacent in the partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfirmedPart {
    /// The number of messages.
    pub count: u32,
    /// The offset of the first one.
    pub first_offset: Offset,
    /// Whether they had been published before, and were not appended again.
    pub duplicate: bool,
}

/// A batch of an atomic publish that is committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AtomicPart {
    /// The partition.
    pub partition: PartitionId,
    /// The number of messages in the batch.
    pub count: u32,
    /// The durability that it has reached.
    pub durability: Durability,
    /// Its messages, in their order; none for a duplicate so old that its offset is forgotten.
    pub runs: Box<[ConfirmedPart]>,
    /// How many of the oldest messages were dropped, because the partition was full.
    pub dropped: u64,
    /// How many messages it replaced, because they had its deduplication values.
    pub replaced: u64,
}

/// What a batch has done to older messages of its partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishNote {
    /// The producer.
    pub origin: Origin,
    /// The partition.
    pub partition: PartitionId,
    /// Under which producer id.
    pub producer: ProducerId,
    /// The sequence of the batch's first message.
    pub first_sequence: u64,
    /// How many of the oldest messages were dropped, because the partition was full.
    pub dropped: u64,
    /// How many messages it replaced, because they had its deduplication values.
    pub replaced: u64,
}

/// A settlement is committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// The request that it answers.
    pub origin: Origin,
    /// Of which partition.
    pub partition: PartitionId,
    /// The number of messages that it applied to.
    pub applied: u64,
    /// The runs it did not apply to: settled already, or delivered again since.
    pub stale: Vec<DeliveryRun>,
}

/// Messages of one batch for one consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// For whom.
    pub session: SessionId,
    /// The subscription's number, as the session counts them.
    pub subscription: u32,
    /// Of which partition.
    pub partition: PartitionId,
    /// The first message's offset; the others follow.
    pub first: Offset,
    /// The number of messages.
    pub count: u32,
    /// Which attempt this is for each of them; 0 for a reader.
    pub attempt: u32,
    /// The generation of the shard that delivers.
    pub generation: Generation,
    /// The time of their append.
    pub appended_at: Timestamp,
    /// The durability that they have reached.
    pub durability: Durability,
    /// The messages, in the layout of [`sennit_model::Batch`].
    pub messages: Bytes,
}

/// The state of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionDescription {
    /// The oldest offset kept.
    pub start: Offset,
    /// The offset the next message will get.
    pub end: Offset,
    /// Bytes of the batches kept.
    pub bytes: u64,
    /// Of those, bytes of messages that some group is not through with; without a group, all.
    /// Batches of which a part is settled are shared out by count.
    pub live_bytes: u64,
    /// The rest: kept, though every group is through with it.
    pub dead_bytes: u64,
    /// Messages that some group has found to be unreadable.
    pub damaged: u64,
    /// Offsets whose messages the journal has lost, if they had any.
    pub lost: u64,
    /// The append time of the oldest message kept.
    pub oldest_appended_at: Option<Timestamp>,
    /// Its groups.
    pub groups: Vec<GroupDescription>,
    /// Which of them hold the oldest messages, if others are through with these.
    pub holding: Option<Holding>,
    /// The parked messages of its groups, by group and offset: at most
    /// [`sennit_model::limits::PARKED_SHOWN_MAX`] runs of each group.
    pub parked: Vec<ParkedRun>,
}

/// The groups that hold the oldest messages of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Those whose oldest unsettled message is the oldest of all groups.
    pub groups: Vec<GroupId>,
    /// The append time of that message.
    pub since: Timestamp,
}

/// Messages of a dead-letter topic that failed there together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedRun {
    /// In which group.
    pub group: GroupId,
    /// The messages.
    pub range: OffsetRange,
    /// The number of attempts at each.
    pub attempts: u32,
    /// The time at which the last attempt failed.
    pub failed_at: Timestamp,
    /// Why.
    pub reason: Arc<str>,
}

/// The state of a group in one partition. All counts are of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupDescription {
    /// The group.
    pub group: GroupId,
    /// Waiting for a consumer.
    pub ready: u64,
    /// Held by consumers.
    pub leased: u64,
    /// Waiting for their due time.
    pub delayed: u64,
    /// On their way to the dead-letter topic.
    pub dying: u64,
    /// Failed for good in a dead-letter topic: not delivered until somebody asks for it.
    pub parked: u64,
    /// Found to be unreadable, and passed over.
    pub damaged: u64,
    /// All offsets before this one are settled.
    pub settled_before: Offset,
    /// The number of subscriptions that take part.
    pub consumers: u32,
    /// In a group that keeps the order of the partition: the session that has messages of it.
    pub active: Option<SessionId>,
}
