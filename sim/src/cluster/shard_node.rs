//! A node whose replica has a real shard: on a disk that fails, with a lane whose syncs take time, a clock of the time of
//! day that jumps, and helpers that read, make states anew and make slots when they get to it.

use std::{collections::BTreeSet, path::PathBuf};

use bytes::Bytes;
use sennit_engine::{Command, Effect};
use sennit_journal::{Frame, Lane, LaneConfig, Reader, SlotMaker, disk::FaultPlan};
use sennit_model::Timestamp;
use sennit_replica::{Moment, OutgoingMessage, Replica, ReplicaSettings};
use sennit_replication::{Membership, Message, MessageKind, Role};
use sennit_shard::{
    Fetch, Mover, PackLengths, Rebuild, Recovered, Settings, SlotBudget, TakeOver, recover,
};

use crate::{
    cluster::{
        label_node::{class_of, replica_id},
        node::{Node, Outgoing, Stop},
        rot::{Rot, check_silent},
        shard_weather::ShardWeather,
        synced_log::SyncedLog,
    },
    disk::{InjectedFault, SimulatedDisk},
    mover_steps::{MoverParts, MoverSteps},
    oracle::Violation,
    random::Random,
    trace::Trace,
    world::{NO_ROT, RECOVERS},
};

/// The number of the group.
const GROUP: u64 = 7;
/// The time of day at which all clocks begin.
const BEGIN: Timestamp = Timestamp(1_800_000_000_000);
/// Bytes that say how long a message is, in front of it.
const LENGTH_BYTES: usize = 4;

/// The promise that no file goes that a log needs, whatever of the log is cut.
const KEEPS_FILES: &str = "I1 a state that is made anew finds its batches";

/// The number of the newest marked entries of which one may rot: a start reads these.
const NEWEST: usize = 8;

/// A process that runs.
struct Process {
    replica: Replica,
    lane: Lane<SimulatedDisk>,
    slots: SlotMaker<SimulatedDisk>,
    reader: Reader<SimulatedDisk>,
    fetches: Vec<Fetch>,
    rebuild: Option<Rebuild<SimulatedDisk>>,
    mover: Mover<SimulatedDisk>,
    moving: MoverSteps,
}

/// A node with a replica that has a shard.
pub struct ShardNode {
    node: usize,
    nodes: usize,
    weather: ShardWeather,
    random: Random,
    disk: SimulatedDisk,
    process: Option<Process>,
    /// Frames that the lane writes, and has not said to be synced.
    in_flight: Vec<Frame>,
    /// Whether that has failed already.
    has_failed: bool,
    /// Milliseconds by which the clock of the time of day is ahead.
    ahead_ms: i64,
    now: Moment,
    outgoing: Vec<Outgoing>,
    effects: Vec<Effect>,
    taken: Vec<Frame>,
    synced: SyncedLog,
    trace: Trace,
    /// How many processes there were.
    pub lives: u64,
    /// How often a state was made anew.
    pub rebuilds: u64,
    /// The nodes that need what lies before this one's log.
    behind: BTreeSet<usize>,
    /// Whether the disk has no room for messages.
    is_full: bool,
    rot: Rot,
    /// Whether the state is to be compared when that is possible.
    pub is_to_compare: bool,
}

impl ShardNode {
    /// A node that has never run.
    pub fn new(node: usize, nodes: usize, weather: &ShardWeather, seed: u64, trace: Trace) -> Self {
        Self {
            node,
            nodes,
            weather: weather.clone(),
            random: Random::new(seed),
            disk: SimulatedDisk::new(seed, trace.clone()),
            process: None,
            in_flight: Vec::new(),
            has_failed: false,
            ahead_ms: 0,
            now: Moment { time: BEGIN, monotonic_ns: 0 },
            outgoing: Vec::new(),
            effects: Vec::new(),
            taken: Vec::new(),
            synced: SyncedLog::new(),
            trace,
            lives: 0,
            rebuilds: 0,
            behind: BTreeSet::new(),
            is_full: false,
            rot: Rot::default(),
            is_to_compare: false,
        }
    }

