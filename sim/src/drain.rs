//! The end of a run: all work is finished, bits rot, all outstanding messages are delivered, and a last restart
//! neither revives nor loses a message.

use std::{path::PathBuf, time::Duration};

use sennit_journal::Position;
use sennit_shard::PackSummary;

use crate::{
    mover_steps::live_packs, oracle::Violation, reader_actions, run::Run, stream_actions,
    workbench_actions, world::Stop,
};

/// Steps of the drain, each at most [`DRAIN_STEP`] long.
const DRAIN_STEPS: u64 = 1_500;
const FINE_STEPS: u64 = 300;
const DRAIN_STEP: Duration = Duration::from_secs(60);
/// Additional segments of a replay: the four after which a checkpoint is due, those in which it begins and ends,
/// those whose headers do not name it yet, and those for the padding of frames.
const SLACK: u64 = 9;
/// Steps within which the mover finishes its work at the end.
const MOVE_STEPS: u64 = 5_000;
/// Rounds within which all streams are read.
const AUDIT_ROUNDS: u32 = 2_000;

impl Run {
    /// Ends the run without faults: every outstanding message must be delivered, and not again after a restart.
    pub(crate) fn end(&mut self) -> Result<(), Violation> {
        self.world.trace.step(format_args!("drain"));
        self.plan(false);
        // This generation skips unreadable messages; the next one finds them again.
        let has_damage = self.world.parts.shard.counters().damaged_batches > 0;
        if self.world.disk.is_off() || self.world.is_fenced || has_damage {
            self.restart(false)?;
            self.plan(false);
        }
        self.world.disk.power_on();
        for _ in 0..self.swarm.rots {
            if self.rot()? {
                return Ok(());
            }
        }
        let snapshot = self.snapshot_bytes();
        self.drain()?;
        self.take_turns()?;
        self.check_moves_finish()?;
        self.check_released_segments(snapshot)?;
        self.check_removed_packs()?;
        self.world.trace.step(format_args!("the last restart"));
        self.restart(true)?;
        self.plan(false);
        self.world.disk.power_on();
        self.drain()?;
        self.check_moves_finish()?;
        self.check_removed_packs()
    }

    pub(crate) fn drain(&mut self) -> Result<(), Violation> {
        self.settle_down_calmly(200)?;
        self.read_streams()?;
        self.topics.make_all_dead_letter_topics(&mut self.world)?;
        self.topics.lift(&mut self.world);
        self.topics.audit(&mut self.world)?;
        let leave_commands = self.world.consumers.leave_all();
        leave_commands.into_iter().for_each(|command| self.world.submit(command));
        reader_actions::read_all(&mut self.world)?;
        self.topics.subscribe_all(&mut self.world, &mut self.random);
        workbench_actions::subscribe_all(&mut self.world);
        for step in 0..DRAIN_STEPS {
            for _ in 0..20 {
                self.settle_down_calmly(1000)?;
                let acks = self.world.consumers.ack_all(&mut self.world.requests);
                if !workbench_actions::ack_all(&mut self.world) && acks.is_empty() {
                    break;
                }
                acks.into_iter().for_each(|ack| self.world.submit(ack));
            }
            self.topics.letters(&mut self.world)?;
            self.topics.retry_parked(&mut self.world)?;
            stream_actions::handle_responses(&mut self.world);
            self.settle_down_calmly(1000)?;
            if self.is_settled()? {
                break;
            }
            let next = self.world.parts.shard.next_wake();
            let latest = self.world.now.plus(DRAIN_STEP);
            // From timer to timer at first; then in long steps, for timers that are hours away.
            let next = next.filter(|_| step < FINE_STEPS).unwrap_or(latest).min(latest);
            self.world.now = next.max(self.world.now.plus(Duration::from_millis(1)));
            self.world.advance()?;
        }
        self.world.check();
        self.world.oracle.check_settled(self.world.now)?;
        if self.world.parts.shard.counters().damaged_batches == 0 {
            self.world.oracle.check_copies_settled()?;
        }
        self.world.oracle.check_readers_caught_up()
    }

    /// Whether no message is outstanding, all requests are answered, and readers have all messages.
    fn is_settled(&mut self) -> Result<bool, Violation> {
        for id in self.world.oracle.partitions() {
            self.world.describe(id)?;
        }
        if self.world.oracle.check_readers_caught_up().is_err() {
            return Ok(false);
        }
        let has_damage = self.world.parts.shard.counters().damaged_batches > 0;
        let oracle = &self.world.oracle;
        if !has_damage && oracle.check_copies_settled().is_err() {
            return Ok(false);
        }
        let outstanding = match has_damage {
            true => oracle.outstanding_unreported(self.world.now),
            false => oracle.outstanding(self.world.now),
        };
        let has_answered = !self.world.streams.is_busy() && oracle.pending_stream_requests() == 0;
        Ok(outstanding.is_empty() && has_answered)
    }

