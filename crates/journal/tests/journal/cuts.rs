//! A copy of a cut equals the disk after a crash at that moment, whatever is written during the copy.

use std::collections::BTreeSet;

use proptest::prelude::*;
use sennit_journal::{
    Container, Cut, DiskFile, FileName, Position,
    disk::{FaultPlan, FaultyDisk, MemoryDisk},
    verify,
};

use crate::world::{
    Entry, SEGMENT_BYTES, World, body, config, directory, pack_path, slot_paths, write_pack,
};

/// What a copy of the cut holds, as it would be unpacked: slots are as long as ever.
fn copied(cut: &Cut, disk: &FaultyDisk) -> MemoryDisk {
    let copy = MemoryDisk::default();
    sennit_journal::Disk::create_directory(&copy, &directory()).unwrap();
    for file in cut.files(disk, &BTreeSet::new()).unwrap().files {
        let mut bytes = Vec::new();
        file.read(disk, &mut |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })
        .unwrap();
        assert_eq!(bytes.len() as u64, file.bytes);
        if let FileName::Slot(_) = file.name {
            bytes.resize(SEGMENT_BYTES as usize, 0);
        }
        copy.insert_file(&directory().join(file.name.to_string()), bytes);
    }
    copy
}

#[derive(Clone, Debug)]
enum Step {
    Write(usize),
    Mark,
    Release,
    StartAgain,
    Pack,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..9000usize).prop_map(Step::Write),
        1 => Just(Step::Mark),
        2 => Just(Step::Release),
        1 => Just(Step::StartAgain),
        1 => Just(Step::Pack),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_copy_of_a_cut_holds_what_was_committed_before_it_and_nothing_else(
        before in prop::collection::vec(step(), 1..40),
        after in prop::collection::vec(step(), 0..20),
    ) {
        let disk = FaultyDisk::new(7, FaultPlan::default());
        let mut world = World::open(&disk).unwrap();
        let mut entries: Vec<Entry> = Vec::new();
        let mut packs = 0;
        let mut number = 0;
        for step in before {
            match step {
                Step::Write(length) => {
                    number += 1;
                    entries.push(world.write(1, &body(number, length)).unwrap());
                }
                Step::Mark => world.mark().unwrap(),
                Step::Release => {
                    world.begin_replay_here().unwrap();
                    entries.clear();
                }
                Step::StartAgain => world = World::open(&disk).unwrap(),
                Step::Pack => {
                    packs += 1;
                    write_pack(&disk, packs, &[body(u64::from(packs), 5000)]).unwrap();
                }
            }
        }
        // Pushed and not committed: not in the cut.
        world.push(1, b"a record that nobody was told of");
        let cut = world.lane.cut();
        for step in after {
            // Nothing is released, as it is while somebody copies.
            if let Step::Write(length) = step {
                number += 1;
                world.write(1, &body(number, length)).unwrap();
            }
        }
        let copy = copied(&cut, &disk);
        let verdict = verify(&copy, &config()).unwrap();
        prop_assert_eq!(verdict.damage, vec![]);
        prop_assert_eq!(verdict.packs, u64::from(packs));
        let opened = World::open(&copy).unwrap();
        prop_assert_eq!(opened.found, entries);
        prop_assert_eq!(opened.torn_bytes, 0);
    }
}

#[test]
fn a_cut_leaves_out_what_is_spare_and_what_lies_behind_the_log() {
    let disk = FaultyDisk::new(1, FaultPlan::default());
    let mut world = World::open(&disk).unwrap();
    for number in 0..6 {
        world.write(1, &body(number, 7000)).unwrap();
    }
    world.begin_replay_here().unwrap();
    world.write(1, &body(9, 100)).unwrap();
    assert!(slot_paths(&disk).len() > 2);
    let cut = world.lane.cut();
    let files = cut.files(&disk, &BTreeSet::new()).unwrap().files;
    let containers: Vec<_> = files.iter().map(|file| (file.container, file.bytes)).collect();
    let (Container::Segment(segment), bytes) = containers[0] else { panic!("{containers:?}") };
    assert_eq!(containers.len(), 1);
    assert_eq!(Position(segment * SEGMENT_BYTES).plus(bytes), world.builder.end());
    assert!(cut.at_rest(&disk, &BTreeSet::new()).unwrap().files.is_empty());
}

