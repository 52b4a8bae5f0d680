//! Batches in memory that cannot be read from the journal: those that are needed before they are written, and
//! those of memory topics.

use std::collections::VecDeque;

use bytes::Bytes;
use sennit_journal::Position;
use sennit_model::Batch;

use crate::paged_batches::PagedBatches;

/// Set in the position of a batch that is kept in memory alone. A lane never reaches it, and
/// positions in packs have a higher bit.
const MEMORY_BIT: u64 = 1 << 62;

/// Returns whether a position is in memory alone.
fn is_in_memory(position: u64) -> bool {
    Position(position).pack().is_none() && position & MEMORY_BIT != 0
}

/// Batches in memory, by position.
#[derive(Debug, Default)]
pub(crate) struct MemoryBatches {
    /// Batches of the journal until they are written, in its order.
    unwritten: VecDeque<(u64, Bytes)>,
    /// Batches that are kept in memory alone.
    kept: PagedBatches,
}

impl MemoryBatches {
    /// The batch at `position`, if it is in memory.
    pub(crate) fn get(&self, position: u64) -> Option<&Bytes> {
        if is_in_memory(position) {
            return self.kept.get(position & !MEMORY_BIT);
        }
        if self.unwritten.is_empty() {
            return None;
        }
        let index = self.unwritten.binary_search_by_key(&position, |(at, _)| *at).ok()?;
        Some(&self.unwritten[index].1)
    }

    /// Adds a batch that was appended and is needed before it is written.
    pub(crate) fn add(&mut self, position: u64, batch: &Batch) {
        let last = self.unwritten.back().map(|(last, _)| *last);
        assert!(last < Some(position), "a lookup needs ascending positions");
        self.unwritten.push_back((position, batch.bytes().clone()));
    }

    /// Drops the batches before `end`, which can be read from the journal now.
    pub(crate) fn drop_written(&mut self, end: Position) {
        while self.unwritten.pop_front_if(|(position, _)| *position < end.0).is_some() {}
    }

    /// Drops the batches from `start` on, which are never written.
    pub(crate) fn drop_from(&mut self, start: Position) {
        while self.unwritten.pop_back_if(|(position, _)| *position >= start.0).is_some() {}
    }

    /// Adds a batch that is kept in memory alone, and returns its position.
    pub(crate) fn keep(&mut self, batch: &Batch) -> u64 {
        // A copy: what came with it from the socket is not to stay for it.
        MEMORY_BIT | self.kept.push(Bytes::copy_from_slice(batch.bytes()))
    }

    /// Frees the batch at `position`; returns false for a position in the journal.
    pub(crate) fn free(&mut self, position: u64) -> bool {
        let is_in_memory = is_in_memory(position);
        if is_in_memory {
            self.kept.free(position & !MEMORY_BIT);
        }
        is_in_memory
    }

    /// Bytes of the batches that are kept in memory alone.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.kept.bytes()
    }
}
