//! The requests of the workbench and their answers: a page of the messages that a group still has. They know no
//! protocol.

use sennit_engine::{CountBy, Edit, Selection, WalkPage};
use sennit_model::{GroupName, Offset, PartitionIndex, TopicName};

/// The messages of one partition that are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MeantMessages {
    pub(crate) topic: TopicName,
    pub(crate) group: GroupName,
    pub(crate) partition: PartitionIndex,
    /// Where the page begins.
    pub(crate) from: Offset,
    pub(crate) selection: Selection,
    /// Most of them on the page.
    pub(crate) matched_max: u64,
}

/// Messages to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inspect {
    pub(crate) messages: MeantMessages,
    pub(crate) verb: InspectVerb,
}

/// A question about messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InspectVerb {
    /// To see them, with so many bytes of each payload.
    Peek { payload_bytes_max: usize },
    /// To count them.
    Count(CountBy),
}

/// Messages to do something to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rework {
    pub(crate) messages: MeantMessages,
    pub(crate) verb: ReworkVerb,
    /// Whether only to say what would be done.
    pub(crate) dry_run: bool,
}

/// What becomes of messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReworkVerb {
    /// Dead letters are published again, where they come from or elsewhere.
    Redrive { to: Option<TopicName>, redrive: u64, edit: Option<Edit> },
    /// The group is through with them.
    Cancel,
    /// They are published again elsewhere.
    Move { to: TopicName, edit: Option<Edit> },
    /// They go back to the dead-letter topic.
    Undo,
}

/// A page of messages, and how many partitions the topic has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PageOfMessages {
    pub(crate) page: WalkPage,
    pub(crate) partitions: u32,
}
