//! FORMAT.md holds an example; this reads the page, puts the example on a disk and opens it.

use sennit_journal::{Position, disk::MemoryDisk};

use crate::world::{Entry, SEGMENT_BYTES, World, directory};

const PAGE: &str = include_str!("../../FORMAT.md");

/// The slot that the page's `hex` block describes: lines of `offset  bytes  note`, zeros elsewhere.
fn example() -> Vec<u8> {
    let block = PAGE.split("```hex\n").nth(1).expect("the page has an example");
    let block = block.split("```").next().unwrap_or_default();
    let mut slot = vec![0; SEGMENT_BYTES as usize];
    for line in block.lines() {
        let mut columns = line.split("  ").filter(|column| !column.is_empty());
        let offset = u64::from_str_radix(columns.next().unwrap(), 16).unwrap() as usize;
        for (at, byte) in columns.next().unwrap().split(' ').enumerate() {
            slot[offset + at] = u8::from_str_radix(byte, 16).unwrap();
        }
    }
    slot
}

#[test]
fn the_example_of_the_page_is_a_lane_with_one_record() {
    let disk = MemoryDisk::default();
    disk.put(&directory().join("slot-00000.journal"), example());
    let world = World::open(&disk).unwrap();
    let body = bytes::Bytes::from_static(b"hello");
    assert_eq!(world.found, [Entry { kind: 7, position: Position(0x1048), body }]);
    assert_eq!((world.end, world.torn_bytes), (Position(0x2000), 0));
}

#[test]
fn the_example_of_the_page_is_what_is_written() {
    let disk = MemoryDisk::default();
    World::open(&disk).unwrap().write(7, b"hello").unwrap();
    let written = disk.bytes_of(&directory().join("slot-00000.journal")).unwrap();
    assert!(written == example(), "the page differs from what is written");
}
