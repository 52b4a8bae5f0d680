//! The engine's view of the readable batches: in memory, in the newest frames, in what was read back, or on the disk.

use bytes::Bytes;
use sennit_engine::{Payloads, Place};
use sennit_journal::{Frame, Position};
use sennit_model::PartitionId;

use crate::{
    memory_batches::MemoryBatches,
    packs::Packs,
    read_cache::{CacheLookup, ReadCache},
    tail_cache::TailCache,
};

/// The readable batches of a turn.
pub(crate) struct ReadableBatches<'a> {
    pub(crate) memory_batches: &'a MemoryBatches,
    pub(crate) cache: &'a TailCache,
    /// In a group: sealed frames that the lane has not taken. A quorum may have committed them.
    pub(crate) sealed: &'a [Frame],
    pub(crate) reads: &'a mut ReadCache,
    pub(crate) packs: &'a Packs,
    pub(crate) segment_bytes: u64,
    /// Nothing at or after this position may be read from the disk, because it is not written yet.
    pub(crate) written: Position,
    /// Batches that were found to be damaged.
    pub(crate) damaged: Vec<(PartitionId, Place)>,
}

impl Payloads for ReadableBatches<'_> {
    fn batch(&mut self, partition: PartitionId, place: Place) -> Option<Bytes> {
        if let Some(bytes) = self.memory_batches.get(place.position) {
            return Some(bytes.clone());
        }
        let (position, length) = (Position(place.position), place.bytes as usize);
        if let Some(bytes) = self.cache.read(position, length) {
            return Some(bytes);
        }
        let after = self.sealed.partition_point(|frame| frame.position <= position);
        if let Some(frame) = after.checked_sub(1).and_then(|before| self.sealed.get(before)) {
            let start = (position.0 - frame.position.0) as usize;
            return Some(frame.bytes.slice(start..start + length));
        }
        let limit = match position.pack() {
            Some((pack, _)) => match self.packs.bytes_of(pack) {
                // It is lost, and reading it will say so.
                0 => position.plus(place.bytes.into()),
                bytes => Position::of_pack(pack, 0).plus(bytes),
            },
            None => {
                let segment = position.segment(self.segment_bytes);
                self.written.min(Position((segment + 1) * self.segment_bytes))
            }
        };
        match self.reads.read(partition, position, length, limit) {
            CacheLookup::Batch(bytes) => Some(bytes),
            CacheLookup::Pending => None,
            CacheLookup::Damaged => {
                self.damaged.push((partition, place));
                None
            }
        }
    }
}