#[test]
fn a_pack_that_is_not_whole_is_left_out_unless_it_is_in_use() {
    let disk = FaultyDisk::new(1, FaultPlan::default());
    let mut world = World::open(&disk).unwrap();
    world.write(1, b"a record").unwrap();
    for number in 3..7 {
        write_pack(&disk, number, &[body(u64::from(number), 100)]).unwrap();
    }
    let open = |number| sennit_journal::Disk::open_to_write(&disk, &pack_path(number)).unwrap();
    open(4).set_length(8192).unwrap();
    open(5).set_length(0).unwrap();
    disk.rot(&pack_path(6), 20, 3);
    let cut = world.lane.cut();
    let packs = |in_use: &[u32]| {
        let found = cut.files(&disk, &in_use.iter().copied().collect()).unwrap();
        let containers = found.files.into_iter().map(|file| (file.container, file.bytes));
        containers
            .filter(|(container, _)| matches!(container, Container::Pack(_)))
            .collect::<Vec<_>>()
    };
    let three = (Container::Pack(3), 12288);
    assert_eq!(packs(&[]), [three]);
    let (four, five, six) =
        ((Container::Pack(4), 8192), (Container::Pack(5), 0), (Container::Pack(6), three.1));
    assert_eq!(packs(&[3, 4, 5, 6, 7]), [three, four, five, six]);
}

#[test]
fn a_pack_in_use_or_a_slot_that_is_gone_is_named_and_what_nobody_needs_is_not() {
    let disk = FaultyDisk::new(1, FaultPlan::default());
    let mut world = World::open(&disk).unwrap();
    for number in 1..7 {
        world.write(1, &body(number, 7000)).unwrap();
    }
    for number in 3..6 {
        write_pack(&disk, number, &[body(u64::from(number), 100)]).unwrap();
    }
    let cut = world.lane.cut();
    let slot = slot_paths(&disk)[0].clone();
    for path in [pack_path(3), pack_path(4), slot.clone()] {
        sennit_journal::Disk::remove(&disk, &path).unwrap();
    }
    for found in [cut.files(&disk, &[4, 5].into()), cut.at_rest(&disk, &[4, 5].into())] {
        let found = found.unwrap();
        let missing = found.missing.iter().map(|missing| (missing.container, missing.is_gone()));
        let expected = [(Container::Segment(0), true), (Container::Pack(4), true)];
        assert_eq!(missing.collect::<Vec<_>>(), expected);
        let damage: Vec<_> = found.missing.iter().map(|missing| missing.as_damage(&cut)).collect();
        assert_eq!((&damage[0].path, damage[0].position), (&slot, Position(0)));
        assert_eq!((&damage[1].path, damage[1].position), (&pack_path(4), Position::of_pack(4, 0)));
        assert!(found.files.iter().any(|file| file.container == Container::Pack(5)));
    }
}

#[test]
fn of_a_slot_that_was_cut_off_what_is_there_is_copied() {
    let disk = FaultyDisk::new(1, FaultPlan::default());
    let mut world = World::open(&disk).unwrap();
    for number in 1..7 {
        world.write(1, &body(number, 7000)).unwrap();
    }
    let path = &slot_paths(&disk)[0];
    sennit_journal::Disk::open_to_write(&disk, path).unwrap().set_length(8192).unwrap();
    let cut = world.lane.cut();
    assert_eq!(cut.files(&disk, &BTreeSet::new()).unwrap().files[0].bytes, 8192);
    let copy = copied(&cut, &disk);
    assert_eq!(verify(&copy, &config()).unwrap().damage.len(), 1);
}

#[test]
fn names_are_read_letter_by_letter() {
    for name in ["slot-00000.journal", "slot-00017.journal", "pack-0000000001.pack"] {
        assert_eq!(FileName::parse(name).unwrap().to_string(), name);
    }
    for name in [
        "slot-0.journal",
        "slot-+0001.journal",
        "slot-00000.journal/",
        "../slot-00000.journal",
        "pack-1.pack",
        "FORMAT",
        "",
    ] {
        assert_eq!(FileName::parse(name), None, "{name}");
    }
}
