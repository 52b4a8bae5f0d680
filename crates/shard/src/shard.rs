//! The shard: takes commands, time, commits and reads, and returns effects, frames, fetches and released segments.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use sennit_engine::{
    Catalogue, CatalogueNews, Command, Effect, Engine, Findings, GroupCounts, Outbox, Place,
    Stored, Throttles,
};
use sennit_journal::{Container, Frame, Position};
use sennit_model::{Offset, PartitionId, Timestamp};

use crate::{
    admission::{Admission, Gate, take_back_refusal},
    checkpoint::{Checkpoints, SHORT_SEGMENTS_MAX},
    compaction_state::CompactionState,
    counters::Counters,
    move_state::MoveState,
    progress::Progress,
    read_cache::{Fetch, ReadCache},
    readable_batches::ReadableBatches,
    standing::Standing,
    tail_cache::TailCache,
    waiting_effects::WaitingEffects,
    writer::Writer,
};

/// Time without a commit after which a frame with only the durable mark is written. It allows
/// recovery to distinguish damage to the last records from a torn write.
const MARK_AFTER: Duration = Duration::from_millis(50);

/// In a turn a checkpoint gets this fraction of the bytes of everything else, an eighth, and at
/// least a piece.
const PACE: u64 = 8;

/// One shard: a state machine that one thread owns.
#[derive(Debug)]
pub struct Shard {
    pub(crate) engine: Engine,
    pub(crate) writer: Writer,
    pub(crate) cache: TailCache,
    pub(crate) reads: ReadCache,
    pub(crate) moves: MoveState,
    pub(crate) compacting: CompactionState,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) progress: Progress,
    pub(crate) standing: Standing,
    /// The number of records that a later frame marks as durable.
    marked_records: u64,
    pub(crate) waiting: WaitingEffects,
    /// Batches that are freed once everything before this position is written and committed; until then
    /// a crash or another leader may bring them back.
    pub(crate) freed: VecDeque<(Position, Place)>,
    pub(crate) effects: Vec<Effect>,
    pub(crate) outbox: Outbox,
    /// The number of spare slots that the lane has after everything before this position is
    /// written.
    pub(crate) spare_slots: (usize, Position),
    pub(crate) storage_full: bool,
    pub(crate) group_full: bool,
    pub(crate) disk_short: bool,
    pub(crate) fenced: bool,
    /// Whether so much of a leader's log is not committed that it decides nothing before its group has committed some.
    pub(crate) awaits_group: bool,
    /// Where a batch lies that could not be read, in a group.
    pub(crate) damage: Option<Position>,
    /// Whether a record of this generation is written. Until then a shard that is alone delivers nothing:
    /// if a start wrote nothing, the next start would reuse its generation.
    pub(crate) generation_is_written: bool,
    pub(crate) counters: Counters,
}

impl Shard {
    pub(crate) fn new(
        engine: Engine,
        mut writer: Writer,
        committed: Position,
        cache: TailCache,
        (moves, compacting): (MoveState, CompactionState),
        checkpoints: Checkpoints,
        now: Timestamp,
    ) -> Self {
        writer.seal_mark();
        Self {
            engine,
            writer,
            cache,
            reads: ReadCache::default(),
            moves,
            compacting,
            checkpoints,
            progress: Progress::new(committed, now),
            standing: Standing::Alone,
            marked_records: 0,
            waiting: WaitingEffects::default(),
            freed: VecDeque::new(),
            effects: Vec::new(),
            outbox: Outbox::default(),
            spare_slots: (usize::MAX, committed),
            storage_full: false,
            group_full: false,
            disk_short: false,
            fenced: false,
            awaits_group: false,
            damage: None,
            generation_is_written: false,
            counters: Counters::default(),
        }
    }

