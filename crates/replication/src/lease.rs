//! The leader's lease: until when it may give (lease messages, say where the end is). It counts from the moment at
//! which something left that a quorum has since acknowledged in the leader's term. Nothing that is confirmed needs it.

use std::collections::VecDeque;

use crate::settings::LEASE_NS;

/// The lease of one term.
#[derive(Default)]
pub(crate) struct Lease {
    /// For entries of this term that are not committed: the last index that had left at an instant.
    entries: VecDeque<(u64, u64)>,
    /// For rounds that are not confirmed: when they left.
    rounds: VecDeque<(u64, u64)>,
    /// When the newest thing left that a quorum has acknowledged.
    acknowledged_ns: Option<u64>,
}

impl Lease {
    /// Entries of this term up to an index have left.
    pub(crate) fn entries_left(&mut self, last: u64, now_ns: u64) {
        self.entries.push_back((last, now_ns));
    }

    /// A round's heartbeats have left.
    pub(crate) fn round_left(&mut self, round: u64, now_ns: u64) {
        self.rounds.push_back((round, now_ns));
    }

    /// The log is committed up to an index.
    pub(crate) fn committed(&mut self, index: u64) {
        while let Some((_, left_ns)) = self.entries.pop_front_if(|(last, _)| *last <= index) {
            self.acknowledged(left_ns);
        }
    }

    /// A quorum has answered a round.
    pub(crate) fn confirmed(&mut self, round: u64) {
        while let Some((_, left_ns)) = self.rounds.pop_front_if(|(number, _)| *number <= round) {
            self.acknowledged(left_ns);
        }
    }

    /// The end of the lease; none before a quorum has acknowledged anything.
    pub(crate) fn until_ns(&self) -> Option<u64> {
        self.acknowledged_ns.map(|left_ns| left_ns.saturating_add(LEASE_NS))
    }

    fn acknowledged(&mut self, left_ns: u64) {
        self.acknowledged_ns = self.acknowledged_ns.max(Some(left_ns));
    }
}
