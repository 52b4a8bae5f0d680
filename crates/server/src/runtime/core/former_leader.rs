//! The leader before, to which commands were sent that it has not answered. It is waited for, but not for long.

use sennit_model::Timestamp;
use sennit_replica::Moment;

/// How long the leader before may take for its answers, in nanoseconds. One that has handed over needs the way of a
/// message; one that is silent is not waited for longer.
const LATE_ANSWERS_NS: u64 = 300_000_000;

/// The leader before.
#[derive(Clone, Copy, Debug)]
pub(super) struct FormerLeader {
    /// The node.
    pub(super) node: u16,
    term: u64,
    lost: Moment,
}

impl FormerLeader {
    /// The node that led in this term until now.
    pub(super) fn new(node: u16, term: u64, now: Moment) -> Self {
        Self { node, term, lost: now }
    }

    /// Whether it is this node, in this term.
    pub(super) fn is(self, node: u16, term: u64) -> bool {
        (self.node, self.term) == (node, term)
    }

    /// When it was lost.
    pub(super) fn lost_at(self) -> Timestamp {
        self.lost.time
    }

    /// Whether it may still answer.
    pub(super) fn may_answer(self, now: Moment) -> bool {
        now.monotonic_ns < self.lost.monotonic_ns + LATE_ANSWERS_NS
    }
}
