//! Opens the example of FORMAT.md.

use sennit_journal::{Container, PackWriter, Position, disk::MemoryDisk, packs};

use crate::world::{Entry, SEGMENT_BYTES, World, config, directory, pack_path, walk};

const PAGE: &str = include_str!("../../FORMAT.md");

/// The file of `length` bytes that the page's `hex` block of this number, from 1, describes: lines of
/// `offset  bytes  note`, zeros elsewhere.
fn file(number: usize, length: usize) -> Vec<u8> {
    let block = PAGE.split("```hex\n").nth(number).expect("the page has the example");
    let block = block.split("```").next().unwrap_or_default();
    let mut file = vec![0; length];
    for line in block.lines() {
        let mut columns = line.split("  ").filter(|column| !column.is_empty());
        let offset = u64::from_str_radix(columns.next().unwrap(), 16).unwrap() as usize;
        for (at, byte) in columns.next().unwrap().split(' ').enumerate() {
            file[offset + at] = u8::from_str_radix(byte, 16).unwrap();
        }
    }
    file
}

fn example() -> Vec<u8> {
    file(1, SEGMENT_BYTES as usize)
}

fn pack_example() -> Vec<u8> {
    file(2, 3 * 4096)
}

#[test]
fn the_example_of_the_page_is_a_lane_with_one_record() {
    let disk = MemoryDisk::default();
    disk.insert_file(&directory().join("slot-00000.journal"), example());
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

#[test]
fn the_second_example_of_the_page_is_a_pack_with_one_record() {
    let disk = MemoryDisk::default();
    disk.insert_file(&pack_path(1), pack_example());
    let mut reader = World::open(&disk).unwrap().reader;
    let [pack] = packs(&disk, &config()).unwrap()[..] else { panic!("not one pack") };
    assert_eq!((pack.number, pack.class, pack.is_whole), (1, 3, true));
    let body = bytes::Bytes::from_static(b"hello");
    let entry = Entry { kind: 7, position: Position(1 << 63 | 1 << 32 | 0x1048), body };
    assert_eq!(reader.read(entry.position, 5).unwrap(), entry.body);
    assert_eq!(walk(&mut reader, Container::Pack(1)).unwrap(), (vec![entry], vec![]));
}

#[test]
fn the_second_example_of_the_page_is_what_is_written() {
    let disk = MemoryDisk::default();
    World::open(&disk).unwrap();
    let mut writer = PackWriter::create(&disk, &config(), 1, 3).unwrap();
    writer.push(7, &[b"hello"]).unwrap();
    writer.finish().unwrap();
    let written = disk.bytes_of(&pack_path(1)).unwrap();
    if written != pack_example() {
        let rows = (0..written.len()).step_by(8).filter(|at| written[*at..at + 8] != [0; 8]);
        let rows: Vec<_> =
            rows.map(|at| format!("{at:04x} {:02x?}", &written[at..at + 8])).collect();
        panic!("the page differs from what is written:\n{}", rows.join("\n"));
    }
}
