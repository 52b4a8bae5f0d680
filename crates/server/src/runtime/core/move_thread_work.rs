//! A shard's work for its move thread: emptying segments and packs, compacting, removing; and how it uses the
//! results. The shard decides when work is due.

use sennit_journal::Container;
use sennit_model::Timestamp;
use sennit_shard::{CompactionDone, MoveError, Moved, StoredBatch};

use super::LocalShard;
use crate::runtime::{clock::now, move_thread::MoveMessage};

/// How often it is looked whether something is to be emptied.
const LOOK_MS: u64 = 100;

impl LocalShard {
    /// Answers which of these batches are wanted.
    pub(super) fn are_wanted(&mut self, mut held: Vec<StoredBatch>) {
        self.state.shard_mut().retain_wanted(&mut held);
        self.workers.moves.send(MoveMessage::Wanted(held));
    }

    /// What was to be emptied was copied.
    pub(super) fn moved(&mut self, moved: Moved) {
        let bytes = moved.batches.iter().map(|batch| u64::from(batch.place.bytes)).sum();
        self.metrics.counts.moved_bytes.add(bytes);
        self.state.shard_mut().handle_move(moved, now());
        self.look_at = Timestamp(0);
    }

    /// What was to be emptied could not be.
    pub(super) fn move_failed(&mut self, home: Container, error: &MoveError) {
        self.state.shard_mut().handle_failed_move(home, error, now());
    }

    /// A step of a compaction was done.
    pub(super) fn compacted(&mut self, done: CompactionDone) {
        let parts = done.batches.iter().flat_map(|batch| &batch.parts);
        let bytes = parts.map(|part| u64::from(part.place.bytes)).sum();
        self.metrics.counts.moved_bytes.add(bytes);
        self.state.shard_mut().handle_compaction(done, now());
        self.look_at = Timestamp(0);
    }

    /// One came to nothing.
    pub(super) fn compaction_failed(&mut self) {
        self.state.shard_mut().handle_failed_compaction(now());
    }

    /// Has the oldest segment or a thin pack emptied, if there is reason to, and removes packs; says
    /// when it is to be looked again.
    pub(super) fn empty_something(&mut self) -> Option<Timestamp> {
        let commits = self.state.shard().counters().commits;
        let now = now();
        if now < self.look_at {
            let has_reason =
                commits != self.looked_commits || self.state.shard().needs_compaction();
            let later = self.state.shard().next_move_at().map(|at| at.max(self.look_at));
            return if has_reason { Some(self.look_at) } else { later };
        }
        self.looked_commits = commits;
        self.look_at = Timestamp(now.0 + LOOK_MS);
        if let Some(home) = self.state.shard_mut().next_move(now) {
            let in_hurry = self.state.shard().is_journal_long() || self.cores.reserve.is_short();
            self.workers.moves.send(MoveMessage::Empty(home, in_hurry));
        } else if let Some(step) = self.state.shard_mut().next_compaction(now) {
            self.workers.moves.send(MoveMessage::Compact(step));
        }
        let mut packs = Vec::new();
        self.state.shard_mut().take_released_packs(&mut packs);
        for pack in packs {
            self.workers.reads.forget_pack(pack);
            self.workers.moves.send(MoveMessage::Remove(pack));
        }
        self.state.shard().next_move_at()
    }
}
