//! A lane writes in order, reuses slots, and writes no more after a failure.

use std::path::Path;

use sennit_journal::{
    BLOCK_BYTES, Disk, DiskFile, Fault, Frame, LaneConfig, Position, SlotFill,
    disk::{Access, FaultPlan, FaultyDisk, MemoryDisk, RealDisk},
};

use crate::world::{SEGMENT_BYTES, World, body, config, directory, slot_paths};

const ALWAYS: u32 = 1000;

#[test]
fn an_append_without_a_spare_slot_writes_nothing_and_can_be_repeated() {
    let disk = MemoryDisk::default();
    let mut world = World::open(&disk).unwrap();
    let entry = world.push(1, b"x");
    let frames = world.take_sealed();
    let refused = world.lane.append(&frames);
    assert!(matches!(refused, Err(Fault::NoSpareSlot { segment: 0 })), "{refused:?}");
    let slot = world.slots.make().unwrap();
    world.lane.add_spare(slot);
    assert_eq!(world.lane.spare_count(), 1);
    assert_eq!(world.lane.append(&frames).unwrap(), frames[0].end);
    assert_eq!(world.lane.spare_count(), 0);
    assert_eq!(World::open(&disk).unwrap().found, [entry]);
}

#[test]
fn a_lane_keeps_as_many_spare_slots_as_it_is_told() {
    let mut world = World::open(&MemoryDisk::default()).unwrap();
    for _ in 0..3 {
        let slot = world.slots.make().unwrap();
        world.lane.add_spare(slot);
    }
    assert_eq!(world.lane.take_surplus(4).len(), 0);
    assert_eq!((world.lane.take_surplus(1).len(), world.lane.spare_count()), (2, 1));
}

#[test]
fn of_frames_of_several_segments_those_fit_for_which_there_are_slots() {
    let mut world = World::open(&MemoryDisk::default()).unwrap();
    for _ in 0..3 {
        world.push(1, b"one");
        world.seal();
        world.builder.start_segment();
    }
    let frames = world.take_sealed();
    assert_eq!((frames.len(), world.lane.fits(&frames)), (3, 0));
    let slot = world.slots.make().unwrap();
    world.lane.add_spare(slot);
    assert_eq!(world.lane.fits(&frames), 1);
    assert_eq!(world.lane.append(&frames[..1]).unwrap(), frames[0].end);
    assert_eq!((world.lane.fits(&frames[1..]), world.lane.fits(&[])), (0, 0));
}

#[test]
fn a_failed_sync_fences_the_lane_although_the_next_would_succeed() {
    let disk = FaultyDisk::new(1, FaultPlan::default());
    let mut world = World::open(&disk).unwrap();
    world.write(1, b"safe").unwrap();
    disk.set_plan(FaultPlan { sync_fails: ALWAYS, ..Default::default() });
    assert!(matches!(world.write(1, b"unknown"), Err(Fault::Io { action: "sync", .. })));
    disk.set_plan(FaultPlan::default());
    assert!(matches!(world.write(1, b"never"), Err(Fault::Fenced)));
    assert!(matches!(world.write(1, b"never"), Err(Fault::Fenced)));
}

#[test]
fn a_failed_write_fences_the_lane_and_names_the_file() {
    let disk = FaultyDisk::new(1, FaultPlan::default());
    let mut world = World::open(&disk).unwrap();
    world.write(1, b"safe").unwrap();
    disk.set_plan(FaultPlan { write_fails: ALWAYS, ..Default::default() });
    let fault = world.write(1, b"unknown").unwrap_err();
    assert!(fault.to_string().contains("slot-00000.journal"), "{fault}");
    disk.set_plan(FaultPlan::default());
    assert!(matches!(world.write(1, b"never"), Err(Fault::Fenced)));
}

/// The next life must not take for durable what only the cache of the system still shows.
#[test]
fn what_a_failed_sync_forgot_is_not_found_by_the_next_life() {
    let disk = FaultyDisk::new(1, FaultPlan::default());
    let mut world = World::open(&disk).unwrap();
    let safe = world.write(1, b"safe").unwrap();
    disk.set_plan(FaultPlan { sync_fails: ALWAYS, ..Default::default() });
    world.write(1, b"unknown").unwrap_err();
    disk.set_plan(FaultPlan::default());
    disk.kill();
    let mut next = World::open(&disk).unwrap();
    let later = next.write(1, b"later").unwrap();
    disk.crash();
    assert_eq!(World::open(&disk).unwrap().found, [safe, later]);
}

/// A killed process leaves what it wrote in the system's cache; the next life builds on it.
#[test]
fn what_a_killed_process_had_written_is_durable_once_it_was_found() {
    let disk = FaultyDisk::new(1, FaultPlan::default());
    let mut world = World::open(&disk).unwrap();
    let safe = world.write(1, b"safe").unwrap();
    let written = world.push(1, b"written");
    write_without_sync(&disk, &world.take_sealed()[0]);
    disk.kill();
    let mut next = World::open(&disk).unwrap();
    assert_eq!(next.found, [safe.clone(), written.clone()]);
    let later = next.write(1, b"later").unwrap();
    disk.crash();
    assert_eq!(World::open(&disk).unwrap().found, [safe, written, later]);
}

