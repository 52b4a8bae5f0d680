//! Segments without a header that are recovered: the choice of the slot if two have frames of it, and appends
//! behind them.

use sennit_journal::{
    BLOCK_BYTES, Disk, Fault, Position,
    disk::{FaultPlan, FaultyDisk, MemoryDisk},
};

use crate::{
    lanes::write_without_sync,
    world::{Entry, SEGMENT_BYTES, World, directory, slot_paths},
};

/// What a slot held, without its header.
fn headless(mut slot: Vec<u8>) -> Vec<u8> {
    slot[..BLOCK_BYTES].fill(0);
    slot
}

/// A lane whose second segment was torn in one slot by one life, and then written by the next life in
/// another: what was safe, and the two slots without their headers, the torn one first.
fn twice_begun() -> (MemoryDisk, Vec<Entry>, [Vec<u8>; 2]) {
    let disk = MemoryDisk::default();
    let mut entries = vec![World::open(&disk).unwrap().write(1, b"safe").unwrap()];
    let mut lost = World::open(&disk).unwrap();
    lost.push(1, b"torn with its header");
    lost.seal();
    lost.push(1, b"as is what was written with it");
    lost.seal();
    lost.push(1, b"and this");
    lost.commit().unwrap();
    let path = &slot_paths(&disk)[1];
    let torn = headless(disk.bytes_of(path).unwrap());
    disk.insert_file(path, torn.clone());
    let mut again = World::open(&disk).unwrap();
    assert_eq!((&again.found, again.builder.generation()), (&entries, 3));
    entries.extend([&b"first"[..], b"second", b"third"].map(|body| again.write(1, body).unwrap()));
    let real = headless(disk.bytes_of(path).unwrap());
    disk.remove(path).unwrap();
    (disk, entries, [torn, real])
}

#[test]
fn of_two_slots_that_held_one_segment_the_later_life_has_written_it() {
    let names = ["slot-00001.journal", "slot-00002.journal"];
    for places in [[0, 1], [1, 0]] {
        let (disk, entries, slots) = twice_begun();
        for (slot, place) in slots.into_iter().zip(places) {
            disk.insert_file(&directory().join(names[place]), slot);
        }
        let world = World::open_past_rot(&disk).unwrap();
        assert_eq!(world.found, entries, "the torn one lies in {}", names[places[0]]);
        assert_eq!(world.damage.len(), 1, "{:?}", world.damage);
        assert_eq!((world.lane.holds(1), world.lane.spare_count()), (true, 1));
    }
}

#[test]
fn frames_of_a_life_that_was_torn_behind_those_of_the_next_change_nothing() {
    let (disk, entries, [torn, mut slot]) = twice_begun();
    let stale = 3 * BLOCK_BYTES..;
    slot[stale.clone()].copy_from_slice(&torn[stale]);
    disk.insert_file(&directory().join("slot-00001.journal"), slot);
    let world = World::open_past_rot(&disk).unwrap();
    assert_eq!((&world.found[..], world.damage.len()), (&entries[..3], 1), "{:?}", world.damage);
}

#[test]
fn what_a_killed_process_had_written_is_durable_once_it_was_found_without_its_header() {
    let disk = FaultyDisk::new(1, FaultPlan::default());
    let mut world = World::open(&disk).unwrap();
    let mut entries = [&b"first"[..], b"second"].map(|body| world.write(1, body).unwrap()).to_vec();
    entries.push(world.push(1, b"written"));
    write_without_sync(&disk, &world.take_sealed()[0]);
    disk.kill();
    disk.rot(&slot_paths(&disk)[0], 3, 1);
    let mut next = World::open_past_rot(&disk).unwrap();
    assert_eq!((&next.found, next.damage.len()), (&entries, 1));
    entries.push(next.write(1, b"later").unwrap());
    disk.crash();
    let world = World::open_past_rot(&disk).unwrap();
    assert_eq!((&world.found, world.damage), (&entries, next.damage));
}

/// A lane of `segments` segments that each hold one commit, of which the last `rotten` lost their headers.
fn one_commit_each(segments: usize, rotten: usize) -> (MemoryDisk, Vec<Entry>) {
    let disk = MemoryDisk::default();
    let mut world = World::open(&disk).unwrap();
    let mut entries = Vec::new();
    for _ in 0..segments {
        world.builder.start_segment();
        entries.push(world.write(1, b"alone").unwrap());
    }
    for path in &slot_paths(&disk)[segments - rotten..] {
        disk.insert_file(path, headless(disk.bytes_of(path).unwrap()));
    }
    (disk, entries)
}

