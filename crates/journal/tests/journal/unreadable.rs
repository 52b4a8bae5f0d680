//! Unreadable sectors: the lane opens if it needs none of them, and otherwise does not. Once they are readable
//! nothing is missing.

use sennit_journal::{
    Container, Disk, Fault, Position,
    disk::{FaultPlan, FaultyDisk},
    packs,
};

use crate::world::{
    Entry, SEGMENT_BYTES, World, body, config, directory, pack_path, slot_paths, write_pack,
};

const BLOCK: usize = 4096;

/// A lane of seven segments of one entry each, of which the last three are replayed, and two spare
/// slots; the entries of the three.
fn lane() -> (FaultyDisk, Vec<Entry>) {
    let disk = FaultyDisk::new(1, FaultPlan::default());
    let mut world = World::open(&disk).unwrap();
    for number in 0..4 {
        world.write(1, &body(number, 7000)).unwrap();
    }
    world.builder.start_segment();
    let begin = world.lane.segments().max().unwrap() + 1;
    world.builder.set_replay_from(Position(begin * SEGMENT_BYTES));
    let entries = (4..7).map(|number| world.write(1, &body(number, 7000)).unwrap()).collect();
    for _ in 0..2 {
        world.slots.make().unwrap();
    }
    assert_eq!(world.lane.segments().collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(slot_paths(&disk).len(), 9);
    disk.kill();
    (disk, entries)
}

fn refuses(disk: &FaultyDisk) {
    let opened = World::open_past_rot(disk).map(|_| ());
    assert!(matches!(opened, Err(Fault::Io { .. })), "{opened:?}");
}

#[test]
fn a_spare_slot_that_cannot_be_read_is_left_alone() {
    for byte in [0, 3 * BLOCK + 700] {
        let (disk, mut entries) = lane();
        let spoiled = &slot_paths(&disk)[7];
        disk.make_unreadable(spoiled, byte);
        let mut world = World::open(&disk).unwrap();
        assert_eq!(world.found, entries);
        assert_eq!(world.unreadable, std::slice::from_ref(spoiled));
        assert_eq!(world.lane.spare_count(), 1);
        for number in 10..20 {
            entries.push(world.write(1, &body(number, 7000)).unwrap());
        }
        // Nor does it get in the way of who looks for a segment.
        for entry in &entries {
            assert_eq!(world.reader.read(entry.position, 7000).unwrap(), entry.body);
        }
        disk.kill();
        disk.make_readable();
        let file = disk.open_to_read(spoiled).unwrap();
        let mut bytes = vec![1; SEGMENT_BYTES as usize];
        sennit_journal::DiskFile::read_at(&file, &mut bytes, 0).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 0), "it is as it was");
        let world = World::open(&disk).unwrap();
        assert_eq!(world.found, entries);
        assert!(world.unreadable.is_empty());
    }
}

#[test]
fn an_old_segment_whose_header_cannot_be_read_is_told_and_kept() {
    let (disk, entries) = lane();
    let old = &slot_paths(&disk)[0];
    disk.make_unreadable(old, 0);
    let mut world = World::open(&disk).unwrap();
    assert_eq!(world.found, entries);
    assert_eq!(world.unreadable, std::slice::from_ref(old));
    assert!(!world.lane.holds(0));
    let read = world.reader.read(Position(BLOCK as u64 + 100), 100);
    assert!(matches!(read, Err(Fault::Io { .. })), "{read:?}");
    for number in 10..20 {
        world.write(1, &body(number, 7000)).unwrap();
    }
    disk.kill();
    disk.make_readable();
    assert!(World::open(&disk).unwrap().lane.holds(0), "nothing was written over it");
}

#[test]
fn what_a_replay_needs_and_cannot_read_refuses_the_start() {
    let (disk, entries) = lane();
    for slot in [4, 5, 6] {
        for block in [0, 1] {
            disk.make_unreadable(&slot_paths(&disk)[slot], block * BLOCK);
            refuses(&disk);
            disk.make_readable();
        }
    }
    // Its last frame says what was confirmed last.
    disk.make_unreadable(&slot_paths(&disk)[6], BLOCK + 6000);
    refuses(&disk);
    // No header, and nothing that says that it is not the newest.
    disk.make_readable();
    for block in [0, 1, 2, 3] {
        disk.make_unreadable(&slot_paths(&disk)[6], block * BLOCK);
    }
    refuses(&disk);
    disk.make_readable();
    assert_eq!(World::open(&disk).unwrap().found, entries);
}

#[test]
fn a_pack_that_cannot_be_read_counts_as_damaged_and_the_others_are_as_they_are() {
    let disk = FaultyDisk::new(1, FaultPlan::default());
    disk.create_directory(&directory()).unwrap();
    for number in 3..6 {
        write_pack(&disk, number, &[body(u64::from(number), 100)]).unwrap();
    }
    disk.make_unreadable(&pack_path(3), 0);
    disk.make_unreadable(&pack_path(4), 2 * BLOCK);
    let whole = packs(&disk, &config()).unwrap().into_iter().map(|pack| pack.is_whole);
    assert_eq!(whole.collect::<Vec<_>>(), [false, false, true]);
    let world = World::open(&disk).unwrap();
    let cut = world.lane.cut();
    let listed =
        cut.files(&disk, &[3, 4].into()).unwrap().files.into_iter().map(|file| file.container);
    assert_eq!(listed.collect::<Vec<_>>(), [3, 4, 5].map(Container::Pack));
}
