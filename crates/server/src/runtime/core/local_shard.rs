//! One of the shards that a core runs, with its helpers: the lane, the readers, the move thread. It knows no
//! session; the core routes its effects.

use std::{sync::Arc, time::Duration};

use sennit_engine::{Command, Effect};
use sennit_journal::{Fault, Frame, Reader, disk::RealDisk};
use sennit_model::{
    Timestamp,
    limits::{LAZY_BYTES, LAZY_SPAN},
};
use sennit_shard::{Fetch, PackSummary};

use super::{Cores, ShardState, published_bytes};
use crate::runtime::{
    clock::now,
    inbox::{Committed, Message, ShardMessage},
    index::ShardIndex,
    lane_thread::{LaneHandle, LaneMessage},
    metrics::ShardMetrics,
    move_thread::MoveHandle,
    read_thread::ReadThreads,
};

/// Bytes that make it worth to hand the lane a second batch while it writes the first.
const SECOND_BATCH_BYTES: u64 = 512 << 10;

/// Bytes whose commit the core does not leave to the lane's thread, if the last
/// commit was quick: waking one thread, and being woken by it, takes about as long as the sync.
const COMMIT_HERE_BYTES: u64 = 64 << 10;
const COMMIT_HERE_TIME: Duration = Duration::from_micros(400);

/// The ways to those who work for a shard.
#[derive(Debug)]
pub(crate) struct Workers {
    pub(crate) lane: LaneHandle,
    pub(crate) reads: ReadThreads,
    pub(crate) moves: MoveHandle,
    /// Reads the lane when a state is made anew; only a group needs it.
    pub(crate) log: Option<Reader<RealDisk>>,
}

/// A shard, and how far it is with its lane.
#[derive(Debug)]
pub(crate) struct LocalShard {
    pub(super) index: ShardIndex,
    pub(super) state: ShardState,
    pub(super) cores: Arc<Cores>,
    pub(super) metrics: Arc<ShardMetrics>,
    pub(super) workers: Workers,
    batches_under_way: usize,
    /// A small commit that waits until the links have sent what goes before it. It counts as under way.
    put_off: Vec<Frame>,
    /// How long the last commit took.
    last_commit: Duration,
    /// Since when records have gathered that nobody waits for.
    lazy_since: Option<Timestamp>,
    /// When it is looked next whether something is to be emptied.
    pub(super) look_at: Timestamp,
    /// Commits of the shard when it was looked last.
    pub(super) looked_commits: u64,
    storage_full: bool,
}

impl LocalShard {
    /// A shard that was recovered; `is_full` if the disk has no room for what its lane lacks.
    pub(crate) fn new(
        index: ShardIndex,
        state: ShardState,
        cores: Arc<Cores>,
        workers: Workers,
        is_full: bool,
    ) -> Self {
        let metrics = cores.shard_metrics[index].clone();
        let mut this = Self {
            index,
            state,
            cores,
            metrics,
            workers,
            batches_under_way: 0,
            put_off: Vec::new(),
            last_commit: Duration::MAX,
            lazy_since: None,
            look_at: Timestamp(0),
            looked_commits: 0,
            storage_full: false,
        };
        this.set_storage_full(is_full);
        this
    }

    /// Appends what is to be told because of what it did.
    pub(super) fn take_effects(&mut self, out: &mut Vec<Effect>) {
        self.state.take_effects(out);
    }

    /// Takes what has come for it; gives back what failed, if its journal has.
    pub(super) fn take(&mut self, message: ShardMessage) -> Option<Fault> {
        match message {
            ShardMessage::Commands(mut commands) => self.handle(&mut commands),
            ShardMessage::Committed(done) => self.committed(done),
            ShardMessage::StorageFull(full) => self.set_storage_full(full),
            ShardMessage::AreWanted(held) => self.are_wanted(held),
            ShardMessage::Moved(moved) => self.moved(moved),
            ShardMessage::MoveFailed(home, error) => self.move_failed(home, &error),
            ShardMessage::Compacted(done) => self.compacted(done),
            ShardMessage::CompactionFailed => self.compaction_failed(),
            ShardMessage::PacksInUse(answer) => {
                drop(answer.send(self.state.shard().packs_in_use()))
            }
            ShardMessage::Fetched(fetch, bytes) => self.fetched(fetch, bytes),
            ShardMessage::Fenced(fault) => {
                self.state.fence();
                return Some(fault);
            }
            ShardMessage::Rebuilt(rebuild) => self.take_over(*rebuild),
            ShardMessage::RebuildFailed(error) => self.handle_failed_rebuild(&error),
        }
        None
    }

