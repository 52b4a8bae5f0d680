//! Batches that cannot be read from the journal: those that are wanted before they are committed, and
//! those that are kept in memory alone. It does not know whose they are.

use std::collections::VecDeque;

use bytes::Bytes;
use sennit_journal::Position;
use sennit_model::Batch;

use crate::kept::Kept;

/// Set in the position of a batch that is kept in memory alone. A lane never grows so long, and a
/// place in a pack has a bit above it.
const MEMORY_BIT: u64 = 1 << 62;

/// Whether a place is in memory alone.
fn is_in_memory(position: u64) -> bool {
    Position(position).pack().is_none() && position & MEMORY_BIT != 0
}

/// Batches in memory, by their positions.
#[derive(Debug, Default)]
pub(crate) struct AtHand {
    /// Of the journal, until they are committed, in its order.
    uncommitted: VecDeque<(u64, Bytes)>,
    /// Nowhere else.
    kept: Kept,
}

impl AtHand {
    /// The batch at `position`, if it is here.
    pub(crate) fn get(&self, position: u64) -> Option<&Bytes> {
        if is_in_memory(position) {
            return self.kept.get(position & !MEMORY_BIT);
        }
        if self.uncommitted.is_empty() {
            return None;
        }
        let index = self.uncommitted.binary_search_by_key(&position, |(at, _)| *at).ok()?;
        Some(&self.uncommitted[index].1)
    }

    /// A batch that was appended just now is wanted before it is committed.
    pub(crate) fn appended(&mut self, position: u64, batch: &Batch) {
        self.uncommitted.push_back((position, batch.bytes().clone()));
    }

    /// Everything before `end` is committed: it can be read from the journal.
    pub(crate) fn committed(&mut self, end: Position) {
        while self.uncommitted.pop_front_if(|(position, _)| *position < end.0).is_some() {}
    }

    /// Keeps a batch, and says its position.
    pub(crate) fn keep(&mut self, batch: &Batch) -> u64 {
        // A copy: what came with it from the socket is not to stay for it.
        MEMORY_BIT | self.kept.put(Bytes::copy_from_slice(batch.bytes()))
    }

    /// Lets go of what was kept at `position`; false of what lies in the journal.
    pub(crate) fn free(&mut self, position: u64) -> bool {
        let is_in_memory = is_in_memory(position);
        if is_in_memory {
            self.kept.free(position & !MEMORY_BIT);
        }
        is_in_memory
    }

    /// Bytes of what is kept nowhere else.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.kept.bytes()
    }
}
