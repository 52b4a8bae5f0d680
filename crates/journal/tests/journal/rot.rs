//! Damage to durable data is reported or harmless; it never shortens the log.

use sennit_journal::{
    BLOCK_BYTES, Fault, LaneConfig, Position,
    disk::{FaultPlan, FaultyDisk, MemoryDisk},
};

use crate::world::{Entry, World, body, config, slot_paths};

/// A lane of three segments and two lives, closed by a mark, so that all but the mark itself is
/// known to have been durable.
fn lane_with_a_mark() -> (FaultyDisk, Vec<Entry>) {
    let disk = FaultyDisk::new(1, FaultPlan::default());
    let mut entries = Vec::new();
    for crash_count in 0..2 {
        let mut world = World::open(&disk).unwrap();
        for number in 0..4 {
            entries
                .push(world.push(1, &body(crash_count * 10 + number, 40 + 900 * number as usize)));
            world.commit().unwrap();
        }
        world.mark().unwrap();
    }
    (disk, entries)
}

/// Flips each bit of frame and segment headers and one bit of each other byte, one at a time.
#[test]
fn each_flipped_bit_is_reported_or_harmless() {
    let (disk, entries) = lane_with_a_mark();
    let (mut reported, mut harmless) = (0, 0);
    let mark_at = World::open(&disk).unwrap().end.0 as usize - BLOCK_BYTES;
    let mut segment_starts = 0;
    for path in slot_paths(&disk) {
        let length = crate::world::SEGMENT_BYTES as usize;
        for byte in 0..length {
            if segment_starts + byte >= mark_at {
                break;
            }
            let is_header = byte % BLOCK_BYTES < 80;
            let bits = if is_header { 0..8 } else { byte as u8 % 8..byte as u8 % 8 + 1 };
            for bit in bits {
                disk.rot(&path, byte, bit);
                match World::open(&disk) {
                    Ok(world) => {
                        assert_eq!(
                            world.found,
                            entries,
                            "{} byte {byte} bit {bit}",
                            path.display()
                        );
                        harmless += 1;
                    }
                    Err(Fault::Rot { .. }) => reported += 1,
                    Err(fault) => panic!("{} byte {byte} bit {bit}: {fault}", path.display()),
                }
                disk.rot(&path, byte, bit);
            }
        }
        segment_starts += length;
    }
    assert!(reported > 10_000 && harmless > 1_000, "reported {reported}, harmless {harmless}");
}

#[test]
fn rot_names_the_file_and_the_position() {
    let (disk, entries) = lane_with_a_mark();
    let path = &slot_paths(&disk)[0];
    disk.rot(path, entries[1].position.0 as usize + 3, 0);
    let Err(Fault::Rot { path: named, position, .. }) = World::open(&disk).map(drop) else {
        panic!("no rot");
    };
    assert_eq!(&named, path);
    assert_eq!(position.0, entries[1].position.0 - 64 - 8, "the frame that holds it");
}

#[test]
fn a_recovery_that_refused_changed_nothing() {
    let (disk, entries) = lane_with_a_mark();
    let path = &slot_paths(&disk)[0];
    let byte = entries[2].position.0 as usize;
    disk.rot(path, byte, 4);
    for _ in 0..3 {
        assert!(matches!(World::open(&disk).map(drop), Err(Fault::Rot { .. })));
    }
    disk.rot(path, byte, 4);
    assert_eq!(World::open(&disk).unwrap().found, entries);
}

/// The last frame of an idle lane cannot be told from a torn one; the mark behind it makes it so
/// that it can.
#[test]
fn rot_of_the_last_frame_is_a_torn_tail_until_a_mark_says_otherwise() {
    let disk = FaultyDisk::new(1, FaultPlan::default());
    let mut world = World::open(&disk).unwrap();
    let first = world.write(1, b"first").unwrap();
    let last = world.write(1, b"last").unwrap();
    let path = &slot_paths(&disk)[0];
    disk.rot(path, last.position.0 as usize, 0);
    assert_eq!(World::open(&disk).unwrap().found, [first]);
    world.mark().unwrap();
    assert!(matches!(World::open(&disk).map(drop), Err(Fault::Rot { .. })));
}

/// A lane of three frames, in blocks 1 to 3, whose replay begins at the one in block `begin`.
fn lane_that_is_replayed_from(begin: usize, first: &[u8]) -> MemoryDisk {
    let disk = MemoryDisk::default();
    let mut world = World::open(&disk).unwrap();
    let entries = [first, b"second", b"third!"].map(|body| world.write(1, body).unwrap());
    world.builder.set_replay_from(Position((begin * BLOCK_BYTES) as u64));
    world.builder.start_segment();
    world.mark().unwrap();
    assert_eq!(World::open(&disk).unwrap().found, entries[begin - 1..]);
    disk
}

/// Puts the block `from` of one lane's first slot where the block `to` of another's lies.
fn misdirect(disk: &MemoryDisk, source: &MemoryDisk, from: usize, to: usize) {
    let path = &slot_paths(disk)[0];
    let block = source.bytes_of(path).unwrap()[from * BLOCK_BYTES..][..BLOCK_BYTES].to_vec();
    let mut bytes = disk.bytes_of(path).unwrap();
    bytes[to * BLOCK_BYTES..][..BLOCK_BYTES].copy_from_slice(&block);
    disk.insert_file(path, bytes);
}

#[test]
fn a_frame_that_lies_elsewhere_than_it_says_is_rot() {
    let disk = lane_that_is_replayed_from(3, b"first");
    misdirect(&disk, &disk, 2, 3);
    assert!(matches!(World::open(&disk).map(drop), Err(Fault::Rot { .. })));
}

#[test]
fn a_frame_that_does_not_follow_the_one_before_it_is_rot() {
    let disk = lane_that_is_replayed_from(2, b"first");
    let other = lane_that_is_replayed_from(2, b"other");
    misdirect(&disk, &other, 3, 3);
    assert!(matches!(World::open(&disk).map(drop), Err(Fault::Rot { .. })));
}

#[test]
fn a_frame_of_another_generation_is_rot() {
    let disk = lane_that_is_replayed_from(3, b"first");
    let other = MemoryDisk::default();
    let mut lost = World::open(&other).unwrap();
    lost.write(1, b"lost").unwrap();
    let path = &slot_paths(&other)[0];
    let mut bytes = other.bytes_of(path).unwrap();
    bytes[0] ^= 1;
    other.insert_file(path, bytes);
    let mut second = World::open(&other).unwrap();
    assert_eq!(second.builder.generation(), 2);
    second.write(1, b"first").unwrap();
    second.write(1, b"second").unwrap();
    second.write(1, b"third!").unwrap();
    misdirect(&disk, &other, 3, 3);
    assert!(matches!(World::open(&disk).map(drop), Err(Fault::Rot { .. })));
}

/// Where a replay begins in the middle of a segment, the chain says nothing of the first frame.
#[test]
fn a_frame_of_another_directory_is_rot() {
    let disk = lane_that_is_replayed_from(3, b"first");
    let other = MemoryDisk::default();
    let mut lane = World::open_as(&other, LaneConfig { incarnation: 43, ..config() }).unwrap();
    for body in [&b"first"[..], b"second", b"theirs"] {
        lane.write(1, body).unwrap();
    }
    misdirect(&disk, &other, 3, 3);
    assert!(matches!(World::open(&disk).map(drop), Err(Fault::Rot { .. })));
}