pub fn write_without_sync(disk: &FaultyDisk, frame: &Frame) {
    let file = disk.open_to_write(&slot_paths(disk)[0]).unwrap();
    file.write_at(&frame.bytes, frame.position.in_segment(SEGMENT_BYTES)).unwrap();
}

#[test]
fn released_slots_are_used_again_and_their_old_content_never_resurfaces() {
    let disk = MemoryDisk::default();
    let mut world = World::open(&disk).unwrap();
    for number in 0..200 {
        world.write(1, &body(number, 3000)).unwrap();
        if number % 7 == 6 {
            world.begin_replay_here().unwrap();
        }
    }
    let kept: Vec<_> = (196..200).map(|number| body(number, 3000)).collect();
    assert!(slot_paths(&disk).len() <= 6, "{} slots", slot_paths(&disk).len());
    let again = World::open(&disk).unwrap();
    let found: Vec<_> = again.found.iter().map(|entry| entry.body.to_vec()).collect();
    assert_eq!(found, kept);
    assert!(again.replay_from > Position(60 * SEGMENT_BYTES), "{}", again.replay_from);
}

#[test]
fn a_full_disk_is_said_before_anything_is_taken() {
    let plan = FaultPlan { capacity_bytes: 2 * SEGMENT_BYTES + 4096, ..Default::default() };
    let disk = FaultyDisk::new(1, plan);
    let mut world = World::open(&disk).unwrap();
    let mut kept =
        vec![world.write(1, &[1; 12_000]).unwrap(), world.write(1, &[2; 12_000]).unwrap()];
    let fault = world.write(1, &[3; 12_000]).unwrap_err();
    assert!(matches!(&fault, Fault::StorageFull { path } if *path == directory()), "{fault}");
    assert_eq!(disk.files().len(), 2, "no slot was begun");
    assert_eq!(World::open(&disk).unwrap().found, kept);
    // Room comes: the lane was never fenced.
    disk.set_plan(FaultPlan::default());
    let mut world = World::open(&disk).unwrap();
    kept.push(world.write(1, &[3; 12_000]).unwrap());
    assert_eq!(World::open(&disk).unwrap().found, kept);
}

#[test]
fn a_slot_is_made_only_where_room_is_left_beside_it() {
    let plan = FaultPlan { capacity_bytes: 2 * SEGMENT_BYTES, ..Default::default() };
    let disk = FaultyDisk::new(1, plan);
    let mut world = World::open(&disk).unwrap();
    assert_eq!(world.slots.available_bytes().unwrap(), 2 * SEGMENT_BYTES);
    for fill in [SlotFill::Written, SlotFill::Allocated] {
        let refused = world.slots.make_with_free_bytes(SEGMENT_BYTES + 1, fill);
        assert!(matches!(refused, Err(Fault::StorageFull { .. })), "{refused:?}");
    }
    assert!(world.slots.make_with_free_bytes(SEGMENT_BYTES, SlotFill::Allocated).is_ok());
}

#[test]
fn a_slot_that_is_removed_gives_its_room_back_though_somebody_has_it_open() {
    let disk = MemoryDisk::default();
    let mut world = World::open(&disk).unwrap();
    let slot = world.slots.make().unwrap();
    let open = disk.open_to_read(&slot_paths(&disk)[0]).unwrap();
    world.slots.remove(&slot).unwrap();
    assert_eq!((open.length().unwrap(), slot_paths(&disk).len()), (0, 0));
}

#[test]
fn a_slot_that_was_begun_and_not_finished_is_made_again() {
    let disk = FaultyDisk::new(1, FaultPlan::default());
    let mut world = World::open(&disk).unwrap();
    disk.set_plan(FaultPlan { write_fails: ALWAYS, ..Default::default() });
    assert!(world.slots.make().is_err());
    disk.set_plan(FaultPlan::default());
    world.slots.make().unwrap();
    assert_eq!(disk.files(), [(directory().join("slot-00000.journal"), SEGMENT_BYTES as usize)]);
}

#[test]
fn a_slot_that_was_made_is_as_long_after_a_crash() {
    let disk = FaultyDisk::new(1, FaultPlan::default());
    World::open(&disk).unwrap().slots.make().unwrap();
    disk.crash();
    assert_eq!(disk.files(), [(directory().join("slot-00000.journal"), SEGMENT_BYTES as usize)]);
    let mut world = World::open(&disk).unwrap();
    assert_eq!(world.lane.spare_count(), 1);
    world.write(1, b"x").unwrap();
    assert_eq!(disk.files().len(), 1);
}

#[test]
fn a_slot_whose_maker_died_before_its_sync_is_as_long_after_a_crash() {
    let disk = FaultyDisk::new(1, FaultPlan::default());
    let mut world = World::open(&disk).unwrap();
    disk.set_plan(FaultPlan { sync_fails: ALWAYS, ..Default::default() });
    assert!(world.slots.make().is_err());
    disk.set_plan(FaultPlan::default());
    disk.kill();
    assert_eq!(World::open(&disk).unwrap().lane.spare_count(), 1);
    disk.crash();
    assert_eq!(disk.files(), [(directory().join("slot-00000.journal"), SEGMENT_BYTES as usize)]);
}

