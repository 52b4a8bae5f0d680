//! A lane against a simple model: a list of records with a committed prefix.

use proptest::prelude::*;
use sennit_journal::{
    Fault, Position,
    disk::{FaultPlan, FaultyDisk},
};

use crate::world::{Entry, SEGMENT_BYTES, World, body};

#[derive(Clone, Debug)]
enum Step {
    Push(usize),
    Seal,
    Commit,
    Mark,
    BeginReplay,
    Read(prop::sample::Index),
    Crash,
    Kill,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..3000usize).prop_map(Step::Push),
        1 => (3000..12_000usize).prop_map(Step::Push),
        2 => Just(Step::Seal),
        5 => Just(Step::Commit),
        1 => Just(Step::Mark),
        1 => Just(Step::BeginReplay),
        3 => any::<prop::sample::Index>().prop_map(Step::Read),
        1 => Just(Step::Crash),
        1 => Just(Step::Kill),
    ]
}

fn plan() -> impl Strategy<Value = FaultPlan> {
    let now_and_then = || prop_oneof![Just(0), 0..60u32];
    let segments = prop_oneof![2 => Just(0), 1 => 2..9u64];
    (0..1000u32, 0..1000u32, now_and_then(), now_and_then(), segments).prop_map(
        |(crash_keeps, crash_tears, sync_fails, write_fails, segments)| FaultPlan {
            crash_keeps,
            crash_tears,
            sync_fails,
            write_fails,
            capacity_bytes: segments * SEGMENT_BYTES,
            ..Default::default()
        },
    )
}

/// What must be on the disk, and what may be.
#[derive(Default)]
struct Twin {
    /// Every record since the lane was made, that was not lost.
    log: Vec<Entry>,
    committed: usize,
    /// Where a replay must begin, and where the last attempt to move that would let it.
    replay_from: Position,
    replay_may_begin: Position,
}

impl Twin {
    /// All that was pushed is durable, with the newest word on where a replay begins.
    fn has_committed(&mut self) {
        self.committed = self.log.len();
        self.replay_from = self.replay_may_begin;
    }

    fn opened(&mut self, world: &World<FaultyDisk>) {
        let from = world.replay_from;
        assert!(
            from == self.replay_from || from == self.replay_may_begin,
            "replay from {from}, not {} nor {}",
            self.replay_from,
            self.replay_may_begin
        );
        self.replay_from = from;
        self.replay_may_begin = from;
        let skipped = self.log.iter().filter(|entry| entry.position < from).count();
        let end = skipped + world.found.len();
        assert!(end >= self.committed, "{end} of {} committed records", self.committed);
        assert_eq!(world.found, self.log[skipped..end]);
        self.log.truncate(end);
        self.committed = end;
    }
}

fn open(disk: &FaultyDisk, plan: FaultPlan) -> World<FaultyDisk> {
    // A recovery may fail, and be tried again; it must never say rot, for there is none.
    for _ in 0..20 {
        match World::open(disk) {
            Ok(world) => return world,
            Err(Fault::Io { .. }) => disk.kill(),
            Err(fault) => panic!("{fault}"),
        }
    }
    disk.set_plan(FaultPlan { sync_fails: 0, write_fails: 0, ..plan });
    let world = World::open(disk).unwrap_or_else(|fault| panic!("{fault}"));
    disk.set_plan(plan);
    world
}

fn run(seed: u64, plan: FaultPlan, steps: &[Step]) {
    let disk = FaultyDisk::new(seed, plan);
    let mut twin = Twin::default();
    let mut world = open(&disk, plan);
    for (number, step) in steps.iter().enumerate() {
        let outcome = match step {
            Step::Push(length) => {
                twin.log.push(world.push(number as u8, &body(number as u64, *length)));
                Ok(())
            }
            Step::Seal => {
                world.seal();
                Ok(())
            }
            Step::Commit => world.commit().map(drop),
            Step::Mark => world.mark(),
            Step::BeginReplay => world.commit().and_then(|_| {
                twin.has_committed();
                let next = world.lane.segments().max().map_or(0, |segment| segment + 1);
                twin.replay_may_begin = Position(next * SEGMENT_BYTES);
                world.begin_replay_here()
            }),
            Step::Read(index) => {
                read(&mut world, &twin, index);
                continue;
            }
            Step::Crash | Step::Kill => {
                if matches!(step, Step::Crash) {
                    disk.crash()
                } else {
                    disk.kill()
                }
                world = open(&disk, plan);
                twin.opened(&world);
                continue;
            }
        };
        match (outcome, step) {
            (Ok(()), Step::Commit | Step::Mark | Step::BeginReplay) => {
                twin.has_committed();
            }
            // On a full disk nothing is committed and nothing is lost.
            (Ok(()) | Err(Fault::StorageFull { .. }), _) => {}
            (Err(Fault::Io { .. } | Fault::Fenced), _) => {
                disk.kill();
                world = open(&disk, plan);
                twin.opened(&world);
            }
            (Err(fault), _) => panic!("step {number}: {fault}"),
        }
    }
    disk.crash();
    twin.opened(&open(&disk, plan));
}

/// Reads one of the committed records that are still held.
fn read(world: &mut World<FaultyDisk>, twin: &Twin, index: &prop::sample::Index) {
    let skipped = twin.log.iter().filter(|entry| entry.position < twin.replay_from).count();
    if skipped < twin.committed {
        let entry = &twin.log[skipped + index.index(twin.committed - skipped)];
        let read = world.reader.read(entry.position, entry.body.len()).unwrap();
        assert_eq!(read, entry.body);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn a_lane_is_a_list_that_survives(
        seed: u64,
        plan in plan(),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        run(seed, plan, &steps);
    }
}
