//! The requests to the control of names and settings, in the broker's own types. Each door converts its protocol's
//! requests to these, and the answers back. It knows no protocol.

mod act;
mod answer;
mod lookup;
mod protection;
mod refusal;
mod rights;
mod workbench;

use sennit_engine::{DelayChange, ExplainSubject};
use sennit_model::{
    CursorName, GroupChange, GroupConfig, GroupName, Offset, PartitionIndex, ReadFrom, StartAt,
    Timestamp, TopicConfig, TopicId, TopicName,
};

pub(crate) use self::{
    act::act,
    answer::{
        ConsumerStart, ControlAnswer, CursorPositions, DelayedOfPartition, DelayedPage,
        ExplainedPartition, GroupDescription, ListedGroup, ListedTopic, ParkedRun, ReaderStart,
        TopicDescription, TopicOpened, TopicPage, TopicPlace,
    },
    protection::{check_request, check_topic},
    refusal::{ControlRefusal, STORAGE_FULL_RETRY_MS, TOPIC_FULL_RETRY_MS},
    rights::check_rights,
    workbench::{Inspect, InspectVerb, MeantMessages, PageOfMessages, Rework, ReworkVerb},
};

/// A request about topics, groups and cursors. Each variant says its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ControlRequest {
    /// Creates a topic, beside the partitions of another if one is named, or finds it if it has the same
    /// settings. [`ControlAnswer::Done`].
    CreateTopic { name: TopicName, config: TopicConfig, beside: Option<TopicName> },
    /// Gives a topic these settings instead of all it has. [`ControlAnswer::Done`].
    AlterTopic { name: TopicName, config: TopicConfig },
    /// Deletes a topic, its messages and its groups. [`ControlAnswer::Done`].
    DeleteTopic { name: TopicName },
    /// Describes a topic, its partitions and its groups. [`ControlAnswer::Topic`].
    DescribeTopic { name: TopicName },
    /// Lists topics by name. [`ControlAnswer::Topics`].
    ListTopics(ListTopics),
    /// Finds what a publisher has to know of a topic, and creates a queue of one partition if the topic is
    /// missing and `create_if_missing` is set. [`ControlAnswer::TopicOpened`].
    OpenTopic { name: TopicName, create_if_missing: bool },
    /// Frees the messages before these offsets, as far as whole batches lie before them.
    /// [`ControlAnswer::Done`].
    TrimTopic { topic: TopicName, positions: Vec<PartitionOffset> },
    /// Creates a group, or finds it if it has the same settings. [`ControlAnswer::Done`].
    CreateGroup(CreateGroup),
    /// Changes settings of a group. [`ControlAnswer::Done`].
    AlterGroup(AlterGroup),
    /// Deletes a group. [`ControlAnswer::Done`].
    DeleteGroup { topic: TopicName, group: GroupName },
    /// Lists the groups of a topic by name. [`ControlAnswer::Groups`].
    ListGroups { topic: TopicName },
    /// Describes a group, with its parked messages. [`ControlAnswer::Group`].
    DescribeGroup { topic: TopicName, group: GroupName },
    /// Lists messages that wait because of their publisher's delay. [`ControlAnswer::Delayed`].
    ListDelayed(ListDelayed),
    /// Cancels or changes the delay of messages. [`ControlAnswer::Done`].
    ChangeDelayed(ChangeDelayed),
    /// Explains why a message or a fair key waits. [`ControlAnswer::Explanations`].
    Explain(Explain),
    /// Lists the fair keys of a group with the most ready messages, `most` at most. [`ControlAnswer::FairKeys`].
    ListFairKeys { topic: TopicName, group: GroupName, most: usize },
    /// Shows or counts messages that a group still has. [`ControlAnswer::Inspected`].
    Inspect(Inspect),
    /// Does something to messages that a group still has. [`ControlAnswer::Reworked`].
    Rework(Rework),
    /// Makes parked messages of a group ready again. [`ControlAnswer::Done`].
    RetryParked(RetryParked),
    /// Finds what a consumer has to know to take part in a group. [`ControlAnswer::ConsumerStart`].
    Subscribe(Subscribe),
    /// Finds where a reader begins. [`ControlAnswer::ReaderStart`].
    Read(Read),
    /// Moves a named cursor. [`ControlAnswer::Done`].
    SetCursor(SetCursor),
    /// Deletes a named cursor. [`ControlAnswer::Done`].
    DeleteCursor { topic: TopicName, cursor: CursorName },
    /// Lists the cursors of a topic by name. [`ControlAnswer::Cursors`].
    ListCursors { topic: TopicName },
}

