//! A lane of the first format version, kept as files. It must stay readable as long as the format number is the
//! same, and be written the same way.

use std::path::PathBuf;

use sennit_journal::{
    Disk, LaneConfig, Position,
    disk::{MemoryDisk, RealDisk},
};

use crate::world::{SEGMENT_BYTES, World, config, directory, slot_paths};

const SLOTS: [(&str, &[u8]); 2] = [
    ("slot-00000.journal", include_bytes!("../golden/v1/slot-00000.journal")),
    ("slot-00001.journal", include_bytes!("../golden/v1/slot-00001.journal")),
];

/// Set to a folder to have the lane written there, after the format's number was raised.
const WRITE_TO: &str = "SENNIT_WRITE_GOLDEN_LANE";

/// Two lives and two segments: records of several kinds and lengths, and a mark.
fn write(disk: &impl Disk, config: &LaneConfig) {
    let mut first = World::open_as(disk, config.clone()).unwrap();
    first.push(1, b"a first record");
    first.push(2, b"");
    first.commit().unwrap();
    first.write(3, &(0..=255).cycle().take(5000).collect::<Vec<u8>>()).unwrap();
    let mut second = World::open_as(disk, config.clone()).unwrap();
    second.builder.set_replay_from(Position(2 * 4096));
    second.write(255, "größer".as_bytes()).unwrap();
    second.mark().unwrap();
}

#[test]
fn the_first_format_is_still_read() {
    let disk = MemoryDisk::default();
    for (name, bytes) in SLOTS {
        disk.insert_file(&directory().join(name), bytes.to_vec());
    }
    let world = World::open(&disk).unwrap();
    let found: Vec<_> =
        world.found.iter().map(|entry| (entry.kind, entry.position.0, &entry.body[..])).collect();
    let long: Vec<u8> = (0..=255).cycle().take(5000).collect();
    let expected: [(u8, u64, &[u8]); 2] =
        [(3, 2 * 4096 + 72, &long), (255, SEGMENT_BYTES + 4096 + 72, "größer".as_bytes())];
    assert!(found == expected, "{} records", found.len());
    assert_eq!(world.builder.generation(), 3);
    assert_eq!(world.end, Position(SEGMENT_BYTES + 3 * 4096));
}

#[test]
fn the_first_format_is_still_written() {
    if let Some(folder) = std::env::var_os(WRITE_TO) {
        let directory = PathBuf::from(folder);
        write(&RealDisk::default(), &LaneConfig { directory, ..config() });
    }
    let disk = MemoryDisk::default();
    write(&disk, &config());
    assert_eq!(slot_paths(&disk).len(), SLOTS.len());
    for (name, golden) in SLOTS {
        let bytes = disk.bytes_of(&directory().join(name)).unwrap();
        let differs = bytes.iter().zip(golden).position(|(now, then)| now != then);
        assert_eq!((bytes.len(), differs), (golden.len(), None), "{name}: first difference");
    }
}