/// The newest segment may have been torn as it was begun. Its frame says that the one before was durable.
#[test]
fn a_segment_of_one_commit_is_no_torn_tail_where_the_next_one_lost_its_header_too() {
    for (segments, rotten) in [(3, 2), (2, 2), (4, 3)] {
        let (disk, entries) = one_commit_each(segments, rotten);
        let first_lost = segments - rotten;
        let Err(Fault::Rot { path, position, .. }) = World::open(&disk).map(drop) else {
            panic!("{segments} segments, {rotten} headers: no rot");
        };
        assert_eq!(path, slot_paths(&disk)[first_lost]);
        let log_ends_before = entries[..first_lost].last().map_or(0, |_| 2 * BLOCK_BYTES as u64);
        let begin = (first_lost as u64).saturating_sub(1) * SEGMENT_BYTES;
        assert_eq!(position, Position(begin + log_ends_before));

        let mut world = World::open_past_rot(&disk).unwrap();
        let mut durable = entries[..segments - 1].to_vec();
        assert_eq!(
            (&world.found, world.damage.len()),
            (&durable, rotten - 1),
            "{:?}",
            world.damage
        );
        assert_eq!(world.lane.spare_count(), 1, "the newest may have been torn");
        durable.push(world.write(1, b"later").unwrap());
        let again = World::open_past_rot(&disk).unwrap();
        assert_eq!((&again.found, &again.damage), (&durable, &world.damage));
    }
}

/// A frame that is not whole, in front of one that does not say of it that it was durable: a later segment does.
#[test]
fn what_lies_behind_rot_is_found_where_only_a_later_segment_says_that_it_was_durable() {
    let disk = MemoryDisk::default();
    let mut world = World::open(&disk).unwrap();
    let mut entries = vec![world.write(1, b"first").unwrap()];
    entries.push(world.push(1, b"rotten"));
    world.seal();
    entries.push(world.push(1, b"behind"));
    world.commit().unwrap();
    world.builder.start_segment();
    entries.push(world.write(1, b"next").unwrap());
    entries.push(world.write(1, b"last").unwrap());
    let paths = slot_paths(&disk);
    let mut slot = disk.bytes_of(&paths[0]).unwrap();
    slot[entries[1].position.0 as usize] ^= 1;
    disk.insert_file(&paths[0], slot);
    disk.insert_file(&paths[1], headless(disk.bytes_of(&paths[1]).unwrap()));
    let world = World::open_past_rot(&disk).unwrap();
    entries.remove(1);
    assert_eq!(world.found, entries, "{:?}", world.damage);
    let holes = world.damage.iter().map(|(_, hole)| (&hole.path, hole.position.0, hole.end().0));
    let block = BLOCK_BYTES as u64;
    assert_eq!(
        holes.collect::<Vec<_>>(),
        [
            (&paths[0], 2 * block, 3 * block),
            // The first segment was seen to end here.
            (&paths[1], 4 * block, SEGMENT_BYTES + block)
        ]
    );
}

/// The newest segment, of which only frames are left, holds one commit, and that has rotted too.
#[test]
fn a_rotten_commit_is_no_torn_tail_where_only_a_later_segment_says_that_it_was_durable() {
    let (disk, mut entries) = one_commit_each(3, 2);
    let path = &slot_paths(&disk)[1];
    let mut slot = disk.bytes_of(path).unwrap();
    slot[entries[1].position.in_segment(SEGMENT_BYTES) as usize] ^= 1;
    disk.insert_file(path, slot);
    let mut world = World::open_past_rot(&disk).unwrap();
    assert_eq!(world.found, entries[..1]);
    let [(1, hole)] = &world.damage[..] else { panic!("{:?}", world.damage) };
    let block = BLOCK_BYTES as u64;
    assert_eq!((&hole.path, hole.position.0), (path, 2 * block));
    assert_eq!((hole.end(), world.end), (world.end, Position(SEGMENT_BYTES + 2 * block)));
    entries.truncate(1);
    entries.push(world.write(1, b"later").unwrap());
    let again = World::open_past_rot(&disk).unwrap();
    assert_eq!((again.found, again.damage), (entries, world.damage));
}

