//! The time of a group: that of its newest record, or that of the leader's clock if this is later. So the times of records
//! never go back, whichever replica leads. It knows no clock.

use sennit_model::Timestamp;

use crate::record::Record;

/// The newest time in the records of a shard.
#[derive(Debug, Default)]
pub(crate) struct GroupTime {
    newest: Timestamp,
    /// Whether decisions keep to it. A shard that is alone keeps to its clock.
    is_kept: bool,
}

impl GroupTime {
    /// Decisions keep to it from now on, and to `time`.
    pub(crate) fn keep(&mut self, time: Timestamp) {
        self.raise(time);
        self.is_kept = true;
    }

    pub(crate) fn raise(&mut self, time: Timestamp) {
        self.newest = self.newest.max(time);
    }

    pub(crate) fn newest(&self) -> Timestamp {
        self.newest
    }

    /// The time of a decision when the clock says `now`.
    pub(crate) fn of_decision(&self, now: Timestamp) -> Timestamp {
        if self.is_kept { now.max(self.newest) } else { now }
    }
}

impl Record {
    /// The time at which it was decided, if it says that.
    #[must_use]
    pub fn time(&self) -> Option<Timestamp> {
        match self {
            Self::Appended { appended_at: at, .. }
            | Self::Kept { appended_at: at, .. }
            | Self::Buried { appended_at: at, .. }
            | Self::Requeued { appended_at: at, .. }
            | Self::Failed { failed_at: at, .. }
            | Self::StreamNoted { noted_at: at, .. } => Some(*at),
            Self::StreamOpened(opened) => Some(opened.opened_at),
            Self::TopicCreated(_)
            | Self::TopicAltered { .. }
            | Self::TopicDeleted { .. }
            | Self::GroupCreated { .. }
            | Self::GroupAltered { .. }
            | Self::GroupDeleted { .. }
            | Self::PartitionOpened { .. }
            | Self::PartitionDropped { .. }
            | Self::StreamForked { .. }
            | Self::StreamDeleted { .. }
            | Self::Settled { .. }
            | Self::Unparked { .. }
            | Self::DelaysCancelled { .. }
            | Self::DelaysChanged { .. }
            | Self::Deduplicated { .. }
            | Self::Trimmed { .. }
            | Self::Moved { .. }
            | Self::Compacted { .. }
            | Self::Superseded { .. }
            | Self::Cleaned { .. }
            | Self::Lost { .. }
            | Self::Reserved { .. }
            | Self::CursorSet { .. }
            | Self::CursorDeleted { .. }
            | Self::CheckpointBegan { .. }
            | Self::CheckpointPart { .. }
            | Self::CheckpointEnded { .. } => None,
        }
    }
}
