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
        if let Some(bytes) = of_sealed(self.sealed, position, length) {
            return Some(bytes);
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

/// The bytes at a position in one of these frames, which are in order. Packs have positions behind all of the log.
fn of_sealed(sealed: &[Frame], position: Position, length: usize) -> Option<Bytes> {
    let after = sealed.partition_point(|frame| frame.position <= position);
    let frame = sealed.get(after.checked_sub(1)?)?;
    let start = usize::try_from(position.0 - frame.position.0).ok()?;
    let end = start.checked_add(length).filter(|end| *end <= frame.bytes.len())?;
    Some(frame.bytes.slice(start..end))
}

#[cfg(test)]
mod tests {
    use sennit_journal::FrameBody;

    use super::*;

    fn frame(position: u64, bytes: &'static [u8]) -> Frame {
        let position = Position(position);
        Frame {
            position,
            bytes: Bytes::from_static(bytes),
            end: position.plus(bytes.len() as u64),
            first_of_segment: false,
            body: FrameBody { frame: position, bytes: 0, checksum: 0, records: 0 },
        }
    }

    #[test]
    fn sealed_frames_have_what_lies_in_them_and_nothing_of_packs() {
        let sealed = [frame(4096, b"first"), frame(8192, b"second")];
        let read = |position, length| of_sealed(&sealed, position, length);
        assert_eq!(read(Position(4097), 3).as_deref(), Some(&b"irs"[..]));
        assert_eq!(read(Position(8192), 6).as_deref(), Some(&b"second"[..]));
        for beside in [Position(0), Position(8195), Position(9000), Position::of_pack(3, 64)] {
            assert_eq!(read(beside, 6), None, "{beside:?}");
        }
    }
}