#[test]
fn a_block_that_was_written_to_the_wrong_slot_does_not_keep_a_segment_from_being_found() {
    let disk = MemoryDisk::default();
    let mut world = World::open(&disk).unwrap();
    let mut entries = Vec::new();
    for _ in 0..3 {
        world.builder.start_segment();
        entries.extend([&b"one"[..], b"two"].map(|body| world.write(1, body).unwrap()));
    }
    let paths = slot_paths(&disk);
    let mut slot = headless(disk.bytes_of(&paths[1]).unwrap());
    // Behind its own frames lies one of the segment that another slot holds.
    let other = disk.bytes_of(&paths[2]).unwrap();
    slot[2 * BLOCK_BYTES..3 * BLOCK_BYTES]
        .copy_from_slice(&other[2 * BLOCK_BYTES..3 * BLOCK_BYTES]);
    disk.insert_file(&paths[1], slot);
    let world = World::open_past_rot(&disk).unwrap();
    entries.remove(3);
    assert_eq!((world.found, world.headless), (entries, [(1, paths[1].clone())].into()));
}

/// Begin, end and cause of what is damaged.
fn holes(world: &World<MemoryDisk>) -> Vec<(u64, u64, &'static str)> {
    let holes = world.damage.iter().map(|(_, hole)| (hole.position.0, hole.end().0, hole.problem));
    holes.collect()
}

#[test]
fn the_newest_segment_is_missed_where_only_a_frame_says_that_it_was_there() {
    let (disk, mut entries) = one_commit_each(3, 1);
    disk.remove(&slot_paths(&disk)[1]).unwrap();
    let mut world = World::open_past_rot(&disk).unwrap();
    let missing = (2 * BLOCK_BYTES as u64, 2 * SEGMENT_BYTES, "a segment is missing");
    assert_eq!((&world.found[..], holes(&world)), (&entries[..1], vec![missing]));
    assert_eq!(world.end, Position(2 * SEGMENT_BYTES));
    entries.truncate(1);
    entries.push(world.write(1, b"later").unwrap());
    let again = World::open_past_rot(&disk).unwrap();
    assert_eq!((&again.found, holes(&again)), (&entries, vec![missing]));
}

#[test]
fn a_lost_header_behind_a_missing_segment_is_damage_of_its_own() {
    let (disk, entries) = one_commit_each(4, 0);
    let paths = slot_paths(&disk);
    disk.insert_file(&paths[2], headless(disk.bytes_of(&paths[2]).unwrap()));
    disk.remove(&paths[1]).unwrap();
    let world = World::open_past_rot(&disk).unwrap();
    assert_eq!(world.found, [&entries[..1], &entries[2..]].concat());
    let block = BLOCK_BYTES as u64;
    let missing = (2 * block, 2 * SEGMENT_BYTES, "a segment is missing");
    let header = (2 * SEGMENT_BYTES, 2 * SEGMENT_BYTES + block, "the header is not whole");
    assert_eq!(holes(&world), [missing, header]);
}

#[test]
fn a_lost_header_in_front_of_a_missing_segment_costs_no_record_behind_it() {
    let (disk, entries) = one_commit_each(4, 0);
    let paths = slot_paths(&disk);
    disk.insert_file(&paths[1], headless(disk.bytes_of(&paths[1]).unwrap()));
    disk.remove(&paths[2]).unwrap();
    let world = World::open_past_rot(&disk).unwrap();
    assert_eq!(world.found, [&entries[..2], &entries[3..]].concat());
    let block = BLOCK_BYTES as u64;
    let header = (2 * block, SEGMENT_BYTES + block, "the header is not whole");
    let missing = (SEGMENT_BYTES + 2 * block, 3 * SEGMENT_BYTES, "a segment is missing");
    assert_eq!(holes(&world), [header, missing]);
}

/// A frame that says that everything up to a segment's first byte is durable says nothing of that segment.
#[test]
fn a_frame_behind_a_full_segment_does_not_prove_the_segment_that_it_lies_in() {
    let disk = MemoryDisk::default();
    let mut world = World::open(&disk).unwrap();
    let entries = [100, 9000, 100].map(|length| {
        world.builder.start_segment();
        world.write(1, &vec![7; length]).unwrap()
    });
    for path in &slot_paths(&disk)[1..] {
        disk.insert_file(path, headless(disk.bytes_of(path).unwrap()));
    }
    let world = World::open_past_rot(&disk).unwrap();
    assert_eq!(world.found, entries[..2]);
    assert_eq!((world.end, world.lane.spare_count()), (Position(2 * SEGMENT_BYTES), 1));
}

#[test]
fn a_life_is_counted_above_all_that_were_torn_in_one_slot() {
    let (disk, _, [torn, mut slot]) = twice_begun();
    slot[2 * BLOCK_BYTES..].copy_from_slice(&torn[2 * BLOCK_BYTES..]);
    disk.insert_file(&directory().join("slot-00001.journal"), slot);
    assert_eq!(World::open(&disk).unwrap().builder.generation(), 4);
}
