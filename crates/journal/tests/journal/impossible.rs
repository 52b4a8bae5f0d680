//! Headers with correct checksums and impossible numbers are refused or skipped, and never used.

use sennit_journal::{BLOCK_BYTES, Fault, ReplayFrom, WalkItem, disk::MemoryDisk, recover};

use crate::{
    recovery::{crc32c, crc32c_of_header},
    world::{SEGMENT_BYTES, World, config, slot_paths},
};

/// Where they stand in the header of a frame.
const POSITION: usize = 16;
const DURABLE: usize = 32;
const RECORD_COUNT: usize = 52;

/// A lane of one record whose segment header has `bytes` at `at` and the checksum to it.
fn lane_with(at: usize, bytes: &[u8]) -> MemoryDisk {
    let disk = MemoryDisk::default();
    World::open(&disk).unwrap().write(1, b"x").unwrap();
    let path = &slot_paths(&disk)[0];
    let mut slot = disk.bytes_of(path).unwrap();
    slot[at..at + bytes.len()].copy_from_slice(bytes);
    let checksum = crc32c_of_header(&slot);
    slot[64..68].copy_from_slice(&checksum.to_le_bytes());
    disk.insert_file(path, slot);
    disk
}

/// Why such a lane is refused.
fn open_with(at: usize, bytes: &[u8]) -> Fault {
    match World::open(&lane_with(at, bytes)) {
        Ok(world) => panic!("opened with {} records", world.found.len()),
        Err(fault) => fault,
    }
}

#[test]
fn a_segment_whose_position_cannot_be_counted_is_refused() {
    for segment in [u64::MAX, u64::MAX / 16384, u64::MAX / 16384 - 1] {
        let fault = open_with(16, &segment.to_le_bytes());
        assert!(fault.to_string().contains("values are impossible"), "{segment}: {fault}");
    }
}

#[test]
fn a_segment_that_follows_its_own_end_is_refused() {
    let fault = open_with(48, &(BLOCK_BYTES as u64).to_le_bytes());
    assert!(fault.to_string().contains("values are impossible"), "{fault}");
}

#[test]
fn a_replay_that_begins_behind_the_segment_or_within_a_block_is_refused() {
    for replay_from in [BLOCK_BYTES as u64, 1, u64::MAX] {
        let fault = open_with(56, &replay_from.to_le_bytes());
        assert!(fault.to_string().contains("values are impossible"), "{replay_from}: {fault}");
    }
}

#[test]
fn a_lane_whose_lives_are_used_up_is_refused() {
    let fault = open_with(40, &u32::MAX.to_le_bytes());
    assert!(fault.to_string().contains("as often as can be counted"), "{fault}");
}

/// What is found, and how many holes, where the first of two frames is rotten, and the second, which may
/// prove that it was durable, was forged.
fn found_beside(forge: impl FnOnce(&mut [u8])) -> (usize, usize) {
    let disk = MemoryDisk::default();
    let mut world = World::open(&disk).unwrap();
    world.write(1, b"one").unwrap();
    world.write(1, b"two").unwrap();
    let path = &slot_paths(&disk)[0];
    let mut slot = disk.bytes_of(path).unwrap();
    slot[BLOCK_BYTES + 64] ^= 1;
    let second = &mut slot[2 * BLOCK_BYTES..];
    forge(second);
    let checksum = crc32c(&second[8..64]);
    second[4..8].copy_from_slice(&checksum.to_le_bytes());
    disk.insert_file(path, slot);
    let (mut found, mut holes) = (0, 0);
    let walk = recover(&disk, config(), ReplayFrom::Newest, |walked| {
        match walked {
            WalkItem::Record { .. } => found += 1,
            WalkItem::Damage(_) => holes += 1,
        }
        assert!(found + holes < 10, "it goes on for ever");
        Ok::<(), Fault>(())
    });
    assert!(walk.is_ok());
    (found, holes)
}

#[test]
fn a_frame_that_says_that_what_is_to_come_was_durable_is_not_believed() {
    for durable in [2 * BLOCK_BYTES as u64 + 1, 1 << 40] {
        let forge = |second: &mut [u8]| {
            second[DURABLE..DURABLE + 8].copy_from_slice(&durable.to_le_bytes());
        };
        assert_eq!(found_beside(forge), (0, 0));
    }
    // Nor one that says that it lies in another segment.
    let elsewhere = |second: &mut [u8]| {
        let place = 2 * BLOCK_BYTES as u64 + 7 * SEGMENT_BYTES;
        second[POSITION..POSITION + 8].copy_from_slice(&place.to_le_bytes());
        second[DURABLE..DURABLE + 8].copy_from_slice(&place.to_le_bytes());
    };
    assert_eq!(found_beside(elsewhere), (0, 0));
    // Nor one that lies elsewhere than it says, is of another life or directory, or ends behind the segment.
    let ahead = (3 * BLOCK_BYTES as u64).to_le_bytes();
    for (at, bytes) in [(POSITION, &ahead[..]), (24, &[43]), (48, &[2]), (13, &[0x40])] {
        let forge = |second: &mut [u8]| second[at..at + bytes.len()].copy_from_slice(bytes);
        assert_eq!(found_beside(forge), (0, 0), "byte {at}");
    }
    assert_eq!(found_beside(|_| ()), (1, 1), "as it was written it is believed");
}

/// It is no torn tail, though it is the last frame: it was written as it is, whoever did that.
#[test]
fn a_whole_frame_whose_records_cannot_be_is_damage_up_to_its_end() {
    let too_many = |frame: &mut [u8]| frame[RECORD_COUNT] = 2;
    let too_long = |frame: &mut [u8]| frame[64..68].copy_from_slice(&6000_u32.to_le_bytes());
    let forgeries: [fn(&mut [u8]); 2] = [too_many, too_long];
    let said = [
        "a frame does not hold as many records as it says",
        "a record does not end where its frame does",
    ];
    for (forge, problem) in forgeries.into_iter().zip(said) {
        let disk = MemoryDisk::default();
        let mut world = World::open(&disk).unwrap();
        let first = world.write(1, b"one").unwrap();
        world.write(1, &[7; 5000]).unwrap();
        let path = &slot_paths(&disk)[0];
        let mut slot = disk.bytes_of(path).unwrap();
        // Two blocks long.
        let frame = &mut slot[2 * BLOCK_BYTES..];
        forge(frame);
        let checksum = crc32c(&frame[64..64 + 5008]);
        frame[8..12].copy_from_slice(&checksum.to_le_bytes());
        let checksum = crc32c(&frame[8..64]);
        frame[4..8].copy_from_slice(&checksum.to_le_bytes());
        disk.insert_file(path, slot);
        let mut world = World::open_past_rot(&disk).unwrap();
        assert_eq!(world.found, [first]);
        let [(1, hole)] = &world.damage[..] else { panic!("{:?}", world.damage) };
        assert_eq!((hole.position.0, hole.end().0), (2 * BLOCK_BYTES as u64, SEGMENT_BYTES));
        assert_eq!(hole.problem, problem);
        world.write(1, b"later").unwrap();
        assert_eq!(World::open_past_rot(&disk).unwrap().damage, world.damage);
    }
}
