//! What becomes of a shard when its lane has written, and when something is committed. Alone both are one.
//!
//! What is written may be read from the disk, is marked as durable in later frames, and needs no memory. What is
//! committed is visible, and its effects go out. Both are needed for a checkpoint to be used and for a batch to be freed.

use sennit_journal::Position;
use sennit_model::Timestamp;

use crate::{
    admission::take_back_refusal, packs::pack_of, shard::Shard, standing::Standing,
    uncommitted::DECIDED_BYTES_MAX,
};

impl Shard {
    /// Handles a commit of a shard that is alone: the lane has synced everything before `end`. The effects that waited
    /// for it go out.
    ///
    /// # Panics
    /// If the shard is in a group, or its lane has not got that.
    pub fn handle_commit(&mut self, end: Position, now: Timestamp) {
        assert_eq!(self.standing, Standing::Alone, "in a group the quorum commits");
        if self.fenced {
            return;
        }
        self.progress.write(end, now);
        self.progress.commit(end, now);
        self.note_written(end);
        self.note_secured();
        self.note_committed(end);
        self.finish_commit(now);
    }

    /// The own lane has synced everything before `end`, in a group.
    ///
    /// # Panics
    /// If the lane has not got that, or had synced more.
    pub fn written(&mut self, end: Position, now: Timestamp) {
        if self.fenced {
            return;
        }
        self.progress.write(end, now);
        self.note_written(end);
        if self.is_usable() {
            self.note_secured();
            self.finish_commit(now);
        }
    }

    /// The quorum has synced everything before `end`, whether the own lane has or not. The effects that waited for it
    /// go out.
    ///
    /// # Panics
    /// If that was not appended, or more was committed before.
    pub fn committed(&mut self, end: Position, now: Timestamp) {
        if self.fenced {
            return;
        }
        assert!(end <= self.writer.end(), "something is committed that is not here");
        self.progress.commit(end, now);
        self.look_at_uncommitted();
        if self.is_usable() {
            self.note_secured();
            self.note_committed(end);
            self.finish_commit(now);
        }
    }

    /// Of the log of a replica in a group only that is committed which a frame says to be.
    pub(crate) fn begin_in_group(&mut self) {
        if let Some(log) = self.writer.log.as_ref().filter(|log| !log.replica.is_alone) {
            let end = self.writer.end_of(log.here.commit).expect("it is a replica");
            self.progress.begin_in_group(end);
        }
    }

    /// Looks whether a leader has to wait for its group. Returns the bytes of its entries that are not known to be
    /// committed; 0 if it is no leader or in no group.
    pub(crate) fn look_at_uncommitted(&mut self) -> u64 {
        let bytes = match self.standing.leads() {
            true => self.writer.uncommitted_bytes(),
            false => 0,
        };
        self.awaits_group = bytes >= DECIDED_BYTES_MAX;
        bytes
    }

    fn note_written(&mut self, end: Position) {
        self.generation_is_written = true;
        self.cache.set_written(end);
        self.writer.handle_written(end);
    }

    /// Uses a checkpoint that is secured, and frees segments.
    fn note_secured(&mut self) {
        if self.is_short() {
            self.writer.segments.forget_fallback();
        }
        if let Some(begin) = self.checkpoints.take_secured(self.progress.secured()) {
            self.writer.set_replay_from(begin);
            self.free_dead_segments();
        } else {
            self.reclaim();
        }
    }

    fn note_committed(&mut self, end: Position) {
        self.counters.commits += 1;
        while let Some(released) = self.waiting.next_committed(end) {
            for mut effect in released {
                take_back_refusal(self.standing, &mut effect);
                self.counters.count_effect(&effect);
                self.effects.push(effect);
            }
        }
        self.engine.committed(end.0);
    }

    fn finish_commit(&mut self, now: Timestamp) {
        self.record_moves();
        self.record_compaction(now);
        self.finish_turn(now);
    }

    /// Frees the batches that nothing can bring back.
    pub(crate) fn give_up_freed(&mut self) {
        let secured = self.progress.secured();
        while let Some((_, place)) = self.freed.pop_front_if(|(end, _)| *end <= secured) {
            match pack_of(place.position) {
                Some(pack) => self.moves.packs.remove_live(pack, place.bytes),
                None => self.writer.segments.remove_live(Position(place.position), place.bytes),
            }
        }
    }

    /// Returns whether the own lane is so far behind what is committed that a leader hands over:
    /// [`LANE_LAG_BYTES_MAX`](crate::LANE_LAG_BYTES_MAX) or [`LANE_LAG_MAX`](crate::LANE_LAG_MAX).
    #[must_use]
    pub fn is_lane_behind(&self, now: Timestamp) -> bool {
        self.progress.is_lane_behind(now)
    }
}
