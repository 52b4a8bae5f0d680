//! What a partition stores, and whether any of it goes by itself: for those who add up what many partitions store. It
//! costs no unfolding.

use sennit_model::{Timestamp, TopicConfig};

use crate::log::Log;

/// What a partition stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// Bytes of all messages that are kept.
    pub bytes: u64,
    /// When the oldest of them is as old as it may get; `None` if it may get as old as it likes.
    pub too_old_at: Option<Timestamp>,
    /// Whether messages go once they are settled.
    pub until_settled: bool,
}

impl Stored {
    pub(crate) fn of(log: &Log, config: &TopicConfig) -> Self {
        let oldest = log.oldest().map(|entry| entry.appended_at);
        Self {
            bytes: log.bytes(),
            too_old_at: config.retention.age.zip(oldest).map(|(age, oldest)| oldest.plus(age)),
            until_settled: config.retention.until_settled && oldest.is_some(),
        }
    }

    /// What both store together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            too_old_at: self.too_old_at.into_iter().chain(other.too_old_at).min(),
            until_settled: self.until_settled || other.until_settled,
        }
    }
}
