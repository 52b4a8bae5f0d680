//! What of topics is the broker's own: what lies below `__ds/` can be read by all, and changed by nobody
//! from outside. It knows no sessions and no streams.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use sennit_model::{TopicId, TopicName};
use sennit_protocol::{ErrorCode, Request, control};

use crate::subscription_request::{RESERVED, is_reserved};

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

/// Why a client's request is not done, if it would change what is the broker's own, or have somebody
/// take its messages or add to them.
pub(crate) fn refusal(request: &Request) -> Option<control::Error> {
    let topic = match request {
        Request::CreateTopic(body) => &body.name,
        Request::AlterTopic(body) => &body.name,
        Request::DeleteTopic(body) => &body.name,
        Request::OpenTopic(body) => &body.name,
        Request::TrimTopic(body) => &body.topic,
        Request::CreateGroup(body) => &body.topic,
        Request::AlterGroup(body) => &body.topic,
        Request::DeleteGroup(body) => &body.topic,
        Request::RetryParked(body) => &body.topic,
        Request::Subscribe(body) => &body.topic,
        _ => return None,
    };
    topic.parse::<TopicName>().is_ok_and(|name| is_reserved(&name)).then(error)
}

/// What a client is told that would change what is the broker's own.
pub(crate) fn error() -> control::Error {
    let message = format!("what is below {RESERVED}/ is the broker's own: it can only be read");
    control::Error::new(ErrorCode::TopicReserved, message)
}
