//! The publish note frame: what a batch has done to older messages of its partition.

use bytes::{Buf, BufMut, Bytes};
use sennit_model::{PartitionId, PartitionIndex, ProducerId, TopicId};

use crate::{decode_error::DecodeError, frame_header::FrameHeader, kind::Kind};

const KIND: Kind = Kind::PublishNote;

/// What a batch has done to older messages. It comes before the confirm of the batch, on
/// connections with the feature `publish-notes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublishNote {
    /// The partition.
    pub partition: PartitionId,
    /// The producer.
    pub producer: ProducerId,
    /// The sequence of the batch's first message.
    pub first_sequence: u64,
    /// The number of the oldest messages that were dropped, because the partition was full.
    pub dropped: u64,
    /// The number of messages that the batch replaced, because they had its deduplication values.
    pub replaced: u64,
}

impl PublishNote {
    /// Length of the body, in bytes.
    pub const BYTES: usize = 40;

    /// Appends the frame to `out`, which must have room or grow.
    pub fn encode(&self, request: u64, out: &mut impl BufMut) {
        FrameHeader::new(KIND, Self::BYTES, request).encode(out);
        out.put_u32_le(self.partition.topic.0);
        out.put_u32_le(self.partition.index.0);
        out.put_u64_le(self.producer.0);
        out.put_u64_le(self.first_sequence);
        out.put_u64_le(self.dropped);
        out.put_u64_le(self.replaced);
    }

    /// Reads the body.
    ///
    /// # Errors
    /// [`DecodeError::Length`] unless it has exactly 40 bytes.
    pub fn decode(mut body: Bytes) -> Result<Self, DecodeError> {
        if body.len() != Self::BYTES {
            let needed = Self::BYTES as u64;
            return Err(DecodeError::Length { kind: KIND, needed, received: body.len() });
        }
        let partition = PartitionId {
            topic: TopicId(body.get_u32_le()),
            index: PartitionIndex(body.get_u32_le()),
        };
        Ok(Self {
            partition,
            producer: ProducerId(body.get_u64_le()),
            first_sequence: body.get_u64_le(),
            dropped: body.get_u64_le(),
            replaced: body.get_u64_le(),
        })
    }
}
