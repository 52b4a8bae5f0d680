//! The publish frame: the partition and the producer, then the batch as it is stored.

use bytes::{Buf, BufMut, Bytes};
use sennit_model::{Batch, PartitionId, PartitionIndex, ProducerId, ProducerStamp, TopicId};

use crate::{decode_error::DecodeError, frame_header::FrameHeader, kind::Kind};

const KIND: Kind = Kind::Publish;

/// The part of the frame before the batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublishHead {
    /// The partition.
    pub partition: PartitionId,
    /// The producer, and the sequence of the first message.
    pub producer: ProducerStamp,
    /// The number of messages in the batch.
    pub count: u32,
}

impl PublishHead {
    /// The encoded length in bytes.
    pub const BYTES: usize = 32;

    /// Appends the frame's header and this head to `out`, which must have room or grow (48 bytes).
    /// The caller then sends the batch's `batch_bytes` bytes, so that they need not be copied.
    pub fn encode(&self, batch_bytes: usize, request: u64, out: &mut impl BufMut) {
        FrameHeader::new(KIND, Self::BYTES + batch_bytes, request).encode(out);
        self.encode_body(out);
    }

    /// Appends only the head.
    pub(crate) fn encode_body(&self, out: &mut impl BufMut) {
        out.put_u32_le(self.partition.topic.0);
        out.put_u32_le(self.partition.index.0);
        out.put_u64_le(self.producer.id.0);
        out.put_u64_le(self.producer.first_sequence);
        out.put_u32_le(self.producer.epoch);
        out.put_u32_le(self.count);
    }
}

/// A request to append a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Publish {
    /// The partition and the producer.
    pub head: PublishHead,
    /// The messages, in the layout of [`Batch`], not yet checked.
    pub batch: Bytes,
}

impl Publish {
    /// The frame for a checked batch.
    #[must_use]
    pub fn new(partition: PartitionId, producer: ProducerStamp, batch: &Batch) -> Self {
        let head = PublishHead { partition, producer, count: batch.count() };
        Self { head, batch: batch.bytes().clone() }
    }

    /// Appends the frame to `out`, which must have room or grow.
    pub fn encode(&self, request: u64, out: &mut impl BufMut) {
        self.head.encode(self.batch.len(), request, out);
        out.put_slice(&self.batch);
    }

    /// Reads the body. The batch shares its memory and is not checked.
    ///
    /// # Errors
    /// [`DecodeError::Length`], or [`DecodeError::Field`] where sequences would overflow.
    pub fn decode(mut body: Bytes) -> Result<Self, DecodeError> {
        DecodeError::require(KIND, body.len(), PublishHead::BYTES)?;
        let partition = PartitionId {
            topic: TopicId(body.get_u32_le()),
            index: PartitionIndex(body.get_u32_le()),
        };
        let producer = ProducerStamp {
            id: ProducerId(body.get_u64_le()),
            first_sequence: body.get_u64_le(),
            epoch: body.get_u32_le(),
        };
        let count = body.get_u32_le();
        DecodeError::require_range(KIND, "first_sequence", producer.first_sequence, count)?;
        Ok(Self { head: PublishHead { partition, producer, count }, batch: body })
    }

    /// Checks the messages: limits, checksums and number. Costs one pass over the bytes.
    ///
    /// # Errors
    /// [`DecodeError::Batch`] or [`DecodeError::Count`]; the server answers both as
    /// [`crate::ErrorCode::BatchInvalid`].
    pub fn check_batch(&self) -> Result<Batch, DecodeError> {
        let batch = Batch::check(self.batch.clone())?;
        if batch.count() != self.head.count {
            let (announced, held) = (self.head.count, batch.count());
            return Err(DecodeError::Count { kind: KIND, announced, held });
        }
        Ok(batch)
    }
}
