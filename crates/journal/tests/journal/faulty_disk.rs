//! The disk with faults has each fault of its plan, and no other.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

use sennit_journal::{
    Disk, DiskFile,
    disk::{FaultPlan, FaultyDisk},
};

const ALWAYS: u32 = 1000;

fn path() -> PathBuf {
    PathBuf::from("lane/file")
}

/// A disk with a file of ones, synced.
fn disk_with_ones(plan: FaultPlan) -> FaultyDisk {
    let disk = FaultyDisk::new(7, FaultPlan::default());
    disk.create_directory(Path::new("lane")).unwrap();
    let file = disk.create(&path()).unwrap();
    file.write_at(&[1; 4096], 0).unwrap();
    file.sync().unwrap();
    disk.sync_directory(Path::new("lane")).unwrap();
    disk.set_plan(plan);
    disk
}

fn bytes(disk: &FaultyDisk) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    disk.open_to_read(&path()).unwrap().read_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn a_crash_loses_what_was_not_synced() {
    let disk = disk_with_ones(FaultPlan::default());
    disk.open_to_write(&path()).unwrap().write_at(&[2; 4096], 0).unwrap();
    assert_eq!(bytes(&disk), [2; 4096]);
    disk.crash();
    assert_eq!(bytes(&disk), [1; 4096]);
}

#[test]
fn a_crash_decides_for_each_sector_by_itself() {
    let disk =
        disk_with_ones(FaultPlan { crash_keeps: 400, crash_tears: 300, ..Default::default() });
    disk.open_to_write(&path()).unwrap().write_at(&[2; 4096], 0).unwrap();
    disk.crash();
    let bytes = bytes(&disk);
    let sectors: Vec<&[u8]> = bytes.chunks(512).collect();
    let kept = sectors.iter().filter(|sector| **sector == [2; 512]).count();
    let lost = sectors.iter().filter(|sector| **sector == [1; 512]).count();
    assert!(kept > 0 && lost > 0 && kept + lost < 8, "kept {kept}, lost {lost} of 8");
}

#[test]
fn a_killed_process_loses_its_handles_and_nothing_else() {
    let disk = disk_with_ones(FaultPlan::default());
    let file = disk.open_to_write(&path()).unwrap();
    file.write_at(&[2; 4096], 0).unwrap();
    disk.kill();
    assert_eq!(bytes(&disk), [2; 4096]);
    assert!(file.write_at(&[3; 4096], 0).is_err());
    disk.crash();
    assert_eq!(bytes(&disk), [1; 4096]);
}

#[test]
fn a_failed_sync_forgets_and_the_next_one_succeeds() {
    let disk = disk_with_ones(FaultPlan { sync_fails: ALWAYS, ..Default::default() });
    let file = disk.open_to_write(&path()).unwrap();
    file.write_at(&[2; 4096], 0).unwrap();
    assert!(file.sync().is_err());
    disk.set_plan(FaultPlan::default());
    file.sync().unwrap();
    assert_eq!(bytes(&disk), [2; 4096], "the cache still shows it");
    file.forget_cached().unwrap();
    assert_eq!(bytes(&disk), [1; 4096], "the platter never had it");
}

#[test]
fn a_file_whose_directory_was_not_synced_may_be_gone() {
    let disk = disk_with_ones(FaultPlan::default());
    let file = disk.create(Path::new("lane/other")).unwrap();
    file.write_at(&[2; 4096], 0).unwrap();
    file.sync().unwrap();
    disk.crash();
    assert_eq!(disk.list(Path::new("lane")).unwrap(), ["file"]);
}

#[test]
fn a_length_that_was_not_synced_may_be_lost() {
    let disk = disk_with_ones(FaultPlan::default());
    disk.open_to_write(&path()).unwrap().write_at(&[2; 8192], 4096).unwrap();
    disk.crash();
    let length = disk.open_to_read(&path()).unwrap().length().unwrap();
    assert!((4096..12288).contains(&length), "{length}");
}

#[test]
fn a_full_disk_refuses_to_grow_and_takes_what_fits() {
    let disk = disk_with_ones(FaultPlan { capacity_bytes: 8192, ..Default::default() });
    let file = disk.open_to_write(&path()).unwrap();
    assert_eq!(disk.available_bytes(Path::new("lane")).unwrap(), 4096);
    assert_eq!(file.write_at(&[2; 4097], 4096).unwrap_err().kind(), ErrorKind::StorageFull);
    file.write_at(&[2; 4096], 4096).unwrap();
    assert_eq!(disk.available_bytes(Path::new("lane")).unwrap(), 0);
    file.write_at(&[3; 8192], 0).unwrap();
}

