//! A reused slot of the first format version: its old content lies behind the new one and is not read.

use std::path::PathBuf;

use sennit_journal::{
    Disk, LaneConfig, Position,
    disk::{MemoryDisk, RealDisk},
};

use crate::world::{SEGMENT_BYTES, World, body, config, directory};

const SLOTS: [(&str, &[u8]); 2] = [
    ("slot-00000.journal", include_bytes!("../golden/v1-used-again/slot-00000.journal")),
    ("slot-00001.journal", include_bytes!("../golden/v1-used-again/slot-00001.journal")),
];

/// Set to a folder to have the lane written there, after the format's number was raised.
const WRITE_TO: &str = "SENNIT_WRITE_GOLDEN_LANE_USED_AGAIN";

/// Three segments in two slots: the first segment is full and released, the third lies over it
/// and is shorter.
fn write(disk: &impl Disk, config: &LaneConfig) {
    let mut world = World::open_as(disk, config.clone()).unwrap();
    for number in 0..3 {
        world.write(1, &body(number, 100)).unwrap();
    }
    world.begin_replay_here().unwrap();
    world.write(2, &body(10, 200)).unwrap();
    world.builder.start_segment();
    world.write(2, &body(11, 2000)).unwrap();
}

#[test]
fn what_a_slot_held_before_lies_there_and_is_not_read() {
    let disk = MemoryDisk::default();
    for (name, bytes) in SLOTS {
        disk.insert_file(&directory().join(name), bytes.to_vec());
    }
    let stale = &SLOTS[0].1[3 * 4096 + 72..][..100];
    assert_eq!(stale, body(2, 100), "the last record of the first segment");
    let world = World::open(&disk).unwrap();
    let found: Vec<_> =
        world.found.iter().map(|entry| (entry.kind, entry.position.0, &entry.body[..])).collect();
    let (first, second) = (body(10, 200), body(11, 2000));
    let expected: [(u8, u64, &[u8]); 2] =
        [(2, SEGMENT_BYTES + 2 * 4096 + 72, &first), (2, 2 * SEGMENT_BYTES + 4096 + 72, &second)];
    assert_eq!(found, expected);
    assert_eq!(world.lane.segments().collect::<Vec<_>>(), [1, 2]);
    assert_eq!((world.end, world.torn_bytes), (Position(2 * SEGMENT_BYTES + 2 * 4096), 0));
}

#[test]
fn the_first_format_still_uses_slots_again_the_same_way() {
    if let Some(folder) = std::env::var_os(WRITE_TO) {
        let directory = PathBuf::from(folder);
        write(&RealDisk::default(), &LaneConfig { directory, ..config() });
    }
    let disk = MemoryDisk::default();
    write(&disk, &config());
    for (name, golden) in SLOTS {
        let bytes = disk.bytes_of(&directory().join(name)).unwrap();
        let differs = bytes.iter().zip(golden).position(|(now, then)| now != then);
        assert_eq!((bytes.len(), differs), (golden.len(), None), "{name}: first difference");
    }
}
