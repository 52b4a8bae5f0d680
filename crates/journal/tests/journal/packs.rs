//! Records in a pack can be read back from any position; packs are listed and removed.

use bytes::Bytes;
use proptest::prelude::*;
use sennit_journal::{
    BLOCK_BYTES, Container, Disk, DiskFile, FRAME_TARGET_BYTES, Fault, LaneConfig, PACK_BYTES_MAX,
    Pack, PackPushError, PackWriter, Position, REMOVAL_STEP_BYTES,
    disk::{FaultPlan, FaultyDisk, MemoryDisk, RealDisk},
    packs, remove_pack,
};

use crate::{
    recovery::crc32c,
    world::{World, body, config, directory, pack_path, walk, write_pack},
};

/// A disk with the directory of a lane.
fn disk() -> MemoryDisk {
    let disk = MemoryDisk::default();
    World::open(&disk).unwrap();
    disk
}

#[test]
fn a_place_in_a_pack_is_told_from_one_in_the_lane() {
    for (pack, byte) in [(0, 0), (0, 4096), (7, u32::MAX), (Position::PACK_MAX, 1)] {
        let position = Position::of_pack(pack, byte);
        assert_eq!(position.pack(), Some((pack, byte)));
        assert!(position > Position(u64::MAX >> 1));
    }
    assert_eq!(Position(0).pack(), None);
    assert_eq!(Position(u64::MAX >> 1).pack(), None);
    assert_eq!(Position::of_pack(3, 72).to_string(), "72 of pack 3");
}

#[test]
fn what_was_pushed_is_read_where_the_writer_said() {
    let disk = MemoryDisk::default();
    let mut reader = World::open(&disk).unwrap().reader;
    let bodies: Vec<_> = (0..40).map(|number| body(number, 90_000 * number as usize)).collect();
    let (pack, entries) = write_pack(&disk, 12, &bodies).unwrap();
    assert_eq!(pack.bytes as usize, disk.bytes_of(&pack_path(12)).unwrap().len());
    for (entry, body) in entries.iter().zip(&bodies) {
        assert_eq!(entry.position.pack().unwrap().0, 12);
        assert_eq!(reader.read(entry.position, body.len()).unwrap(), body);
        assert_eq!(reader.read_uncached(entry.position, body.len()).unwrap(), body);
    }
    let within = entries[39].position.plus(1000);
    assert_eq!(reader.read(within, 500).unwrap(), bodies[39][1000..1500]);
    assert_eq!(walk(&mut reader, Container::Pack(12)).unwrap(), (entries, vec![]));
}

#[test]
fn the_parts_of_a_body_lie_one_after_the_other() {
    let disk = MemoryDisk::default();
    let mut reader = World::open(&disk).unwrap().reader;
    let mut writer = PackWriter::create(&disk, &config(), 1, 0).unwrap();
    let position = writer.push(9, &[b"one, ", b"", b"two"]).unwrap();
    writer.finish().unwrap();
    let (found, _) = walk(&mut reader, Container::Pack(1)).unwrap();
    assert_eq!((found[0].kind, found[0].position), (9, position));
    assert_eq!(found[0].body, Bytes::from_static(b"one, two"));
}

#[test]
fn a_pack_is_listed_with_what_its_writer_said() {
    let disk = MemoryDisk::default();
    World::open(&disk).unwrap().write(1, b"in the lane").unwrap();
    assert_eq!(packs(&disk, &config()).unwrap(), []);
    let writer = PackWriter::create(&disk, &config(), 2, 0xfedc_ba98_7654_3210).unwrap();
    assert_eq!(writer.class(), 0xfedc_ba98_7654_3210);
    let length = writer.bytes();
    let empty = writer.finish().unwrap();
    assert_eq!(
        empty,
        Pack { number: 2, bytes: length, class: 0xfedc_ba98_7654_3210, is_whole: true }
    );
    let (full, _) = write_pack(&disk, 1, &[body(1, 5000)]).unwrap();
    assert_eq!(packs(&disk, &config()).unwrap(), [full, empty]);
}

