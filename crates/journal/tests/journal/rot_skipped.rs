//! A recovery past damage loses the damaged records, reports them, and loses nothing else; nothing appears that was
//! never there.

use proptest::prelude::*;
use sennit_journal::{
    BLOCK_BYTES, Disk, DiskFile, Fault, LaneConfig, Position, ReplayFrom, WalkItem,
    disk::{FaultPlan, FaultyDisk, MemoryDisk},
    recover,
};

use crate::{
    recovery::crc32c_of_header,
    world::{Entry, SEGMENT_BYTES, World, body, config, slot_paths},
};

/// A lane of two lives and several segments, whose last frame says that all before it was durable.
fn lane() -> (FaultyDisk, Vec<Entry>) {
    let disk = FaultyDisk::new(1, FaultPlan::default());
    let mut entries = Vec::new();
    for crash_count in 0..2 {
        let mut world = World::open(&disk).unwrap();
        for number in 0..5 {
            entries
                .push(world.push(1, &body(crash_count * 10 + number, 40 + 900 * number as usize)));
            entries.push(world.push(2, &body(crash_count * 10 + number, 20)));
            world.commit().unwrap();
        }
        world.mark().unwrap();
    }
    (disk, entries)
}

/// Opens past the damage and holds what is found against what was written: what is missing lies in
/// what was said to be damaged, and what is there is in order.
fn open_and_check(disk: &FaultyDisk, entries: &[Entry], context: &str) -> World<FaultyDisk> {
    let world = World::open_past_rot(disk).unwrap_or_else(|fault| panic!("{context}: {fault}"));
    let mut from = Position(0);
    for (before, damage) in &world.damage {
        assert!(damage.position >= from, "{context}: {damage:?} is out of order");
        from = damage.end();
        let (earlier, later) = world.found.split_at(*before);
        assert!(earlier.iter().all(|entry| entry.position < damage.position), "{context}");
        assert!(later.iter().all(|entry| entry.position >= damage.end()), "{context}");
    }
    let is_damaged = |entry: &&Entry| {
        let covers = |at: Position| {
            world.damage.iter().any(|(_, damage)| damage.position <= at && at < damage.end())
        };
        covers(entry.position)
    };
    let expected: Vec<_> = entries.iter().filter(|entry| !is_damaged(entry)).cloned().collect();
    assert!(world.found == expected, "{context}: {:?}", world.damage);
    world
}

#[test]
fn a_lane_without_damage_opens_the_same_way() {
    let (disk, entries) = lane();
    let world = World::open_past_rot(&disk).unwrap();
    assert_eq!((&world.found, world.damage.len()), (&entries, 0));
    let strict = World::open(&disk).unwrap();
    assert_eq!((strict.end, strict.torn_bytes), (world.end, world.torn_bytes));
}

#[test]
fn a_flipped_bit_costs_one_frame_and_is_said() {
    let (disk, entries) = lane();
    for entry in &entries {
        let path = &slot_paths(&disk)[entry.position.segment(SEGMENT_BYTES) as usize];
        let byte = entry.position.in_segment(SEGMENT_BYTES) as usize;
        disk.rot(path, byte, 2);
        let world = open_and_check(&disk, &entries, "one bit");
        assert_eq!(world.found.len(), entries.len() - 2, "a frame holds two");
        let [(_, damage)] = &world.damage[..] else { panic!("{:?}", world.damage) };
        assert_eq!(&damage.path, path);
        disk.rot(path, byte, 2);
    }
}

/// Each bit of headers and one bit of each other byte, as in the strict case: what that refuses,
/// this one says.
#[test]
fn each_flipped_bit_is_said_or_harmless() {
    let (disk, entries) = lane();
    let (mut said, mut harmless) = (0, 0);
    for path in slot_paths(&disk) {
        for byte in 0..SEGMENT_BYTES as usize {
            let is_header = byte % BLOCK_BYTES < 80;
            if !is_header && !byte.is_multiple_of(13) {
                continue;
            }
            let bit = (byte / 3 % 8) as u8;
            disk.rot(&path, byte, bit);
            let context = format!("{} byte {byte} bit {bit}", path.display());
            let world = open_and_check(&disk, &entries, &context);
            match World::open(&disk) {
                Ok(strict) => {
                    assert!(world.damage.is_empty(), "{context}");
                    assert_eq!(strict.end, world.end, "{context}");
                    harmless += 1;
                }
                Err(Fault::Rot { .. }) => {
                    assert!(!world.damage.is_empty(), "{context}");
                    assert!(world.found.len() + 2 >= entries.len(), "{context}");
                    said += 1;
                }
                Err(fault) => panic!("{context}: {fault}"),
            }
            disk.rot(&path, byte, bit);
        }
    }
    assert!(said > 1000 && harmless > 1000, "said {said}, harmless {harmless}");
}

