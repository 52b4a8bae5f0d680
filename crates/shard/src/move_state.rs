//! The state of a shard's moves: the move under way, moves that wait to be recorded, and the packs.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use sennit_journal::{Container, Position};
use sennit_model::Timestamp;

use crate::{mover::MovedBatch, packs::Packs};

/// Most moves that are recorded in a turn.
pub(crate) const MOVES_PER_TURN: usize = 256;

/// Time before another attempt to empty a container for which there was no room. There is no
/// notification of room unless a publish was refused.
pub(crate) const MOVE_REST: Duration = Duration::from_secs(10);

/// Until the next start.
pub(crate) const UNTIL_RESTART: Timestamp = Timestamp(u64::MAX);

/// The move under way, pending moves, and the packs in use.
#[derive(Debug, Default)]
pub(crate) struct MoveState {
    pub(crate) packs: Packs,
    /// The container that is being emptied.
    pub(crate) under_way: Option<Container>,
    /// Whether the state was thrown away for which that is done: its result is of no use.
    pub(crate) is_void: bool,
    /// Batches that were moved on disk and not yet in the state.
    pub(crate) pending: VecDeque<MovedBatch>,
    /// The recorded moves are secured when everything before this position is. Until then an
    /// emptied container appears full.
    pub(crate) recorded: Position,
    /// Containers that could not be emptied, and when to try again.
    pub(crate) skipped_until: BTreeMap<Container, Timestamp>,
    /// Whether the last task was a move rather than a step of a compaction.
    pub(crate) was_move: bool,
    /// Segments that may be in use before the oldest is emptied.
    pub(crate) journal_segments: usize,
}

impl MoveState {
    /// Allows another attempt for all skipped containers, because the disk has room again.
    pub(crate) fn try_again(&mut self) {
        self.skipped_until.clear();
    }

    pub(crate) fn new(packs: Packs, journal_segments: usize) -> Self {
        Self { packs, journal_segments, ..Self::default() }
    }
}