    /// Executes commands in order, and delivers the messages that became ready.
    pub fn handle(&mut self, commands: &mut Vec<Command>, now: Timestamp) {
        let Self { standing, fenced, .. } = *self;
        let storage_full = self.storage_full || self.group_full;
        let gate = Gate { standing, fenced, storage_full };
        let uncommitted = self.look_at_uncommitted();
        let begin = self.writer.end();
        for command in commands.drain(..) {
            let appended = self.writer.end().0 - begin.0;
            match gate.admission(&command, uncommitted + appended) {
                Admission::Admitted => {
                    let told = self.outbox.now.len();
                    self.engine.handle(command, now, &mut self.writer, &mut self.outbox);
                    gate.take_back(&mut self.outbox.now[told..]);
                }
                Admission::Refused(origin, refusal) => {
                    self.outbox.now.push(Effect::Refused { origin, refusal });
                }
                Admission::Ignored => {}
            }
        }
        self.engine.end_turn(&mut self.writer);
        self.look_at_uncommitted();
        self.finish_turn(now);
    }

    /// Runs the timers that are due, and writes the durable mark of an idle lane.
    pub fn advance(&mut self, now: Timestamp) {
        if self.fenced {
            return;
        }
        self.look_at_uncommitted();
        if self.decides() && self.engine.next_timer().is_some_and(|due| due <= now) {
            self.engine.advance(now, &mut self.writer);
        }
        if self.needs_mark() && now >= self.progress.written_at().plus(MARK_AFTER) {
            self.writer.seal_mark();
            self.marked_records = self.writer.record_count;
        }
        self.finish_turn(now);
    }

    /// Folds partitions, one of `parts` parts per call: those that were not changed for a round are
    /// folded until they are used again.
    pub fn fold_untouched(&mut self, parts: u32) {
        self.engine.fold_untouched(parts);
    }

    /// Continues a survey of all partitions, one of `parts` parts per call; returns the findings at
    /// the end of a round.
    pub fn survey(&mut self, parts: u32) -> Option<Findings> {
        self.engine.survey(parts)
    }

    /// What a partition stores; nothing if it is not there.
    pub fn stored(&self, partition: PartitionId) -> Stored {
        self.engine.stored(partition)
    }

    /// What went wrong or was held back, of all groups together.
    pub fn group_counts(&self) -> GroupCounts {
        self.engine.group_counts()
    }

    fn needs_mark(&self) -> bool {
        self.marked_records < self.writer.record_count
            && self.progress.written() == self.writer.end()
    }

    /// The time at which [`Shard::advance`] has work next, if nothing else happens.
    #[must_use]
    pub fn next_wake(&self) -> Option<Timestamp> {
        if self.fenced {
            return None;
        }
        let mark = self.needs_mark().then(|| self.progress.written_at().plus(MARK_AFTER));
        // Filters that have more to look at than a turn allows go on at once.
        let more = (self.engine.has_ready_partitions() && self.delivers()).then_some(Timestamp(0));
        let timer = self.engine.next_timer().filter(|_| self.decides());
        timer.into_iter().chain(mark).chain(more).min()
    }

    /// Delivers messages, and separates effects that may go out from those that wait for the
    /// commit.
    pub(crate) fn finish_turn(&mut self, now: Timestamp) {
        if self.engine.has_ready_partitions() && self.delivers() {
            let memory_batches = std::mem::take(&mut self.writer.memory_batches);
            // Alone nothing is visible that the lane has not written.
            let is_alone = self.standing == Standing::Alone;
            let sealed = if is_alone { Vec::new() } else { self.writer.sealed.clone() };
            let mut batches = ReadableBatches {
                memory_batches: &memory_batches,
                cache: &self.cache,
                sealed: &sealed,
                reads: &mut self.reads,
                packs: &self.moves.packs,
                segment_bytes: self.writer.segments.segment_bytes(),
                written: self.progress.written(),
                damaged: Vec::new(),
            };
            loop {
                self.engine.deliver(now, &mut self.writer, &mut batches, &mut self.outbox);
                if batches.damaged.is_empty() || !is_alone {
                    break;
                }
                for (partition, place) in batches.damaged.drain(..) {
                    let is_kept = self.engine.damaged(partition, place, &mut self.outbox);
                    self.counters.damaged_batches += u64::from(is_kept);
                }
            }
            let damaged = batches.damaged;
            // To deliver appends nothing that is wanted at once, and frees nothing.
            self.writer.memory_batches = memory_batches;
            for (partition, place) in damaged {
                self.note_damage(partition, place);
            }
        }
        let (end, is_usable) = (self.writer.end(), self.is_usable());
        let memory_batches = &mut self.writer.memory_batches;
        let in_journal =
            self.engine.take_freed().filter(|place| !memory_batches.free(place.position));
        let in_journal = in_journal.filter(|_| is_usable);
        self.freed.extend(in_journal.map(|place| (end, place)));
        self.give_up_freed();
        self.outbox.now.iter().for_each(|effect| self.counters.count_effect(effect));
        self.effects.append(&mut self.outbox.now);
        if self.outbox.after_commit.is_empty() {
            return;
        }
        if end <= self.progress.committed() {
            let refusals = self.outbox.after_commit.iter_mut();
            refusals.for_each(|effect| take_back_refusal(self.standing, effect));
            self.outbox.after_commit.iter().for_each(|effect| self.counters.count_effect(effect));
            self.effects.append(&mut self.outbox.after_commit);
            return;
        }
        self.waiting.add(end, &mut self.outbox.after_commit);
    }

