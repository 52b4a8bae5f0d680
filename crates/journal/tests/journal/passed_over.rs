//! Segments that a start skips, because they are not needed: their slots come free, and no record is missing.

use sennit_journal::{
    BLOCK_BYTES, Damage, Disk, Fault, Position, RecoveredLane, ReplayFrom, WalkItem,
    disk::MemoryDisk, recover, verify,
};

use crate::world::{SEGMENT_BYTES, World, config, slot_paths};

/// A start: what is found, and no damage.
fn start(disk: &MemoryDisk) -> (RecoveredLane<MemoryDisk>, Vec<Position>) {
    let (mut found, mut damage) = (Vec::new(), Vec::<Damage>::new());
    let recovered = recover(disk, config(), ReplayFrom::Newest, |walked| {
        match walked {
            WalkItem::Record { position, .. } => found.push(position),
            WalkItem::Damage(hole) => damage.push(hole),
        }
        Ok::<(), Fault>(())
    });
    assert_eq!(damage, []);
    (recovered.unwrap(), found)
}

/// A life that begins a segment, says after which the log ended, and stops.
fn comes_to_nothing(disk: &MemoryDisk, last: u64) -> RecoveredLane<MemoryDisk> {
    let (mut crash_count, _) = start(disk);
    let void = crash_count.ends_with(last);
    if crash_count.lane.spare_count() == 0 {
        crash_count.lane.add_spare(crash_count.slots.make().unwrap());
    }
    let mark = crash_count.builder.seal_mark();
    crash_count.lane.append(&[mark]).unwrap();
    void.into_iter().for_each(|segment| crash_count.lane.release(segment));
    crash_count
}

#[test]
fn starts_that_come_to_nothing_take_two_slots_however_many_there_are() {
    let disk = MemoryDisk::default();
    let kept = World::open(&disk).unwrap().write(1, b"kept").unwrap();
    let mut generation = 1;
    for _ in 0..20 {
        let crash_count = comes_to_nothing(&disk, 0);
        assert!(crash_count.builder.generation() > generation);
        generation = crash_count.builder.generation();
        assert!(slot_paths(&disk).len() <= 3, "{:?}", slot_paths(&disk));
    }
    assert_eq!(start(&disk).1, [kept.position]);
    let verdict = verify(&disk, &config()).unwrap();
    assert_eq!(verdict.damage, []);
}

#[test]
fn the_log_goes_on_behind_what_was_passed_over_and_slots_of_it_that_are_left_are_spare() {
    let disk = MemoryDisk::default();
    let kept = World::open(&disk).unwrap().write(1, b"kept").unwrap();
    // These do not pass over anything.
    for last in 1..4 {
        let mut crash_count = start(&disk).0;
        crash_count.lane.add_spare(crash_count.slots.make().unwrap());
        crash_count.lane.append(&[crash_count.builder.seal_mark()]).unwrap();
        assert_eq!(crash_count.lane.segments().last(), Some(last));
    }
    // This one does, and stops before their slots are used again.
    let mut crash_count = start(&disk).0;
    assert_eq!(crash_count.ends_with(0), [1, 2, 3]);
    crash_count.lane.add_spare(crash_count.slots.make().unwrap());
    crash_count.builder.push(1, &[b"later"]).unwrap();
    crash_count.lane.append(&[crash_count.builder.seal().unwrap()]).unwrap();

    let (crash_count, found) = start(&disk);
    assert_eq!((found[0], found.len()), (kept.position, 2));
    assert_eq!(found[1].segment(SEGMENT_BYTES), 4);
    assert_eq!(crash_count.lane.segments().collect::<Vec<_>>(), [0, 4]);
    assert_eq!(crash_count.lane.spare_count(), 3);
    assert_eq!(verify(&disk, &config()).unwrap().damage, []);
}

#[test]
fn a_segment_that_is_missing_and_was_not_passed_over_is_damage() {
    let disk = MemoryDisk::default();
    let mut world = World::open(&disk).unwrap();
    for number in 0..3 {
        world.write(1, &[number]).unwrap();
        world.builder.start_segment();
    }
    disk.remove(&slot_paths(&disk)[1]).unwrap();
    let mut damage = Vec::new();
    let recovered = recover(&disk, config(), ReplayFrom::Newest, |walked| {
        if let WalkItem::Damage(hole) = walked {
            damage.push(hole.problem);
        }
        Ok::<(), Fault>(())
    });
    assert!(recovered.is_ok());
    assert_eq!(damage, ["a segment is missing"]);
}

/// It holds nothing of the log, with a header or without: the segment in front of it ends where the one behind it says.
#[test]
fn what_was_passed_over_is_not_taken_for_a_segment_that_is_missing_elsewhere() {
    let disk = MemoryDisk::default();
    World::open(&disk).unwrap().write(1, b"kept").unwrap();
    let mut crash_count = start(&disk).0;
    crash_count.lane.add_spare(crash_count.slots.make().unwrap());
    crash_count.lane.append(&[crash_count.builder.seal_mark()]).unwrap();
    // This life passes over the mark, and writes three segments.
    let mut crash_count = start(&disk).0;
    assert_eq!(crash_count.ends_with(0), [1]);
    for body in [b"one", b"two", b"end"] {
        crash_count.builder.start_segment();
        crash_count.builder.push(1, &[body]).unwrap();
        let frame = crash_count.builder.seal().unwrap();
        crash_count.lane.add_spare(crash_count.slots.make().unwrap());
        crash_count.builder.set_durable(crash_count.lane.append(&[frame]).unwrap());
    }
    let paths = slot_paths(&disk);
    for (slot, byte) in [(0, BLOCK_BYTES + 72), (1, 0)] {
        let mut bytes = disk.bytes_of(&paths[slot]).unwrap();
        bytes[byte] ^= 1;
        disk.insert_file(&paths[slot], bytes);
    }
    disk.remove(&paths[3]).unwrap();
    let world = World::open_past_rot(&disk).unwrap();
    let bodies: Vec<_> = world.found.iter().map(|entry| &entry.body[..]).collect();
    assert_eq!(bodies, [b"one", b"end"]);
    let holes: Vec<_> = world.damage.iter().map(|(_, hole)| (&hole.path, hole.problem)).collect();
    let rotten = (&paths[0], "a frame that was durable is not whole");
    assert_eq!(holes, [rotten, (&config().directory, "a segment is missing")]);
}
