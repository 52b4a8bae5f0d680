//! One broker below the waterline and its surroundings: the disk, the clock, the lane, the reader, the slot maker
//! and the mover, which run step by step. It makes no random decisions and judges nothing; every effect goes to the
//! oracle and to its user.

mod questions;
mod replicas;
mod slots;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use sennit_engine::{
    Command, CursorClaim, Effect, Origin, PartitionCommand, PartitionDescription, Record, SessionId,
};
use sennit_journal::{Fault, Frame, LaneConfig, Position, Slot, SlotFill, disk::FaultPlan};
use sennit_model::{Offset, PartitionId, ReadFrom, Timestamp, TopicId};
use sennit_shard::{
    Fetch, RecoverError, Recovered, START_SLOTS, Settings, SlotBudget, SlotRequest, SpareSlots,
    Standing, held_slots, recover,
};

pub use replicas::SAME_STATE;

use crate::{
    consumers::Consumers,
    disk::SimulatedDisk,
    follower::Follower,
    lane_batches::LaneBatches,
    mover_steps::{MoveStep, MoverSteps},
    numbered_messages,
    oracle::{FoundStream, Oracle, Violation},
    publishers::Publishers,
    readers::Readers,
    streams::Streams,
    trace::Trace,
    workbench::WorkbenchUsers,
    workbench_topics,
};

/// Steps of the slot maker within which a waiting lane has a slot, on a disk whose only fault is that it is full.
const WAITS_MAX: u32 = 400;
/// Bytes that the shard may keep in its read cache, beyond the budget of its tail cache.
const READ_BYTES: usize = 16 << 20;

/// The promise that a lane without rot is recovered.
pub const RECOVERS: &str = "I1 a lane without rot recovers";

/// The promise that rot of a header costs no segment.
pub const KEPT_SEGMENT: &str = "I1 a rotted bit loses no segment";

/// The promise that a full disk stops publishing and nothing else.
pub const FULL_DISK: &str = "I8 a full disk stops only publishing";

/// The promise that a crash is not taken for rot.
pub const NO_ROT: &str = "I1 a crash is not reported as damage";

/// A commit in flight in the lane.
#[derive(Debug)]
enum InFlight {
    /// Frames, the last turn whose records they hold, and the end of these records.
    Taken(Vec<Frame>, u64, Position),
    Synced(Position),
}

/// The reason why a run stops.
#[derive(Debug)]
pub enum Stop {
    /// A promise was broken.
    Violation(Violation),
    /// The power has failed.
    PowerOff,
}

impl From<Violation> for Stop {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

/// A broker and its surroundings.
#[derive(Debug)]
pub struct World {
    /// The disk.
    pub disk: SimulatedDisk,
    /// The time.
    pub now: Timestamp,
    /// The oracle.
    pub oracle: Oracle,
    /// The publishers.
    pub publishers: Publishers,
    /// The consumers.
    pub consumers: Consumers,
    /// The readers.
    pub readers: Readers,
    /// The stream users.
    pub streams: Streams,
    /// The users of the workbench.
    pub workbench: WorkbenchUsers,
    /// The trace.
    pub trace: Trace,
    /// The shard and its helpers, while it runs.
    pub parts: Recovered<SimulatedDisk>,
    /// The number of requests.
    pub requests: u64,
    /// Topics that need a dead-letter topic.
    pub dead_letter_topics_needed: Vec<TopicId>,
    /// Whether the lane has failed.
    pub is_fenced: bool,
    /// Whether something has rotted.
    pub has_rot: bool,
    /// The position before which everything is committed in this generation.
    pub committed: Position,
    /// The move under way, and the packs to remove.
    pub moving: MoverSteps,
    /// The sizes of the lane's writes.
    pub lane_batches: LaneBatches,
    config: LaneConfig,
    /// What has applied the shard's records, and nothing else.
    follower: Follower,
    settings: Settings,
    commands: Vec<Command>,
    in_flight: Option<InFlight>,
    fetches: Vec<Fetch>,
    /// The rule for held slots and refused publishes.
    pub room: SlotBudget,
    /// The slot that is being created.
    slot_request: Option<SlotRequest>,
    /// Slots that must be removed.
    surplus: Vec<Slot>,
    /// The number of slots that the lane's waiting frames need.
    slots_wanted: usize,
    /// Whether the slot maker is behind: it makes none while the lane has one.
    pub slots_are_late: bool,
    /// Whether publishers wait while as much as a segment holds is not committed.
    pub holds_publishers: bool,
    /// The number of failed attempts to create a slot while the lane waits.
    waits: u32,
}

impl World {
    /// A broker that starts for the first time.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn begin(
        disk_seed: u64,
        segment_bytes: u64,
        settings: Settings,
        trace: Trace,
    ) -> Result<Self, Violation> {
        let disk = SimulatedDisk::new(disk_seed, trace.clone());
        let config = LaneConfig {
            directory: PathBuf::from("data/lane-0"),
            lane: 0,
            segment_bytes,
            incarnation: disk_seed | 1,
        };
        let now = Timestamp(1_800_000_000_000);
        let parts = recover(&disk, config.clone(), settings, now);
        let parts =
            parts.map_err(|e| Violation::new("a broker starts on an empty disk", e.to_string()))?;
        let mut world = Self {
            disk,
            now,
            oracle: Oracle::default(),
            publishers: Publishers::new(numbered_messages::batch, 0),
            consumers: Consumers::default(),
            readers: Readers::new(0),
            streams: Streams::none(),
            workbench: WorkbenchUsers::new(0),
            trace,
            parts,
            requests: 0,
            dead_letter_topics_needed: Vec::new(),
            is_fenced: false,
            has_rot: false,
            committed: Position(0),
            moving: MoverSteps::default(),
            lane_batches: LaneBatches::default(),
            config,
            follower: Follower::default(),
            settings,
            commands: Vec::new(),
            in_flight: None,
            fetches: Vec::new(),
            room: SlotBudget::new(0, false),
            slot_request: None,
            surplus: Vec::new(),
            slots_wanted: 0,
            slots_are_late: false,
            holds_publishers: false,
            waits: 0,
        };
        world.oracle.check_recovered(world.parts.report.generation, &[], now)?;
        Ok(world)
    }