    /// The effects that go out now. The caller drains them after each call that changes the shard.
    pub fn effects(&mut self) -> &mut Vec<Effect> {
        &mut self.effects
    }

    /// Returns whether the lane has frames to write.
    #[must_use]
    pub fn has_frames(&self) -> bool {
        let writes_checkpoint = self.checkpoints.is_under_way() || self.checkpoints.is_requested();
        let writes_checkpoint = writes_checkpoint && self.may_checkpoint();
        !self.fenced && (self.writer.has_gathered() || writes_checkpoint)
    }

    /// Requests a checkpoint with the next frames, however little was journaled since the last, so
    /// that the start after a stop is short.
    pub fn checkpoint_soon(&mut self) {
        self.checkpoints.request();
    }

    /// Gives up a batch that cannot be read; returns the number of its messages.
    pub fn give_up(&mut self, partition: PartitionId, first: Offset) -> u64 {
        self.engine.give_up(partition, first, &mut self.writer)
    }

    /// Begins another segment, whose header announces the start of a replay.
    pub fn start_segment(&mut self) {
        self.writer.start_segment();
        self.writer.seal_mark();
    }

    /// Gives up the fallback for a damaged checkpoint.
    pub fn forget_fallback(&mut self) {
        self.writer.segments.forget_fallback();
    }

    /// Bytes that were journaled since the last checkpoint. In a group the unused ends of segments do not count, up to
    /// [`SHORT_SEGMENTS_MAX`].
    fn journaled_since_checkpoint(&self) -> u64 {
        let since = self.writer.since_checkpoint();
        let is_in_group = self.writer.log.as_ref().is_some_and(|log| !log.replica.is_alone);
        match is_in_group && since < SHORT_SEGMENTS_MAX * self.writer.segments.segment_bytes() {
            true => self.writer.since_checkpoint_bytes.min(since),
            false => since,
        }
    }

    /// Seals the gathered records and appends the frames to `out`. The lane writes these next, in
    /// order.
    pub fn take_frames(&mut self, out: &mut Vec<Frame>) {
        if self.fenced {
            return;
        }
        if self.is_low() {
            self.reclaim();
        }
        // A piece a turn: nobody waits for more of it than that. A turn that writes much waits for
        // a few, so that the end comes before as much is journaled as a replay may take.
        let is_due = self.checkpoints.is_due(self.journaled_since_checkpoint());
        if (self.checkpoints.is_under_way() || is_due) && self.may_checkpoint() {
            let piece_bytes = self.checkpoints.piece_bytes() as u64;
            let pieces = 1 + self.gathered_bytes() / (PACE * piece_bytes);
            for _ in 0..pieces {
                if self.write_piece() {
                    break;
                }
            }
        }
        for frame in self.writer.take_sealed() {
            self.cache.push(frame.clone());
            out.push(frame);
        }
        self.progress.taken = self.writer.end();
    }

    /// Writes a piece of a checkpoint; returns whether it is complete.
    pub(crate) fn write_piece(&mut self) -> bool {
        let is_whole = self.checkpoints.step(&self.engine, &mut self.writer);
        self.counters.checkpoints += u64::from(is_whole);
        is_whole
    }

