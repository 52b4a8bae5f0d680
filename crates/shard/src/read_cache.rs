//! Batches that had to be read back from the journal. Reads are made in chunks, because what a
//! lagging consumer wants next lies behind what it wants now.

use std::collections::VecDeque;

use bytes::Bytes;
use sennit_engine::Place;
use sennit_journal::Position;
use sennit_model::{Batch, PartitionId};

/// Least bytes of a read: as many batches as fit come along.
const CHUNK_BYTES: usize = 1 << 20;
/// When so little is left of a chunk behind the batch that was wanted, what follows is read already.
const AHEAD_BYTES: u64 = 256 << 10;
/// Bytes of chunks that are kept.
const BUDGET_BYTES: usize = 8 << 20;
/// Most reads under way at once.
const FETCHES_MAX: usize = 8;

/// A read of the journal, to be made by whoever has the disk at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// Where to begin.
    pub position: Position,
    /// How many bytes, all within one segment.
    pub length: usize,
}

/// What a look into the cache found.
#[derive(Debug)]
pub(crate) enum Found {
    /// The batch.
    Batch(Bytes),
    /// Nothing yet; a read is under way or will be.
    Pending,
    /// Bytes that are not the batch that was written there.
    Damaged,
}

/// A read under way, and for which batches.
#[derive(Debug)]
struct UnderWay {
    fetch: Fetch,
    wants: Vec<(PartitionId, Place)>,
    /// Whether it is made because another one failed.
    is_second: bool,
}

impl UnderWay {
    fn covers(&self, place: Place) -> bool {
        let (from, length) = (self.fetch.position.0, self.fetch.length as u64);
        from <= place.position && place.position + u64::from(place.bytes) <= from + length
    }
}

/// What a read that is done comes to.
#[derive(Debug, Default)]
pub(crate) struct Done {
    /// The partitions that may go on.
    pub(crate) partitions: Vec<PartitionId>,
    /// The batches that cannot be read, though it was tried twice.
    pub(crate) unreadable: Vec<(PartitionId, Place)>,
}

/// Chunks of the journal and the reads under way.
#[derive(Debug, Default)]
pub(crate) struct ReadCache {
    chunks: VecDeque<(Position, Bytes)>,
    bytes: usize,
    under_way: Vec<UnderWay>,
    wanted: Vec<Fetch>,
    hungry: Vec<PartitionId>,
}

impl ReadCache {
    /// The batch at `position`. On a miss, notes that `partition` waits for it; nothing at or
    /// after `limit` is read.
    pub(crate) fn read(
        &mut self,
        partition: PartitionId,
        position: Position,
        length: usize,
        limit: Position,
    ) -> Found {
        let end = position.0 + length as u64;
        // The newest first: of two that hold the batch it reaches further.
        let held = self
            .chunks
            .iter()
            .rev()
            .find(|(start, bytes)| *start <= position && end <= start.0 + bytes.len() as u64);
        if let Some((start, bytes)) = held {
            let from = (position.0 - start.0) as usize;
            // Read from the disk, so its checksums are looked at again.
            let batch = Batch::check_delivered(bytes.slice(from..from + length));
            let chunk_end = start.0 + bytes.len() as u64;
            if chunk_end - end < AHEAD_BYTES && chunk_end < limit.0 {
                self.read_ahead(Position(end), limit);
            }
            return batch.map_or(Found::Damaged, |batch| Found::Batch(batch.bytes().clone()));
        }
        if !self.hungry.contains(&partition) {
            self.hungry.push(partition);
        }
        let bytes = u32::try_from(length).expect("a batch is limited far below 4 GiB");
        let want = (partition, Place { position: position.0, bytes });
        match self.under_way.iter_mut().find(|held| held.covers(want.1)) {
            Some(held) if held.wants.contains(&want) => {}
            Some(held) => held.wants.push(want),
            None => self.begin_chunk(position, length, limit, vec![want]),
        }
        Found::Pending
    }

    /// Has what follows `position` read before anybody asks for it.
    fn read_ahead(&mut self, position: Position, limit: Position) {
        let next = Place { position: position.0, bytes: 1 };
        if !self.under_way.iter().any(|held| held.covers(next)) {
            self.begin_chunk(position, 1, limit, Vec::new());
        }
    }

    fn begin_chunk(
        &mut self,
        position: Position,
        length: usize,
        limit: Position,
        wants: Vec<(PartitionId, Place)>,
    ) {
        if self.under_way.len() < FETCHES_MAX {
            // Of a pack that has lost its end there is less than what is wanted.
            let room = limit.0.saturating_sub(position.0) as usize;
            let fetch = Fetch { position, length: CHUNK_BYTES.min(room).max(length) };
            self.begin(fetch, wants, false);
        }
    }

    /// Takes the reads to be made.
    pub(crate) fn take_wanted(&mut self, out: &mut Vec<Fetch>) {
        out.append(&mut self.wanted);
    }

    fn begin(&mut self, fetch: Fetch, wants: Vec<(PartitionId, Place)>, is_second: bool) {
        self.under_way.push(UnderWay { fetch, wants, is_second });
        self.wanted.push(fetch);
    }

    /// A read is done; without bytes it failed, and is made once more, of the very batches that
    /// were wanted.
    pub(crate) fn fetched(&mut self, fetch: Fetch, bytes: Option<Bytes>) -> Done {
        let mut done = Done::default();
        let held = self.under_way.iter().position(|held| held.fetch == fetch);
        let held = held.map(|index| self.under_way.swap_remove(index));
        match (bytes, held) {
            (Some(bytes), _) => {
                self.bytes += bytes.len();
                self.chunks.push_back((fetch.position, bytes));
            }
            (None, Some(UnderWay { wants, is_second: false, .. })) => {
                for (partition, place) in wants {
                    let position = Position(place.position);
                    let fetch = Fetch { position, length: place.bytes as usize };
                    self.begin(fetch, vec![(partition, place)], true);
                }
                return done;
            }
            (None, Some(UnderWay { wants, .. })) => done.unreadable = wants,
            (None, None) => {}
        }
        while self.bytes > BUDGET_BYTES
            && self.chunks.len() > FETCHES_MAX
            && let Some((_, oldest)) = self.chunks.pop_front()
        {
            self.bytes -= oldest.len();
        }
        done.partitions = std::mem::take(&mut self.hungry);
        done
    }

    /// Forgets chunks of `start..end`: the slot will hold another segment.
    pub(crate) fn forget(&mut self, start: Position, end: Position) {
        self.chunks.retain(|(position, bytes)| {
            let kept = *position < start || *position >= end;
            if !kept {
                self.bytes -= bytes.len();
            }
            kept
        });
    }

    /// How many bytes it holds now.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}
