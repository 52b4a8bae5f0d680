//! The contract of a disk, tested for each of them.

use std::{io::ErrorKind, path::Path};

use sennit_journal::{
    BLOCK_BYTES, Disk, DiskFile,
    disk::{Access, FaultPlan, FaultyDisk, MemoryDisk, RealDisk},
};

/// Hands `act` a buffer of one block on a block boundary.
fn with_block<T>(fill: u8, act: impl FnOnce(&mut [u8]) -> T) -> T {
    let mut bytes = vec![fill; 2 * BLOCK_BYTES];
    let at = bytes.as_ptr().align_offset(BLOCK_BYTES);
    act(&mut bytes[at..at + BLOCK_BYTES])
}

fn block_at(file: &impl DiskFile, offset: u64) -> Vec<u8> {
    with_block(0, |block| {
        file.read_at(block, offset).unwrap();
        block.to_vec()
    })
}

fn hold_to_the_contract(disk: &impl Disk, root: &Path) {
    let directory = root.join("one/two");
    assert_eq!(disk.list(&directory).unwrap_err().kind(), ErrorKind::NotFound);
    disk.create_directory(&directory).unwrap();
    disk.create_directory(&directory).unwrap();
    assert!(disk.list(&directory).unwrap().is_empty());

    let path = directory.join("b");
    assert_eq!(disk.open_to_read(&path).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(disk.open_to_write(&path).unwrap_err().kind(), ErrorKind::NotFound);
    let missing = root.join("none/b");
    assert_eq!(disk.create(&missing).unwrap_err().kind(), ErrorKind::NotFound);
    let file = disk.create(&path).unwrap();
    assert_eq!(disk.create(&path).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(file.length().unwrap(), 0);
    disk.create(&directory.join("a")).unwrap();
    assert_eq!(disk.list(&directory).unwrap(), ["a", "b"]);
    assert!(disk.list(&root.join("one")).unwrap().is_empty());

    for number in 0..3u8 {
        let offset = u64::from(number) * BLOCK_BYTES as u64;
        with_block(number + 1, |block| file.write_at(block, offset)).unwrap();
    }
    assert_eq!(file.length().unwrap(), 3 * BLOCK_BYTES as u64);
    let mut across = [0; 2];
    disk.open_to_read(&path).unwrap().read_at(&mut across, BLOCK_BYTES as u64 - 1).unwrap();
    assert_eq!(across, [1, 2]);
    file.sync().unwrap();
    disk.sync_directory(&directory).unwrap();
    drop(file);

    let writer = disk.open_to_write(&path).unwrap();
    with_block(9, |block| writer.write_at(block, BLOCK_BYTES as u64)).unwrap();
    let reader = disk.open_to_read(&path).unwrap();
    for _ in 0..2 {
        assert_eq!(block_at(&reader, 0), [1; BLOCK_BYTES]);
        assert_eq!(block_at(&reader, BLOCK_BYTES as u64), [9; BLOCK_BYTES]);
        assert_eq!(block_at(&writer, 2 * BLOCK_BYTES as u64), [3; BLOCK_BYTES]);
        reader.forget_cached().unwrap();
    }
    reader.sync().unwrap();
    assert_eq!(reader.length().unwrap(), 3 * BLOCK_BYTES as u64);
    if let Some(past) = disk.open_uncached(&path).unwrap() {
        assert_eq!(block_at(&past, BLOCK_BYTES as u64), [9; BLOCK_BYTES]);
    }
    let beyond = with_block(0, |block| reader.read_at(block, 3 * BLOCK_BYTES as u64));
    assert_eq!(beyond.unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert!(disk.available_bytes(&directory).unwrap() > 0);

    writer.set_length(BLOCK_BYTES as u64).unwrap();
    assert_eq!(reader.length().unwrap(), BLOCK_BYTES as u64);
    writer.set_length(3 * BLOCK_BYTES as u64).unwrap();
    writer.sync().unwrap();
    assert_eq!(block_at(&reader, 0), [1; BLOCK_BYTES]);
    assert_eq!(block_at(&reader, BLOCK_BYTES as u64), [0; BLOCK_BYTES]);
    reader.forget_cached().unwrap();
    assert_eq!(block_at(&reader, 2 * BLOCK_BYTES as u64), [0; BLOCK_BYTES]);
    disk.remove(&path).unwrap();
    disk.sync_directory(&directory).unwrap();
    assert_eq!(disk.remove(&path).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(disk.open_to_read(&path).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(disk.list(&directory).unwrap(), ["a"]);
    let again = disk.create(&path).unwrap();
    assert_eq!(again.length().unwrap(), 0);
}

#[test]
fn the_disk_in_memory_holds_to_the_contract() {
    hold_to_the_contract(&MemoryDisk::default(), Path::new("root"));
}

#[test]
fn the_faulty_disk_without_faults_holds_to_the_contract() {
    hold_to_the_contract(&FaultyDisk::new(1, FaultPlan::default()), Path::new("root"));
}

#[test]
fn the_real_disk_holds_to_the_contract_however_it_is_written() {
    for access in [Access::Auto, Access::Buffered, Access::Direct] {
        // Beside the build: the system's own folder for such things may be in memory, where
        // nothing is written past the cache.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        hold_to_the_contract(&RealDisk::new(access), folder.path());
    }
}

#[test]
fn what_a_lane_is_made_of_may_move_to_another_thread() {
    fn may_move<T: Send>() {}
    may_move::<sennit_journal::Lane<RealDisk>>();
    may_move::<sennit_journal::Reader<RealDisk>>();
    may_move::<sennit_journal::SlotMaker<RealDisk>>();
    may_move::<sennit_journal::PackWriter<RealDisk>>();
    may_move::<sennit_journal::PackRemoval<RealDisk>>();
    may_move::<sennit_journal::Frame>();
    may_move::<sennit_journal::FrameBuilder>();
}
