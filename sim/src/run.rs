//! The run of one seed: draws operations, `world` executes them, `oracle` judges them. `drain` is its end.

use std::{
    cell::Cell,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
};

use sennit_engine::Command;
use sennit_journal::disk::FaultPlan;
use sennit_shard::Settings;

use crate::{
    atomic_append_actions, atomic_step_actions,
    consumers::random_credit,
    native_publishing,
    oracle::Violation,
    random::Random,
    reader_actions,
    readers::Readers,
    seeds::run_on_threads,
    stream_actions,
    streams::Streams,
    swarm::{OPERATIONS, Operation, Swarm},
    topics::Topics,
    trace::Trace,
    workbench::WorkbenchUsers,
    workbench_actions,
    world::{Stop, World},
};

/// Operations between two checks of the engine's own invariants.
const CHECK_EVERY: u64 = 16;

/// Derives the random source of foldings, which change no effect.
const FOLDING: u64 = 0xF01D_ED00;

/// Derives the random source of checkpoints before they are due.
const CHECKPOINTS: u64 = 0xC4EC_4B01;

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The hash of everything that happened.
    pub hash: u64,
    /// The number of steps.
    pub steps: u64,
    /// The number of starts of the shard.
    pub lives: u32,
    /// Messages delivered.
    pub delivered: u64,
}

/// A promise that was broken in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The run's seed.
    pub seed: u64,
    /// The number of operations of the run.
    pub operations: u64,
    /// The operation at which it stopped; a higher number is the drain.
    pub at: u64,
    /// The broken promise.
    pub violation: Violation,
    /// The parameters of the run.
    pub mix: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { seed, operations, at, violation, mix } = self;
        write!(
            f,
            "seed {seed}, operation {at} of {operations}: {violation}\n  replay: cargo run \
             --release -p sennit-sim -- --seed {seed} --operations {operations} --trace\n  {mix}"
        )
    }
}

pub(crate) struct Run {
    pub(crate) random: Random,
    pub(crate) swarm: Swarm,
    pub(crate) world: World,
    pub(crate) topics: Topics,
    lives: u32,
    delivered: u64,
    /// How often partitions are folded after an operation, in parts of a thousand, and the random source.
    folding: (u32, Random),
    /// How often a checkpoint is requested after an operation, and the random source: few checkpoints come due.
    checkpoints: (u32, Random),
}

/// Runs a seed for `operations` operations.
///
/// # Errors
/// The first promise that was broken.
pub fn run(seed: u64, operations: u64, echo: bool) -> Result<Finished, Failure> {
    let trace = Trace::new(echo);
    let at = Cell::new(0);
    let whole = || -> Result<Finished, Violation> {
        let mut run = Run::begin(seed, trace.clone())?;
        for operation in 1..=operations {
            at.set(operation);
            run.operation(operation)?;
        }
        at.set(operations + 1);
        if run.swarm.runs_full {
            run.run_full_disk(seed)?;
        }
        run.end()?;
        let hash = trace.hash();
        let (lives, delivered) = (run.lives, run.delivered);
        Ok(Finished { hash, steps: trace.steps(), lives, delivered })
    };
    let ended = catch_unwind(AssertUnwindSafe(whole)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied());
        Err(Violation::new("no assertion fails", text.unwrap_or("it does not say which")))
    });
    let mix = || mix(seed);
    ended.map_err(|violation| Failure { seed, operations, at: at.get(), violation, mix: mix() })
}

/// The parameters of a seed as text.
#[must_use]
pub fn mix(seed: u64) -> String {
    format!("{:?}", Swarm::of_seed(seed).0)
}

/// Runs seeds on `threads` threads, and returns the failures, by seed. `each` receives the result of every run.
pub fn run_all(
    seeds: Range<u64>,
    operations: u64,
    threads: u64,
    each: impl Fn(u64, &Result<Finished, Failure>) + Sync,
) -> Vec<Failure> {
    run_on_threads(seeds, threads, |seed| {
        let ended = run(seed, operations, false);
        each(seed, &ended);
        ended.map(drop)
    })
}

