//! The shard: takes commands, time, commits and reads, and returns effects, frames, fetches and released segments.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use sennit_engine::{
    Catalogue, Command, Effect, Engine, Findings, GroupCounts, Origin, Outbox, Payloads, Place,
    Refusal, Stored, StreamCommand, Throttles,
};
use sennit_journal::{Container, Frame, Position};
use sennit_model::{Offset, PartitionId, Timestamp};

use crate::{
    checkpoint::Checkpoints,
    compaction_state::CompactionState,
    counters::Counters,
    memory_batches::MemoryBatches,
    move_state::MoveState,
    packs::{Packs, pack_of},
    read_cache::{CacheLookup, Fetch, ReadCache},
    tail_cache::TailCache,
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
    cache: TailCache,
    pub(crate) reads: ReadCache,
    pub(crate) moves: MoveState,
    pub(crate) compacting: CompactionState,
    pub(crate) checkpoints: Checkpoints,
    /// The lane has taken everything before this position.
    taken: Position,
    /// Everything before this position is committed.
    pub(crate) committed: Position,
    committed_at: Timestamp,
    /// The number of records that a later frame marks as durable.
    marked_records: u64,
    /// For each position: the number of effects in `waiting` that wait for its commit.
    waits: VecDeque<(Position, usize)>,
    waiting: VecDeque<Effect>,
    /// Batches that are freed once this position is committed; until then a crash may bring them
    /// back.
    freed: VecDeque<(Position, Place)>,
    effects: Vec<Effect>,
    outbox: Outbox,
    /// The number of spare slots that the lane has after everything before this position is
    /// written.
    pub(crate) spare_slots: (usize, Position),
    pub(crate) storage_full: bool,
    pub(crate) disk_short: bool,
    pub(crate) fenced: bool,
    /// Whether a record of this generation is durable. Until then nothing is delivered: if a start
    /// wrote nothing, the next start would reuse its generation.
    pub(crate) generation_is_durable: bool,
    counters: Counters,
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
            taken: committed,
            committed,
            committed_at: now,
            marked_records: 0,
            waits: VecDeque::new(),
            waiting: VecDeque::new(),
            freed: VecDeque::new(),
            effects: Vec::new(),
            outbox: Outbox::default(),
            spare_slots: (usize::MAX, committed),
            storage_full: false,
            disk_short: false,
            fenced: false,
            generation_is_durable: false,
            counters: Counters::default(),
        }
    }

    /// Executes commands in order, and delivers the messages that became ready.
    pub fn handle(&mut self, commands: &mut Vec<Command>, now: Timestamp) {
        for command in commands.drain(..) {
            match self.refusal(&command) {
                Some((origin, refusal)) => {
                    self.outbox.now.push(Effect::Refused { origin, refusal });
                }
                None if self.fenced => {}
                None => self.engine.handle(command, now, &mut self.writer, &mut self.outbox),
            }
        }
        self.engine.end_turn(&mut self.writer);
        self.finish_turn(now);
    }

    /// The refusal of a command before it reaches the engine. Settlements, deletes and
    /// subscriptions continue on a full disk, because they free it.
    fn refusal(&self, command: &Command) -> Option<(Origin, Refusal)> {
        let (origin, grows) = match command {
            Command::Publish(publish) | Command::PublishAt(publish, _) => (publish.origin, true),
            Command::PublishAtomic(step) => (step.origin, true),
            Command::Settle(settle) => (settle.origin, false),
            Command::Subscribe(subscribe) => (subscribe.origin, false),
            Command::Read(read) => (read.origin, false),
            Command::Catalogue(origin, _) | Command::Partition(origin, _, _) => (*origin, false),
            Command::Stream(origin, _, StreamCommand::Open(_)) => (*origin, true),
            Command::Stream(origin, _, StreamCommand::Append(append)) => {
                (*origin, append.content.is_some())
            }
            Command::AppendTogether(origin, appends) => {
                (*origin, appends.iter().any(|(_, append)| append.content.is_some()))
            }
            Command::Stream(_, _, StreamCommand::StopReading) => return None,
            Command::Stream(origin, _, _) => (*origin, false),
            Command::SetCredit { .. }
            | Command::Reader { .. }
            | Command::SetThrottles(_)
            | Command::WatchFailures(_)
            | Command::DecideFailures(_)
            | Command::Unsubscribe { .. }
            | Command::EndSession { .. } => {
                return None;
            }
        };
        match (self.fenced, self.storage_full && grows) {
            (true, _) => Some((origin, Refusal::OutcomeUnknown)),
            (false, true) => Some((origin, Refusal::StorageFull)),
            (false, false) => None,
        }
    }

    /// Runs the timers that are due, and writes the durable mark of an idle lane.
    pub fn advance(&mut self, now: Timestamp) {
        if self.fenced {
            return;
        }
        if self.engine.next_timer().is_some_and(|due| due <= now) {
            self.engine.advance(now, &mut self.writer);
        }
        if self.needs_mark() && now >= self.committed_at.plus(MARK_AFTER) {
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
        self.marked_records < self.writer.record_count && self.committed == self.writer.end()
    }

    /// The time at which [`Shard::advance`] has work next, if nothing else happens.
    #[must_use]
    pub fn next_wake(&self) -> Option<Timestamp> {
        if self.fenced {
            return None;
        }
        let mark = self.needs_mark().then(|| self.committed_at.plus(MARK_AFTER));
        // Filters that have more to look at than a turn allows go on at once.
        let more = (self.engine.has_ready_partitions() && self.generation_is_durable)
            .then_some(Timestamp(0));
        self.engine.next_timer().into_iter().chain(mark).chain(more).min()
    }

    /// Delivers messages, and separates effects that may go out from those that wait for the
    /// commit.
    pub(crate) fn finish_turn(&mut self, now: Timestamp) {
        if self.engine.has_ready_partitions() && self.generation_is_durable && !self.fenced {
            let memory_batches = std::mem::take(&mut self.writer.memory_batches);
            let mut batches = Batches {
                memory_batches: &memory_batches,
                cache: &self.cache,
                reads: &mut self.reads,
                packs: &self.moves.packs,
                segment_bytes: self.writer.segments.segment_bytes(),
                committed: self.committed,
                damaged: Vec::new(),
            };
            loop {
                self.engine.deliver(now, &mut self.writer, &mut batches, &mut self.outbox);
                if batches.damaged.is_empty() {
                    break;
                }
                for (partition, place) in batches.damaged.drain(..) {
                    let is_kept = self.engine.damaged(partition, place, &mut self.outbox);
                    self.counters.damaged_batches += u64::from(is_kept);
                }
            }
            // To deliver appends nothing that is wanted at once, and frees nothing.
            self.writer.memory_batches = memory_batches;
        }
        let end = self.writer.end();
        let memory_batches = &mut self.writer.memory_batches;
        let in_journal =
            self.engine.take_freed().filter(|place| !memory_batches.free(place.position));
        self.freed.extend(in_journal.map(|place| (end, place)));
        self.give_up_freed();
        self.outbox.now.iter().for_each(|effect| self.counters.count_effect(effect));
        self.effects.append(&mut self.outbox.now);
        if self.outbox.after_commit.is_empty() {
            return;
        }
        if end <= self.committed {
            self.outbox.after_commit.iter().for_each(|effect| self.counters.count_effect(effect));
            self.effects.append(&mut self.outbox.after_commit);
            return;
        }
        let count = self.outbox.after_commit.len();
        self.waiting.extend(self.outbox.after_commit.drain(..));
        match self.waits.back_mut() {
            Some((position, waiting)) if *position == end => *waiting += count,
            last => {
                assert!(last.is_none_or(|(position, _)| *position < end), "effects out of order");
                self.waits.push_back((end, count));
            }
        }
    }

    /// Frees the batches that no crash can bring back.
    fn give_up_freed(&mut self) {
        while let Some(&(end, place)) = self.freed.front()
            && end <= self.committed
        {
            self.freed.pop_front();
            match pack_of(place.position) {
                Some(pack) => self.moves.packs.remove_live(pack, place.bytes),
                None => self.writer.segments.remove_live(Position(place.position), place.bytes),
            }
        }
    }

    /// The effects that go out now. The caller drains them after each call that changes the shard.
    pub fn effects(&mut self) -> &mut Vec<Effect> {
        &mut self.effects
    }

    /// Returns whether the lane has frames to write.
    #[must_use]
    pub fn has_frames(&self) -> bool {
        let writes_checkpoint = self.checkpoints.is_under_way() || self.checkpoints.is_requested();
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
        if self.checkpoints.is_under_way()
            || self.checkpoints.is_due(self.writer.since_checkpoint())
        {
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
        self.taken = self.writer.end();
    }

    /// Writes a piece of a checkpoint; returns whether it is complete.
    pub(crate) fn write_piece(&mut self) -> bool {
        let is_whole = self.checkpoints.step(&self.engine, &mut self.writer);
        self.counters.checkpoints += u64::from(is_whole);
        is_whole
    }

    /// Handles a commit: the lane has synced everything before `end`. The effects that waited for
    /// it go out.
    pub fn handle_commit(&mut self, end: Position, now: Timestamp) {
        if self.fenced {
            return;
        }
        assert!(self.committed <= end && end <= self.taken, "the lane commits what it has not got");
        self.generation_is_durable = true;
        self.committed = end;
        self.committed_at = now;
        self.counters.commits += 1;
        self.writer.handle_commit(end);
        if self.is_short() {
            self.writer.segments.forget_fallback();
        }
        if let Some(begin) = self.checkpoints.take_committed(end) {
            self.writer.set_replay_from(begin);
            self.free_dead_segments();
        } else {
            self.reclaim();
        }
        while let Some(&(position, count)) = self.waits.front()
            && position <= end
        {
            self.waits.pop_front();
            for effect in self.waiting.drain(..count) {
                self.counters.count_effect(&effect);
                self.effects.push(effect);
            }
        }
        self.engine.committed(end.0);
        self.record_moves();
        self.record_compaction(now);
        self.finish_turn(now);
    }

    /// Handles a failed lane: nothing more is written. All open and later requests learn that the
    /// outcome is unknown.
    pub fn fence(&mut self) {
        self.fenced = true;
        self.waits.clear();
        for effect in self.waiting.drain(..) {
            let origin = match &effect {
                Effect::Done { origin, .. }
                | Effect::PublishedAt { origin, .. }
                | Effect::Walked { origin, .. }
                | Effect::Refused { origin, .. }
                | Effect::Stream(origin, _) => *origin,
                Effect::Settled(settled) => settled.origin,
                Effect::Confirmed(confirmed) => confirmed.origin,
                Effect::PublishedAtomic { origin, .. } => *origin,
                _ => continue,
            };
            self.effects.push(Effect::Refused { origin, refusal: Refusal::OutcomeUnknown });
        }
        self.engine.roll_back(&mut self.outbox);
        self.effects.append(&mut self.outbox.now);
    }

    /// Steps down at `now`: nothing more is decided or written. Open and later requests learn that the
    /// outcome is unknown, and consumers and readers that they have to ask again.
    pub fn rest(&mut self, now: Timestamp) {
        self.fence();
        self.engine.rest(now, &mut self.outbox);
        self.effects.append(&mut self.outbox.now);
    }

    /// Ends publishing: gives back reserved offsets, so that the next start has no gap.
    pub fn stop(&mut self) {
        if !self.fenced {
            self.engine.give_back_reserved(&mut self.writer);
        }
    }

    /// Returns whether a caller waits for a commit that the lane has not taken.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.waits.back().is_some_and(|(position, _)| *position > self.taken)
    }

    /// Appends the reads to `out`; the caller answers each with [`Shard::handle_fetch`].
    pub fn take_fetches(&mut self, out: &mut Vec<Fetch>) {
        self.reads.take_wanted(out);
    }

    /// Handles a read; `None` if it failed. A failed read is repeated once; then its batches count
    /// as damaged.
    pub fn handle_fetch(&mut self, fetch: Fetch, bytes: Option<Bytes>, now: Timestamp) {
        let done = self.reads.fetched(fetch, bytes);
        for (partition, place) in done.unreadable {
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
        self.writer.end().0 - self.taken.0
    }

    /// Bytes appended and not yet committed.
    #[must_use]
    pub fn uncommitted_bytes(&self) -> u64 {
        self.writer.end().0 - self.committed.0
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

/// The engine's view of the readable batches.
struct Batches<'a> {
    memory_batches: &'a MemoryBatches,
    cache: &'a TailCache,
    reads: &'a mut ReadCache,
    packs: &'a Packs,
    segment_bytes: u64,
    /// Nothing at or after this position may be read, because it is not written yet.
    committed: Position,
    damaged: Vec<(PartitionId, Place)>,
}

impl Payloads for Batches<'_> {
    fn batch(&mut self, partition: PartitionId, place: Place) -> Option<Bytes> {
        if let Some(bytes) = self.memory_batches.get(place.position) {
            return Some(bytes.clone());
        }
        let (position, length) = (Position(place.position), place.bytes as usize);
        if let Some(bytes) = self.cache.read(position, length) {
            return Some(bytes);
        }
        let limit = match position.pack() {
            Some((pack, _)) => match self.packs.bytes_of(pack) {
                // It is lost, and reading it will say so.
                0 => position.plus(place.bytes.into()),
                bytes => Position::of_pack(pack, 0).plus(bytes),
            },
            None => {
                let segment = position.segment(self.segment_bytes);
                self.committed.min(Position((segment + 1) * self.segment_bytes))
            }
        };
        match self.reads.read(partition, position, length, limit) {
            CacheLookup::Batch(bytes) => Some(bytes),
            CacheLookup::Pending => None,
            CacheLookup::Damaged => {
                self.damaged.push((partition, place));
                None
            }
        }
    }
}
