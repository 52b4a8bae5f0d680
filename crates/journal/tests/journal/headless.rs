//! Old segments without a whole header: their frames identify the segment, and the remains of another use of the
//! slot are not returned.

use sennit_journal::{
    BLOCK_BYTES, Container, LaneConfig, Position, ScrubResult,
    disk::{FaultPlan, FaultyDisk, MemoryDisk},
    scrub,
};

use crate::world::{Entry, SEGMENT_BYTES, World, body, config, directory, slot_paths, walk};

fn change(disk: &MemoryDisk, slot: usize, change: impl FnOnce(&mut [u8])) {
    let path = &slot_paths(disk)[slot];
    let mut bytes = disk.bytes_of(path).unwrap();
    change(&mut bytes);
    disk.insert_file(path, bytes);
}

/// A lane whose first segment holds three records, in the frames of blocks 1 to 3, and is not replayed.
fn lane() -> (MemoryDisk, World<MemoryDisk>, Vec<Entry>) {
    let disk = MemoryDisk::default();
    let mut world = World::open(&disk).unwrap();
    let entries = [&b"first"[..], b"other", b"third"].map(|body| world.write(1, body).unwrap());
    world.builder.start_segment();
    world.builder.set_replay_from(Position(SEGMENT_BYTES));
    world.mark().unwrap();
    (disk, world, entries.to_vec())
}

fn read(world: &mut World<MemoryDisk>, entry: &Entry) -> Vec<u8> {
    world.reader.read(entry.position, entry.body.len()).unwrap().to_vec()
}

#[test]
fn an_old_segment_is_read_and_walked_through_without_its_header() {
    let (disk, _, entries) = lane();
    change(&disk, 0, |bytes| bytes[..BLOCK_BYTES].fill(0));
    let mut world = World::open(&disk).unwrap();
    assert!(world.lane.holds(0) && world.found.is_empty());
    assert_eq!(world.headless, [(0, slot_paths(&disk)[0].clone())].into());
    for entry in &entries {
        assert_eq!(read(&mut world, entry), entry.body);
        let mut another = world.reader.duplicate();
        assert_eq!(another.read(entry.position, entry.body.len()).unwrap(), entry.body);
    }
    // Several frames at once.
    let (first, last) = (&entries[0], &entries[2]);
    let length = (last.position.0 - first.position.0) as usize + last.body.len();
    let whole = world.reader.read(first.position, length).unwrap();
    assert!(whole.starts_with(&first.body) && whole.ends_with(&last.body));
    assert_eq!(walk(&mut world.reader, Container::Segment(0)).unwrap(), (entries, vec![]));
}

#[test]
fn of_a_segment_without_its_header_only_the_frame_is_lost_that_is_not_whole() {
    let (disk, _, entries) = lane();
    change(&disk, 0, |bytes| {
        bytes[7] ^= 1;
        bytes[2 * BLOCK_BYTES + 20] ^= 1;
    });
    let mut world = World::open(&disk).unwrap();
    assert_eq!(read(&mut world, &entries[0]), entries[0].body);
    assert_eq!(read(&mut world, &entries[1]), [0; 5], "nothing says what lies there");
    assert_eq!(read(&mut world, &entries[2]), entries[2].body);
    let (walked, damage) = walk(&mut world.reader, Container::Segment(0)).unwrap();
    assert_eq!(walked, [entries[0].clone(), entries[2].clone()]);
    let [hole] = &damage[..] else { panic!("{damage:?}") };
    assert_eq!((hole.position, hole.bytes), (Position(2 * BLOCK_BYTES as u64), 4096));
}

#[test]
fn a_block_that_was_written_to_the_wrong_slot_does_not_say_what_the_slot_holds() {
    let (disk, _, entries) = lane();
    let newer = disk.bytes_of(&slot_paths(&disk)[1]).unwrap();
    change(&disk, 0, |bytes| {
        bytes[..BLOCK_BYTES].fill(0);
        // The first frame of the segment that the other slot holds.
        bytes[BLOCK_BYTES..2 * BLOCK_BYTES].copy_from_slice(&newer[BLOCK_BYTES..2 * BLOCK_BYTES]);
    });
    let mut world = World::open(&disk).unwrap();
    assert_eq!(read(&mut world, &entries[0]), [0; 5]);
    assert_eq!(read(&mut world, &entries[1]), entries[1].body);
}

