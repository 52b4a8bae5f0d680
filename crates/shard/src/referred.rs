//! What the records of a lane refer to: the segments and packs that hold messages still wanted.
//! For those who look at a lane without serving it.

use std::collections::BTreeSet;

use sennit_journal::{Disk, LaneConfig, Position};
use sennit_model::Timestamp;

use crate::{recover_error::RecoverError, replay::replay};

/// Where messages lie that are still wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Referred {
    /// Segments of the lane.
    pub segments: BTreeSet<u64>,
    /// Packs.
    pub packs: BTreeSet<u32>,
}

/// Replays a lane as a start would at `now`, and says where what is live in it lies. Nothing is
/// written. It takes as much memory as the shard's state.
///
/// # Errors
/// A [`RecoverError`]: the lane cannot be read, its records say what cannot be, or a damaged
/// checkpoint leaves nothing to build on.
pub fn referred<D: Disk>(
    disk: &D,
    config: LaneConfig,
    now: Timestamp,
) -> Result<Referred, RecoverError> {
    let segment_bytes = config.segment_bytes;
    let engine = replay(disk, &config, now)?.engine;
    let mut referred = Referred::default();
    for place in engine.places() {
        match Position(place.position).pack() {
            Some((pack, _)) => referred.packs.insert(pack),
            None => referred.segments.insert(place.position / segment_bytes),
        };
    }
    Ok(referred)
}
