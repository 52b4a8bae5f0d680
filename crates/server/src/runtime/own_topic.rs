//! The topic to which the broker itself writes, even while clients' publishes are refused.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use sennit_model::TopicId;

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
