//! The broker's use of the machine during a soak.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    rc::Rc,
    time::Duration,
};

use super::World;
use crate::memory::rss_bytes;

/// The most that was seen of the machine.
#[derive(Debug, Default)]
pub struct Most {
    pub rss_bytes: u64,
    pub descriptors: usize,
    pub disk_bytes: u64,
    /// Disk beyond twice what was live then.
    pub disk_excess_bytes: u64,
}

/// Looks again and again, until it is aborted.
pub async fn watch(world: Rc<World>, pid: u32, data: PathBuf) {
    for turn in 0.. {
        look(&world, pid, &data, turn);
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

/// Looks once, at the disk only while there is load, and says what it sees now and then.
fn look(world: &World, pid: u32, data: &Path, turn: u64) {
    let rss_bytes = rss_bytes(pid);
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    let mut most = world.most.borrow_mut();
    most.rss_bytes = most.rss_bytes.max(rss_bytes);
    most.descriptors = most.descriptors.max(descriptors);
    if !world.working.get() {
        return;
    }
    let (disk_bytes, unsettled_bytes) = (disk_bytes(data), world.unsettled_bytes.get());
    let excess = disk_bytes.saturating_sub(2 * unsettled_bytes);
    most.disk_bytes = most.disk_bytes.max(disk_bytes);
    most.disk_excess_bytes = most.disk_excess_bytes.max(excess);
    if turn.is_multiple_of(40) {
        let counts = world.counts.borrow();
        eprintln!(
            "soak: {counts:?}, rss {} MiB, {descriptors} descriptors, disk {} MiB, in queues {} MiB",
            rss_bytes >> 20,
            disk_bytes >> 20,
            unsettled_bytes >> 20
        );
    }
}

fn disk_bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap().flatten();
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => disk_bytes(&entry.path()),
        Ok(metadata) => metadata.blocks() * 512,
        // It was removed meanwhile.
        Err(_) => 0,
    });
    bytes.sum()
}