#[test]
fn a_pack_that_was_not_finished_is_listed_as_not_whole() {
    let disk = disk();
    let mut writer = PackWriter::create(&disk, &config(), 1, 7).unwrap();
    for number in 0..5 {
        writer.push(1, &[&body(number, 900_000)]).unwrap();
    }
    let written = writer.bytes();
    drop(writer);
    let [pack] = packs(&disk, &config()).unwrap()[..] else { panic!("not one pack") };
    assert_eq!((pack.number, pack.class, pack.is_whole), (1, 7, false));
    assert!(pack.bytes < written, "the last record was not written");
    // The lane does not mind, and neither does a pack of another number.
    World::open(&disk).unwrap().write(1, b"in the lane").unwrap();
    assert!(PackWriter::create(&disk, &config(), 1, 7).is_err(), "the file is there");
    assert!(write_pack(&disk, 2, &[body(1, 8)]).unwrap().0.is_whole);
}

#[test]
fn other_files_are_no_packs() {
    let disk = MemoryDisk::default();
    World::open(&disk).unwrap();
    for name in ["pack-1.pack", "pack-0000000001.old", "pack-2147483648.pack", "x"] {
        disk.insert_file(&directory().join(name), vec![0; 8192]);
    }
    assert_eq!(packs(&disk, &config()).unwrap(), []);
}

#[test]
fn a_pack_of_another_place_is_refused_with_what_differs() {
    let disk = MemoryDisk::default();
    write_pack_somewhere(&disk);
    for (config, field) in [
        (LaneConfig { lane: 1, ..config() }, "lane"),
        (LaneConfig { incarnation: 43, ..config() }, "incarnation"),
    ] {
        let fault = packs(&disk, &config).unwrap_err();
        assert!(matches!(fault, Fault::Foreign { field: named, .. } if named == field), "{fault}");
    }
    disk.insert_file(&pack_path(4), disk.bytes_of(&pack_path(3)).unwrap());
    let fault = packs(&disk, &config()).unwrap_err();
    assert!(matches!(fault, Fault::Foreign { field: "pack", found: 3, expected: 4, .. }));
    let mut reader = World::open(&disk).unwrap().reader;
    assert!(matches!(walk(&mut reader, Container::Pack(4)), Err(Fault::Foreign { .. })));
}

#[test]
fn a_pack_of_a_newer_format_is_refused_with_both_numbers() {
    let disk = MemoryDisk::default();
    write_pack_somewhere(&disk);
    let mut bytes = disk.bytes_of(&pack_path(3)).unwrap();
    bytes[8..10].copy_from_slice(&2u16.to_le_bytes());
    let checksum = crate::recovery::crc32c_of_header(&bytes);
    bytes[64..68].copy_from_slice(&checksum.to_le_bytes());
    disk.insert_file(&pack_path(3), bytes);
    let fault = packs(&disk, &config()).unwrap_err();
    assert!(matches!(fault, Fault::NewerFormat { found: 2, known: 1, .. }), "{fault}");
}

fn write_pack_somewhere(disk: &MemoryDisk) {
    World::open(disk).unwrap();
    write_pack(disk, 3, &[body(1, 100)]).unwrap();
}

#[test]
fn a_frame_is_no_longer_than_it_has_to_be_and_takes_the_next_record_if_it_fits() {
    let disk = disk();
    // With headers and padding, two of these are just a frame, and a byte more is not.
    let half = FRAME_TARGET_BYTES / 2 - 40;
    for (longer, frames) in [(0, 1), (1, 2)] {
        let number = 10 + longer as u32;
        let (pack, _) =
            write_pack(&disk, number, &[body(1, half), body(2, half + longer)]).unwrap();
        let expected = match frames {
            1 => FRAME_TARGET_BYTES + 2 * 4096,
            _ => FRAME_TARGET_BYTES + 4 * 4096 - 4096,
        };
        assert!(pack.bytes as usize <= expected + 4096, "{frames}: {}", pack.bytes);
        let bytes = disk.bytes_of(&pack_path(number)).unwrap();
        let begins = bytes.chunks(4096).filter(|block| block.starts_with(b"SNFR")).count();
        assert_eq!(begins, frames + 1, "and the last");
    }
}

