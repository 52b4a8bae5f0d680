//! The names that a request looks up where it arrives, and does not change: a node of a cluster has to know what is decided of them. A new
//! request does not compile without its row here.

use sennit_model::{GroupName, TopicName};

use super::{
    ChangeDelayed, ControlRequest, Explain, Inspect, ListDelayed, Read, RetryParked, Rework,
    ReworkVerb, SetCursor, Subscribe,
};

impl ControlRequest {
    /// The topics that it looks up, each with the group of it.
    pub(crate) fn looked_up(&self) -> impl Iterator<Item = (&TopicName, Option<&GroupName>)> {
        let (first, second) = match self {
            Self::CreateTopic { .. }
            | Self::AlterTopic { .. }
            | Self::DeleteTopic { .. }
            | Self::ListTopics(_)
            | Self::CreateGroup(_)
            | Self::AlterGroup(_)
            | Self::DeleteGroup { .. } => (None, None),
            Self::DescribeTopic { name: topic }
            | Self::OpenTopic { name: topic, .. }
            | Self::TrimTopic { topic, .. }
            | Self::ListGroups { topic }
            | Self::ListDelayed(ListDelayed { topic, .. })
            | Self::ChangeDelayed(ChangeDelayed { topic, .. })
            | Self::Read(Read { topic, .. })
            | Self::SetCursor(SetCursor { topic, .. })
            | Self::DeleteCursor { topic, .. }
            | Self::ListCursors { topic } => (Some((topic, None)), None),
            Self::DescribeGroup { topic, group }
            | Self::Explain(Explain { topic, group, .. })
            | Self::ListFairKeys { topic, group, .. }
            | Self::RetryParked(RetryParked { topic, group, .. })
            | Self::Subscribe(Subscribe { topic, group, .. }) => (Some((topic, Some(group))), None),
            Self::Inspect(Inspect { messages, .. }) => {
                (Some((&messages.topic, Some(&messages.group))), None)
            }
            Self::Rework(Rework { messages, verb, .. }) => {
                let to = match verb {
                    ReworkVerb::Move { to, .. } => Some(to),
                    ReworkVerb::Redrive { to, .. } => to.as_ref(),
                    ReworkVerb::Cancel | ReworkVerb::Undo => None,
                };
                (Some((&messages.topic, Some(&messages.group))), to.map(|to| (to, None)))
            }
        };
        first.into_iter().chain(second)
    }
}
