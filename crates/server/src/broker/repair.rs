//! Repairing a data directory that no broker serves.

use std::path::{Path, PathBuf};

use sennit_journal::{
    DataDirectory,
    disk::{Access, RealDisk},
};
use sennit_shard::{Repaired, repair};

use super::storage_check::lane_config;
use crate::runtime::{clock::now, error::ServeError};

/// What was done about a shard.
#[derive(Clone, Debug)]
pub struct ShardRepair {
    /// Which shard.
    pub shard: u32,
    /// What was found and given up.
    pub repaired: Repaired,
    /// Where the damaged files lie now: in the folder `quarantine` of the directory.
    pub set_aside: Vec<PathBuf>,
}

/// Repairs a data directory, one shard after the other, and gives what was done to `each`. Messages
/// that cannot be read are given up, everything else is kept, and damaged files are set aside. The
/// directory is locked meanwhile.
///
/// # Errors
/// The folder is no data directory, belongs to a node of a cluster, is served by a broker, cannot be
/// written, or a shard is damaged beyond repair.
pub fn repair_storage(data: &Path, mut each: impl FnMut(ShardRepair)) -> Result<(), ServeError> {
    let directory = DataDirectory::open_existing(data)?;
    let settings = *directory.settings();
    if settings.node.is_some() {
        return Err(ServeError::RepairOfNode { path: data.to_owned() });
    }
    let disk = RealDisk::new(Access::Buffered);
    for shard in 0..settings.shards {
        let lane = lane_config(directory.lane_directory(shard), shard, &settings);
        let repaired =
            repair(&disk, &lane, now()).map_err(|error| ServeError::Repair { shard, error })?;
        let files = repaired.to_quarantine.iter();
        let set_aside =
            files.map(|file| directory.move_to_quarantine(file)).collect::<Result<_, _>>()?;
        each(ShardRepair { shard, repaired, set_aside });
    }
    Ok(())
}