#[test]
fn a_long_record_of_a_segment_without_its_header_is_read_past_the_cache() {
    let disk = MemoryDisk::default();
    let config = || LaneConfig { segment_bytes: 4 << 20, ..config() };
    let mut world = World::open_as(&disk, config()).unwrap();
    let [small, long] = [100, 700_001].map(|length| world.write(1, &body(1, length)).unwrap());
    world.builder.start_segment();
    world.builder.set_replay_from(Position(4 << 20));
    world.mark().unwrap();
    change(&disk, 0, |bytes| {
        bytes[0] ^= 1;
        bytes[BLOCK_BYTES + 17] ^= 1;
    });
    let mut world = World::open_as(&disk, config()).unwrap();
    assert_eq!(world.reader.read_uncached(long.position, 700_001).unwrap(), long.body);
    let part = world.reader.read_uncached(long.position.plus(4095), 300_000).unwrap();
    assert_eq!(part, long.body[4095..][..300_000]);
    // From the frame before, of which nothing is given.
    let from = Position(BLOCK_BYTES as u64 + 200);
    let length = (long.position.0 - from.0) as usize + 500_000;
    let both = world.reader.read_uncached(from, length).unwrap();
    assert!(both[..BLOCK_BYTES - 200].iter().all(|byte| *byte == 0), "{small:?}");
    assert!(both.ends_with(&long.body[..500_000]));
}

#[test]
fn what_a_later_segment_wrote_is_not_read_for_the_earlier_one_of_its_slot() {
    let (disk, mut world, entries) = lane();
    world.lane.release(0);
    world.builder.start_segment();
    let later = world.write(1, b"later").unwrap();
    let at = later.position.in_segment(SEGMENT_BYTES);
    assert_eq!(at, entries[0].position.0, "as long, at the same byte");
    world.builder.start_segment();
    world.mark().unwrap();
    // The header of the later segment rots, and then that of its only frame too.
    change(&disk, 0, |bytes| bytes[5] ^= 1);
    let mut world = World::open_past_rot(&disk).unwrap();
    assert!(world.lane.holds(2) && !world.lane.holds(0));
    assert_eq!(read(&mut world, &later), later.body);
    change(&disk, 0, |bytes| bytes[BLOCK_BYTES + 17] ^= 1);
    let mut world = World::open_past_rot(&disk).unwrap();
    assert!(world.lane.holds(0) && !world.lane.holds(2));
    assert_eq!(read(&mut world, &entries[0]), [0; 5], "the later one lies there");
    assert_eq!(read(&mut world, &entries[1]), entries[1].body);
    // Nobody needs it, and the slot is used for another.
    world.lane.release(0);
    world.write(1, b"new").unwrap();
    assert!(world.reader.read(entries[1].position, 5).is_err(), "another segment lies there");
}

#[test]
fn a_frame_of_an_earlier_use_of_the_slot_is_not_read_for_the_one_that_did_not_reach_the_disk() {
    let (disk, mut world, entries) = lane();
    world.lane.release(0);
    let earlier = disk.bytes_of(&slot_paths(&disk)[0]).unwrap();
    world.builder.start_segment();
    let later = [&b"later"[..], b"last!"].map(|body| world.write(1, body).unwrap());
    world.builder.start_segment();
    world.mark().unwrap();
    change(&disk, 0, |bytes| bytes[..2 * BLOCK_BYTES].copy_from_slice(&earlier[..2 * BLOCK_BYTES]));
    change(&disk, 0, |bytes| bytes[0] ^= 1);
    let mut world = World::open_past_rot(&disk).unwrap();
    assert!(world.lane.holds(2) && !world.lane.holds(0));
    assert_eq!(later[0].position.in_segment(SEGMENT_BYTES), entries[0].position.0);
    assert_eq!(read(&mut world, &later[0]), [0; 5], "what lies there is another's");
    assert_eq!(read(&mut world, &later[1]), later[1].body);
}