impl Run {
    fn begin(seed: u64, trace: Trace) -> Result<Self, Violation> {
        let (swarm, mut random) = Swarm::of_seed(seed);
        trace.step(format_args!("seed {seed}: {swarm:?}"));
        let settings = Settings {
            cache_bytes: swarm.cache_bytes,
            journal_segments: swarm.journal_segments,
            packs: swarm.packs,
            writes_superseded: swarm.writes_superseded,
            replica: swarm.replica,
        };
        let mut world = World::begin(random.number(), swarm.segment_bytes, settings, trace)?;
        if !swarm.is_followed {
            world.go_unfollowed();
        }
        let topics = Topics::default();
        world.readers = Readers::new(seed);
        world.streams = Streams::new(seed);
        world.workbench = WorkbenchUsers::new(seed);
        world.workbench.eagerness = swarm.workbench;
        world.workbench.workers.eagerness = swarm.atomic_steps;
        workbench_actions::open(&mut world);
        world.holds_publishers = swarm.runs_full;
        let mut of_folding = Random::new(seed ^ FOLDING);
        let folding = ([0, 50, 300, 1000][of_folding.below(4) as usize], of_folding);
        let mut of_checkpoints = Random::new(seed ^ CHECKPOINTS);
        let checkpoints = ([0, 5, 30, 100][of_checkpoints.below(4) as usize], of_checkpoints);
        let (lives, delivered) = (1, 0);
        let mut run = Self { random, swarm, world, topics, lives, delivered, folding, checkpoints };
        run.plan(true);
        Ok(run)
    }

    /// Sets the disk's random faults: those of the swarm, or only the decisions of a crash.
    pub(crate) fn plan(&mut self, faults: bool) {
        let Swarm { crash_keeps, crash_tears, .. } = self.swarm;
        let base = if faults { self.swarm.faults } else { FaultPlan::default() };
        self.world.disk.set_plan(FaultPlan { crash_keeps, crash_tears, ..base });
    }

    fn operation(&mut self, at: u64) -> Result<(), Violation> {
        let operation = OPERATIONS[self.random.weighted(&self.swarm.weights)];
        self.world.trace.step(format_args!("{at} {operation:?}"));
        let done = self.execute(operation).and_then(|()| self.background_steps());
        self.ignore_power_off(done)?;
        if self.world.is_fenced && self.random.chance(100) {
            let crash = self.random.chance(500);
            self.restart(crash)?;
        }
        if at.is_multiple_of(CHECK_EVERY) {
            self.world.check();
        }
        Ok(())
    }

    fn ignore_power_off(&mut self, done: Result<(), Stop>) -> Result<(), Violation> {
        match done {
            Ok(()) => Ok(()),
            Err(Stop::Violation(violation)) => Err(violation),
            Err(Stop::PowerOff) => self.restart(true),
        }
    }

    fn execute(&mut self, operation: Operation) -> Result<(), Stop> {
        let Self { random, swarm, world, topics, .. } = self;
        match operation {
            Operation::Publish | Operation::Resend if !world.accepts_publishes() => {}
            Operation::Create => topics.create(world, random, swarm)?,
            Operation::Alter => topics.alter(world, random, swarm)?,
            Operation::Drop => topics.drop_one(world, random)?,
            Operation::Publish => {
                if let Some(partition) = topics.to_publish(random) {
                    let request = world.request();
                    let publish = world.publishers.publish(random, swarm, partition, request);
                    world.submit(Command::Publish(publish));
                }
            }
            Operation::Resend => {
                if let Some(partition) = topics.to_publish(random) {
                    let request = world.request();
                    if let Some(publish) = world.publishers.resend(random, partition, request) {
                        world.submit(Command::Publish(publish));
                    }
                }
            }
            Operation::Subscribe => {
                if let Some((partition, group)) = topics.to_subscribe(random) {
                    let request = world.request();
                    let credit = random_credit(random);
                    let command =
                        world.consumers.subscribe(random, partition, group, credit, request);
                    world.submit(command);
                }
            }
            Operation::Credit => {
                world.consumers.credit(random).into_iter().for_each(|c| world.submit(c))
            }
            Operation::Leave => {
                world.consumers.leave(random, swarm).into_iter().for_each(|c| world.submit(c));
            }
            Operation::Settle => {
                let request = world.request();
                let command = world.consumers.settle(random, swarm, request);
                command.into_iter().for_each(|command| world.submit(command));
            }
            Operation::Time => {
                world.turn()?;
                world.now = world.now.plus(swarm.span(random));
            }
            Operation::Disk => {
                for _ in 0..random.between(1, 8) {
                    self.disk_step()?;
                }
            }
            Operation::Faults => self.change_faults(),
            Operation::Restart => {
                if self.lives < self.swarm.generations_max {
                    return Ok(self.stop()?);
                }
            }
        }
        Ok(())
    }

    fn disk_step(&mut self) -> Result<(), Stop> {
        match self.random.below(5) {
            0 => self.world.slot_step(),
            1 => {
                let index = self.random.number();
                self.world.read_step(index)
            }
            2 => self.world.move_step(),
            _ => self.world.lane_step(),
        }
    }

