//! Looking at a data directory that no broker serves.

use std::path::Path;

use sennit_journal::{
    DataDirectory, DirectorySettings, LaneConfig, Verdict,
    disk::{Access, RealDisk},
    verify,
};

use crate::error::ServeError;

/// What the lane of a shard holds, and what of it is damaged.
#[derive(Clone, Debug)]
pub struct ShardVerdict {
    /// Which shard.
    pub shard: u32,
    /// What was found.
    pub verdict: Verdict,
}

/// Looks at every byte of a data directory that has a checksum, one shard after the other, and
/// gives each verdict to `each`. Nothing is changed; the directory is locked meanwhile.
///
/// # Errors
/// The folder is no data directory, is served by a broker, or cannot be read.
pub fn verify_storage(data: &Path, mut each: impl FnMut(ShardVerdict)) -> Result<(), ServeError> {
    let directory = DataDirectory::existing(data)?;
    let DirectorySettings { shards, segment_bytes, incarnation } = *directory.settings();
    let disk = RealDisk::new(Access::Buffered);
    for shard in 0..shards {
        let lane = LaneConfig {
            directory: directory.lane_directory(shard),
            lane: shard,
            segment_bytes,
            incarnation,
        };
        each(ShardVerdict { shard, verdict: verify(&disk, &lane)? });
    }
    Ok(())
}