    /// The replica, while the process runs.
    pub fn replica(&mut self) -> Option<&mut Replica> {
        self.process.as_mut().map(|process| &mut process.replica)
    }

    /// The log that its lane has synced.
    pub fn synced(&self) -> &SyncedLog {
        &self.synced
    }

    /// Takes what its clients are told.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Takes the frames that the lane was given since.
    pub fn take_frames(&mut self) -> Vec<Frame> {
        std::mem::take(&mut self.taken)
    }

    /// Takes the nodes that need what lies before this one's log.
    pub fn take_behind(&mut self) -> BTreeSet<usize> {
        std::mem::take(&mut self.behind)
    }

    /// The term in which it may give, if it may.
    pub fn gives_in(&self, read_us: u64) -> Option<u64> {
        let process = self.process.as_ref().filter(|of| of.replica.role() == Role::Leader)?;
        process.replica.gives_in(self.moment(read_us))
    }

    /// A client says something.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn tell(&mut self, command: Command, read_us: u64) -> Result<(), Violation> {
        self.look_at_clocks(read_us);
        self.trace.step(format_args!("  {} hears a client", self.node));
        self.trace.command(&command);
        if let Some(process) = &mut self.process {
            process.replica.handle(&mut vec![command], self.now);
        }
        self.after()
    }

    fn look_at_clocks(&mut self, read_us: u64) {
        self.now = self.moment(read_us);
    }

    fn moment(&self, read_us: u64) -> Moment {
        let ms = BEGIN.0 + read_us / 1000;
        let time = Timestamp(ms.saturating_add_signed(self.ahead_ms));
        Moment { time, monotonic_ns: read_us * 1000 }
    }

    /// Takes what the replica has to say.
    fn after(&mut self) -> Result<(), Violation> {
        let Some(process) = &mut self.process else { return Ok(()) };
        let mut messages = Vec::new();
        process.replica.take_messages(&mut messages);
        let term = process.replica.term();
        for OutgoingMessage { message, body } in messages {
            let labels = process.replica.shard_mut().labels().expect("it is a replica");
            let own = |index| labels.term(index);
            if self.rot.is_found() {
                check_silent(&message)?;
            } else {
                self.synced.check_sent(&message, term, own)?;
            }
            self.trace.step(format_args!("  {} > {message:?}", self.node));
            let (to, class) = (message.to as usize - 1, class_of(&message));
            self.outgoing.push(Outgoing { to, class, bytes: encode(&message, body.as_ref()) });
        }
        let effects = process.replica.effects().drain(..);
        for effect in effects {
            self.trace.effect(&effect);
            self.effects.push(effect);
        }
        process.replica.take_fetches(&mut process.fetches);
        let mut released = Vec::new();
        process.replica.shard_mut().take_released(&mut released);
        for segment in released {
            self.trace.step(format_args!("  {} releases segment {segment}", self.node));
            process.lane.release(segment);
        }
        let behind = process.replica.take_behind().into_iter();
        self.behind.extend(behind.map(|replica| replica as usize - 1));
        Ok(())
    }

    /// The helpers do something each, if there is something.
    fn help(&mut self) -> Result<(), Violation> {
        let Some(process) = &mut self.process else { return Ok(()) };
        let now = self.now;
        if !process.fetches.is_empty() {
            let index = self.random.below(process.fetches.len() as u64) as usize;
            let fetch = process.fetches.remove(index);
            let bytes = process.reader.read(fetch.position, fetch.length);
            self.trace.step(format_args!("  {} fetches {fetch:?} {}", self.node, bytes.is_ok()));
            process.replica.handle_fetch(fetch, bytes.ok(), now);
        }
        if self.random.chance(self.weather.moves) {
            self.move_on()?;
        }
        let Some(process) = &mut self.process else { return Ok(()) };
        let fails = |error| Violation::new(RECOVERS, format!("a rebuild fails: {error}"));
        if process.replica.is_poisoned() {
            let mut rebuild = match process.rebuild.take() {
                Some(rebuild) => rebuild,
                None => {
                    self.trace.step(format_args!("  {} begins to make its state anew", self.node));
                    process.replica.begin_rebuild(process.reader.duplicate(), now)
                }
            };
            let has_more = rebuild.step().map_err(|error| fails(error.to_string()))?;
            if has_more {
                process.rebuild = Some(rebuild);
            } else {
                let taken = process.replica.take_over(rebuild, now);
                match taken.map_err(|error| fails(error.to_string()))? {
                    TakeOver::Done => {
                        self.trace.step(format_args!("  {} has made its state anew", self.node));
                        (self.rebuilds, self.is_to_compare) = (self.rebuilds + 1, true);
                        let damage = process.replica.shard().damage();
                        if let Some(at) = damage.filter(|_| !self.rot.is_found()) {
                            let detail = format!("{} has nothing at {at:?}", self.node);
                            return Err(Violation::new(KEEPS_FILES, detail));
                        }
                    }
                    TakeOver::TooEarly(rebuild) => process.rebuild = Some(*rebuild),
                }
            }
        }
        self.after()
    }

    /// The mover does a step.
    fn move_on(&mut self) -> Result<(), Violation> {
        let Some(Process { replica, lane, mover, moving, .. }) = &mut self.process else {
            return Ok(());
        };
        let mut parts = MoverParts { shard: replica.shard_mut(), mover, lane };
        moving.take_released(&mut parts, &self.trace)?;
        // The disk has room for all slots.
        moving.step(&mut parts, &SlotBudget::new(0, false), &self.trace, self.now.time)?;
        Ok(())
    }

    /// Has the lane write what is in flight.
    fn write(&mut self) -> Option<sennit_journal::Position> {
        let Process { lane, slots, .. } = self.process.as_mut()?;
        while lane.fits(&self.in_flight) < self.in_flight.len() {
            lane.add_spare(slots.make().ok()?);
        }
        lane.append(&self.in_flight).ok()
    }

    /// A call of the disk within the write that is in flight.
    fn any_call(&mut self) -> u64 {
        self.random.between(1, 2 * self.in_flight.len() as u64 + 2)
    }
}

