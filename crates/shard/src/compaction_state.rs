//! The state of a shard's compaction: the pass under way, and its results that wait to be recorded.

use std::collections::VecDeque;

use sennit_engine::{CompactedBatch, SupersededBatch};
use sennit_model::{Batch, Offset, PartitionId};

/// The stage of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Looking up the latest message of each key.
    LookingUp,
    /// Removing superseded messages.
    Copying,
    /// All steps are done, and their results are being recorded.
    Over,
}

/// A pass that is under way.
#[derive(Clone, Debug)]
pub(crate) struct Pass {
    pub(crate) partition: PartitionId,
    pub(crate) start: Offset,
    pub(crate) until: Offset,
    pub(crate) stage: Stage,
    /// The start of the next step.
    pub(crate) at: Offset,
    /// The end of the step under way.
    pub(crate) step_to: Offset,
    pub(crate) has_begun: bool,
    /// Tombstones below this offset are removed.
    pub(crate) tombstones_below: Offset,
    pub(crate) keeps_tombstones: bool,
    /// Whether everything could be read.
    pub(crate) all_read: bool,
}

impl Pass {
    /// Notes that a step has reached `to`.
    pub(crate) fn advance_to(&mut self, to: Offset) {
        self.at = to;
        match self.stage {
            Stage::LookingUp if to < self.step_to || to >= self.until => {
                // The table is full: the rest is for the next pass.
                self.until = to;
                self.at = self.start;
                self.stage = Stage::Copying;
            }
            Stage::Copying if to >= self.until => self.stage = Stage::Over,
            _ => {}
        }
    }
}

/// The pass under way, and its pending results.
#[derive(Debug, Default)]
pub(crate) struct CompactionState {
    /// Whether passes leave messages where they are, and record what went without a place.
    pub(crate) is_in_place: bool,
    pub(crate) pass: Option<Pass>,
    /// Whether a step is under way.
    pub(crate) is_under_way: bool,
    /// Results that are on disk and not yet in the state.
    pub(crate) pending: VecDeque<CompactedBatch>,
    /// Batches of which only a part stays, and that is not in the state yet.
    pub(crate) superseded: VecDeque<SupersededBatch>,
    /// Their remaining messages that go to the journal, part by part.
    pub(crate) in_journal: VecDeque<Batch>,
}

impl CompactionState {
    pub(crate) fn new(is_in_place: bool) -> Self {
        Self { is_in_place, ..Self::default() }
    }

    /// Drops the pass and its results: the shard does not decide any more. A step under way ends by itself.
    pub(crate) fn abandon(&mut self) {
        self.pass = None;
        self.pending.clear();
        self.superseded.clear();
        self.in_journal.clear();
    }

    pub(crate) fn is_resting(&self) -> bool {
        !self.is_under_way && self.is_recorded()
    }

    /// Whether all results are in the state.
    pub(crate) fn is_recorded(&self) -> bool {
        self.pending.is_empty() && self.superseded.is_empty()
    }
}
