//! The confirm frame: the outcome of a producer's batches in one partition.

use bytes::{Buf, BufMut, Bytes};
use sennit_model::{Durability, Offset, PartitionId, PartitionIndex, ProducerId, TopicId};

use crate::{
    decode_error::DecodeError,
    durability,
    frame_header::FrameHeader,
    kind::Kind,
    runs::{Run, Runs, count_field},
};

const KIND: Kind = Kind::Confirm;
const FORGOTTEN: u64 = u64::MAX;
const FLAG_DUPLICATE: u32 = 1;

/// The part of the frame before the runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConfirmHead {
    /// The partition.
    pub partition: PartitionId,
    /// The producer.
    pub producer: ProducerId,
    /// All sequences before this one are answered.
    pub up_to_sequence: u64,
    /// The durability that the confirm promises.
    pub durability: Durability,
}

impl ConfirmHead {
    /// The encoded length in bytes.
    pub const BYTES: usize = 32;

    /// Appends the whole frame to `out`, which must have room or grow.
    pub fn encode(
        &self,
        runs: impl ExactSizeIterator<Item = ConfirmRun>,
        request: u64,
        out: &mut impl BufMut,
    ) {
        let size = Self::BYTES + runs.len() * ConfirmRun::BYTES;
        FrameHeader::new(KIND, size, request).encode(out);
        out.put_u32_le(self.partition.topic.0);
        out.put_u32_le(self.partition.index.0);
        out.put_u64_le(self.producer.0);
        out.put_u64_le(self.up_to_sequence);
        out.put_u8(self.durability.number());
        out.put_bytes(0, 3);
        out.put_u32_le(count_field(runs.len()));
        for run in runs {
            run.encode(out);
        }
    }
}

/// Messages that are adjacent in the producer's order and in the partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConfirmRun {
    /// The sequence of the first message.
    pub first_sequence: u64,
    /// The offset of the first message; `None` for a duplicate whose offset the broker no longer
    /// remembers.
    pub first_offset: Option<Offset>,
    /// The number of messages.
    pub count: u32,
    /// Whether they had been appended before.
    pub duplicate: bool,
}

impl Run for ConfirmRun {
    const BYTES: usize = 24;

    fn encode(&self, out: &mut impl BufMut) {
        out.put_u64_le(self.first_sequence);
        out.put_u64_le(self.first_offset.map_or(FORGOTTEN, |offset| offset.0));
        out.put_u32_le(self.count);
        out.put_u32_le(if self.duplicate { FLAG_DUPLICATE } else { 0 });
    }

    fn decode(mut bytes: &[u8]) -> Self {
        Self {
            first_sequence: bytes.get_u64_le(),
            first_offset: Some(bytes.get_u64_le()).filter(|&n| n != FORGOTTEN).map(Offset),
            count: bytes.get_u32_le(),
            duplicate: bytes.get_u32_le() & FLAG_DUPLICATE != 0,
        }
    }

    fn check(bytes: &[u8], kind: Kind) -> Result<(), DecodeError> {
        let run = Self::decode(bytes);
        let flags = (&bytes[Self::BYTES - 4..]).get_u32_le();
        DecodeError::require_zero(kind, "unknown flags", u64::from(flags & !FLAG_DUPLICATE))?;
        DecodeError::require_range(kind, "first_sequence", run.first_sequence, run.count)?;
        let offset = run.first_offset.unwrap_or_default();
        DecodeError::require_range(kind, "first_offset", offset.0, run.count)
    }
}

/// The outcome of a producer's batches in one partition. Confirms are cumulative: this frame and
/// earlier ones answer all sequences before `head.up_to_sequence`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confirm {
    /// The partition, the producer and the answered sequences.
    pub head: ConfirmHead,
    /// The newly confirmed messages.
    pub runs: Runs<ConfirmRun>,
}

impl Confirm {
    /// Appends the frame to `out`, which must have room or grow.
    pub fn encode(&self, request: u64, out: &mut impl BufMut) {
        self.head.encode(self.runs.iter(), request, out);
    }

    /// Reads the body. The runs share its memory.
    ///
    /// # Errors
    /// [`DecodeError::Length`], or [`DecodeError::Field`] for the first field that is out of
    /// bounds.
    pub fn decode(mut body: Bytes) -> Result<Self, DecodeError> {
        DecodeError::require(KIND, body.len(), ConfirmHead::BYTES)?;
        let partition = PartitionId {
            topic: TopicId(body.get_u32_le()),
            index: PartitionIndex(body.get_u32_le()),
        };
        let producer = ProducerId(body.get_u64_le());
        let up_to_sequence = body.get_u64_le();
        let durability = durability::decode(KIND, body.get_u8())?;
        DecodeError::require_zero(KIND, "padding", body.get_uint_le(3))?;
        let count = body.get_u32_le();
        let runs = Runs::take(KIND, count, &mut body)?;
        DecodeError::require_zero(KIND, "bytes after the runs", body.len() as u64)?;
        let head = ConfirmHead { partition, producer, up_to_sequence, durability };
        Ok(Self { head, runs })
    }
}