    /// The lane's settings.
    #[must_use]
    pub fn config(&self) -> &LaneConfig {
        &self.config
    }

    /// A number for a request.
    pub fn request(&mut self) -> u64 {
        self.requests += 1;
        self.requests
    }

    /// Adds a command to the next turn.
    pub fn submit(&mut self, command: Command) {
        self.commands.push(command);
    }

    /// Passes the commands that have gathered to the shard.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn turn(&mut self) -> Result<(), Violation> {
        if self.commands.is_empty() {
            return Ok(());
        }
        let commands = std::mem::take(&mut self.commands);
        self.trace.step(format_args!("  turn at {:?}", self.now));
        commands.iter().for_each(|command| self.trace.command(command));
        self.parts.shard.handle(&mut commands.clone(), self.now);
        self.after(&commands)
    }

    /// Handles the results of a call of the shard.
    fn after(&mut self, commands: &[Command]) -> Result<(), Violation> {
        let effects: Vec<Effect> = self.parts.shard.effects().drain(..).collect();
        effects.iter().for_each(|effect| self.trace.effect(effect));
        let on_its_way = matches!(self.in_flight, Some(InFlight::Taken(..)));
        if !on_its_way && !self.parts.shard.has_frames() && !self.is_fenced {
            // This turn has written no records, and all earlier ones are durable.
            self.oracle.committed(self.oracle.turn() + 1);
        }
        let has_damage = self.parts.shard.counters().damaged_batches > 0;
        self.oracle.set_has_damage(has_damage);
        self.oracle.check_turn(commands, &effects, self.now)?;
        for effect in &effects {
            self.streams.handle_effect(effect);
            self.workbench.handle_effect(effect);
            match effect {
                Effect::Confirmed(confirmed) => {
                    self.publishers.confirmed(confirmed.origin.request);
                }
                Effect::Refused { origin, .. } => {
                    self.publishers.refused(origin.request);
                }
                Effect::Deliver(delivery) if delivery.attempt == 0 => {
                    self.readers.delivered(delivery);
                }
                Effect::Deliver(delivery) => self.consumers.delivered(delivery),
                Effect::Gap { session, subscription, range, .. } => {
                    self.readers.passed(*session, *subscription, range.end);
                }
                Effect::SubscriptionEnded { session, subscription, .. }
                | Effect::CursorTaken { session, subscription, .. } => {
                    self.consumers.ended(*session, *subscription);
                    self.readers.ended(*session, *subscription);
                }
                Effect::DeadLetterTopicNeeded { source } => {
                    self.dead_letter_topics_needed.push(*source)
                }
                _ => {}
            }
        }
        let mut released = Vec::new();
        self.parts.shard.take_released(&mut released);
        for segment in released {
            self.trace.step(format_args!("  release segment {segment}"));
            self.parts.lane.release(segment);
        }
        self.moving.take_released(&mut (&mut self.parts).into(), &self.trace)?;
        self.parts.shard.take_fetches(&mut self.fetches);
        let most = self.settings.cache_bytes + READ_BYTES + 8 * self.config.segment_bytes as usize;
        let bytes = self.parts.shard.cache_bytes();
        if bytes > most {
            let detail = format!("the caches hold {bytes} bytes of {most}");
            return Err(Violation::new("I8 the caches stay within their budget", detail));
        }
        Ok(())
    }

    /// Runs the shard's due timers.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn advance(&mut self) -> Result<(), Violation> {
        self.trace.step(format_args!("  advance to {:?}", self.now));
        self.parts.shard.advance(self.now);
        self.after(&[])
    }

    /// Runs one step of the lane: it takes frames, writes and syncs them, or reports them as committed.
    ///
    /// # Errors
    /// The broken promise, or a power failure.
    pub fn lane_step(&mut self) -> Result<(), Stop> {
        match self.in_flight.take() {
            None if self.parts.shard.has_frames() => {
                let (mut frames, turns_end) = (Vec::new(), self.parts.shard.end());
                self.parts.shard.take_frames(&mut frames);
                self.follower.hear(&frames);
                self.lane_batches.taken(&frames, self.parts.shard.counters().checkpoints);
                self.in_flight = Some(InFlight::Taken(frames, self.oracle.turn(), turns_end));
                Ok(())
            }
            None => Ok(()),
            Some(InFlight::Taken(frames, turn, turns_end)) => self.write(frames, turn, turns_end),
            Some(InFlight::Synced(end)) => self.committed(end),
        }
    }

    fn write(
        &mut self,
        mut frames: Vec<Frame>,
        turn: u64,
        turns_end: Position,
    ) -> Result<(), Stop> {
        // Write as many frames as there are slots: their commit may free slots for the rest. A turn is committed whole.
        let mut fits = self.parts.lane.fits(&frames);
        if fits < frames.len() && fits > 0 && frames[fits - 1].end < turns_end {
            fits = 0;
        }
        let rest = frames.split_off(fits);
        if frames.is_empty() && !rest.is_empty() {
            self.slots_wanted = rest.iter().filter(|frame| frame.first_of_segment).count();
            self.in_flight = Some(InFlight::Taken(rest, turn, turns_end));
            self.room.slot_waited();
            return self.wait_for_slot();
        }
        (self.waits, self.slots_wanted) = (0, 0);
        match self.parts.lane.append(&frames) {
            Ok(end) => {
                self.check_free_space();
                self.oracle.committed(turn);
                if rest.is_empty() {
                    self.in_flight = Some(InFlight::Synced(end));
                    return Ok(());
                }
                self.in_flight = Some(InFlight::Taken(rest, turn, turns_end));
                self.committed(end)
            }
            Err(_) if self.disk.is_off() => Err(Stop::PowerOff),
            Err(fault) => {
                self.trace.step(format_args!("  fenced: {fault}"));
                self.is_fenced = true;
                self.oracle.fenced();
                self.parts.shard.fence();
                Ok(self.after(&[])?)
            }
        }
    }

    fn committed(&mut self, end: Position) -> Result<(), Stop> {
        self.trace.step(format_args!("  committed to {end}"));
        self.committed = end;
        self.parts.shard.set_spare_slots(self.parts.lane.spare_count(), end);
        self.parts.shard.handle_commit(end, self.now);
        Ok(self.after(&[])?)
    }

    /// Answers the waiting read with this index.
    ///
    /// # Errors
    /// The broken promise, or a power failure.
    pub fn read_step(&mut self, index: u64) -> Result<(), Stop> {
        if self.fetches.is_empty() {
            return Ok(());
        }
        let fetch = self.fetches.remove((index % self.fetches.len() as u64) as usize);
        let bytes = self.parts.reader.read(fetch.position, fetch.length);
        if self.disk.is_off() {
            return Err(Stop::PowerOff);
        }
        self.trace.step(format_args!("  fetched {fetch:?} {}", bytes.is_ok()));
        self.parts.shard.handle_fetch(fetch, bytes.ok(), self.now);
        Ok(self.after(&[])?)
    }

    /// Runs one step of the mover.
    ///
    /// # Errors
    /// The broken promise, or a power failure.
    pub fn move_step(&mut self) -> Result<(), Stop> {
        let step =
            self.moving.step(&mut (&mut self.parts).into(), &self.room, &self.trace, self.now)?;
        if self.disk.is_off() {
            return Err(Stop::PowerOff);
        }
        if step == MoveStep::Reported {
            self.after(&[])?;
        }
        Ok(())
    }

    /// Whether the lane, the reader or the mover has work.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !self.commands.is_empty()
            || self.in_flight.is_some()
            || !self.fetches.is_empty()
            || self.moving.is_busy()
            || self.parts.shard.has_frames()
    }

    /// Whether commands, the lane or the reader have work that they can do now.
    #[must_use]
    pub fn is_committing(&self) -> bool {
        let waits_for_room = self.room.is_full() && self.parts.lane.spare_count() == 0;
        let has_frames = self.in_flight.is_some() || self.parts.shard.has_frames();
        !self.is_fenced
            && (!self.commands.is_empty()
                || !self.fetches.is_empty()
                || (has_frames && !waits_for_room))
    }

    /// Stops the shard and starts it again from the disk: after a power failure if `crash` is set, otherwise after
    /// the death of the process. `before` runs before each attempt to start.
    ///
    /// # Errors
    /// The broken promise, such as that the shard starts again.
    pub fn restart(
        &mut self,
        crash: bool,
        mut before: impl FnMut(&SimulatedDisk, u32),
    ) -> Result<(), Violation> {
        self.check_rested()?;
        if crash {
            self.disk.crash()
        } else {
            self.disk.kill()
        }
        self.in_flight = None;
        self.fetches.clear();
        self.committed = Position(0);
        self.moving = MoverSteps::default();
        self.surplus.clear();
        self.commands.clear();
        self.dead_letter_topics_needed.clear();
        (self.is_fenced, self.slot_request) = (false, None);
        (self.waits, self.slots_wanted) = (0, 0);
        self.oracle.crashed();
        self.publishers.disconnected();
        self.consumers.disconnected();
        self.readers.disconnected();
        self.streams.disconnected();
        self.workbench.disconnected();
        for attempt in 0.. {
            before(&self.disk, attempt);
            self.trace.step(format_args!("recover at {:?}", self.now));
            match recover(&self.disk, self.config.clone(), self.settings, self.now) {
                Ok(parts) if !self.disk.is_off() => {
                    self.parts = parts;
                    break;
                }
                Ok(_) | Err(RecoverError::Journal(Fault::Io { .. })) if attempt < 20 => {
                    self.disk.kill();
                }
                Ok(_) => {}
                Err(error) => {
                    return Err(Violation::new(RECOVERS, error.to_string()));
                }
            }
        }
        self.trace.step(format_args!("recovered {:?}", self.parts.report));
        if self.reports_damage() && !self.has_rot {
            return Err(Violation::new(NO_ROT, format!("{:?}", self.parts.report)));
        }
        let report = &self.parts.report;
        if report.damage.is_empty() && !report.lost_segments.is_empty() {
            // No record is lost. A segment whose header has rotted is found by its frames.
            return Err(Violation::new(KEPT_SEGMENT, format!("{report:?}")));
        }
        self.check_rebuilt()?;
        self.init_slot_budget()?;
        self.moving.take_released(&mut (&mut self.parts).into(), &self.trace)?;
        let mut ids: Vec<PartitionId> = self.parts.shard.engine().partition_ids().collect();
        ids.sort_unstable();
        ids.retain(|id| !self.oracle.is_stream(*id) && !workbench_topics::is_partition(*id));
        self.oracle.check_streams_recovered(&self.found_streams(), self.now)?;
        let found = self.descriptions(&ids);
        self.oracle.check_recovered(self.parts.report.generation, &found, self.now)?;
        ids.into_iter().try_for_each(|id| self.cursors(id))
    }

    /// The streams in the shard's memory.
    fn found_streams(&self) -> Vec<FoundStream> {
        let engine = self.parts.shard.engine();
        let mut forks: BTreeMap<PartitionId, BTreeSet<TopicId>> = BTreeMap::new();
        for (source, fork) in engine.held_streams() {
            forks.entry(source).or_default().extend(fork);
        }
        let streams = engine.partition_ids().filter(|id| self.oracle.is_stream(*id));
        let found = streams.filter_map(|id| {
            let (status, is_deleted) = engine.look_at_stream(id)?;
            Some((id, status, is_deleted, forks.remove(&id).unwrap_or_default()))
        });
        found.collect()
    }

    /// Whether the start has reported damage or a loss.
    #[must_use]
    pub fn reports_damage(&self) -> bool {
        let report = &self.parts.report;
        !report.damage.is_empty() || report.doubtful_partitions > 0 || !report.lost_packs.is_empty()
    }

    /// Checks after a start that has reported damage that no offset is reused. `ends` are the earlier ends of the
    /// partitions.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn check_no_offset_reused(&mut self, ends: &[(PartitionId, u64)]) -> Result<(), Violation> {
        let ids: Vec<PartitionId> = self.parts.shard.engine().partition_ids().collect();
        for (id, description) in self.descriptions(&ids) {
            let least = ends.iter().find(|(held, _)| *held == id).map_or(0, |held| held.1);
            if description.end.0 < least {
                let detail = format!("{id} ends at {}, and went to {least}", description.end);
                return Err(Violation::new("I4 no offset is reused after rot", detail));
            }
        }
        Ok(())
    }

    /// Asserts the engine's invariants.
    pub fn check(&self) {
        #[cfg(debug_assertions)]
        self.parts.shard.engine().check();
    }
}