/// A message and its body as bytes.
fn encode(message: &Message, body: Option<&Bytes>) -> Vec<u8> {
    let encoded = message.encode();
    let mut bytes = (encoded.len() as u32).to_le_bytes().to_vec();
    bytes.extend(encoded);
    bytes.extend(body.into_iter().flatten());
    bytes
}

/// The message and the body that [`encode`] has made of them.
fn decode(bytes: &[u8]) -> Option<(Message, Option<Bytes>)> {
    let (length, rest) = bytes.split_first_chunk::<LENGTH_BYTES>()?;
    let (message, body) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    let body = (!body.is_empty()).then(|| Bytes::copy_from_slice(body));
    Some((Message::decode(message).ok()?, body))
}

impl Node for ShardNode {
    fn is_up(&self) -> bool {
        self.process.is_some()
    }

    fn leads(&self) -> bool {
        self.process.as_ref().is_some_and(|process| process.replica.role() == Role::Leader)
    }

    fn start(&mut self, read_us: u64) -> Result<(), Violation> {
        self.look_at_clocks(read_us);
        self.disk.set_plan(FaultPlan::default());
        self.lives += 1;
        let config = LaneConfig {
            directory: PathBuf::from("data/lane-0"),
            lane: 0,
            segment_bytes: self.weather.segment_bytes,
            incarnation: replica_id(self.node),
        };
        let replica =
            sennit_shard::Replica { group: GROUP, id: replica_id(self.node), is_alone: false };
        let settings = Settings {
            cache_bytes: self.weather.cache_bytes,
            journal_segments: self.weather.journal_segments,
            packs: PackLengths::default(),
            writes_superseded: true,
            replica: Some(replica),
        };
        let recovered = recover(&self.disk, config, settings, self.now.time);
        let recovered = recovered
            .map_err(|error| Violation::new(RECOVERS, format!("{}: {error}", self.node)))?;
        let Recovered { shard, lane, reader, slots, mover, report, .. } = recovered;
        self.trace.step(format_args!("  {} has recovered {report:?}", self.node));
        let is_found = !report.damage.is_empty() || shard.quarantine().is_some();
        let is_rotten = self.rot.started(&self.disk, is_found);
        let has_lost = !report.lost_segments.is_empty() || !report.lost_packs.is_empty();
        if !is_rotten && (!report.damage.is_empty() || report.doubtful_partitions > 0 || has_lost) {
            return Err(Violation::new(NO_ROT, format!("{}: {report:?}", self.node)));
        }
        let settings =
            ReplicaSettings { first_members: Membership::of((0..self.nodes).map(replica_id)) };
        let replica = Replica::new(shard, &settings, self.now);
        let mut replica = replica.map_err(|error| Violation::new(RECOVERS, error.to_string()))?;
        let shard = replica.shard_mut();
        // A slot is made whenever one is needed.
        shard.set_spare_slots(usize::MAX, shard.end());
        let here = shard.here().expect("it is a replica");
        let labels = shard.labels().expect("it is a replica");
        if !is_rotten {
            self.synced.check_start(here, labels, &self.in_flight)?;
        }
        self.in_flight.clear();
        let (fetches, rebuild, moving) = (Vec::new(), None, MoverSteps::default());
        let process = Process { replica, lane, slots, reader, fetches, rebuild, mover, moving };
        self.process = Some(process);
        self.is_to_compare = !is_rotten;
        self.after()
    }