    /// Does commands, and leaves none.
    pub(super) fn handle(&mut self, commands: &mut Vec<Command>) {
        let bytes = published_bytes(commands);
        self.state.handle(commands);
        self.cores.gauges[self.index].arrived(bytes);
        self.set_gauge();
    }

    /// Says what publishers wait for. Once the disk is full publishes are read, to be refused: what waits
    /// for it to have room again must not keep the acks behind it from making some.
    fn set_gauge(&self) {
        let ingest = if self.storage_full { 0 } else { self.state.waiting_bytes() };
        self.cores.gauges[self.index].set(ingest);
    }

    /// The lane's thread has committed a batch, or a part of one.
    fn committed(&mut self, committed: Committed) {
        self.batches_under_way -= usize::from(committed.is_all);
        self.release(committed);
    }

    fn release(&mut self, Committed { end, took, spare_slots, is_full, .. }: Committed) {
        self.last_commit = took;
        self.state.shard_mut().set_spare_slots(spare_slots, end);
        if is_full != self.storage_full {
            // Before anything else is published: the message that says so may be behind much of it.
            self.set_storage_full(is_full);
        }
        self.state.written(end);
        let segments = self.state.shard().checkpoint_segments();
        self.cores.reserve.set_checkpoint_segments(self.index, segments);
    }

    fn fetched(&mut self, fetch: Fetch, bytes: Option<bytes::Bytes>) {
        self.state.fetched(fetch, bytes);
    }

    fn set_storage_full(&mut self, full: bool) {
        self.storage_full = full;
        self.state.shard_mut().set_storage_full(full);
        self.look_at = Timestamp(0);
    }

    /// Whether publishes to some shard are refused: then all of them free what they can.
    pub(super) fn set_disk_short(&mut self, short: bool) {
        self.state.shard_mut().set_disk_short(short);
        if short {
            self.workers.lane.send(LaneMessage::Short);
        }
        self.look_at = Timestamp(0);
    }

    /// The lane is to write no more, once it has written what it was given.
    pub(super) fn end_lane(&self) {
        self.workers.lane.send(LaneMessage::End);
    }

    /// Does what is due, if anything is; says whether anything was.
    pub(super) fn advance(&mut self, now: Timestamp) -> bool {
        let is_due = self.state.shard().next_wake().is_some_and(|due| due <= now);
        if is_due {
            self.state.advance(now);
        }
        is_due
    }

    /// Whether the lane has nothing left to write.
    pub(super) fn is_quiet(&self) -> bool {
        self.batches_under_way == 0 && self.state.is_quiet()
    }

    /// Commits what has gathered, or hands it to the lane's thread, if the lane has time for it and
    /// somebody waits for it; says until when it may wait otherwise.
    pub(super) fn commit(&mut self, is_draining: bool) -> Option<Timestamp> {
        if !self.state.shard().has_frames() {
            return None;
        }
        let gathered = self.state.shard().gathered_bytes();
        let lane_has_time = match self.batches_under_way {
            0 => true,
            1 => gathered >= SECOND_BATCH_BYTES,
            _ => false,
        };
        if !lane_has_time {
            return None;
        }
        let is_awaited = self.state.is_awaited();
        if !is_awaited && gathered < LAZY_BYTES && !is_draining {
            // A crash before that costs a delivery more, or an ephemeral message, which who waits
            // for no commit puts up with.
            let now = now();
            let until = self.lazy_since.get_or_insert(now).plus(LAZY_SPAN);
            if now < until {
                return Some(until);
            }
        }
        let is_small = is_awaited
            && gathered <= COMMIT_HERE_BYTES
            && self.batches_under_way == 0
            && self.last_commit <= COMMIT_HERE_TIME;
        self.lazy_since = None;
        let mut frames = Vec::new();
        self.state.take_frames(&mut frames);
        if is_small && self.state.speaks_first() {
            self.put_off = frames;
            self.batches_under_way += 1;
            return None;
        }
        match self.append(frames, is_small) {
            // What came of it, dead letters say, is nobody's to wait for.
            true => self.commit(is_draining),
            false => None,
        }
    }

