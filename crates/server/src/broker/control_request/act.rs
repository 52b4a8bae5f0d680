//! The administrative acts among the requests: their names in the audit. A new request does not compile without its row.

use super::{
    AlterGroup, ChangeDelayed, ControlRequest, CreateGroup, RetryParked, Rework, ReworkVerb,
    SetCursor,
};

/// The name of an act, and what it is done to. `None` for a request that changes nothing, and for one that publishes, consumes
/// or reads.
pub(crate) fn act(request: &ControlRequest) -> Option<(&'static str, String)> {
    Some(match request {
        ControlRequest::CreateTopic { name, .. } => ("topic create", name.to_string()),
        ControlRequest::AlterTopic { name, .. } => ("topic alter", name.to_string()),
        ControlRequest::DeleteTopic { name } => ("topic delete", name.to_string()),
        ControlRequest::TrimTopic { topic, .. } => ("topic trim", topic.to_string()),
        ControlRequest::CreateGroup(CreateGroup { topic, group, .. }) => {
            ("group create", format!("{topic} {group}"))
        }
        ControlRequest::AlterGroup(AlterGroup { topic, group, .. }) => {
            ("group alter", format!("{topic} {group}"))
        }
        ControlRequest::DeleteGroup { topic, group } => {
            ("group delete", format!("{topic} {group}"))
        }
        ControlRequest::RetryParked(RetryParked { topic, group, .. }) => {
            ("group retry", format!("{topic} {group}"))
        }
        ControlRequest::ChangeDelayed(ChangeDelayed { topic, .. }) => {
            ("delayed change", topic.to_string())
        }
        ControlRequest::Rework(Rework { dry_run: true, .. }) => return None,
        ControlRequest::Rework(Rework { messages, verb, .. }) => {
            let act = match verb {
                ReworkVerb::Redrive { .. } => "messages redrive",
                ReworkVerb::Cancel => "messages cancel",
                ReworkVerb::Move { .. } => "messages move",
                ReworkVerb::Undo => "messages undo",
            };
            (act, format!("{} {}", messages.topic, messages.group))
        }
        ControlRequest::Inspect(inspect) => {
            // The payloads of others are read.
            ("messages inspect", format!("{} {}", inspect.messages.topic, inspect.messages.group))
        }
        // A reader's commits are no acts.
        ControlRequest::SetCursor(SetCursor { subscription: Some(_), .. }) => return None,
        ControlRequest::SetCursor(SetCursor { topic, cursor, .. }) => {
            ("cursor set", format!("{topic} {cursor}"))
        }
        ControlRequest::DeleteCursor { topic, cursor } => {
            ("cursor delete", format!("{topic} {cursor}"))
        }
        ControlRequest::DescribeTopic { .. }
        | ControlRequest::ListTopics(_)
        | ControlRequest::OpenTopic { .. }
        | ControlRequest::ListGroups { .. }
        | ControlRequest::DescribeGroup { .. }
        | ControlRequest::ListDelayed(_)
        | ControlRequest::Explain(_)
        | ControlRequest::ListFairKeys { .. }
        | ControlRequest::Subscribe(_)
        | ControlRequest::Read(_)
        | ControlRequest::ListCursors { .. } => return None,
    })
}
