//! The segments and packs to which the records of a lane refer, because they hold wanted messages. For tools that
//! inspect a lane without serving it.

use std::collections::{BTreeMap, BTreeSet};

use sennit_journal::{Container, Disk, LaneConfig, Position, packs};
use sennit_model::Timestamp;

use crate::{
    mover::{Mover, PackLengths},
    recover::find_moved,
    recover_error::RecoverError,
    replay::{ReadBack, ReplayedLane, replay},
};

/// The containers of wanted messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    /// Segments of the lane.
    pub segments: BTreeSet<u64>,
    /// Packs.
    pub packs: BTreeSet<u32>,
}

/// Replays a lane as a start would at `now`, and returns the containers of its live messages.
/// Writes nothing. It takes as much memory as the shard's state.
///
/// # Errors
/// A [`RecoverError`]: the lane cannot be read, its records are impossible, or a damaged checkpoint
/// leaves no state to continue from.
pub fn find_references<D: Disk>(
    disk: &D,
    config: LaneConfig,
    now: Timestamp,
) -> Result<References, RecoverError> {
    let segment_bytes = config.segment_bytes;
    let ReadBack { recovered, reading, engine, .. } =
        replay(disk, &config, ReplayedLane::Either, now)?;
    let mut moved = BTreeMap::new();
    if !reading.damage.is_empty() {
        let held: BTreeSet<_> = packs(disk, &config)?.iter().map(|pack| pack.number).collect();
        let is_held = |container| match container {
            Container::Pack(pack) => held.contains(&pack),
            Container::Segment(segment) => recovered.lane.holds(segment),
        };
        let reader = recovered.reader.duplicate();
        // It makes no pack.
        let mut mover = Mover::new(disk.clone(), config, reader, PackLengths::default(), 0);
        let found = find_moved(&engine, &mut mover, held.iter().copied(), segment_bytes, is_held);
        moved.extend(found.into_iter().map(|(kept, place)| (kept.place.position, place)));
    }
    let mut references = References::default();
    for place in engine.places() {
        let place = moved.get(&place.position).copied().unwrap_or(place);
        match Container::of(Position(place.position), segment_bytes) {
            Container::Pack(pack) => references.packs.insert(pack),
            Container::Segment(segment) => references.segments.insert(segment),
        };
    }
    Ok(references)
}