/// A page of the topics, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListTopics {
    /// The page begins behind this text, which need not be a topic's name; empty for the first page.
    pub(crate) after: String,
    /// The most topics on the page; the control's own limit without.
    pub(crate) topics_max: Option<usize>,
}

/// A group to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CreateGroup {
    pub(crate) topic: TopicName,
    pub(crate) group: GroupName,
    pub(crate) config: GroupConfig,
    /// Where it begins in each partition.
    pub(crate) start: StartAt,
}

/// Settings of a group to change. The control checks them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AlterGroup {
    pub(crate) topic: TopicName,
    pub(crate) group: GroupName,
    pub(crate) change: GroupChange,
}

/// Parked messages that are to be delivered again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RetryParked {
    /// A dead-letter topic.
    pub(crate) topic: TopicName,
    pub(crate) group: GroupName,
    /// Which of them; all of them if this is empty.
    pub(crate) offsets: Vec<OffsetsOfPartition>,
}

/// A page of the messages that wait because of their publisher's delay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListDelayed {
    pub(crate) topic: TopicName,
    /// Only this partition is listed; all without.
    pub(crate) partition: Option<PartitionIndex>,
    /// The page begins behind this message; with the first that is due without.
    pub(crate) after: Option<DelayedPosition>,
    /// The most runs on the page.
    pub(crate) most: usize,
}

/// Where a delayed message is in a listing: they are listed by these fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DelayedPosition {
    pub(crate) due: Timestamp,
    pub(crate) partition: PartitionIndex,
    pub(crate) offset: Offset,
}

/// A change of the publisher's delay of messages, of all or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChangeDelayed {
    pub(crate) topic: TopicName,
    pub(crate) partition: PartitionIndex,
    pub(crate) offsets: Vec<Offset>,
    pub(crate) change: DelayChange,
}

/// A message or a fair key that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Explain {
    pub(crate) topic: TopicName,
    pub(crate) group: GroupName,
    /// Only this partition is asked; all without.
    pub(crate) partition: Option<PartitionIndex>,
    pub(crate) subject: ExplainSubject,
}

/// A consumer that wants to take part in a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subscribe {
    pub(crate) topic: TopicName,
    pub(crate) group: GroupName,
    /// Whether to create the group with default settings, at the earliest message, if it is missing.
    pub(crate) create_group_if_missing: bool,
}

/// A reader that wants to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) topic: TopicName,
    /// The number that the topic must have, if the positions are of one certain topic.
    pub(crate) topic_id: Option<TopicId>,
    /// Where it begins in partitions that `positions` does not name.
    pub(crate) from: ReadFrom,
    pub(crate) positions: Vec<PartitionOffset>,
    /// The cursor under which it reads: it begins there, and at `from` where that was never set.
    pub(crate) cursor: Option<CursorName>,
    /// Whether another reader that has the cursor ends; without, this one is refused then.
    pub(crate) take_over: bool,
}

/// A cursor to move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SetCursor {
    pub(crate) topic: TopicName,
    pub(crate) cursor: CursorName,
    /// The first offset that is not done with, of each partition that is named.
    pub(crate) positions: Vec<PartitionOffset>,
    /// The reader of the asking session that commits, which must have the cursor; `None` if it is set by
    /// hand.
    pub(crate) subscription: Option<u32>,
    /// Whether a reader that has the cursor ends when it is set by hand.
    pub(crate) take_over: bool,
}

/// An offset of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartitionOffset {
    pub(crate) partition: PartitionIndex,
    pub(crate) offset: Offset,
}

/// Offsets of one partition, as a client names them: the control checks that `start` is before `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OffsetsOfPartition {
    pub(crate) partition: PartitionIndex,
    /// The first of them.
    pub(crate) start: Offset,
    /// The first behind them.
    pub(crate) end: Offset,
}