#[test]
fn a_full_pack_refuses_a_record_and_takes_a_shorter_one() {
    let disk = disk();
    let mut writer = PackWriter::create(&disk, &config(), 1, 0).unwrap();
    let part = vec![1; 10 << 20];
    let parts: Vec<&[u8]> = vec![&part; 25];
    writer.push(1, &parts).unwrap();
    assert!(matches!(writer.push(1, &[&part]), Err(PackPushError::Full)));
    writer.push(1, &[b"short"]).unwrap();
    assert!(writer.bytes() < PACK_BYTES_MAX);
}

#[test]
fn the_longest_record_fits_a_pack_of_its_own_and_no_longer_one() {
    let disk = disk();
    let mut writer = PackWriter::create(&disk, &config(), 1, 0).unwrap();
    let limit = PACK_BYTES_MAX as usize - 2 * 4096 - 64 - 8;
    let part = vec![1; limit / 8 + 1];
    let (whole, rest) = (vec![&part[..]; 7], limit - 7 * part.len());
    let longer = [&whole[..], &[&part[..rest + 1]]].concat();
    match writer.push(1, &longer) {
        Err(PackPushError::TooLarge { length, limit: said }) => {
            assert_eq!((length, said), (limit + 1, limit));
        }
        other => panic!("{other:?}"),
    }
    writer.push(1, &[&whole[..], &[&part[..rest]]].concat()).unwrap();
    assert_eq!(writer.bytes(), PACK_BYTES_MAX);
    assert!(matches!(writer.push(1, &[b""]), Err(PackPushError::Full)));
}

#[test]
fn numbers_of_packs_come_to_an_end() {
    let disk = MemoryDisk::default();
    World::open(&disk).unwrap();
    assert!(PackWriter::create(&disk, &config(), Position::PACK_MAX, 0).is_ok());
    let fault = PackWriter::create(&disk, &config(), Position::PACK_MAX + 1, 0).unwrap_err();
    assert!(matches!(fault, Fault::Io { .. }), "{fault}");
}

#[test]
fn a_disk_that_runs_full_is_said_and_the_pack_takes_no_more() {
    let plan = FaultPlan { capacity_bytes: 1 << 20, ..Default::default() };
    let disk = FaultyDisk::new(1, plan);
    World::open(&disk).unwrap();
    let mut writer = PackWriter::create(&disk, &config(), 1, 0).unwrap();
    let long = body(1, 2 << 20);
    writer.push(1, &[&long]).unwrap();
    let full = writer.push(1, &[&long]).unwrap_err();
    assert!(matches!(&full, PackPushError::Fault(Fault::StorageFull { .. })), "{full}");
    let broken = writer.push(1, &[b"x"]).unwrap_err();
    assert!(matches!(&broken, PackPushError::Fault(Fault::BrokenPack { .. })), "{broken}");
    assert!(matches!(writer.finish(), Err(Fault::BrokenPack { .. })));
    remove(&disk, 1);
    disk.set_plan(FaultPlan::default());
    assert!(write_pack(&disk, 1, &[long]).unwrap().0.is_whole);
}

fn remove<D: Disk>(disk: &D, number: u32) -> usize {
    let mut removal = remove_pack(disk, &config(), number).unwrap();
    let mut steps = 1;
    while !removal.step().unwrap() {
        steps += 1;
    }
    steps
}

