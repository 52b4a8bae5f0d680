//! The behaviour of a shard on a full disk: it frees segments, and writes a checkpoint while there are slots for
//! one. `slot_budget` says how many slots that takes.

use sennit_journal::Position;

use crate::{shard::Shard, slot_budget::low_slots};

/// On a short disk this many segments without live messages are worth a checkpoint: the segment
/// whose header frees them takes one, and a long checkpoint takes more.
const RECLAIM_SEGMENTS: usize = 2;

impl Shard {
    /// Returns whether the disk has no room, so that the shard has to free segments.
    pub(crate) fn is_short(&self) -> bool {
        self.storage_full || self.disk_short
    }

    /// Writes a checkpoint on a short disk, if that frees segments. It writes all of it at once,
    /// because everything waits for the room.
    pub(crate) fn reclaim(&mut self) {
        let is_idle = !self.checkpoints.is_pending() && !self.writer.has_announced_replay();
        let may = self.is_short() && self.may_checkpoint() && is_idle;
        if may && (self.checkpoints.is_under_way() || self.is_to_reclaim()) {
            while !self.write_piece() {}
        }
    }

    /// Returns whether a checkpoint may be written: its state is not poisoned.
    pub(crate) fn may_checkpoint(&self) -> bool {
        !self.fenced && self.is_usable()
    }

    /// Returns whether to write a checkpoint because the disk is short. If there are few dead
    /// segments, perhaps only acks come: their segments have to come free, with no more in use than
    /// the segment of the last checkpoint, the one being written and the next.
    fn is_to_reclaim(&self) -> bool {
        let is_full_of_acks = self.writer.segments.dead_count(None) > 0
            && self.writer.is_past_checkpoint()
            && self.writer.since_checkpoint() >= self.checkpoints.last_bytes();
        let is_low = self.is_low() && self.writer.is_past_checkpoint();
        is_low || is_full_of_acks || self.writer.dead_count() >= self.worth_reclaiming()
    }

    /// The number of dead segments for which a checkpoint is worthwhile. If it fits into the
    /// current segment, the header that frees them takes the place of the one before: one.
    fn worth_reclaiming(&self) -> usize {
        if self.checkpoint_segments() == 0 { 1 } else { RECLAIM_SEGMENTS }
    }

    /// Returns whether a full lane has so few slots that it has to write a checkpoint first.
    pub(crate) fn is_low(&self) -> bool {
        if !self.storage_full {
            return false;
        }
        let (spare, written) = self.spare_slots;
        let segments = &self.writer.segments;
        let taken = segments.of(self.writer.end()).saturating_sub(segments.of(written));
        let left = (spare as u64).saturating_sub(taken);
        left <= low_slots(self.checkpoint_segments())
    }

    /// Sets whether the disk has no room for another segment. Publishes are refused while it is
    /// set.
    pub fn set_storage_full(&mut self, full: bool) {
        let was_short = self.is_short();
        self.storage_full = full;
        self.engine.set_storage_full(full);
        self.short_changed(was_short);
    }

    /// Returns whether the disk has no room for another segment.
    #[must_use]
    pub fn is_storage_full(&self) -> bool {
        self.storage_full
    }

    /// Sets whether fewer than a quorum of the group have room: then a leader refuses publishes.
    pub fn set_group_full(&mut self, full: bool) {
        self.group_full = full;
    }

    /// Returns whether a follower takes entries from its leader. On a full disk it takes them as long as it has slots
    /// enough for a checkpoint, which may free others; then it falls behind.
    #[must_use]
    pub fn takes_entries(&self) -> bool {
        !self.is_low()
    }

    /// Sets the number of spare slots that the lane has after everything before `written` is
    /// written.
    pub fn set_spare_slots(&mut self, count: usize, written: Position) {
        self.spare_slots = (count, written);
    }

    /// Sets whether another shard of this broker has no room on the shared disk. This shard then
    /// frees segments, and still accepts publishes.
    pub fn set_disk_short(&mut self, short: bool) {
        let was_short = self.is_short();
        self.disk_short = short;
        self.short_changed(was_short);
    }

    fn short_changed(&mut self, was_short: bool) {
        if was_short == self.is_short() {
            return;
        }
        // Moves that wait for room have a better chance now.
        self.moves.try_again();
        if self.is_short() {
            self.writer.segments.forget_fallback();
            if !self.generation_is_written {
                // Starts that end before this is whole leave nothing that is needed: the next has the room.
                self.reclaim_at_start();
            } else {
                self.reclaim();
            }
        }
    }

    /// Writes a checkpoint first, if a replay has to read more than the last one.
    fn reclaim_at_start(&mut self) {
        let may = self.may_checkpoint() && !self.checkpoints.is_pending();
        if may && self.writer.is_past_checkpoint() {
            while !self.write_piece() {}
        }
    }

    /// After a checkpoint is secured: begins another segment, whose header frees those without
    /// live messages.
    pub(crate) fn free_dead_segments(&mut self) {
        let enough = if self.is_low() { 1 } else { self.worth_reclaiming() };
        if self.is_short() && self.writer.dead_count() >= enough {
            self.start_segment();
            self.writer.set_checkpoint_end();
        }
    }
}
