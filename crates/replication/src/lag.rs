//! The lag of the other members, as a leader knows it: how much of its log each has acknowledged.

use raft::StateRole;

use crate::member::Member;

/// Another member, as the leader sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lag {
    /// The member.
    pub replica: u64,
    /// Entries of the leader's log that it has not acknowledged.
    pub entries: u64,
}

impl Member {
    /// The lags of the other members, by their ids; none from a member that does not lead.
    #[must_use]
    pub fn lags(&self) -> Vec<Lag> {
        let raft = &self.node.raft;
        if raft.state != StateRole::Leader {
            return Vec::new();
        }
        let last = raft.raft_log.last_index();
        let others = raft.prs().iter().filter(|(id, _)| **id != self.settings.replica);
        let mut lags: Vec<_> = others
            .map(|(&replica, progress)| Lag {
                replica,
                entries: last.saturating_sub(progress.matched),
            })
            .collect();
        lags.sort_unstable_by_key(|lag| lag.replica);
        lags
    }

    /// Entries of the log that are not committed, as far as this member knows.
    #[must_use]
    pub fn uncommitted(&self) -> u64 {
        let log = &self.node.raft.raft_log;
        log.last_index().saturating_sub(log.committed)
    }
}
