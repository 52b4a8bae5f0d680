//! Protects the broker's own topics: everyone may read topics with reserved names, and no client may change them.
//! It knows no sessions and no protocol.

use sennit_model::TopicName;

use super::{
    AlterGroup, ChangeDelayed, ControlRefusal, ControlRequest, CreateGroup, RetryParked,
    ReworkVerb, Subscribe,
};
use crate::broker::reserved_names::is_reserved;

/// Refuses a request that would change what is the broker's own, have a client take its messages or add
/// to them.
///
/// # Errors
/// The topic that it names is reserved.
pub(crate) fn check_request(request: &ControlRequest) -> Result<(), ControlRefusal> {
    match request {
        ControlRequest::CreateTopic { name, .. }
        | ControlRequest::AlterTopic { name, .. }
        | ControlRequest::DeleteTopic { name }
        | ControlRequest::OpenTopic { name, .. } => check_topic(name),
        ControlRequest::Rework(rework) => {
            let to = match &rework.verb {
                ReworkVerb::Move { to, .. } => Some(to),
                ReworkVerb::Redrive { to, .. } => to.as_ref(),
                ReworkVerb::Cancel | ReworkVerb::Undo => None,
            };
            to.into_iter().chain([&rework.messages.topic]).try_for_each(check_topic)
        }
        ControlRequest::TrimTopic { topic, .. }
        | ControlRequest::CreateGroup(CreateGroup { topic, .. })
        | ControlRequest::AlterGroup(AlterGroup { topic, .. })
        | ControlRequest::DeleteGroup { topic, .. }
        | ControlRequest::RetryParked(RetryParked { topic, .. })
        | ControlRequest::ChangeDelayed(ChangeDelayed { topic, .. })
        | ControlRequest::Subscribe(Subscribe { topic, .. }) => check_topic(topic),
        ControlRequest::DescribeTopic { .. }
        | ControlRequest::ListTopics(_)
        | ControlRequest::ListGroups { .. }
        | ControlRequest::DescribeGroup { .. }
        | ControlRequest::ListDelayed(_)
        | ControlRequest::Explain(_)
        | ControlRequest::Inspect(_)
        | ControlRequest::ListFairKeys { .. }
        | ControlRequest::Read(_)
        | ControlRequest::SetCursor(_)
        | ControlRequest::DeleteCursor { .. }
        | ControlRequest::ListCursors { .. } => Ok(()),
    }
}

/// Refuses a change of a topic that is the broker's own.
///
/// # Errors
/// The topic is reserved.
pub(crate) fn check_topic(name: &TopicName) -> Result<(), ControlRefusal> {
    if is_reserved(name) { Err(ControlRefusal::Reserved) } else { Ok(()) }
}
