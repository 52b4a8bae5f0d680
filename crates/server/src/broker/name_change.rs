//! Changes of names: what is asked of the control where the catalogue is led, in the broker's own types, and what it answers. Rights
//! and quotas are checked before, where the request arrives; so is its act noted there. A change can be asked for again.
//! It knows no link.

mod answer_codec;
mod codec;
mod codec_error;
mod fields;
mod message;
mod refusal_codec;
#[cfg(test)]
mod tests;

use sennit_model::{GroupId, GroupName, TopicConfig, TopicId, TopicName};

pub use self::{codec_error::NameChangeError, message::NameMessage};
pub(crate) use self::{
    message::{AppliedTo, Content},
    refusal_codec::RefusalBytes,
};
use super::{
    control_request::{AlterGroup, ControlRefusal, CreateGroup},
    stream_request::{CreateStream, Created},
};

/// A change of names. Each variant says its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NameChange {
    /// Creates a topic, beside the partitions of another if one is named, or finds it if it has the same settings.
    /// [`NameAnswer::Changed`].
    CreateTopic { name: TopicName, config: TopicConfig, beside: Option<TopicName> },
    /// Creates a topic, or finds it whatever its settings. [`NameAnswer::Changed`].
    FindOrCreateTopic { name: TopicName, config: TopicConfig },
    /// Gives a topic these settings instead of all it has. [`NameAnswer::Changed`].
    AlterTopic { name: TopicName, config: TopicConfig },
    /// Deletes a topic, its messages and its groups. [`NameAnswer::Changed`].
    DeleteTopic { name: TopicName },
    /// Creates a group, or finds it if it has the same settings. [`NameAnswer::Changed`].
    CreateGroup(CreateGroup),
    /// Creates a group with default settings at the earliest message, or finds it whatever its settings.
    /// [`NameAnswer::Changed`].
    FindOrCreateGroup { topic: TopicName, group: GroupName },
    /// Changes settings of a group. [`NameAnswer::Changed`].
    AlterGroup(AlterGroup),
    /// Deletes a group. [`NameAnswer::Changed`].
    DeleteGroup { topic: TopicName, group: GroupName },
    /// Creates the topic for the dead letters of another, unless that is gone. [`NameAnswer::Done`].
    CreateDeadLetterTopic { source: TopicId },
    /// Has a stream be there. [`NameAnswer::Stream`].
    CreateStream(CreateStream),
    /// Deletes a stream; what its forks need of it stays until they are gone. [`NameAnswer::Done`].
    DeleteStream { name: TopicName },
    /// Takes away a stream if its time is over. [`NameAnswer::Done`].
    EndStream { topic: TopicId },
    /// Changes nothing, and waits for the changes of a name that are under way: what is so then can be looked up.
    /// [`NameAnswer::Done`].
    Settle { name: TopicName },
}

/// The answer to a change that was not refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NameAnswer {
    /// The present state, and the one before.
    Changed(Changed),
    /// The stream that is there.
    Stream(Created),
    /// There is nothing to say.
    Done,
}

/// A change that the catalogue has committed, and that the partitions follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Changed {
    pub(crate) topic: TopicId,
    pub(crate) group: Option<GroupId>,
    /// Whether something was created that did not exist before.
    pub(crate) created: bool,
}

impl NameAnswer {
    /// The change.
    ///
    /// # Errors
    /// It is another answer than was asked for.
    pub(crate) fn changed(self) -> Result<Changed, ControlRefusal> {
        match self {
            Self::Changed(changed) => Ok(changed),
            Self::Stream(_) | Self::Done => Err(ControlRefusal::WrongAnswer),
        }
    }
}
