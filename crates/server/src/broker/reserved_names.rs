//! What of topics is the broker's own: what lies below `__ds/` can be read by all, and changed by nobody
//! from outside. It knows no sessions, no streams and no protocol.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use sennit_model::{TopicId, TopicName};

use super::control_request::{
    AlterGroup, ControlRefusal, ControlRequest, CreateGroup, RetryParked, Subscribe,
};
use crate::subscriptions::request::is_reserved;

/// The number of the topic that the broker itself writes to, once there is one.
#[derive(Debug)]
pub(crate) struct OwnTopic(AtomicU64);

impl Default for OwnTopic {
    fn default() -> Self {
        // No topic has it: their numbers are shorter.
        Self(AtomicU64::new(u64::MAX))
    }
}

impl OwnTopic {
    pub(crate) fn set(&self, topic: TopicId) {
        self.0.store(topic.0.into(), Relaxed);
    }

    pub(crate) fn is(&self, topic: TopicId) -> bool {
        self.0.load(Relaxed) == u64::from(topic.0)
    }
}

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
        ControlRequest::TrimTopic { topic, .. }
        | ControlRequest::CreateGroup(CreateGroup { topic, .. })
        | ControlRequest::AlterGroup(AlterGroup { topic, .. })
        | ControlRequest::DeleteGroup { topic, .. }
        | ControlRequest::RetryParked(RetryParked { topic, .. })
        | ControlRequest::Subscribe(Subscribe { topic, .. }) => check_topic(topic),
        ControlRequest::DescribeTopic { .. }
        | ControlRequest::ListTopics(_)
        | ControlRequest::ListGroups { .. }
        | ControlRequest::DescribeGroup { .. }
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
