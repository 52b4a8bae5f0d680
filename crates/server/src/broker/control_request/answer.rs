//! The answers of the control of names and settings, in the broker's own types. A door decides how long an answer
//! may be on a connection.

use std::time::Duration;

use sennit_engine::{
    Credit, DelayedRun, Explanation, KeyDescription, PartitionDescription, SessionId,
};
use sennit_model::{
    CursorName, GroupConfig, GroupId, GroupName, Incarnation, Offset, OffsetRange, PartitionId,
    PartitionIndex, Timestamp, TopicConfig, TopicId, TopicName,
};

use super::{DelayedPosition, PartitionOffset, workbench::PageOfMessages};
use crate::runtime::{index::ShardIndex, placement::Placement};

/// The answer to a request that was not refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ControlAnswer {
    /// The change is committed.
    Done {
        topic: TopicId,
        group: Option<GroupId>,
        /// Whether something was created that did not exist before.
        created: bool,
        /// How many messages are ready again.
        messages: u64,
    },
    /// A page of topics.
    Topics(TopicPage),
    /// One topic.
    Topic(TopicDescription),
    /// The groups of a topic, by name.
    Groups(Vec<ListedGroup>),
    /// One group.
    Group(GroupDescription),
    /// A page of delayed messages.
    Delayed(DelayedPage),
    /// Why a message or a fair key waits, by partition.
    Explanations(Vec<ExplainedPartition>),
    /// Fair keys of a group, those with the most ready messages first.
    FairKeys(Vec<KeyDescription>),
    /// Messages that a group still has.
    Inspected(PageOfMessages),
    /// The outcome for messages.
    Reworked(PageOfMessages),
    /// The cursors of a topic, by name.
    Cursors(Vec<CursorPositions>),
    /// What a publisher has to know of a topic.
    TopicOpened(TopicOpened),
    /// What a consumer has to know of its group.
    ConsumerStart(ConsumerStart),
    /// Where a reader begins.
    ReaderStart(ReaderStart),
}

impl ControlAnswer {
    /// Where the topic is, if whoever asked is going to send commands to its partitions.
    pub(crate) fn place(&self) -> Option<TopicPlace> {
        match self {
            Self::TopicOpened(opened) => Some(opened.place),
            Self::ConsumerStart(start) => Some(start.place),
            Self::ReaderStart(start) => Some(start.place),
            _ => None,
        }
    }
}

/// Which shards the partitions of a topic are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TopicPlace {
    pub(crate) topic: TopicId,
    /// The topic beside whose partitions its own are placed: itself, for most.
    pub(crate) home: TopicId,
    /// How many partitions it has.
    pub(crate) partitions: u32,
}

impl TopicPlace {
    /// Its partitions, each with the shard that owns it.
    pub(crate) fn each_partition(
        self,
        placement: &Placement,
    ) -> impl Iterator<Item = (ShardIndex, PartitionId)> {
        (0..self.partitions).map(move |index| self.partition(placement, PartitionIndex(index)))
    }

    /// One of its partitions, with the shard that owns it.
    pub(crate) fn partition(
        self,
        placement: &Placement,
        index: PartitionIndex,
    ) -> (ShardIndex, PartitionId) {
        (placement.shard_of(self.home, index), PartitionId { topic: self.topic, index })
    }

    /// The window of each partition, of one for all: shared out evenly.
    pub(crate) fn share(self, credit: Credit) -> Credit {
        let partitions = self.partitions.max(1);
        let messages = match credit.messages {
            0 => 0,
            messages => (messages / partitions).max(1),
        };
        Credit { messages, bytes: (credit.bytes / u64::from(partitions)).max(1) }
    }
}

/// A page of topics, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TopicPage {
    pub(crate) topics: Vec<ListedTopic>,
    /// The last name on this page, if others follow.
    pub(crate) next_after: Option<TopicName>,
}

/// A topic as a listing shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedTopic {
    pub(crate) name: TopicName,
    pub(crate) id: TopicId,
    pub(crate) config: TopicConfig,
}

/// A group as a listing shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedGroup {
    pub(crate) name: GroupName,
    pub(crate) id: GroupId,
    pub(crate) config: GroupConfig,
}

/// A topic with its partitions and groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TopicDescription {
    pub(crate) name: TopicName,
    pub(crate) id: TopicId,
    pub(crate) incarnation: Incarnation,
    pub(crate) config: TopicConfig,
    /// By index.
    pub(crate) partitions: Vec<PartitionDescription>,
    pub(crate) groups: Vec<GroupDescription>,
}

/// A group in all partitions of its topic. Counts are of messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupDescription {
    pub(crate) name: GroupName,
    pub(crate) id: GroupId,
    pub(crate) topic: TopicName,
    pub(crate) config: GroupConfig,
    /// Waiting for a consumer.
    pub(crate) ready: u64,
    /// Held by consumers.
    pub(crate) leased: u64,
    /// Waiting for their due time.
    pub(crate) delayed: u64,
    /// On their way to the dead-letter topic.
    pub(crate) dying: u64,
    /// Failed for good in a dead-letter topic.
    pub(crate) parked: u64,
    /// The first runs of parked messages, by partition and offset; filled in where one group is described.
    pub(crate) parked_runs: Vec<ParkedRun>,
    /// How many subscriptions take part.
    pub(crate) consumers: u32,
    /// By partition: all offsets before this one are settled.
    pub(crate) settled_before: Vec<Offset>,
    /// By partition, where the group keeps their order: the session that has messages of it.
    pub(crate) active_sessions: Vec<Option<SessionId>>,
    /// When the oldest message was appended that this group holds while other groups have settled it.
    pub(crate) holds_since: Option<Timestamp>,
}

/// Messages of a dead-letter topic that failed together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParkedRun {
    pub(crate) partition: PartitionIndex,
    pub(crate) run: sennit_engine::ParkedRun,
}

/// A page of delayed messages, by due time, partition and offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DelayedPage {
    pub(crate) runs: Vec<DelayedOfPartition>,
    /// The last message of the page, if others follow.
    pub(crate) next_after: Option<DelayedPosition>,
}

/// Neighbouring messages of a partition that are due at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DelayedOfPartition {
    pub(crate) partition: PartitionIndex,
    pub(crate) run: DelayedRun,
}

/// Why a message or a fair key waits in a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExplainedPartition {
    pub(crate) partition: PartitionIndex,
    pub(crate) explanation: Explanation,
}

/// A named cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CursorPositions {
    pub(crate) name: CursorName,
    /// By partition; a partition that is missing was never set.
    pub(crate) positions: Vec<PartitionOffset>,
}

/// What a publisher has to know of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TopicOpened {
    pub(crate) place: TopicPlace,
    pub(crate) incarnation: Incarnation,
}

/// What a consumer has to know of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConsumerStart {
    pub(crate) place: TopicPlace,
    pub(crate) group: GroupId,
    /// How long it may hold a message.
    pub(crate) lease: Duration,
}

/// Where a reader begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReaderStart {
    pub(crate) place: TopicPlace,
    /// By partition: from the first offset that it gets to the end of the partition now.
    pub(crate) ranges: Vec<OffsetRange>,
}