#[test]
fn a_lane_goes_on_past_damage_and_says_the_same_next_time() {
    let (disk, mut entries) = lane();
    let path = &slot_paths(&disk)[0];
    disk.rot(path, entries[2].position.0 as usize, 0);
    // The header of the second segment.
    disk.rot(&slot_paths(&disk)[1], 20, 0);
    let mut world = open_and_check(&disk, &entries, "first start");
    let said = world.damage.clone();
    assert_eq!(said.len(), 2);
    assert!(world.lane.holds(1), "a slot that holds records is not spare");
    entries.push(world.write(1, b"later").unwrap());
    for start in ["second", "third"] {
        let world = open_and_check(&disk, &entries, start);
        assert_eq!(world.damage, said, "{start}");
    }
    world.begin_replay_here().unwrap();
    let world = World::open(&disk).unwrap();
    assert!(world.found.is_empty(), "a replay begins behind the damage");
}

#[test]
fn a_slot_that_is_gone_is_said_with_all_it_held() {
    let (disk, entries) = lane();
    let count = slot_paths(&disk).len();
    for index in 0..count - 1 {
        let (disk, _) = lane();
        disk.remove(&slot_paths(&disk)[index]).unwrap();
        let world = open_and_check(&disk, &entries, "a slot is gone");
        assert_eq!(world.damage.len(), 1, "{:?}", world.damage);
        assert!(world.damage[0].1.problem.contains("missing"));
    }
}

#[test]
fn an_old_slot_that_is_cut_off_behind_its_last_frame_costs_nothing() {
    let disk = FaultyDisk::new(1, FaultPlan::default());
    let mut world = World::open(&disk).unwrap();
    let mut entries = vec![world.write(1, &body(0, 40)).unwrap()];
    world.builder.start_segment();
    entries.push(world.write(1, &body(1, 40)).unwrap());
    let oldest = &slot_paths(&disk)[0];
    disk.open_to_write(oldest).unwrap().set_length(2 * BLOCK_BYTES as u64).unwrap();
    let mut world = World::open_past_rot(&disk).unwrap();
    assert_eq!((&world.found, &world.damage), (&entries, &vec![]));
    world.lane.release(0);
    assert_eq!(world.lane.spare_count(), 0, "what is shorter than a slot is not written to");
}

/// What lay in the part that is gone may have been durable, and nothing can say so any more.
#[test]
fn the_newest_slot_that_is_cut_off_is_damaged_to_its_end() {
    let disk = FaultyDisk::new(1, FaultPlan::default());
    let mut world = World::open(&disk).unwrap();
    let mut entries = [&b"kept"[..], b"gone"].map(|body| world.write(1, body).unwrap()).to_vec();
    let path = slot_paths(&disk).pop().unwrap();
    disk.open_to_write(&path).unwrap().set_length(2 * BLOCK_BYTES as u64).unwrap();
    entries.truncate(1);
    for _ in 0..2 {
        let mut world = World::open_past_rot(&disk).unwrap();
        assert_eq!(world.found, entries);
        let [(1, hole)] = &world.damage[..] else { panic!("{:?}", world.damage) };
        let cut = (&path, Position(2 * BLOCK_BYTES as u64), Position(SEGMENT_BYTES));
        assert_eq!((&hole.path, hole.position, hole.end()), cut);
        assert!(world.end >= hole.end(), "the log goes on behind it");
        entries.push(world.write(1, b"later").unwrap());
    }
}

#[test]
fn damage_to_the_newest_header_is_said_where_frames_prove_it() {
    let (disk, mut entries) = lane();
    let newest = slot_paths(&disk).pop().unwrap();
    disk.rot(&newest, 3, 1);
    let mut world = open_and_check(&disk, &entries, "the newest header");
    let said = world.damage.clone();
    assert_eq!(said.len(), 1);
    entries.push(world.write(1, b"later").unwrap());
    let world = open_and_check(&disk, &entries, "the start after it");
    assert_eq!(world.damage, said);
}

