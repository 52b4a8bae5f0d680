//! A scrub of one file at rest, in small steps.

use sennit_journal::{
    Container, Disk, ScrubResult,
    disk::{FaultPlan, FaultyDisk},
    scrub,
};

use crate::world::{World, body, pack_path, slot_paths, write_pack};

/// A lane of some segments, and a pack.
fn lane() -> (FaultyDisk, World<FaultyDisk>) {
    let disk = FaultyDisk::new(1, FaultPlan::default());
    let mut world = World::open(&disk).unwrap();
    for number in 0..10 {
        world.write(1, &body(number, 700 * number as usize)).unwrap();
    }
    write_pack(&disk, 4, &[body(1, 30), body(2, 900_000)]).unwrap();
    (disk, world)
}

fn containers(disk: &FaultyDisk, world: &World<FaultyDisk>) -> Vec<(Container, ScrubResult)> {
    let cut = world.lane.cut();
    let files = cut.at_rest(disk, &[4].into()).unwrap().files;
    files.iter().map(|file| (file.container, scrub(disk, &cut, file, &mut |_| true))).collect()
}

#[test]
fn what_is_whole_is_read_to_its_end_and_the_newest_segment_is_left_alone() {
    let (disk, world) = lane();
    let scrubbed = containers(&disk, &world);
    let newest = world.lane.segments().max().unwrap();
    assert!(newest >= 2);
    let expected: Vec<_> =
        (0..newest).map(Container::Segment).chain([Container::Pack(4)]).collect();
    assert_eq!(scrubbed.iter().map(|(container, _)| *container).collect::<Vec<_>>(), expected);
    assert!(scrubbed.iter().all(|(_, scrubbed)| *scrubbed == ScrubResult::Read(vec![])));
}

#[test]
fn damage_is_found_where_it_is_and_nowhere_else() {
    for at in [20, 4096 + 5, 4096 + 70] {
        let (disk, world) = lane();
        disk.rot(&slot_paths(&disk)[1], at, 3);
        disk.rot(&pack_path(4), at, 3);
        let scrubbed = containers(&disk, &world);
        assert!(
            scrubbed.iter().any(|(container, _)| *container == Container::Pack(4)),
            "{at}: {scrubbed:?}"
        );
        for (container, scrubbed) in scrubbed {
            let ScrubResult::Read(damage) = scrubbed else { panic!("{scrubbed:?}") };
            let is_damaged = matches!(container, Container::Segment(1) | Container::Pack(4));
            assert_eq!(damage.len(), usize::from(is_damaged), "{at}, {container:?}: {damage:?}");
        }
    }
}

#[test]
fn a_header_that_the_disk_does_not_give_is_damage_and_hides_no_other() {
    let (disk, world) = lane();
    disk.make_unreadable(&slot_paths(&disk)[1], 20);
    disk.rot(&slot_paths(&disk)[0], 4096 + 70, 3);
    disk.rot(&pack_path(4), 4096 + 70, 3);
    for (container, scrubbed) in containers(&disk, &world) {
        let ScrubResult::Read(damage) = scrubbed else { panic!("{scrubbed:?}") };
        let is_damaged = matches!(container, Container::Segment(0 | 1) | Container::Pack(4));
        assert_eq!(damage.len(), usize::from(is_damaged), "{container:?}: {damage:?}");
    }
}

#[test]
fn the_last_frame_of_a_segment_is_read_because_the_next_says_where_it_ends() {
    let (disk, world) = lane();
    let cut = world.lane.cut();
    let file = &cut.at_rest(&disk, &[4].into()).unwrap().files[0];
    // The mark or record that ends the segment.
    disk.rot(&file.path, file.bytes as usize - 4096 + 9, 0);
    let ScrubResult::Read(damage) = scrub(&disk, &cut, file, &mut |_| true) else { panic!() };
    assert_eq!(damage.len(), 1);
}

#[test]
fn who_says_stop_is_not_read_to() {
    let (disk, world) = lane();
    let cut = world.lane.cut();
    for file in cut.at_rest(&disk, &[4].into()).unwrap().files {
        let mut told = 0;
        let scrubbed = scrub(&disk, &cut, &file, &mut |bytes| {
            assert!(bytes <= 256 << 10);
            told += 1;
            false
        });
        assert_eq!((scrubbed, told), (ScrubResult::Stopped, 1));
    }
}

#[test]
fn a_pack_that_was_removed_meanwhile_is_gone_and_not_damaged() {
    let (disk, world) = lane();
    let cut = world.lane.cut();
    let files = cut.at_rest(&disk, &[4].into()).unwrap().files;
    let pack = files.iter().find(|file| file.container == Container::Pack(4)).unwrap();
    disk.remove(&pack.path).unwrap();
    assert_eq!(scrub(&disk, &cut, pack, &mut |_| true), ScrubResult::Gone);
}

#[test]
fn a_slot_that_holds_another_segment_by_now_says_nothing_of_the_one_before() {
    let (disk, mut world) = lane();
    let cut = world.lane.cut();
    world.lane.release(3);
    world.builder.start_segment();
    world.write(1, b"where the third lay").unwrap();
    let files = cut.at_rest(&disk, &[4].into()).unwrap().files;
    let before = files.iter().find(|file| file.container == Container::Segment(2)).unwrap();
    assert_eq!(scrub(&disk, &cut, before, &mut |_| true), ScrubResult::Read(vec![]));
}