#[test]
fn a_failed_write_leaves_a_part_of_it() {
    let mut lengths = Vec::new();
    let disk = disk_with_ones(FaultPlan { write_fails: ALWAYS, ..Default::default() });
    for _ in 0..4 {
        let file = disk.open_to_write(&path()).unwrap();
        assert!(file.write_at(&[2; 4096], 0).is_err());
        lengths.push(bytes(&disk).iter().filter(|byte| **byte == 2).count());
    }
    assert!(lengths.iter().any(|length| (1..4096).contains(length)), "{lengths:?}");
}

#[test]
fn exactly_the_call_that_is_named_fails() {
    let disk = disk_with_ones(FaultPlan::default());
    let next = disk.calls() + 2;
    disk.set_plan(FaultPlan { failing_call: next, ..Default::default() });
    let file = disk.open_to_write(&path()).unwrap();
    let mut byte = [0];
    assert!(file.read_at(&mut byte, 0).is_ok());
    assert!(file.read_at(&mut byte, 0).is_err());
    assert!(file.read_at(&mut byte, 0).is_ok());
}

#[test]
fn rot_flips_one_bit_where_it_is_told_to() {
    let disk = disk_with_ones(FaultPlan::default());
    disk.rot(&path(), 1000, 7);
    let mut expected = vec![1; 4096];
    expected[1000] = 0x81;
    assert_eq!(bytes(&disk), expected);
    disk.crash();
    assert_eq!(bytes(&disk), expected);
}

#[test]
fn the_same_seed_gives_the_same_accidents() {
    let run = |seed| {
        let plan = FaultPlan { crash_keeps: 500, crash_tears: 500, ..Default::default() };
        let disk = FaultyDisk::new(seed, plan);
        disk.create_directory(Path::new("lane")).unwrap();
        let file = disk.create(&path()).unwrap();
        disk.sync_directory(Path::new("lane")).unwrap();
        file.write_at(&[0; 4096], 0).unwrap();
        file.sync().unwrap();
        file.write_at(&[5; 4096], 0).unwrap();
        disk.crash();
        bytes(&disk)
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}

#[test]
fn a_removal_whose_directory_was_not_synced_may_be_undone() {
    let disk = disk_with_ones(FaultPlan::default());
    disk.remove(&path()).unwrap();
    assert!(disk.list(Path::new("lane")).unwrap().is_empty());
    disk.crash();
    assert_eq!(bytes(&disk), [1; 4096]);
    disk.remove(&path()).unwrap();
    disk.sync_directory(Path::new("lane")).unwrap();
    disk.crash();
    assert!(disk.list(Path::new("lane")).unwrap().is_empty());
}

#[test]
fn a_crash_may_keep_a_removal_that_was_not_synced() {
    let disk = disk_with_ones(FaultPlan { crash_keeps: ALWAYS, ..Default::default() });
    disk.remove(&path()).unwrap();
    disk.crash();
    assert!(disk.list(Path::new("lane")).unwrap().is_empty());
}

#[test]
fn a_cut_that_was_not_synced_may_be_undone() {
    let length = |disk: &FaultyDisk| disk.open_to_read(&path()).unwrap().length().unwrap();
    let disk = disk_with_ones(FaultPlan::default());
    disk.open_to_write(&path()).unwrap().set_length(512).unwrap();
    disk.crash();
    assert_eq!((length(&disk), bytes(&disk)), (4096, vec![1; 4096]));
    let file = disk.open_to_write(&path()).unwrap();
    file.set_length(512).unwrap();
    file.sync().unwrap();
    disk.crash();
    assert_eq!(length(&disk), 512);
}

#[test]
fn what_lay_behind_a_cut_does_not_come_back() {
    let disk = disk_with_ones(FaultPlan::default());
    let file = disk.open_to_write(&path()).unwrap();
    file.set_length(0).unwrap();
    file.set_length(4096).unwrap();
    file.sync().unwrap();
    disk.crash();
    assert_eq!(bytes(&disk), [0; 4096]);
}
