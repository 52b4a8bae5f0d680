//! Where a shard stands with its compaction: the pass that is under way, and what of it waits to be
//! recorded. What is done about it is in `compacting`.

use std::collections::VecDeque;

use sennit_engine::CompactedBatch;
use sennit_model::{Batch, Offset, PartitionId};

/// How far a pass is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The latest of each key are looked up.
    LookingUp,
    /// What is superseded goes.
    Keeping,
    /// All of it is gone, though not all of that is recorded.
    Over,
}

/// A pass that is under way.
#[derive(Clone, Debug)]
pub(crate) struct Pass {
    pub(crate) partition: PartitionId,
    pub(crate) start: Offset,
    pub(crate) until: Offset,
    pub(crate) stage: Stage,
    /// The next step begins here.
    pub(crate) at: Offset,
    /// The step that is being done ends here.
    pub(crate) step_to: Offset,
    pub(crate) has_begun: bool,
    /// Tombstones below this go.
    pub(crate) tombstones_below: Offset,
    pub(crate) keeps_tombstones: bool,
    /// Whether everything was read.
    pub(crate) all_read: bool,
}

impl Pass {
    /// A step got as far as `to`.
    pub(crate) fn came_to(&mut self, to: Offset) {
        self.at = to;
        match self.stage {
            Stage::LookingUp if to < self.step_to || to >= self.until => {
                // The table is full: the rest is for the next pass.
                self.until = to;
                self.at = self.start;
                self.stage = Stage::Keeping;
            }
            Stage::Keeping if to >= self.until => self.stage = Stage::Over,
            _ => {}
        }
    }
}

/// What a shard has of the pass that is under way.
#[derive(Debug, Default)]
pub(crate) struct Compacting {
    pub(crate) pass: Option<Pass>,
    /// Whether a step is being done.
    pub(crate) is_under_way: bool,
    /// Done on disk, and not yet in the state.
    pub(crate) pending: VecDeque<CompactedBatch>,
    /// What is kept of them where the journal is to take it, part by part.
    pub(crate) in_journal: VecDeque<Batch>,
}

impl Compacting {
    pub(crate) fn is_resting(&self) -> bool {
        !self.is_under_way && self.pending.is_empty()
    }
}