    /// Commits frames here if that is worth it, or hands them to the lane's thread. Returns whether they are committed.
    fn append(&mut self, frames: Vec<Frame>, is_small: bool) -> bool {
        match is_small.then(|| self.workers.lane.append_here(&frames)).flatten() {
            Some(Ok(committed)) => {
                self.release(committed);
                return true;
            }
            Some(Err(fault)) => {
                let core = self.cores.placement.core_of(self.index);
                let fenced = ShardMessage::Fenced(fault);
                let _ = self.cores.inboxes[core].send(Message::Shard(self.index, fenced));
            }
            None => {
                if self.workers.lane.send(LaneMessage::Append(frames)) {
                    self.batches_under_way += 1;
                }
            }
        }
        false
    }

    /// Whether a small commit waits until the links have sent what goes before it.
    pub(super) fn has_put_off(&self) -> bool {
        !self.put_off.is_empty()
    }

    /// Commits what was put off.
    pub(super) fn commit_put_off(&mut self) {
        if self.has_put_off() {
            let frames = std::mem::take(&mut self.put_off);
            self.batches_under_way -= 1;
            self.append(frames, true);
        }
    }

    /// Carries what is released to the lane, fetches to the readers and work to the move thread; says when
    /// the shard wants to be woken.
    pub(super) fn carry(&mut self) -> Option<Timestamp> {
        let mut released = Vec::new();
        self.state.shard_mut().take_released(&mut released);
        if !released.is_empty() {
            self.workers.lane.send(LaneMessage::Release(released));
        }
        let mut fetches = Vec::new();
        self.state.take_fetches(&mut fetches);
        for fetch in fetches {
            self.workers.reads.fetch(fetch);
        }
        if let Some(group) = self.state.group() {
            group.send();
            self.rebuild_if_poisoned();
        }
        let look_at = self.empty_something();
        self.set_gauge();
        self.publish_metrics();
        self.state.shard().next_wake().into_iter().chain(look_at).min()
    }

    fn publish_metrics(&self) {
        let shard = self.state.shard();
        let (metrics, counters) = (&self.metrics.counts, shard.counters());
        metrics.confirmed_messages.set(counters.confirmed_messages);
        metrics.confirmed_early_messages.set(counters.confirmed_early_messages);
        metrics.duplicate_batches.set(counters.duplicate_batches);
        metrics.dropped_messages.set(counters.dropped_messages);
        metrics.replaced_messages.set(counters.replaced_messages);
        metrics.deduplicated_messages.set(counters.deduplicated_messages);
        metrics.delivered_messages.set(counters.delivered_messages);
        metrics.delivered_bytes.set(counters.delivered_bytes);
        let of_groups = shard.group_counts();
        metrics.redelivered_messages.set(of_groups.redelivered);
        metrics.dead_lettered_messages.set(of_groups.dead_lettered);
        metrics.throttle_waits.set(of_groups.throttle_waits);
        metrics.delivered_early_messages.set(counters.delivered_early_messages);
        metrics.refusals.set(counters.refusals);
        metrics.damaged_batches.set(counters.damaged_batches);
        metrics.checkpoints.set(counters.checkpoints);
        let PackSummary { count: packs, bytes: pack_bytes, live_bytes: pack_live_bytes } =
            shard.pack_summary();
        metrics.packs.set(packs as u64);
        metrics.pack_bytes.set(pack_bytes);
        metrics.pack_live_bytes.set(pack_live_bytes);
        metrics.journal_segments.set(shard.segment_count() as u64);
        metrics.cache_bytes.set(shard.cache_bytes() as u64);
        metrics.memory_topic_bytes.set(shard.memory_bytes());
        metrics.ingest_bytes.set(shard.uncommitted_bytes());
    }
}
