//! The log of a replica as its shard offers it to those who run its group.

use sennit_journal::Position;

use crate::{
    group_record::{Here, Membership},
    labels::Labels,
    replica_log::Replica,
    shard::Shard,
};

impl Shard {
    /// The labels of the entries that are known; `None` if the shard is no replica. In a group, labels stay until
    /// [`Shard::release_labels`]; the lane may have let go of the frames of the first ones.
    #[must_use]
    pub fn labels(&self) -> Option<&Labels> {
        self.writer.log.as_ref().map(|log| &log.labels)
    }

    /// Lets the log of a replica in a group begin with the oldest segment that is kept whole, or no later than with the
    /// entry `first`. Returns the index with which it begins; `None` if the shard is no replica.
    pub fn release_labels(&mut self, first: u64) -> Option<u64> {
        self.writer.release_labels(first);
        self.labels().map(Labels::first_index)
    }

    /// Returns whether the lane keeps the body of this entry, and at this position.
    #[must_use]
    pub fn keeps_body(&self, index: u64, position: Position) -> bool {
        let label = self.labels().and_then(|labels| labels.get(index));
        label.is_some_and(|label| {
            let kept_from = self.writer.segments.kept_whole_from();
            label.body.position() == position && label.body.frame >= kept_from
        })
    }

    /// The position before which everything is committed once the entries up to `index` are: frames of the replica's
    /// own behind them count. `None` if the shard is no replica.
    #[must_use]
    pub fn end_of(&self, index: u64) -> Option<Position> {
        self.writer.end_of(index)
    }

    /// The replica that the shard is; `None` if it is none.
    #[must_use]
    pub fn replica(&self) -> Option<Replica> {
        self.writer.log.as_ref().map(|log| log.replica)
    }

    /// What the replica knows of its group: term, vote and commit; `None` if the shard is no replica.
    #[must_use]
    pub fn here(&self) -> Option<Here> {
        self.writer.log.as_ref().map(|log| log.here)
    }

    /// The members of the group as of the commit; `None` if the shard is no replica.
    #[must_use]
    pub fn membership(&self) -> Option<&Membership> {
        self.writer.log.as_ref().map(|log| &log.membership)
    }
}
