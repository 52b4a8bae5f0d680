//! The rights that each request needs. A new request does not compile without its row here. It knows no sessions and no
//! protocol.

use sennit_identity::Verb;
use sennit_model::TopicName;

use super::{
    AlterGroup, ChangeDelayed, ControlRefusal, ControlRequest, CreateGroup, Explain, Inspect,
    ListDelayed, Read, RetryParked, Rework, ReworkVerb, SetCursor, Subscribe,
};
use crate::identity::principal::Principal;

/// Checks that a principal may ask this. Nothing is looked up before: the refusal does not tell whether a topic exists.
///
/// # Errors
/// A right is missing.
pub(crate) fn check_rights(
    principal: &Principal,
    request: &ControlRequest,
) -> Result<(), ControlRefusal> {
    let may = |verb, topic: &TopicName| Ok(principal.may(verb, topic.as_str())?);
    match request {
        ControlRequest::CreateTopic { name, beside, .. } => {
            may(Verb::Create, name)?;
            beside.as_ref().map_or(Ok(()), |beside| may(Verb::Describe, beside))
        }
        ControlRequest::AlterTopic { name, .. } => may(Verb::Configure, name),
        ControlRequest::DeleteTopic { name } => may(Verb::Delete, name),
        ControlRequest::TrimTopic { topic, .. } => may(Verb::Delete, topic),
        // The topics that the principal may know are listed.
        ControlRequest::ListTopics(_) => Ok(()),
        // The right to create a topic that is missing is checked where it is found missing.
        // A client that acks in an atomic publish needs the topic's numbers as well.
        ControlRequest::OpenTopic { name, .. } => {
            may(Verb::Settle, name).or_else(|_| may(Verb::Publish, name))
        }
        ControlRequest::CreateGroup(CreateGroup { topic, .. })
        | ControlRequest::AlterGroup(AlterGroup { topic, .. })
        | ControlRequest::DeleteGroup { topic, .. } => may(Verb::Configure, topic),
        ControlRequest::DescribeTopic { name: topic }
        | ControlRequest::ListGroups { topic }
        | ControlRequest::DescribeGroup { topic, .. }
        | ControlRequest::ListCursors { topic } => may(Verb::Describe, topic),
        ControlRequest::ListDelayed(ListDelayed { topic, .. })
        | ControlRequest::Explain(Explain { topic, .. })
        | ControlRequest::ListFairKeys { topic, .. } => may(Verb::Inspect, topic),
        ControlRequest::Inspect(Inspect { messages, .. }) => may(Verb::Inspect, &messages.topic),
        ControlRequest::Rework(Rework { messages, verb, .. }) => {
            may(Verb::Rework, &messages.topic)?;
            let to = match verb {
                ReworkVerb::Move { to, .. } => Some(to),
                ReworkVerb::Redrive { to, .. } => to.as_ref(),
                ReworkVerb::Cancel | ReworkVerb::Undo => None,
            };
            to.map_or(Ok(()), |to| may(Verb::Publish, to))
        }
        ControlRequest::ChangeDelayed(ChangeDelayed { topic, .. })
        | ControlRequest::RetryParked(RetryParked { topic, .. }) => may(Verb::Rework, topic),
        ControlRequest::Subscribe(Subscribe { topic, .. }) => may(Verb::Consume, topic),
        ControlRequest::Read(Read { topic, .. })
        | ControlRequest::SetCursor(SetCursor { topic, .. })
        | ControlRequest::DeleteCursor { topic, .. } => may(Verb::Read, topic),
    }
}