#[test]
fn a_torn_tail_is_no_damage() {
    let disk = FaultyDisk::new(1, FaultPlan::default());
    let mut world = World::open(&disk).unwrap();
    let first = world.write(1, b"first").unwrap();
    let last = world.write(1, b"last").unwrap();
    disk.rot(&slot_paths(&disk)[0], last.position.0 as usize, 0);
    let found = World::open_past_rot(&disk).unwrap();
    assert_eq!((found.found, found.damage, found.torn_bytes), (vec![first], vec![], 4096));
}

/// Behind damage that was durable, what was torn stays torn: no frame comes back that lies behind
/// one that was lost.
#[test]
fn a_frame_behind_a_torn_one_does_not_come_back_because_there_is_rot_before_both() {
    let disk = FaultyDisk::new(1, FaultPlan::default());
    let mut world = World::open(&disk).unwrap();
    let first = world.write(1, b"first").unwrap();
    let torn = world.push(1, b"torn");
    world.seal();
    let _behind = world.push(1, b"behind the torn one");
    world.commit().unwrap();
    let path = &slot_paths(&disk)[0];
    disk.rot(path, torn.position.0 as usize, 0);
    let before = World::open_past_rot(&disk).unwrap();
    assert_eq!((before.found.len(), before.damage.len()), (1, 0), "torn, and nothing else");
    disk.rot(path, first.position.0 as usize, 0);
    let world = World::open_past_rot(&disk).unwrap();
    let [(0, damage)] = &world.damage[..] else { panic!("{:?}", world.damage) };
    assert_eq!((damage.position.0, damage.bytes), (4096, 4096));
    assert_eq!((world.found.len(), world.torn_bytes), (0, 8192));
}

#[test]
fn however_many_blocks_have_rotted_a_segment_is_read_a_few_times_and_no_more() {
    let disk = FaultyDisk::new(1, FaultPlan::default());
    let config = LaneConfig { segment_bytes: 1 << 20, ..config() };
    let mut world = World::open_as(&disk, config.clone()).unwrap();
    let entries: Vec<_> =
        (0..200).map(|number| world.write(1, &body(number, 40)).unwrap()).collect();
    let open = || {
        let (before, mut holes) = (disk.calls(), 0);
        let count = |walked| {
            holes += usize::from(matches!(walked, WalkItem::Damage(_)));
            Ok::<(), Fault>(())
        };
        recover(&disk, config.clone(), ReplayFrom::Newest, count).unwrap();
        (holes, disk.calls() - before)
    };
    let (no_holes, calls_of_whole) = open();
    for entry in entries.iter().step_by(2) {
        disk.rot(&slot_paths(&disk)[0], entry.position.0 as usize, 0);
    }
    let (holes, calls) = open();
    assert_eq!((no_holes, holes), (0, 100));
    assert!(calls <= calls_of_whole + 1, "{calls} calls of the disk, {calls_of_whole} before");
}

#[test]
fn a_header_that_says_what_cannot_be_is_refused_all_the_same() {
    let disk = MemoryDisk::default();
    World::open(&disk).unwrap().write(1, b"x").unwrap();
    let path = &slot_paths(&disk)[0];
    let mut slot = disk.bytes_of(path).unwrap();
    slot[16..24].copy_from_slice(&(u64::MAX / SEGMENT_BYTES).to_le_bytes());
    let checksum = crc32c_of_header(&slot);
    slot[64..68].copy_from_slice(&checksum.to_le_bytes());
    disk.insert_file(path, slot);
    assert!(matches!(World::open_past_rot(&disk).map(drop), Err(Fault::Rot { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Any noise over any part of any slot.
    #[test]
    fn whatever_is_overwritten_the_rest_is_found_and_the_lane_goes_on(
        wounds in prop::collection::vec((any::<prop::sample::Index>(), 0..4usize, 1..9000usize, 0..8u8), 1..4),
    ) {
        let (disk, mut entries) = lane();
        let paths = slot_paths(&disk);
        // The mark at the end has to stay, or the last record may be taken for a torn tail.
        let last = paths.len() - 1;
        for (at, slot, length, bit) in &wounds {
            let slot = slot % last;
            let at = at.index(SEGMENT_BYTES as usize);
            for byte in (at..(at + length).min(SEGMENT_BYTES as usize)).step_by(7) {
                disk.rot(&paths[slot], byte, *bit);
            }
        }
        let mut world = open_and_check(&disk, &entries, "wounded");
        let said = world.damage.clone();
        entries.push(world.write(1, b"later").unwrap());
        let world = open_and_check(&disk, &entries, "again");
        prop_assert_eq!(world.damage, said);
    }
}