    /// Runs steps of the lane, the reader, the mover and the users beside the operations.
    fn background_steps(&mut self) -> Result<(), Stop> {
        reader_actions::step(&mut self.world)?;
        stream_actions::step(&mut self.world, &self.swarm)?;
        atomic_append_actions::step(&mut self.world, &self.swarm);
        native_publishing::step(&mut self.world, &self.swarm);
        workbench_actions::step(&mut self.world, &self.swarm);
        atomic_step_actions::step(&mut self.world, &self.swarm);
        if self.swarm.delay_changes > 0 && self.random.chance(self.swarm.delay_changes) {
            self.topics.change_delay(&mut self.world, &mut self.random, &self.swarm);
        }
        if self.random.chance(self.swarm.turn_eagerness) {
            self.world.turn()?;
        }
        if self.random.chance(self.swarm.clock_eagerness)
            && self.world.parts.shard.next_wake().is_some_and(|due| due <= self.world.now)
        {
            self.world.advance()?;
        }
        if self.random.chance(300) {
            self.topics.letters(&mut self.world)?;
        }
        if self.random.chance(self.swarm.lane_eagerness) {
            for _ in 0..3 {
                self.world.lane_step()?;
            }
            self.world.slot_step()?;
        }
        if self.random.chance(self.swarm.read_eagerness) {
            let index = self.random.number();
            self.world.read_step(index)?;
        }
        if self.random.chance(self.swarm.move_eagerness) {
            for _ in 0..self.random.between(1, 4) {
                self.world.move_step()?;
            }
        }
        let (eagerness, of_folding) = &mut self.folding;
        if of_folding.chance(*eagerness) {
            let parts = of_folding.between(1, 4) as u32;
            self.world.parts.shard.fold_untouched(parts);
        }
        let (eagerness, of_checkpoints) = &mut self.checkpoints;
        if of_checkpoints.chance(*eagerness) {
            self.world.parts.shard.checkpoint_soon();
        }
        let may_crash = self.lives < self.swarm.generations_max;
        if may_crash && self.random.chance(self.swarm.crash_chance) {
            self.world.disk.power_off_after(self.random.between(1, 40));
        }
        Ok(())
    }

    fn change_faults(&mut self) {
        let faults = self.random.chance(700);
        self.plan(faults);
        // The broker keeps its promises with its held slots: other programs may take the rest of the disk.
        if self.swarm.runs_full && self.random.chance(600) && self.world.has_held_slots() {
            let used: usize = self.world.disk.files().iter().map(|(_, length)| length).sum();
            let room = self.random.below(2 * self.swarm.segment_bytes);
            let capacity_bytes = used as u64 + room;
            let plan = self.world.disk.plan();
            self.world.disk.set_plan(FaultPlan { capacity_bytes, ..plan });
        }
    }

    /// Stops: cleanly, by a kill or by a power cut.
    fn stop(&mut self) -> Result<(), Violation> {
        let how = self.random.below(3);
        if how == 0 {
            let settled = self.settle_down(200);
            self.ignore_power_off(settled)?;
        }
        self.restart(how == 2)
    }

    /// Lets the lane, the reader and the mover finish their work, within `steps` steps.
    pub(crate) fn settle_down(&mut self, steps: u64) -> Result<(), Stop> {
        self.world.turn()?;
        for index in 0..steps {
            self.world.move_step()?;
            if !self.world.is_busy() || self.world.is_fenced {
                break;
            }
            self.world.slot_step()?;
            self.world.lane_step()?;
            // A slow read may find that its batch was moved.
            if self.random.chance(self.swarm.read_eagerness) {
                self.world.read_step(index)?;
            }
        }
        Ok(())
    }

    pub(crate) fn restart(&mut self, crash: bool) -> Result<(), Violation> {
        self.lives += 1;
        self.delivered += self.world.parts.shard.counters().delivered_messages;
        // The first attempts to recover have faults too.
        let troubles =
            if self.lives < self.swarm.generations_max { self.random.below(4) } else { 0 };
        let distances: Vec<u64> = (0..troubles).map(|_| self.random.between(1, 30)).collect();
        let calm =
            FaultPlan { sync_fails: 0, write_fails: 0, read_fails: 0, ..self.world.disk.plan() };
        let faults = FaultPlan { capacity_bytes: calm.capacity_bytes, ..self.swarm.faults };
        let faults =
            FaultPlan { crash_keeps: calm.crash_keeps, crash_tears: calm.crash_tears, ..faults };
        self.world.restart(crash, |disk, attempt| match distances.get(attempt as usize) {
            Some(&distance) => {
                disk.set_plan(faults);
                disk.power_off_after(distance);
            }
            None => disk.set_plan(calm),
        })?;
        if self.lives < self.swarm.generations_max {
            self.plan(true);
        }
        self.topics.open_all(&mut self.world)?;
        stream_actions::clean_up(&mut self.world);
        workbench_actions::open(&mut self.world);
        atomic_append_actions::send_again(&mut self.world);
        Ok(())
    }
}
