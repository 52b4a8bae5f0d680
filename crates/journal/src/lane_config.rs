//! What a lane is told, once for its whole life.

use std::path::PathBuf;

/// What a lane is told. The same for its whole life.
#[derive(Clone, Debug)]
pub struct LaneConfig {
    /// Where its slots lie.
    pub directory: PathBuf,
    /// Its number.
    pub lane: u32,
    /// How long a segment is: a multiple of 4096, at least 16 KiB.
    pub segment_bytes: u64,
    /// A random number drawn when the data directory was made: files of another directory are
    /// known by it.
    pub incarnation: u64,
}