    /// Handles a failed lane: nothing more is written. All open and later requests learn that the
    /// outcome is unknown.
    pub fn fence(&mut self) {
        self.fenced = true;
        self.give_up_waiting();
        self.engine.roll_back(&mut self.outbox);
        self.effects.append(&mut self.outbox.now);
    }

    /// Ends publishing: gives back reserved offsets, so that the next start has no gap.
    pub fn stop(&mut self) {
        if self.decides() {
            self.engine.give_back_reserved(&mut self.writer);
        }
    }

    /// Returns whether a caller waits for a commit that the lane has not taken.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.waiting.waits_behind(self.progress.taken)
    }

    /// Appends the reads to `out`; the caller answers each with [`Shard::handle_fetch`].
    pub fn take_fetches(&mut self, out: &mut Vec<Fetch>) {
        self.reads.take_wanted(out);
    }

    /// Handles a read; `None` if it failed. A failed read is repeated once; then its batches count
    /// as damaged.
    pub fn handle_fetch(&mut self, fetch: Fetch, bytes: Option<Bytes>, now: Timestamp) {
        let mut done = self.reads.fetched(fetch, bytes);
        let is_alone = self.standing == Standing::Alone;
        for (partition, place) in done.unreadable {
            if !is_alone {
                if self.note_damage(partition, place) {
                    // Another leader has the batch.
                    done.partitions.retain(|going_on| *going_on != partition);
                }
                continue;
            }
            // A batch that was moved meanwhile is not damaged: it is read at its new place.
            let is_kept = self.engine.damaged(partition, place, &mut self.outbox);
            self.counters.damaged_batches += u64::from(is_kept);
        }
        for partition in done.partitions {
            self.engine.fetched(partition);
        }
        self.finish_turn(now);
    }

    /// Appends the segments that are no longer needed to `out`. The lane may use their slots again.
    pub fn take_released(&mut self, out: &mut Vec<u64>) {
        let start = out.len();
        self.writer.segments.take_released(out);
        self.spare_slots.0 = self.spare_slots.0.saturating_add(out.len() - start);
        let segment_bytes = self.writer.segments.segment_bytes();
        for &segment in &out[start..] {
            self.moves.skipped_until.remove(&Container::Segment(segment));
            let begin = segment * segment_bytes;
            self.reads.forget(Position(begin), Position(begin + segment_bytes));
        }
    }

    /// The topics and groups; empty in a shard that does not lead the catalogue.
    #[must_use]
    pub fn catalogue(&self) -> &Catalogue {
        self.engine.catalogue()
    }

    /// Takes what has changed in the catalogue since this was asked last; `None` if nothing was kept for anybody so far, as in
    /// a state that was made anew.
    pub fn take_catalogue_news(&mut self) -> Option<Vec<CatalogueNews>> {
        self.engine.take_catalogue_news()
    }

    /// The state, read-only.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Has these throttles in place of its own: those that other shards have too.
    pub fn share_throttles(&mut self, throttles: Arc<Throttles>) {
        self.engine.share_throttles(throttles);
    }

    /// Counts of the shard's work since its start.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The end of everything appended.
    #[must_use]
    pub fn end(&self) -> Position {
        self.writer.end()
    }

    /// Bytes appended and not yet taken by the lane.
    #[must_use]
    pub fn gathered_bytes(&self) -> u64 {
        self.writer.end().0 - self.progress.taken.0
    }

    /// Bytes appended and not yet committed.
    #[must_use]
    pub fn uncommitted_bytes(&self) -> u64 {
        self.writer.end().0 - self.progress.committed().0
    }

    /// Bytes of memory that hold frames and chunks for reading.
    #[must_use]
    pub fn cache_bytes(&self) -> usize {
        self.cache.bytes() + self.reads.bytes()
    }

    /// Bytes of messages that are kept in memory alone.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.writer.memory_batches.kept_bytes()
    }

    /// The number of segments that a checkpoint takes beside the one in which it begins, if that is
    /// half empty.
    #[must_use]
    pub fn checkpoint_segments(&self) -> u64 {
        self.checkpoints.segments(self.writer.since_checkpoint())
    }

    /// The number of segments in use.
    #[must_use]
    pub fn segment_count(&self) -> usize {
        self.writer.segments.count()
    }
}
