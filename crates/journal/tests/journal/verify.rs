//! The counts and the damage in a report on a whole lane. Verification changes nothing.

use sennit_journal::{
    BLOCK_BYTES, Damage, Disk, DiskFile, LaneConfig, PackWriter, Position, VerifyReport,
    disk::{FaultPlan, FaultyDisk, MemoryDisk},
    verify,
};

use crate::world::{
    SEGMENT_BYTES, World, body, config, directory, pack_path, slot_paths, write_pack,
};

/// A lane of four segments with ten records, closed by a mark, and a pack of three.
fn lane() -> FaultyDisk {
    let disk = FaultyDisk::new(1, FaultPlan::default());
    let mut world = World::open(&disk).unwrap();
    for number in 0..10 {
        world.write(1, &body(number, 700 * number as usize)).unwrap();
    }
    world.mark().unwrap();
    write_pack(&disk, 4, &[body(1, 30), body(2, 5000), body(3, 1 << 20)]).unwrap();
    disk
}

fn damage(disk: &FaultyDisk) -> Vec<Damage> {
    verify(disk, &config()).unwrap().damage
}

#[test]
fn a_whole_lane_is_counted() {
    let disk = lane();
    let segments = slot_paths(&disk).len() as u64;
    let verdict = verify(&disk, &config()).unwrap();
    let frames = 10 + 1 + 3;
    let expected = VerifyReport {
        segments,
        packs: 1,
        frames,
        records: 13,
        held_segments: (0..segments).collect(),
        held_packs: [4].into(),
        ..VerifyReport::default()
    };
    assert_eq!(VerifyReport { bytes: 0, ..verdict.clone() }, expected);
    let files = disk.files();
    let (_, length) = files.iter().find(|(path, _)| *path == pack_path(4)).unwrap();
    let lane_bytes = verdict.bytes - (length - BLOCK_BYTES) as u64;
    assert!(lane_bytes > 10 * 4096 && lane_bytes < segments * SEGMENT_BYTES, "{lane_bytes}");
}

#[test]
fn an_empty_lane_and_spare_slots_are_whole() {
    let disk = MemoryDisk::default();
    let mut world = World::open(&disk).unwrap();
    assert_eq!(verify(&disk, &config()).unwrap(), VerifyReport::default());
    world.slots.make().unwrap();
    disk.insert_file(&directory().join("slot-00007.journal"), vec![0; 100]);
    assert_eq!(verify(&disk, &config()).unwrap(), VerifyReport::default());
}

#[test]
fn each_damage_is_listed_with_its_file_and_place() {
    let disk = lane();
    let slots = slot_paths(&disk);
    disk.rot(&slots[0], 4096 + 70, 0);
    disk.rot(&slots[1], 4096 + 70, 0);
    disk.rot(&pack_path(4), 4096 + 70, 0);
    let found: Vec<_> =
        damage(&disk).into_iter().map(|damage| (damage.path, damage.position)).collect();
    let expected = [
        (slots[0].clone(), Position(4096)),
        (slots[1].clone(), Position(SEGMENT_BYTES + 4096)),
        (pack_path(4), Position::of_pack(4, 4096)),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_torn_tail_is_no_damage_and_rot_before_a_mark_is() {
    let disk = FaultyDisk::new(1, FaultPlan::default());
    let mut world = World::open(&disk).unwrap();
    let last = world.write(1, b"last").unwrap();
    let path = &slot_paths(&disk)[0];
    disk.rot(path, last.position.0 as usize, 0);
    assert_eq!(damage(&disk), []);
    world.mark().unwrap();
    let [found] = &damage(&disk)[..] else { panic!("not one damage") };
    assert_eq!((&found.path, found.position, found.bytes), (path, Position(4096), 4096));
}

#[test]
fn a_header_that_frames_prove_is_missed() {
    let disk = lane();
    let newest = slot_paths(&disk).pop().unwrap();
    disk.rot(&newest, 0, 0);
    assert_eq!(damage(&disk).last().map(|damage| &damage.path), Some(&newest));
}

#[test]
fn a_segment_that_a_replay_would_read_is_missed() {
    let disk = lane();
    let slots = slot_paths(&disk);
    disk.rot(&slots[1], 17, 0);
    disk.remove(&slots[2]).unwrap();
    let [found] = &damage(&disk)[..] else { panic!("not one damage") };
    assert_eq!((&found.path, found.position), (&directory(), Position(SEGMENT_BYTES)));
    assert_eq!(found.bytes, 2 * SEGMENT_BYTES);
}

#[test]
fn segments_before_the_replay_may_be_gone() {
    let disk = lane();
    let mut world = World::open(&disk).unwrap();
    world.begin_replay_here().unwrap();
    disk.remove(&slot_paths(&disk)[0]).unwrap();
    assert_eq!(damage(&disk), []);
}

#[test]
fn a_pack_that_was_not_finished_is_listed() {
    let disk = lane();
    let mut writer = PackWriter::create(&disk, &config(), 5, 0).unwrap();
    writer.push(1, &[b"x"]).unwrap();
    drop(writer);
    let [found] = &damage(&disk)[..] else { panic!("not one damage") };
    assert_eq!((&found.path, found.position), (&pack_path(5), Position::of_pack(5, 0)));
}

#[test]
fn files_of_another_place_are_listed() {
    let disk = lane();
    let other = LaneConfig { incarnation: 7, ..config() };
    let verdict = verify(&disk, &other).unwrap();
    assert_eq!(verdict.damage.len(), slot_paths(&disk).len() + 1);
    assert!(verdict.damage.iter().all(|damage| damage.problem.contains("belong")));
}

#[test]
fn a_file_that_cannot_be_read_is_listed_and_the_rest_is_looked_at() {
    let disk = lane();
    let calls = disk.calls();
    verify(&disk, &config()).unwrap();
    for nth in 1..=disk.calls() - calls {
        let failing_call = disk.calls() + nth;
        disk.set_plan(FaultPlan { failing_call, ..Default::default() });
        let verdict = verify(&disk, &config()).unwrap();
        assert!(!verdict.damage.is_empty(), "read {nth}");
        assert!(verdict.records > 0, "read {nth}");
        disk.set_plan(FaultPlan::default());
    }
    assert_eq!(damage(&disk), []);
}

#[test]
fn nothing_is_changed() {
    let disk = lane();
    let bytes = |disk: &FaultyDisk| -> Vec<Vec<u8>> {
        let read = |(path, length): (std::path::PathBuf, usize)| {
            let mut bytes = vec![0; length];
            disk.open_to_read(&path).unwrap().read_at(&mut bytes, 0).unwrap();
            bytes
        };
        disk.files().into_iter().map(read).collect()
    };
    disk.rot(&pack_path(4), 5000, 0);
    let before = bytes(&disk);
    verify(&disk, &config()).unwrap();
    assert!(bytes(&disk) == before);
}
