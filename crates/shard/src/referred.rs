//! What the records of a lane refer to: the segments and packs that hold messages still wanted.
//! For those who look at a lane without serving it.

use std::collections::BTreeSet;

use sennit_engine::Replay;
use sennit_journal::{Disk, LaneConfig, Position};
use sennit_model::{Generation, Timestamp};

use crate::recover::RecoverError;

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
/// A [`RecoverError`]: the lane is damaged, or its records say what cannot be.
pub fn referred<D: Disk>(
    disk: &D,
    config: LaneConfig,
    now: Timestamp,
) -> Result<Referred, RecoverError> {
    let segment_bytes = config.segment_bytes;
    let mut replay = Replay::new(now);
    let recovered = sennit_journal::recover(disk, config, |kind, position, body| {
        let replayed = replay.record(kind, position.0, body);
        replayed.map(drop).map_err(|error| RecoverError::Record { position, error })
    })?;
    let position = recovered.replay_from;
    let engine = replay.finish(Generation(0)).ok_or(RecoverError::Checkpoint { position })?;
    let mut referred = Referred::default();
    for place in engine.places() {
        match Position(place.position).pack() {
            Some((pack, _)) => referred.packs.insert(pack),
            None => referred.segments.insert(place.position / segment_bytes),
        };
    }
    Ok(referred)
}
