//! Damage to a pack is reported with its position, and the records behind it are readable.

use proptest::prelude::*;
use sennit_journal::{BLOCK_BYTES, Container, Damage, Disk, Position, disk::MemoryDisk, packs};

use crate::world::{Entry, World, body, config, pack_path, slot_paths, walk, write_pack};

/// A pack of three frames with records, in blocks 1 to 2, 3 and 4 to 6, and the last in block 7.
fn pack() -> (MemoryDisk, Vec<Entry>) {
    let disk = MemoryDisk::default();
    World::open(&disk).unwrap();
    let long = 1 << 20;
    let bodies = [body(1, 300), body(2, 40), body(3, long), body(4, 5000), body(5, 10)];
    let (pack, entries) = write_pack(&disk, 1, &bodies).unwrap();
    assert_eq!(pack.bytes as usize, (1 + 1 + 257 + 2 + 1) * BLOCK_BYTES);
    (disk, entries)
}

fn found(disk: &MemoryDisk) -> (Vec<Entry>, Vec<Damage>) {
    let mut reader = World::open(disk).unwrap().reader;
    walk(&mut reader, Container::Pack(1)).unwrap()
}

fn flip(disk: &MemoryDisk, byte: usize, bit: u8) {
    let mut bytes = disk.bytes_of(&pack_path(1)).unwrap();
    bytes[byte] ^= 1 << bit;
    disk.insert_file(&pack_path(1), bytes);
}

/// Where the padding of the frames, which nothing is read from, begins and ends.
fn is_padding(entries: &[Entry], byte: usize) -> bool {
    let end = |entry: &Entry| {
        let (_, start) = entry.position.pack().unwrap();
        start as usize + entry.body.len().next_multiple_of(8)
    };
    let header = 68..BLOCK_BYTES;
    let after = |entry: &Entry| end(entry)..end(entry).next_multiple_of(BLOCK_BYTES);
    let last = (1 + 1 + 257 + 2) * BLOCK_BYTES + 64;
    header.contains(&byte)
        || [1, 2, 4].iter().any(|&index| after(&entries[index]).contains(&byte))
        || byte >= last
}

#[test]
fn each_flipped_bit_outside_of_padding_is_found_and_costs_one_frame() {
    let (disk, entries) = pack();
    let length = disk.bytes_of(&pack_path(1)).unwrap().len();
    let frames = [0..2, 2..3, 3..5];
    let interesting = |byte: &usize| byte % BLOCK_BYTES < 80 || byte.is_multiple_of(997);
    let (mut told, mut harmless) = (0, 0);
    for byte in (0..length).filter(interesting) {
        // The long frame takes long to check.
        let is_long = (2 * BLOCK_BYTES + 80..258 * BLOCK_BYTES).contains(&byte);
        if is_long && byte % 15 != 0 {
            continue;
        }
        let bit = (byte / 7 % 8) as u8;
        flip(&disk, byte, bit);
        let (seen, damage) = found(&disk);
        if is_padding(&entries, byte) {
            assert_eq!((&seen, &damage), (&entries, &vec![]), "byte {byte} bit {bit}");
            harmless += 1;
        } else {
            let [damage] = &damage[..] else { panic!("byte {byte} bit {bit}: {damage:?}") };
            let at = Position::of_pack(1, byte as u32);
            assert!(damage.position <= at && at < damage.end(), "byte {byte}: {damage:?}");
            let whole: Vec<Entry> = frames
                .iter()
                .filter(|frame| {
                    let first = &entries[frame.start];
                    !(damage.position < first.position && first.position < damage.end())
                })
                .flat_map(|frame| entries[frame.clone()].to_vec())
                .collect();
            assert!(whole.len() >= 3 - usize::from(is_long), "byte {byte}: {damage:?}");
            assert!(seen == whole, "byte {byte} bit {bit}");
            told += 1;
        }
        flip(&disk, byte, bit);
    }
    assert!(told > 400 && harmless > 10, "told {told}, harmless {harmless}");
}

#[test]
fn a_walk_says_in_which_file_and_where_the_damage_is() {
    let (disk, entries) = pack();
    flip(&disk, entries[2].position.pack().unwrap().1 as usize, 0);
    let mut reader = World::open(&disk).unwrap().reader;
    let (_, damage) = walk(&mut reader, Container::Pack(1)).unwrap();
    let [hole] = &damage[..] else { panic!("{damage:?}") };
    assert_eq!(hole.path, pack_path(1));
    assert_eq!(hole.position, Position(entries[2].position.0 - 72));
}

