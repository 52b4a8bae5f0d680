//! A pack of the first format version, kept as a file. It must stay readable as long as the format number is the
//! same, and be written the same way.

use std::path::PathBuf;

use sennit_journal::{
    Container, Disk, LaneConfig, PackWriter, Position,
    disk::{MemoryDisk, RealDisk},
    packs,
};

use crate::world::{World, config, pack_path, walk};

const PACK: &[u8] = include_bytes!("../golden/v1-pack/pack-0000000007.pack");

/// Set to a folder to have the pack written there, after the format's number was raised.
const WRITE_TO: &str = "SENNIT_WRITE_GOLDEN_PACK";

fn long() -> Vec<u8> {
    (0..=255).cycle().take(5000).collect()
}

/// Records of several kinds and lengths.
fn write(disk: &impl Disk, config: &LaneConfig) {
    disk.create_directory(&config.directory).unwrap();
    let mut writer = PackWriter::create(disk, config, 7, 0x0102_0304_0506_0708).unwrap();
    writer.push(1, &[b"a first ", b"record"]).unwrap();
    writer.push(2, &[]).unwrap();
    writer.push(3, &[&long()]).unwrap();
    writer.push(255, &["größer".as_bytes()]).unwrap();
    writer.finish().unwrap();
}

#[test]
fn the_first_format_of_a_pack_is_still_read() {
    let disk = MemoryDisk::default();
    disk.insert_file(&pack_path(7), PACK.to_vec());
    let [pack] = packs(&disk, &config()).unwrap()[..] else { panic!("not one pack") };
    assert_eq!((pack.number, pack.class, pack.is_whole), (7, 0x0102_0304_0506_0708, true));
    let mut reader = World::open(&disk).unwrap().reader;
    let (found, damage) = walk(&mut reader, Container::Pack(7)).unwrap();
    let found: Vec<_> =
        found.iter().map(|entry| (entry.kind, entry.position, &entry.body[..])).collect();
    let at = |byte| Position::of_pack(7, byte);
    let (first, second) = (4096 + 64 + 8, 4096 + 64 + 8 + 16 + 8);
    let third = second + 8;
    let fourth = third + 5000 + 8;
    let long = long();
    let expected: [(u8, Position, &[u8]); 4] = [
        (1, at(first), b"a first record"),
        (2, at(second), b""),
        (3, at(third), &long),
        (255, at(fourth), "größer".as_bytes()),
    ];
    assert!(found == expected, "{} records", found.len());
    assert_eq!(damage, []);
    assert_eq!(reader.read(at(fourth), 8).unwrap(), "größer".as_bytes());
}

#[test]
fn the_first_format_of_a_pack_is_still_written() {
    if let Some(folder) = std::env::var_os(WRITE_TO) {
        let directory = PathBuf::from(folder);
        write(&RealDisk::default(), &LaneConfig { directory, ..config() });
    }
    let disk = MemoryDisk::default();
    write(&disk, &config());
    let bytes = disk.bytes_of(&pack_path(7)).unwrap();
    let differs = bytes.iter().zip(PACK).position(|(now, then)| now != then);
    assert_eq!((bytes.len(), differs), (PACK.len(), None), "first difference");
}
