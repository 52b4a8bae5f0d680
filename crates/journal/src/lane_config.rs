//! The settings of a lane, fixed for its life.

use std::path::PathBuf;

/// The settings of a lane, fixed for its life.
#[derive(Clone, Debug)]
pub struct LaneConfig {
    /// The folder of its slots.
    pub directory: PathBuf,
    /// Its number.
    pub lane: u32,
    /// The length of a segment: a multiple of 4096, at least 16 KiB.
    pub segment_bytes: u64,
    /// The random number of the data directory, which distinguishes its files from those of others.
    pub incarnation: u64,
}