#[test]
fn a_long_pack_is_removed_in_steps() {
    let disk = MemoryDisk::default();
    let mut reader = World::open(&disk).unwrap().reader;
    let (pack, entries) = write_pack(&disk, 1, &[body(1, 20 << 20), body(2, 20 << 20)]).unwrap();
    let mut removal = remove_pack(&disk, &config(), 1).unwrap();
    let mut left = pack.bytes;
    while left > REMOVAL_STEP_BYTES {
        assert!(!removal.step().unwrap());
        left -= REMOVAL_STEP_BYTES;
        let [listed] = packs(&disk, &config()).unwrap()[..] else { panic!("not one pack") };
        assert_eq!((listed.bytes, listed.is_whole), (left, false));
    }
    assert!(removal.step().unwrap());
    assert!(removal.step().unwrap(), "and once more does no harm");
    assert_eq!(packs(&disk, &config()).unwrap(), []);
    let fault = reader.read(entries[0].position, 8).unwrap_err();
    assert!(matches!(fault, Fault::MissingPack { pack: 1, .. }), "{fault}");
}

#[test]
fn a_pack_that_is_gone_is_removed_at_once() {
    let disk = MemoryDisk::default();
    World::open(&disk).unwrap();
    assert_eq!(remove(&disk, 77), 1);
}

#[test]
fn a_pack_that_is_too_short_for_a_read_is_rot() {
    let disk = MemoryDisk::default();
    let mut reader = World::open(&disk).unwrap().reader;
    let (_, entries) = write_pack(&disk, 1, &[body(1, 10_000)]).unwrap();
    disk.open_to_write(&pack_path(1)).unwrap().set_length(8192).unwrap();
    let fault = reader.read(entries[0].position, 10_000).unwrap_err();
    let Fault::Rot { path, position, .. } = fault else { panic!("{fault}") };
    assert_eq!((path, position), (pack_path(1), entries[0].position));
}

#[test]
fn more_packs_are_read_than_are_held_open() {
    let disk = MemoryDisk::default();
    let mut reader = World::open(&disk).unwrap().reader;
    let entries: Vec<_> = (0..150)
        .map(|number| write_pack(&disk, number, &[body(number.into(), 300)]).unwrap().1.remove(0))
        .collect();
    for entry in entries.iter().chain(entries.iter().rev()) {
        assert_eq!(reader.read(entry.position, 300).unwrap(), entry.body);
    }
}

#[test]
fn the_real_disk_makes_reads_and_removes_a_pack() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (disk, config) =
        (RealDisk::default(), LaneConfig { directory: folder.path().join("lane-0"), ..config() });
    let mut reader = World::open_as(&disk, config.clone()).unwrap().reader;
    let mut writer = PackWriter::create(&disk, &config, 1, 5).unwrap();
    let bodies: Vec<_> = (0..30).map(|number| body(number, 1_000_000)).collect();
    let positions: Vec<_> = bodies.iter().map(|body| writer.push(1, &[body]).unwrap()).collect();
    let pack = writer.finish().unwrap();
    assert_eq!(packs(&disk, &config).unwrap(), [pack]);
    for (position, body) in positions.iter().zip(&bodies) {
        assert_eq!(reader.read(*position, body.len()).unwrap(), body);
    }
    let (found, damage) = walk(&mut reader, Container::Pack(1)).unwrap();
    assert!(damage.is_empty() && found.iter().map(|entry| &entry.body).eq(&bodies));
    reader.forget_pack(1);
    let mut removal = remove_pack(&disk, &config, 1).unwrap();
    assert!(!removal.step().unwrap());
    assert!(removal.step().unwrap());
    assert_eq!(packs(&disk, &config).unwrap(), []);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn whatever_is_pushed_comes_back(
        lengths in prop::collection::vec(
            prop_oneof![8 => 0..5000usize, 2 => 0..400_000usize, 1 => 900_000..2_500_000usize],
            0..40,
        ),
        kinds in prop::collection::vec(any::<u8>(), 40),
        class: u64,
    ) {
        let disk = MemoryDisk::default();
        let mut reader = World::open(&disk).unwrap().reader;
        let mut writer = PackWriter::create(&disk, &config(), 9, class).unwrap();
        let mut pushed = Vec::new();
        for (number, (length, kind)) in lengths.iter().zip(&kinds).enumerate() {
            let body = body(number as u64, *length);
            let position = writer.push(*kind, &[&body]).unwrap();
            pushed.push((*kind, position, body));
        }
        let expected_length = writer.bytes();
        let pack = writer.finish().unwrap();
        prop_assert!(pack.bytes == expected_length);
        prop_assert_eq!(packs(&disk, &config()).unwrap(), [pack]);
        let (found, damage) = walk(&mut reader, Container::Pack(9)).unwrap();
        prop_assert_eq!(damage, vec![]);
        let found: Vec<_> =
            found.into_iter().map(|entry| (entry.kind, entry.position, entry.body.to_vec())).collect();
        prop_assert!(found == pushed, "{} of {}", found.len(), pushed.len());
        for (_, position, body) in &pushed {
            prop_assert_eq!(&reader.read(*position, body.len()).unwrap(), body);
        }
    }
}

