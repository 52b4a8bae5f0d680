//! Where a shard stands with its moves: what is under way, what waits to be recorded, where things
//! lie. What is done about it is in `moving`.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use sennit_journal::{Home, Position};
use sennit_model::Timestamp;

use crate::{mover::MovedBatch, packs::Packs};

/// Most moves that are recorded before others have their turn.
pub(crate) const MOVES_PER_TURN: usize = 256;

/// What could not be emptied for lack of room is tried again after this long: nobody says when there
/// is some, where no publish was refused for it.
pub(crate) const MOVE_REST: Duration = Duration::from_secs(10);

/// Until the next start.
pub(crate) const FOR_GOOD: Timestamp = Timestamp(u64::MAX);

/// What is being moved, and where what was moved lies.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    pub(crate) packs: Packs,
    /// What is being emptied.
    pub(crate) under_way: Option<Home>,
    /// Moved on disk, and not yet in the state.
    pub(crate) pending: VecDeque<MovedBatch>,
    /// The moves made so far are committed when everything before this is: what was emptied looks
    /// full until then.
    pub(crate) recorded: Position,
    /// What could not be emptied, and until when it is left as it is.
    pub(crate) left: BTreeMap<Home, Timestamp>,
    /// Whether the last that was begun was a move, and not a step of a compaction.
    pub(crate) was_move: bool,
    /// Segments that may be in use before the oldest is emptied.
    pub(crate) journal_segments: usize,
}

impl Moves {
    /// What could not be emptied may be now: the disk has room again.
    pub(crate) fn try_again(&mut self) {
        self.left.clear();
    }

    pub(crate) fn new(packs: Packs, journal_segments: usize) -> Self {
        Self { packs, journal_segments, ..Self::default() }
    }
}