#[test]
fn a_pack_cut_anywhere_is_not_whole_and_the_cut_is_found() {
    let (disk, entries) = pack();
    let bytes = disk.bytes_of(&pack_path(1)).unwrap();
    let blocks = (0..bytes.len()).step_by(BLOCK_BYTES);
    let within = (0..bytes.len()).filter(|length| length % 4093 == 1);
    for length in blocks.chain(within).chain([bytes.len() - 1]) {
        disk.insert_file(&pack_path(1), bytes[..length].to_vec());
        let [pack] = packs(&disk, &config()).unwrap()[..] else { panic!("not one pack") };
        assert!(!pack.is_whole, "{length} bytes");
        let (seen, damage) = found(&disk);
        assert!(!damage.is_empty(), "{length} bytes");
        assert!(entries.starts_with(&seen), "{length} bytes");
    }
}

#[test]
fn a_pack_with_something_behind_it_is_found() {
    let (disk, entries) = pack();
    let bytes = disk.bytes_of(&pack_path(1)).unwrap();
    for more in [1, BLOCK_BYTES, 3 * BLOCK_BYTES] {
        let longer = [&bytes[..], &vec![0; more]].concat();
        disk.insert_file(&pack_path(1), longer);
        let (seen, damage) = found(&disk);
        assert_eq!(seen, entries);
        let [damage] = &damage[..] else { panic!("{damage:?}") };
        assert_eq!(damage.bytes, more as u64);
    }
}

#[test]
fn a_frame_that_lies_elsewhere_than_it_says_is_found() {
    let (disk, entries) = pack();
    let mut bytes = disk.bytes_of(&pack_path(1)).unwrap();
    let first = bytes[BLOCK_BYTES..2 * BLOCK_BYTES].to_vec();
    let at = entries[3].position.pack().unwrap().1 as usize - 72;
    bytes[at..at + BLOCK_BYTES].copy_from_slice(&first);
    disk.insert_file(&pack_path(1), bytes);
    let (seen, damage) = found(&disk);
    assert_eq!(seen, entries[..3]);
    assert_eq!(damage.len(), 1);
    assert_eq!(damage[0].position, Position::of_pack(1, at as u32));
}

#[test]
fn a_frame_of_another_making_of_the_pack_is_found() {
    let (disk, entries) = pack();
    let ours = disk.bytes_of(&pack_path(1)).unwrap();
    disk.remove(&pack_path(1)).unwrap();
    let other = [body(6, 300), body(2, 40), body(3, 1 << 20), body(4, 5000), body(5, 10)];
    write_pack(&disk, 1, &other).unwrap();
    let theirs = disk.bytes_of(&pack_path(1)).unwrap();
    // The tail is theirs, frame for frame in its place; only the chain tells.
    let at = entries[3].position.pack().unwrap().1 as usize - 72;
    disk.insert_file(&pack_path(1), [&ours[..at], &theirs[at..]].concat());
    let (_, damage) = found(&disk);
    assert_eq!(damage[0].position, Position::of_pack(1, at as u32));
    assert!(damage[0].problem.contains("follow"), "{damage:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]

    /// Noise over any stretch never gives a record that was not there.
    #[test]
    fn whatever_is_overwritten_the_rest_comes_back_and_nothing_else(
        at in 0..20 * BLOCK_BYTES,
        length in 1..3 * BLOCK_BYTES,
        noise: u8,
    ) {
        let disk = MemoryDisk::default();
        World::open(&disk).unwrap();
        let bodies: Vec<_> = (0..8).map(|number| body(number, 60_000 * number as usize)).collect();
        let (_, entries) = write_pack(&disk, 1, &bodies).unwrap();
        let mut bytes = disk.bytes_of(&pack_path(1)).unwrap();
        let at = at * (bytes.len() / (21 * BLOCK_BYTES));
        let end = (at + length).min(bytes.len());
        let before = bytes.clone();
        bytes[at..end].fill(noise);
        let is_same = bytes == before;
        disk.insert_file(&pack_path(1), bytes);
        let (seen, damage) = found(&disk);
        prop_assert!(seen.iter().all(|entry| entries.contains(entry)));
        prop_assert!(seen.is_sorted_by(|one, next| one.position < next.position));
        prop_assert!(seen.len() == entries.len() || !damage.is_empty());
        prop_assert!(!is_same || damage.is_empty());
    }
}

#[test]
fn a_frame_of_a_pack_that_lies_in_a_slot_is_none_of_the_lane() {
    let (disk, _) = pack();
    let mut world = World::open(&disk).unwrap();
    let entry = world.write(1, b"the lane").unwrap();
    let spare = world.slots.make().unwrap();
    drop((world, spare));
    let frame = disk.bytes_of(&pack_path(1)).unwrap()[BLOCK_BYTES..2 * BLOCK_BYTES].to_vec();
    let path = &slot_paths(&disk)[1];
    let mut slot = disk.bytes_of(path).unwrap();
    slot[BLOCK_BYTES..2 * BLOCK_BYTES].copy_from_slice(&frame);
    disk.insert_file(path, slot);
    assert_eq!(World::open(&disk).unwrap().found, [entry]);
}
