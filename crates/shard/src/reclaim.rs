//! What a shard does while the disk is full: it frees segments, and writes a checkpoint while there are slots for
//! one. How many slots that takes, `room` says; what a checkpoint holds is the engine's.

use sennit_journal::Position;

use crate::{room::low_slots, shard::Shard};

/// So many segments without live messages make it worth to reclaim them at once when the disk is short: the
/// segment whose header makes them free is one, and a long checkpoint takes more.
const RECLAIM_SEGMENTS: usize = 2;

impl Shard {
    /// Whether the disk has no room: what can come free is to.
    pub(crate) fn is_short(&self) -> bool {
        self.storage_full || self.disk_short
    }

    /// Writes a checkpoint on a short disk, if that frees segments. Everyone waits for the room: all of it at
    /// once.
    pub(crate) fn reclaim(&mut self) {
        let is_idle = !self.checkpoints.is_pending() && !self.writer.says_replay_begins();
        let may = self.is_short() && !self.fenced && is_idle;
        if may && (self.checkpoints.is_under_way() || self.is_to_reclaim()) {
            while !self.write_piece() {}
        }
    }

    /// Whether a checkpoint is to be written because the disk is short. Where little is dead, acks may be all
    /// that comes: what they take of the journal has to come free as they go on, with no more than the
    /// segment of the last checkpoint, the one being written and the next in use.
    fn is_to_reclaim(&self) -> bool {
        let is_full_of_acks = self.writer.segments.dead_count(None) > 0
            && self.writer.is_past_checkpoint()
            && self.writer.since_checkpoint() >= self.checkpoints.last_bytes();
        let is_low = self.is_low() && self.writer.is_past_checkpoint();
        is_low || is_full_of_acks || self.writer.dead_count() >= self.worth_reclaiming()
    }

    /// How many segments have to be free of live messages, so that a checkpoint for them is worth it. Where it
    /// fits the segment in use, the header that makes them free takes the place of the one before: one.
    fn worth_reclaiming(&self) -> usize {
        if self.checkpoint_segments() == 0 { 1 } else { RECLAIM_SEGMENTS }
    }

    /// Whether a full lane has so few slots left that a checkpoint has to be written before anything else.
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

    /// Says whether the disk has no room for another segment: publishes are refused while it is so.
    pub fn set_storage_full(&mut self, full: bool) {
        let was_short = self.is_short();
        self.storage_full = full;
        self.engine.set_storage_full(full);
        self.short_changed(was_short);
    }

    /// Says how many spare slots the lane has now that everything before `written` is.
    pub fn set_spare_slots(&mut self, count: usize, written: Position) {
        self.spare_slots = (count, written);
    }

    /// Says whether a shard of this broker has no room on the disk that all of them share: this one frees what
    /// it can then, and takes publishes all the same.
    pub fn set_disk_short(&mut self, short: bool) {
        let was_short = self.is_short();
        self.disk_short = short;
        self.short_changed(was_short);
    }

    fn short_changed(&mut self, was_short: bool) {
        if was_short == self.is_short() {
            return;
        }
        // What waits for room has a better chance now.
        self.moves.try_again();
        if self.is_short() {
            self.writer.segments.forget_fallback();
            if !self.has_begun {
                // Starts that end before this is whole leave nothing that is needed: the next has the room.
                self.reclaim_at_start();
            } else {
                self.reclaim();
            }
        }
    }

    /// Writes a checkpoint before anything else, if a replay has to read more than the last one.
    fn reclaim_at_start(&mut self) {
        let may = !self.fenced && !self.checkpoints.is_pending();
        if may && self.writer.is_past_checkpoint() {
            while !self.write_piece() {}
        }
    }

    /// A checkpoint is committed: the header of another segment makes those free that hold nothing live.
    pub(crate) fn free_dead_segments(&mut self) {
        let enough = if self.is_low() { 1 } else { self.worth_reclaiming() };
        if self.is_short() && self.writer.dead_count() >= enough {
            self.turn_segment();
            self.writer.checkpoint_ended();
        }
    }
}
