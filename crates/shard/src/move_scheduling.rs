//! Schedules moves and records their results. The `mover` does the work; the new place of a batch is a record like
//! any other.

use std::collections::BTreeSet;

use sennit_engine::KeptBatch;
use sennit_journal::{Container, Fault, Position};
use sennit_model::Timestamp;

use crate::{
    move_state::{MOVE_REST, MOVES_PER_TURN, MoveState, UNTIL_RESTART},
    mover::{MoveError, Moved, RetentionClass, StoredBatch},
    packs::{PackSummary, pack_of},
    shard::Shard,
};

/// On a short disk a segment is emptied if at most this fraction of it is live: a half.
const THIN_SEGMENT: u64 = 2;

impl Shard {
    /// The container to empty next, if any: the oldest segment if the journal is long, or the
    /// segment with the least live bytes if the disk is short; otherwise a thin pack. Compactions
    /// alternate with moves. Moves run one at a time: the caller answers each with
    /// [`Shard::handle_move`] or [`Shard::handle_failed_move`] before it takes another.
    pub fn next_move(&mut self, now: Timestamp) -> Option<Container> {
        self.moves.skipped_until.retain(|_, until| now < *until);
        let others_wait = self.moves.was_move && self.needs_compaction() && !self.is_journal_long();
        if self.fenced || !self.is_usable() || !self.is_resting() || others_wait {
            return None;
        }
        let MoveState { packs, skipped_until, journal_segments, .. } = &self.moves;
        let is_skipped = |container| skipped_until.contains_key(&container);
        let (segments, may) =
            (&self.writer.segments, |segment| !is_skipped(Container::Segment(segment)));
        let segment = match self.is_short() {
            // Each comes free, and its pack takes less.
            true => segments.thinnest(segments.segment_bytes() / THIN_SEGMENT, may),
            false => segments.to_empty(*journal_segments, may),
        };
        let container = match segment {
            Some(segment) => Container::Segment(segment),
            None => Container::Pack(packs.thinnest(|pack| !is_skipped(Container::Pack(pack)))?),
        };
        self.moves.under_way = Some(container);
        self.moves.was_move = true;
        Some(container)
    }

    /// Returns whether no move or compaction is under way, and the results of the last one are
    /// secured.
    pub(crate) fn is_resting(&self) -> bool {
        let MoveState { under_way, pending, recorded, .. } = &self.moves;
        let is_still = under_way.is_none() && pending.is_empty() && self.compacting.is_resting();
        is_still && *recorded <= self.progress.secured()
    }

    /// Returns whether the journal is much longer than it should be, because moves have fallen
    /// behind.
    #[must_use]
    pub fn is_journal_long(&self) -> bool {
        self.segment_count() > 2 * self.moves.journal_segments
    }

    /// Leaves of the batches of `held` what is wanted of them, part by part, and sets its class.
    pub fn retain_wanted(&self, held: &mut Vec<StoredBatch>) {
        for stored in std::mem::take(held) {
            let StoredBatch { partition, first, count, place, .. } = stored;
            let kept = self.engine.kept_at(partition, (first, count), place);
            if kept.is_empty() {
                continue;
            }
            let retention_class = RetentionClass::of(self.engine.kept_for(partition));
            held.extend(kept.into_iter().map(|KeptBatch { first, count, place, .. }| {
                StoredBatch { partition, first, count, place, retention_class }
            }));
        }
    }

    /// Handles the result of a move: its copies are the new places of the batches.
    pub fn handle_move(&mut self, moved: Moved, now: Timestamp) {
        let container = self.moves.under_way.take();
        if std::mem::take(&mut self.moves.is_void) || !self.is_usable() {
            moved.packs.iter().for_each(|pack| self.moves.packs.give_up(pack));
            return;
        }
        if self.fenced {
            return;
        }
        if moved.batches.is_empty() {
            // Its batches are freed with a commit, or are not in it: another attempt is in vain.
            self.moves.skipped_until.extend(container.map(|container| (container, UNTIL_RESTART)));
        }
        for pack in moved.packs {
            self.moves.packs.add(pack);
        }
        // All at once: a pack must not look empty while its batches are recorded one by one.
        for batch in &moved.batches {
            assert!(self.moves.packs.contains(batch.place), "a moved batch lies in no pack");
            if let Some(pack) = pack_of(batch.place.position) {
                self.moves.packs.add_live(pack, batch.place.bytes);
            }
        }
        self.moves.pending.extend(moved.batches);
        self.record_moves();
        self.finish_turn(now);
    }

    /// Handles a failed move. The container is skipped for a while if only room was missing,
    /// otherwise until the next start.
    pub fn handle_failed_move(&mut self, container: Container, error: &MoveError, now: Timestamp) {
        self.moves.under_way = None;
        if std::mem::take(&mut self.moves.is_void) {
            return;
        }
        let until = match error {
            MoveError::Journal(Fault::StorageFull { .. }) => now.plus(MOVE_REST),
            _ => UNTIL_RESTART,
        };
        self.moves.skipped_until.insert(container, until);
    }

    /// The time at which to call [`Shard::next_move`] again if nothing else happens.
    #[must_use]
    pub fn next_move_at(&self) -> Option<Timestamp> {
        self.moves.skipped_until.values().copied().min().filter(|&until| until != UNTIL_RESTART)
    }

    /// Records a part of the pending moves.
    pub(crate) fn record_moves(&mut self) {
        let count = self.moves.pending.len().min(MOVES_PER_TURN);
        let mut batches = self.moves.pending.drain(..count).peekable();
        let mut of_partition = Vec::new();
        while let Some(batch) = batches.next() {
            of_partition.push((batch.first, batch.place));
            if batches.peek().is_none_or(|next| next.partition != batch.partition) {
                self.engine.move_batches(batch.partition, &of_partition, &mut self.writer);
                of_partition.clear();
            }
        }
        if count > 0 {
            self.moves.recorded = self.writer.end();
        }
    }

    /// Appends the packs that are no longer needed to `out`; the caller removes their files.
    pub fn take_released_packs(&mut self, out: &mut Vec<u32>) {
        let start = out.len();
        self.moves.packs.take_released(out);
        for &pack in &out[start..] {
            self.moves.skipped_until.remove(&Container::Pack(pack));
            let begin = Position::of_pack(pack, 0);
            self.reads.forget(begin, begin.plus(1 << 32));
        }
    }

    /// The packs to which the state refers.
    #[must_use]
    pub fn packs_in_use(&self) -> BTreeSet<u32> {
        self.moves.packs.numbers().collect()
    }

    /// The packs in use.
    #[must_use]
    pub fn pack_summary(&self) -> PackSummary {
        self.moves.packs.summary()
    }
}
