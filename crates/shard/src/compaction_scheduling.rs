//! Schedules the compaction of partitions that keep the latest message of each key, and records its results. The
//! `compactor` does the work; the removal of messages is a record like any other.
//!
//! A pass looks up the latest message of each key in the dirty part, and then goes through the partition from its
//! start. It runs in steps: moves run between them, and a step begins when the results of the last one are
//! committed.

use sennit_engine::{CompactionPass, Place};
use sennit_model::{Batch, Timestamp};

use crate::{
    compaction_state::{CompactionState, Pass, Stage},
    compactor::{CompactionDone, CompactionStep, CompactionWork},
    move_state::MOVES_PER_TURN,
    mover::RetentionClass,
    packs::pack_of,
    shard::Shard,
};

/// Most batches of a step.
const STEP_BATCHES: usize = 65_536;

/// Most bytes that a step reads.
const STEP_BYTES: u64 = 128 << 20;

/// Batches in a shorter pack are copied too, so that passes leave no trail of short packs.
const SHORT_PACK_BYTES: u64 = 8 << 20;

impl Shard {
    /// Returns whether a pass is under way or due. Only who decides compacts.
    #[must_use]
    pub fn needs_compaction(&self) -> bool {
        self.standing.decides()
            && (self.compacting.pass.is_some() || self.engine.next_compaction().is_some())
    }

    /// The next step of a pass, if one is due. Steps run one at a time: the caller answers each
    /// with [`Shard::handle_compaction`] or [`Shard::handle_failed_compaction`] before it takes
    /// another step or a move.
    pub fn next_compaction(&mut self, now: Timestamp) -> Option<CompactionStep> {
        self.moves.was_move = false;
        if !self.decides() || !self.is_resting() {
            return None;
        }
        let pass = match self.compacting.pass.take() {
            Some(pass) if self.engine.goes_on_compacting(pass.partition) => pass,
            // With a step that does nothing: the mover lets go of the keys.
            Some(pass) => Pass { until: pass.at, stage: Stage::Copying, ..pass },
            None => self.begin_pass(now)?,
        };
        let is_in_place = self.compacting.is_in_place;
        let mut batches = Vec::new();
        let (mut to, mut bytes) = (pass.until, 0);
        for kept in self.engine.batches_within(pass.partition, pass.at, pass.until) {
            if batches.len() == STEP_BATCHES || bytes >= STEP_BYTES {
                to = kept.first;
                break;
            }
            bytes += u64::from(kept.place.bytes);
            let is_copied_along = !is_in_place && self.is_in_short_pack(kept.place);
            batches.push((kept, is_copied_along));
        }
        let work = match pass.stage {
            Stage::LookingUp => CompactionWork::LookUp,
            _ => CompactionWork::Keep(pass.tombstones_below),
        };
        let retention_class = RetentionClass::of(self.engine.kept_for(pass.partition));
        let (begins, partition) = (!pass.has_begun, pass.partition);
        let ends = pass.stage == Stage::Copying && to == pass.until;
        self.compacting.pass = Some(Pass { has_begun: true, step_to: to, ..pass });
        self.compacting.is_under_way = true;
        Some(CompactionStep {
            partition,
            retention_class,
            work,
            is_in_place,
            begins,
            ends,
            batches,
            to,
        })
    }

    fn is_in_short_pack(&self, place: Place) -> bool {
        let pack = pack_of(place.position);
        pack.is_some_and(|pack| self.moves.packs.bytes_of(pack) < SHORT_PACK_BYTES)
    }

    fn begin_pass(&mut self, now: Timestamp) -> Option<Pass> {
        while let Some(partition) = self.engine.next_compaction() {
            let Some(scope) = self.engine.begin_compaction(partition, now) else {
                self.engine.put_off_compaction(partition, now);
                continue;
            };
            return Some(Pass {
                partition,
                start: scope.start,
                until: scope.until,
                at: scope.look_up_from,
                stage: Stage::LookingUp,
                step_to: scope.look_up_from,
                has_begun: false,
                tombstones_below: scope.tombstones_below,
                keeps_tombstones: false,
                all_read: true,
            });
        }
        None
    }

    /// Handles the result of a step.
    pub fn handle_compaction(&mut self, done: CompactionDone, now: Timestamp) {
        self.compacting.is_under_way = false;
        let Some(pass) = self.compacting.pass.as_mut().filter(|_| !self.fenced) else { return };
        pass.all_read &= done.unreadable == 0;
        pass.keeps_tombstones |= done.keeps_tombstones;
        pass.advance_to(done.to);
        for pack in done.packs {
            self.moves.packs.add(pack);
        }
        // All at once: a pack must not look empty while its batches are recorded one by one.
        for part in done.batches.iter().flat_map(|batch| &batch.parts) {
            if let Some(pack) = pack_of(part.place.position) {
                assert!(self.moves.packs.contains(part.place), "a kept part lies in no pack");
                self.moves.packs.add_live(pack, part.place.bytes);
            }
        }
        self.compacting.pending.extend(done.batches);
        self.compacting.in_journal.extend(done.in_journal);
        self.compacting.superseded.extend(done.superseded);
        self.record_compaction(now);
        self.finish_turn(now);
    }

    /// Handles a failed step, which ends the pass. The pass is repeated later.
    pub fn handle_failed_compaction(&mut self, now: Timestamp) {
        self.compacting.is_under_way = false;
        if let Some(pass) = self.compacting.pass.take() {
            self.engine.put_off_compaction(pass.partition, now);
        }
    }

    /// Records a part of the pending results, and finally the end of the pass.
    pub(crate) fn record_compaction(&mut self, now: Timestamp) {
        let CompactionState { pass, pending, superseded, in_journal, is_under_way, .. } =
            &mut self.compacting;
        let Some(of) = pass.as_ref().filter(|_| !*is_under_way) else { return };
        let (partition, is_over) = (of.partition, of.stage == Stage::Over);
        let (mut some, mut parts) = (Vec::new(), 0);
        while parts < MOVES_PER_TURN
            && let Some(mut batch) = pending.pop_front()
        {
            parts += 1 + batch.parts.len();
            let lies_nowhere = !in_journal.is_empty();
            let of_batch = if lies_nowhere { batch.parts.len() } else { 0 };
            let kept: Vec<Batch> = in_journal.drain(..of_batch).collect();
            let (engine, writer) = (&mut self.engine, &mut self.writer);
            if !lies_nowhere || engine.keep_parts(partition, &mut batch, &kept, writer) {
                some.push(batch);
            }
        }
        let mut parted = Vec::new();
        while parts < MOVES_PER_TURN
            && let Some(batch) = superseded.pop_front()
        {
            parts += 1 + batch.kept.len();
            parted.push(batch);
        }
        let is_recorded = pending.is_empty() && superseded.is_empty();
        let ended = pass.take_if(|_| is_over && is_recorded);
        if some.is_empty() && parted.is_empty() && ended.is_none() {
            return;
        }
        self.engine.compact(partition, some, &mut self.writer);
        self.engine.supersede(partition, parted, &mut self.writer);
        if let Some(pass) = ended {
            let Pass { until, keeps_tombstones, all_read, .. } = pass;
            let pass = CompactionPass { until, keeps_tombstones, all_read };
            self.engine.compacted_to(partition, pass, now, &mut self.writer);
        }
        self.moves.recorded = self.writer.end();
    }
}
