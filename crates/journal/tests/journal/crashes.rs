//! After a crash at any point, with any part of the last write, all committed records exist in order, and no record
//! that was never written.

use proptest::prelude::*;
use sennit_journal::{
    BLOCK_BYTES, Fault,
    disk::{FaultPlan, FaultyDisk, MemoryDisk},
};

use crate::world::{Entry, SEGMENT_BYTES, World, body, slot_paths};

/// Cuts the last frame of a lane after each of its bytes; what lies behind is `old` content.
fn cut_everywhere(committed: usize, old: u8) {
    let disk = MemoryDisk::default();
    let mut world = World::open(&disk).unwrap();
    let kept: Vec<Entry> =
        (0..committed as u64).map(|number| world.write(1, &body(number, 700)).unwrap()).collect();
    let last = world.push(2, &body(99, 4100));
    let frame = world.take_sealed().remove(0);
    if frame.first_of_segment {
        let slot = world.slots.make().unwrap();
        world.lane.add_spare(slot);
    }
    let path = slot_paths(&disk)[0].clone();
    let before = disk.bytes_of(&path).unwrap();
    let at = frame.position.in_segment(SEGMENT_BYTES) as usize;
    // The padding of a record is part of what is checked.
    let body_at = (last.position.0 - frame.position.0) as usize;
    let whole_from = body_at + last.body.len().next_multiple_of(8);
    for cut in 0..=frame.bytes.len() {
        let mut bytes = before.clone();
        bytes[at..at + frame.bytes.len()].fill(old);
        bytes[at..at + cut].copy_from_slice(&frame.bytes[..cut]);
        disk.insert_file(&path, bytes);
        let found = World::open(&disk).unwrap().found;
        if cut >= whole_from {
            assert_eq!(found, [&kept[..], std::slice::from_ref(&last)].concat(), "cut at {cut}");
        } else if found.len() > kept.len() {
            // What the cut took away was the same as what lay there.
            assert_eq!(found, [&kept[..], std::slice::from_ref(&last)].concat(), "cut at {cut}");
            assert!(frame.bytes[cut..whole_from].iter().all(|byte| *byte == old), "cut at {cut}");
        } else {
            assert_eq!(found, kept, "cut at {cut}");
        }
    }
}

#[test]
fn a_frame_cut_at_any_byte_is_whole_or_gone() {
    cut_everywhere(1, 0);
    cut_everywhere(1, 0xff);
}

#[test]
fn the_first_frame_of_a_lane_cut_at_any_byte_is_whole_or_gone() {
    cut_everywhere(0, 0);
    cut_everywhere(0, 0xff);
}

#[test]
fn a_torn_tail_is_said_and_the_lane_goes_on_behind_it() {
    let disk = MemoryDisk::default();
    let mut world = World::open(&disk).unwrap();
    let safe = world.write(1, b"safe").unwrap();
    let torn = world.write(1, &body(1, 5000)).unwrap();
    let path = &slot_paths(&disk)[0];
    let mut bytes = disk.bytes_of(path).unwrap();
    bytes[torn.position.0 as usize + 4500] ^= 1;
    disk.insert_file(path, bytes);
    let mut next = World::open(&disk).unwrap();
    assert_eq!(next.found, std::slice::from_ref(&safe));
    assert_eq!(next.torn_bytes, 2 * BLOCK_BYTES as u64);
    let later = next.write(1, b"later").unwrap();
    let again = World::open(&disk).unwrap();
    assert_eq!(again.found, [safe, later]);
    assert_eq!(again.torn_bytes, 0);
}

/// Fails the call `nth` of a fixed course of lives, then pulls the plug or kills the process.
/// Returns whether the course came to its end.
fn course_with_a_failing_call(nth: u64, pulls_the_plug: bool) -> bool {
    let plan = FaultPlan { crash_keeps: 400, crash_tears: 200, ..Default::default() };
    let disk = FaultyDisk::new(nth, FaultPlan { failing_call: nth, ..plan });
    let (mut pushed, mut committed) = (Vec::new(), 0);
    let mut came_to_its_end = true;
    for crash_count in 0..4u64 {
        let lived = live(&disk, crash_count, &mut pushed, &mut committed);
        came_to_its_end &= lived.is_ok();
        if let Err(fault) = lived {
            assert!(matches!(fault, Fault::Io { .. }), "call {nth}, life {crash_count}: {fault}");
        }
        if pulls_the_plug { disk.crash() } else { disk.kill() }
    }
    disk.set_plan(FaultPlan::default());
    let found = World::open(&disk).unwrap_or_else(|fault| panic!("call {nth}: {fault}")).found;
    assert!(found.len() >= committed, "call {nth}: {} of {committed}", found.len());
    assert_eq!(found, pushed[..found.len()], "call {nth}");
    came_to_its_end
}

/// One life: finds what it has to, and writes three frames. `pushed` is the log as it may be at
/// most, `committed` how much of it must be there.
fn live(
    disk: &FaultyDisk,
    crash_count: u64,
    pushed: &mut Vec<Entry>,
    committed: &mut usize,
) -> Result<(), Fault> {
    let mut world = World::open(disk)?;
    assert!(world.found.len() >= *committed, "{} of {committed}", world.found.len());
    assert_eq!(world.found, pushed[..world.found.len()]);
    pushed.truncate(world.found.len());
    *committed = pushed.len();
    for number in 0..3 {
        pushed.push(world.push(1, &body(crash_count * 10 + number, 2500 * number as usize)));
        pushed.push(world.push(2, &body(crash_count * 10 + number, 6000)));
        world.commit()?;
        *committed = pushed.len();
    }
    Ok(())
}

#[test]
fn whichever_call_fails_what_was_committed_survives() {
    for pulls_the_plug in [true, false] {
        let mut nth = 1;
        while !course_with_a_failing_call(nth, pulls_the_plug) {
            nth += 1;
        }
        assert!(nth > 100, "only {nth} calls");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// The last append is cut by a crash that keeps, tears and loses sectors as it likes.
    #[test]
    fn whatever_a_crash_keeps_of_the_last_append_the_rest_is_there(
        seed: u64,
        lengths in prop::collection::vec(0..6000usize, 1..12),
        torn in prop::collection::vec(0..6000usize, 1..12),
        crash_keeps in 0..1000u32,
        crash_tears in 0..1000u32,
    ) {
        let disk = FaultyDisk::new(seed, FaultPlan::default());
        let mut world = World::open(&disk).unwrap();
        let mut log: Vec<Entry> = Vec::new();
        for (number, length) in lengths.iter().enumerate() {
            log.push(world.write(1, &body(number as u64, *length)).unwrap());
        }
        let committed = log.len();
        for (number, length) in torn.iter().enumerate() {
            log.push(world.push(2, &body(1000 + number as u64, *length)));
            world.seal();
        }
        // The slots are there; the sync that would make the append durable fails, and so may any
        // before it.
        for _ in 0..4 {
            let slot = world.slots.make().unwrap();
            world.lane.add_spare(slot);
        }
        let plan = FaultPlan { crash_keeps, crash_tears, sync_fails: 300, ..Default::default() };
        disk.set_plan(plan);
        let is_committed = world.commit().is_ok();
        disk.set_plan(FaultPlan { sync_fails: 0, ..plan });
        disk.crash();
        let found = World::open(&disk).unwrap().found;
        let least = if is_committed { log.len() } else { committed };
        prop_assert!(found.len() >= least, "{} of {least}", found.len());
        prop_assert_eq!(&found[..], &log[..found.len()]);
    }
}