#[test]
fn the_reader_reads_any_range_of_a_segment_in_use() {
    let disk = MemoryDisk::default();
    let mut world = World::open(&disk).unwrap();
    let entries: Vec<_> =
        (0..20).map(|number| world.write(1, &body(number, 2500)).unwrap()).collect();
    for entry in entries.iter().rev() {
        assert_eq!(world.reader.read(entry.position, 2500).unwrap(), entry.body);
        let part = world.reader.read(entry.position.plus(1000), 500).unwrap();
        assert_eq!(part, entry.body.slice(1000..1500));
    }
}

#[test]
fn a_long_piece_of_a_segment_is_the_same_past_the_cache() {
    // Beside the build: the system's own folder for such things may be in memory.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let directory = folder.path().join("lane-0");
    let config = LaneConfig { directory, segment_bytes: 4 << 20, ..config() };
    for access in [Access::Auto, Access::Buffered] {
        let mut world = World::open_as(&RealDisk::new(access), config.clone()).unwrap();
        let entries = [1, 2, 3].map(|number| world.write(1, &body(number, 700_001)).unwrap());
        for entry in &entries {
            assert_eq!(world.reader.read_uncached(entry.position, 700_001).unwrap(), entry.body);
            let part = world.reader.read_uncached(entry.position.plus(4095), 300_000).unwrap();
            assert_eq!(part, entry.body.slice(4095..304_095));
        }
    }
}

#[test]
fn the_reader_refuses_a_segment_whose_slot_holds_another_now() {
    let disk = MemoryDisk::default();
    let mut world = World::open(&disk).unwrap();
    let old = world.write(1, &body(1, 2500)).unwrap();
    assert_eq!(world.reader.read(old.position, 2500).unwrap(), old.body);
    world.begin_replay_here().unwrap();
    let new: Vec<_> = (2..9).map(|number| world.write(1, &body(number, 9000)).unwrap()).collect();
    let refused = world.reader.read(old.position, 2500);
    assert!(matches!(refused, Err(Fault::MissingSegment { segment: 0, .. })), "{refused:?}");
    for entry in &new {
        assert_eq!(world.reader.read(entry.position, 9000).unwrap(), entry.body);
    }
}

#[test]
fn a_lane_on_the_real_disk_is_read_back() {
    for access in [Access::Auto, Access::Buffered] {
        let folder = tempfile::tempdir().unwrap();
        let disk = RealDisk::new(access);
        let directory = folder.path().join("lane-0");
        let config = LaneConfig { directory, segment_bytes: 4 << 20, ..config() };
        let mut entries = Vec::new();
        for crash_count in 0..3 {
            let mut world = World::open_as(&disk, config.clone()).unwrap();
            assert_eq!(world.found, entries);
            for number in 0..40 {
                entries.push(world.push(1, &body(crash_count * 100 + number, 70_000)));
                if number % 5 == 0 {
                    world.commit().unwrap();
                }
            }
            world.commit().unwrap();
            for entry in &entries {
                let read = world.reader.read(entry.position, entry.body.len()).unwrap();
                assert_eq!(read, entry.body);
            }
        }
    }
}

#[test]
fn a_fault_of_the_real_disk_names_what_was_tried_where() {
    let folder = tempfile::NamedTempFile::new().unwrap();
    let directory = folder.path().join("lane-0");
    let config = LaneConfig { directory: directory.clone(), ..config() };
    let Err(fault) = World::open_as(&RealDisk::default(), config) else { panic!("it opened") };
    assert!(matches!(&fault, Fault::Io { action: "create", path, .. } if *path == directory));
    assert!(fault.to_string().contains(Path::new(&directory).to_str().unwrap()), "{fault}");
}

/// A missing segment may be put back later; and of what cannot be read nobody knows what it holds.
#[test]
fn spare_slots_that_may_hold_a_segment_that_is_missed_are_left_alone() {
    let disk = FaultyDisk::new(1, FaultPlan::default());
    let mut world = World::open(&disk).unwrap();
    for number in 0..3 {
        world.write(1, &body(number, 40)).unwrap();
        world.builder.start_segment();
    }
    world.begin_replay_here().unwrap();
    assert_eq!(world.lane.spare_count(), 3);
    let paths = slot_paths(&disk);
    disk.make_unreadable(&paths[1], BLOCK_BYTES);
    world.lane.exclude_spares(&[0].into());
    assert_eq!(world.lane.spare_count(), 1);
    world.builder.start_segment();
    world.write(1, b"later").unwrap();
    let segment_in = |path: &Path| {
        let mut header = [0; 24];
        disk.open_to_read(path).unwrap().read_at(&mut header, 0).unwrap();
        header[16]
    };
    assert_eq!([segment_in(&paths[0]), segment_in(&paths[2])], [0, 4]);
}