#[test]
fn of_two_slots_without_a_header_the_later_life_has_written_an_old_segment() {
    for is_torn_first in [true, false] {
        let (disk, mut world, _) = lane();
        let header =
            |disk: &MemoryDisk, slot: usize| disk.bytes_of(&slot_paths(disk)[slot]).unwrap();
        // A segment is torn in one slot, and begun again in another.
        world.builder.start_segment();
        world.write(1, b"torn!").unwrap();
        let mut torn = header(&disk, 2);
        torn[..BLOCK_BYTES].fill(0);
        disk.insert_file(&slot_paths(&disk)[2], vec![0; SEGMENT_BYTES as usize]);
        let mut again = World::open(&disk).unwrap();
        // The torn one was not in this slot.
        let right = again.write(1, b"right").unwrap();
        again.begin_replay_here().unwrap();
        let mut slot = header(&disk, 2);
        slot[..BLOCK_BYTES].fill(0);
        let names = ["slot-00002.journal", "slot-00009.journal"];
        let [torn_in, right_in] = if is_torn_first { [0, 1] } else { [1, 0] };
        disk.insert_file(&directory().join(names[torn_in]), torn);
        disk.insert_file(&directory().join(names[right_in]), slot);
        let mut world = World::open(&disk).unwrap();
        assert_eq!(read(&mut world, &right), b"right", "{names:?} {is_torn_first}");
    }
}

/// So that there are no two slots with frames of one segment.
#[test]
fn a_slot_in_which_a_segment_was_torn_is_the_next_that_is_used() {
    let (disk, mut world, _) = lane();
    world.builder.start_segment();
    world.write(1, b"torn!").unwrap();
    let mut torn = disk.bytes_of(&slot_paths(&disk)[2]).unwrap();
    torn[..BLOCK_BYTES].fill(0);
    disk.insert_file(&slot_paths(&disk)[2], vec![0; SEGMENT_BYTES as usize]);
    let path = directory().join("slot-00009.journal");
    disk.insert_file(&path, torn);
    let mut world = World::open(&disk).unwrap();
    assert_eq!(world.lane.spare_count(), 2);
    world.write(1, b"right").unwrap();
    let bytes = disk.bytes_of(&path).unwrap();
    assert_eq!(bytes[BLOCK_BYTES + 72..][..5], *b"right");
}

#[test]
fn a_slot_in_which_a_segment_was_torn_is_not_taken_for_the_one_it_held_before() {
    let (disk, mut world, entries) = lane();
    world.lane.release(0);
    world.builder.start_segment();
    world.write(1, b"torn!").unwrap();
    change(&disk, 0, |bytes| bytes[..BLOCK_BYTES].fill(0));
    let mut world = World::open(&disk).unwrap();
    assert!(!world.lane.holds(0) && world.headless.is_empty());
    world.write(1, b"right").unwrap();
    assert!(world.lane.holds(2));
    assert!(world.reader.read(entries[1].position, 5).is_err(), "its slot is the next one used");
    assert_eq!(disk.bytes_of(&slot_paths(&disk)[0]).unwrap()[BLOCK_BYTES + 72..][..5], *b"right");
}

#[test]
fn the_scrub_looks_at_the_frames_of_a_segment_without_its_header() {
    let disk = FaultyDisk::new(1, FaultPlan::default());
    let mut world = World::open(&disk).unwrap();
    for number in 0..6 {
        world.write(1, &body(number, 3000)).unwrap();
    }
    let (cut, oldest) = (world.lane.cut(), &slot_paths(&disk)[0]);
    let positions = |disk: &FaultyDisk| {
        let file = &cut.at_rest(disk, &[].into()).unwrap().files[0];
        let ScrubResult::Read(damage) = scrub(disk, &cut, file, &mut |_| true) else { panic!() };
        damage.iter().map(|damage| damage.position.0).collect::<Vec<_>>()
    };
    disk.rot(oldest, 20, 0);
    assert_eq!(positions(&disk), [0]);
    disk.rot(oldest, 2 * BLOCK_BYTES + 90, 0);
    assert_eq!(positions(&disk), [0, 2 * BLOCK_BYTES as u64]);
}