#[test]
fn a_pack_whose_last_frame_is_that_of_another_is_not_whole() {
    let bodies = [body(1, 30), body(2, 5000)];
    let last_block = |bytes: Vec<u8>| bytes[bytes.len() - BLOCK_BYTES..].to_vec();
    let disk = disk();
    for number in [4, 5] {
        write_pack(&disk, number, &bodies).unwrap();
    }
    let other = MemoryDisk::default();
    World::open(&other).unwrap();
    let elsewhere = LaneConfig { incarnation: 43, ..config() };
    let mut writer = PackWriter::create(&other, &elsewhere, 4, 3).unwrap();
    for body in &bodies {
        writer.push(5, &[body]).unwrap();
    }
    writer.finish().unwrap();
    let whole = disk.bytes_of(&pack_path(4)).unwrap();
    for (of, last) in [
        ("another number", last_block(disk.bytes_of(&pack_path(5)).unwrap())),
        ("another directory", last_block(other.bytes_of(&pack_path(4)).unwrap())),
    ] {
        let mut bytes = whole.clone();
        let at = bytes.len() - BLOCK_BYTES;
        bytes[at..].copy_from_slice(&last);
        disk.insert_file(&pack_path(4), bytes);
        let found = packs(&disk, &config()).unwrap();
        assert_eq!(
            found.iter().map(|pack| pack.is_whole).collect::<Vec<_>>(),
            [false, true],
            "{of}"
        );
    }
}

#[test]
fn a_file_that_is_named_almost_like_a_pack_is_none() {
    let disk = disk();
    write_pack(&disk, 4, &[body(1, 30)]).unwrap();
    for name in ["pack-5.pack", "pack-+000000005.pack", "pack-00000000005.pack"] {
        disk.insert_file(&directory().join(name), disk.bytes_of(&pack_path(4)).unwrap());
    }
    assert_eq!(packs(&disk, &config()).unwrap().len(), 1);
}

#[test]
fn a_frame_that_holds_something_or_proves_nothing_does_not_end_a_pack() {
    let first = Position::of_pack(1, 0).0.to_le_bytes();
    let forgeries = [("body", 12, &[16][..]), ("durable", 32, &first), ("records", 52, &[1])];
    for (field, at, bytes) in forgeries {
        let disk = disk();
        write_pack(&disk, 1, &[vec![7; 100]]).unwrap();
        assert!(packs(&disk, &config()).unwrap()[0].is_whole);
        let mut pack = disk.bytes_of(&pack_path(1)).unwrap();
        let last = pack.len() - BLOCK_BYTES;
        let frame = &mut pack[last..];
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        let checksum = crc32c(&frame[8..64]);
        frame[4..8].copy_from_slice(&checksum.to_le_bytes());
        disk.insert_file(&pack_path(1), pack);
        assert!(!packs(&disk, &config()).unwrap()[0].is_whole, "{field}");
        let (found, damage) =
            walk(&mut World::open(&disk).unwrap().reader, Container::Pack(1)).unwrap();
        assert_eq!((found.len(), damage.len()), (1, 1), "{field}: {damage:?}");
    }
}