    /// Reads all streams, from the first message to the last.
    fn read_streams(&mut self) -> Result<(), Violation> {
        if self.world.streams.eagerness == 0 {
            return Ok(());
        }
        stream_actions::stop_all_reads(&mut self.world);
        stream_actions::begin_audits(&mut self.world);
        for _ in 0..AUDIT_ROUNDS {
            self.settle_down_calmly(1000)?;
            stream_actions::handle_responses(&mut self.world);
            if !self.world.streams.is_busy() {
                return Ok(());
            }
        }
        let detail = format!("{:?}", self.world.streams.waiting);
        Err(Violation::new("I8 every stream request finishes", detail))
    }

    pub(crate) fn settle_down_calmly(&mut self, steps: u64) -> Result<(), Violation> {
        match self.settle_down(steps) {
            Ok(()) => Ok(()),
            Err(Stop::Violation(violation)) => Err(violation),
            Err(Stop::PowerOff) => Err(Violation::new(
                "the power stays on while no fault is injected",
                "the power went",
            )),
        }
    }

    fn snapshot_bytes(&self) -> u64 {
        let mut snapshot = Vec::new();
        self.world.parts.shard.engine().encode_snapshot(&mut snapshot);
        snapshot.len() as u64
    }

    /// Checks that segments without live messages are released.
    fn check_released_segments(&self, largest_snapshot: u64) -> Result<(), Violation> {
        let shard = &self.world.parts.shard;
        let segment_bytes = self.swarm.segment_bytes;
        let places = shard.engine().places().map(|place| Position(place.position));
        let journaled = places.filter(|position| position.pack().is_none());
        let mut live: Vec<u64> =
            journaled.map(|position| position.segment(segment_bytes)).collect();
        live.sort_unstable();
        live.dedup();
        // The state may have been larger when the last checkpoint was written. It takes its own length,
        // is due when four times that were journaled, or four segments, and while it is written the other
        // records take eight times as much. It begins and ends with a write of the lane: each may be late by all
        // records that gathered during a commit. The checkpoint before it is kept too, as a fallback if this
        // one rots.
        let snapshot = self.snapshot_bytes().max(largest_snapshot);
        let taken = self.world.lane_batches.longest();
        let replayed = 2 * ((13 * snapshot + 2 * taken).div_ceil(segment_bytes) + SLACK);
        let (count, most) = (shard.segment_count(), live.len() as u64 + replayed);
        if count as u64 > most {
            let detail = format!(
                "{count} in use, {} hold messages, the state takes {snapshot} bytes, the longest take \
                 {taken}, a segment {segment_bytes}",
                live.len()
            );
            return Err(Violation::new("I8 unneeded segments are released", detail));
        }
        let most = replayed.max(self.swarm.journal_segments as u64);
        if count as u64 > most && !self.world.moving.has_failed() {
            let detail = format!("{count} in use, {most} may be");
            return Err(Violation::new("I8 a long journal is moved into packs", detail));
        }
        Ok(())
    }

    /// Checks that the mover finishes its work when nothing else happens.
    fn check_moves_finish(&mut self) -> Result<(), Violation> {
        self.settle_down_calmly(MOVE_STEPS)?;
        if self.world.is_busy() {
            let PackSummary { count: packs, bytes, live_bytes: live } =
                self.world.parts.shard.pack_summary();
            let moved = self.world.moving.moved();
            let detail = format!(
                "{moved} batches were moved in this life, {packs} packs have {bytes} bytes, {live} live"
            );
            return Err(Violation::new("I8 the mover finishes its work", detail));
        }
        Ok(())
    }

    /// Checks that exactly the packs with live messages are on the disk.
    fn check_removed_packs(&self) -> Result<(), Violation> {
        let live = live_packs(&self.world.parts.shard);
        let files = self.world.disk.files();
        let is_pack = |path: &&PathBuf| path.extension().is_some_and(|ending| ending == "pack");
        let count = files.iter().map(|(path, _)| path).filter(is_pack).count();
        let known = self.world.parts.shard.pack_summary().count;
        let is_so = known == live.len() && (count == live.len() || self.world.moving.has_failed());
        if is_so {
            return Ok(());
        }
        let detail = format!("{count} on the disk, {known} known, {} hold messages", live.len());
        Err(Violation::new("I8 packs without live messages are removed", detail))
    }
}
