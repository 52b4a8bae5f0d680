//! A broker on a full disk, killed again and again. Starts, deliveries, acks and group changes must continue, and
//! publishing resumes once there is room for one segment more than the broker holds.

use sennit_engine::Command;
use sennit_journal::disk::FaultPlan;

use crate::{
    atomic_append_actions, oracle::Violation, random::Random, run::Run, script::to_violation,
    stream_actions, workbench_actions, world::Stop,
};

/// Derives another random source from a seed, so that a full disk does not change the rest of the run.
const FULL: u64 = 0xF011_D15C;
/// Derives the random source that decides whether slots are created in time.
const LATE: u64 = 0x1A7E;
/// Steps within which a lane has its held slots.
const HELD_STEPS: u32 = 200;
/// Publishes within which the disk is full.
const FILLING_PUBLISHES: u32 = 60;
/// Rounds within which publishing resumes once there is room.
const ROUNDS: u32 = 100;

/// The promise that a full disk recovers.
const RESUMES: &str = "I8 publishing check_publishing_resumes once there is room";

impl Run {
    /// Fills the disk, stops and starts the broker on it, delivers all outstanding messages, and frees room.
    pub(crate) fn run_full_disk(&mut self, seed: u64) -> Result<(), Violation> {
        let mut random = Random::new(seed ^ FULL);
        self.world.trace.step(format_args!("the disk is filled"));
        self.plan(false);
        if self.world.disk.is_off() || self.world.is_fenced {
            self.restart(false)?;
            self.plan(false);
        }
        self.world.disk.power_on();
        self.settle_down_calmly(200)?;
        for _ in 0..HELD_STEPS {
            if self.world.has_held_slots() {
                break;
            }
            self.world.slot_step().map_err(to_violation)?;
        }
        let more = random.below(2 * self.swarm.segment_bytes);
        self.leave_free(more);
        self.world.slots_are_late = Random::new(seed ^ LATE).chance(500);
        self.fill(&mut random)?;
        self.world.slots_are_late = false;
        // Generations that end in their first segment, or later.
        let longest = *random.pick(&[8, 30, 100]).expect("there are three");
        for _ in 0..random.between(1, 20) {
            self.world.disk.power_off_after(random.between(1, longest));
            let worked = self.serve_consumers(&mut random);
            let is_crash = random.chance(600);
            match worked {
                Err(Stop::Violation(violation)) => return Err(violation),
                Ok(()) | Err(Stop::PowerOff) => self.restart_on_full_disk(is_crash, &mut random)?,
            }
        }
        self.world.disk.power_on();
        self.settle_down_calmly(1000)?;
        self.drain()?;
        self.check_publishing_resumes()
    }

    /// Limits the capacity: other programs take all free space except `bytes`.
    fn leave_free(&mut self, bytes: u64) {
        let used: usize = self.world.disk.files().iter().map(|(_, length)| length).sum();
        let plan = self.world.disk.plan();
        self.world.disk.set_plan(FaultPlan { capacity_bytes: used as u64 + bytes, ..plan });
    }

    /// Publishes until the disk is full.
    fn fill(&mut self, random: &mut Random) -> Result<(), Violation> {
        for _ in 0..FILLING_PUBLISHES {
            let Some(partition) = self.topics.to_publish(random) else { return Ok(()) };
            if self.world.room.is_full() {
                return Ok(());
            }
            let request = self.world.request();
            let publish = self.world.publishers.publish(random, &self.swarm, partition, request);
            self.world.submit(Command::Publish(publish));
            self.settle_down_calmly(20)?;
        }
        Ok(())
    }

    /// Consumers subscribe, take and settle messages until the power fails.
    fn serve_consumers(&mut self, random: &mut Random) -> Result<(), Stop> {
        self.topics.subscribe_all(&mut self.world, random);
        for _ in 0..random.below(20) {
            self.world.turn()?;
            for _ in 0..4 {
                self.world.slot_step()?;
                self.world.lane_step()?;
                self.world.read_step(0)?;
                self.world.move_step()?;
            }
            let request = self.world.request();
            let settle = self.world.consumers.settle(random, &self.swarm, request);
            settle.into_iter().for_each(|command| self.world.submit(command));
        }
        Ok(())
    }

    /// Starts the broker again, at times after starts that a power failure ends.
    fn restart_on_full_disk(
        &mut self,
        is_crash: bool,
        random: &mut Random,
    ) -> Result<(), Violation> {
        let distances: Vec<u64> = (0..random.below(3)).map(|_| random.between(1, 30)).collect();
        let plan = self.world.disk.plan();
        self.world.restart(is_crash, |disk, attempt| {
            disk.set_plan(plan);
            if let Some(&distance) = distances.get(attempt as usize) {
                disk.power_off_after(distance);
            }
        })?;
        self.topics.open_all(&mut self.world)?;
        stream_actions::clean_up(&mut self.world);
        workbench_actions::open(&mut self.world);
        atomic_append_actions::send_again(&mut self.world);
        Ok(())
    }

    /// Frees room for the missing slots, and checks that publishes are accepted again.
    fn check_publishing_resumes(&mut self) -> Result<(), Violation> {
        let missing = self.world.room.missing(self.world.parts.lane.spare_count()) as u64;
        self.leave_free(missing * self.swarm.segment_bytes);
        for _ in 0..ROUNDS {
            self.world.slot_step().map_err(to_violation)?;
            if !self.world.room.is_full() {
                // Publishes and packs may fill the disk again from here on.
                return Ok(());
            }
            self.settle_down_calmly(20)?;
        }
        let detail = format!("{:?}, {missing} slots were missing", self.world.room);
        Err(Violation::new(RESUMES, detail))
    }
}
