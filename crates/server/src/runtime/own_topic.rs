//! The topics to which the broker itself writes, even while clients' publishes are refused.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use sennit_model::TopicId;

/// A stream of the broker's own.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OwnStream {
    Subscriptions,
    Configuration,
    Schedules,
}

/// The numbers of the topics that the broker itself writes to, once there are some.
#[derive(Debug)]
pub(crate) struct OwnTopic([AtomicU64; 3]);

impl Default for OwnTopic {
    fn default() -> Self {
        // No topic has it: their numbers are shorter.
        Self([const { AtomicU64::new(u64::MAX) }; 3])
    }
}

impl OwnTopic {
    pub(crate) fn set(&self, stream: OwnStream, topic: TopicId) {
        self.0[stream as usize].store(topic.0.into(), Relaxed);
    }

    pub(crate) fn is(&self, topic: TopicId) -> bool {
        self.0.iter().any(|own| own.load(Relaxed) == u64::from(topic.0))
    }
}
