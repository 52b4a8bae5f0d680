//! Where a shard stands with its moves: what is under way, what waits to be recorded, where things
//! lie. What is done about it is in `moving`.

use std::collections::{BTreeSet, VecDeque};

use sennit_journal::{Home, Position};

use crate::{mover::MovedBatch, packs::Packs};

/// Most moves that are recorded before others have their turn.
pub(crate) const MOVES_PER_TURN: usize = 256;

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
    /// What could not be read, and is left as it is until the next start.
    pub(crate) left: BTreeSet<Home>,
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