    fn stop(&mut self, how: Stop, random: &mut Random) {
        self.trace.step(format_args!("  {} stops: {how:?}", self.node));
        let keeps_all = random.chance(self.weather.crash_keeps_all);
        let keeps = if keeps_all { 1000 } else { [0, 300, 700][random.below(3) as usize] };
        let crash_tears = [0, 300][random.below(2) as usize];
        self.disk.set_plan(FaultPlan { crash_keeps: keeps, crash_tears, ..FaultPlan::default() });
        if !self.in_flight.is_empty() && !self.has_failed {
            let at = self.any_call();
            match how {
                Stop::Kill => self.disk.inject_at(at, InjectedFault::ProcessGoes),
                Stop::PowerCut => self.disk.power_off_after(at),
            }
            self.write();
            self.disk.clear_injected_fault();
        }
        match how {
            Stop::Kill => self.disk.kill(),
            Stop::PowerCut => self.disk.crash(),
        }
        (self.process, self.has_failed) = (None, false);
        self.rot.happens(&self.disk, &self.trace);
        self.outgoing.clear();
        self.effects.clear();
    }

    fn tick(&mut self, read_us: u64) -> Result<(), Violation> {
        if self.random.chance(self.weather.clock_jumps) {
            let most = self.weather.jump_ms_max;
            self.ahead_ms += self.random.below(2 * most + 1) as i64 - most as i64;
            self.trace
                .step(format_args!("  the clock of {} is {} ahead", self.node, self.ahead_ms));
        }
        self.look_at_clocks(read_us);
        let now = self.now;
        if let Some(process) = &mut self.process {
            if self.random.chance(self.weather.checkpoints) {
                process.replica.shard_mut().checkpoint_soon();
            }
            if process.replica.shard().is_storage_full() != self.is_full {
                process.replica.shard_mut().set_storage_full(self.is_full);
            }
            process.replica.tick(now);
            process.replica.advance(now);
        }
        self.after()?;
        for _ in 0..self.random.between(1, 4) {
            self.help()?;
        }
        Ok(())
    }

