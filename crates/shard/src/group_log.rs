//! The log of a replica as its shard offers it to those who run its group.

use sennit_journal::Position;

use crate::{
    group_record::{Here, Membership},
    labels::Labels,
    replica_log::Replica,
    shard::Shard,
};

impl Shard {
    /// The labels of the entries whose frames the lane holds; `None` if the shard is no replica.
    pub fn labels(&mut self) -> Option<&Labels> {
        // Segments may have come free since the last commit.
        self.writer.release_labels();
        self.writer.log.as_ref().map(|log| &log.labels)
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