    fn hear(&mut self, _from: usize, bytes: &[u8], read_us: u64) -> Result<(), Violation> {
        self.look_at_clocks(read_us);
        let Some(process) = &mut self.process else { return Ok(()) };
        let (message, body) = decode(bytes).ok_or_else(|| {
            Violation::new("I2 a message is what was sent", self.node.to_string())
        })?;
        self.trace.step(format_args!("  {} < {message:?}", self.node));
        if let Err(error) = process.replica.hear(&message, body, self.now) {
            self.trace.step(format_args!("  {} does not hear it: {error}", self.node));
        }
        self.after()?;
        // A core that is woken looks at what its helpers have done.
        match self.random.chance(500) && matches!(message.kind, MessageKind::Append { .. }) {
            true => self.help(),
            false => Ok(()),
        }
    }

    fn lose_link(&mut self, peer: usize, read_us: u64) -> Result<(), Violation> {
        self.look_at_clocks(read_us);
        if let Some(process) = &mut self.process {
            process.replica.link_lost(replica_id(peer), self.now);
        }
        self.after()
    }

    fn ask(&mut self, read_us: u64) -> Result<(), Violation> {
        // It asks by itself, with each second tick.
        self.look_at_clocks(read_us);
        self.help()
    }

    fn transfer(&mut self, to: usize, read_us: u64) -> Result<(), Violation> {
        self.look_at_clocks(read_us);
        if let Some(process) = &mut self.process {
            let refused = process.replica.transfer(replica_id(to), self.now).err();
            self.trace.step(format_args!("  {} hands over to {to}: {refused:?}", self.node));
        }
        self.after()
    }

    fn begin_sync(&mut self) -> bool {
        let Some(process) = &mut self.process else { return false };
        if !self.in_flight.is_empty() || !process.replica.shard().has_frames() {
            return false;
        }
        process.replica.take_frames(&mut self.in_flight, self.now);
        self.taken.extend(self.in_flight.iter().cloned());
        !self.in_flight.is_empty()
    }

    fn end_sync(&mut self, read_us: u64) -> Result<(), Violation> {
        self.look_at_clocks(read_us);
        let end = self.write();
        let end = end.ok_or_else(|| Violation::new(RECOVERS, "a disk without faults fails"))?;
        let frames = std::mem::take(&mut self.in_flight);
        self.trace.step(format_args!("  {} has synced {} frames", self.node, frames.len()));
        self.synced.add(&frames);
        if let Some(process) = &mut self.process {
            process.replica.written(end, self.now);
        }
        self.rot.synced(end);
        self.after()
    }

    fn fail_sync(&mut self, random: &mut Random) {
        let (fails, at) = (random.chance(500), self.any_call());
        let sync_fails = if fails { 1000 } else { 0 };
        self.disk.set_plan(FaultPlan { sync_fails, ..FaultPlan::default() });
        if !fails {
            self.disk.inject_at(at, InjectedFault::Fails);
        }
        self.write();
        self.disk.clear_injected_fault();
        self.has_failed = true;
    }

    fn set_full(&mut self, is_full: bool) {
        self.is_full = is_full;
    }

    fn prepare_to_rot(&mut self, random: &mut Random) -> bool {
        let Some(process) = &mut self.process else { return false };
        let labels = process.replica.shard_mut().labels().expect("it is a replica");
        let bodies = (labels.first_index()..=labels.last().index)
            .rev()
            .filter_map(|index| labels.get(index));
        let bodies: Vec<_> = bodies
            .map(|label| label.body)
            .filter(|body| self.rot.is_marked(body.position()))
            .take(NEWEST)
            .collect();
        let Some(body) = random.pick(&bodies) else { return false };
        let (position, length) = (body.position(), body.bytes as usize);
        let Ok(bytes) = process.reader.read(position, length) else { return false };
        let at = (position.0 % self.weather.segment_bytes) as usize;
        self.rot.prepare(&self.disk, (at, &bytes), random)
    }

    fn is_rotten(&self) -> bool {
        self.rot.is_found()
    }

    fn take_outgoing(&mut self) -> Result<Vec<Outgoing>, Violation> {
        self.after()?;
        Ok(std::mem::take(&mut self.outgoing))
    }
}
