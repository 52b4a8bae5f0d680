//! The deliver frame: stored messages of one partition, for one subscription.

use bytes::{Buf, BufMut, Bytes};
use sennit_model::{Batch, Durability, Generation, Offset, PartitionIndex, Timestamp};

use crate::{decode_error::DecodeError, durability, frame_header::FrameHeader, kind::Kind};

const KIND: Kind = Kind::Deliver;

/// The part of the frame before the messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliverHead {
    /// The subscription of the connection.
    pub subscription: u32,
    /// The partition of its topic.
    pub partition: PartitionIndex,
    /// The first message's offset; the others follow.
    pub first: Offset,
    /// The time of their append.
    pub appended_at: Timestamp,
    /// The number of this attempt, from 1, for each message.
    pub attempt: u32,
    /// The generation of the shard that delivers.
    pub generation: Generation,
    /// The number of messages.
    pub count: u32,
    /// The durability that the messages had when they were delivered.
    pub durability: Durability,
}

impl DeliverHead {
    /// The encoded length in bytes.
    pub const BYTES: usize = 40;

    /// Appends the frame's header and this head to `out`, which must have room or grow (56 bytes).
    /// The caller then sends the `message_bytes` bytes of the messages, so that they need not be
    /// copied.
    pub fn encode(&self, message_bytes: usize, request: u64, out: &mut impl BufMut) {
        FrameHeader::new(KIND, Self::BYTES + message_bytes, request).encode(out);
        out.put_u32_le(self.subscription);
        out.put_u32_le(self.partition.0);
        out.put_u64_le(self.first.0);
        out.put_u64_le(self.appended_at.0);
        out.put_u32_le(self.attempt);
        out.put_u32_le(self.generation.0);
        out.put_u32_le(self.count);
        out.put_u8(self.durability.number());
        out.put_bytes(0, 3);
    }
}

/// Messages for a subscription.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deliver {
    /// The subscription, the messages' offsets and their attempt.
    pub head: DeliverHead,
    /// The messages, in the layout of [`Batch`], not yet checked.
    pub messages: Bytes,
}

impl Deliver {
    /// Appends the frame to `out`, which must have room or grow.
    pub fn encode(&self, request: u64, out: &mut impl BufMut) {
        self.head.encode(self.messages.len(), request, out);
        out.put_slice(&self.messages);
    }

    /// Reads the body. The messages share its memory and are not checked.
    ///
    /// # Errors
    /// [`DecodeError::Length`], or [`DecodeError::Field`] for the first field that is out of
    /// bounds.
    pub fn decode(mut body: Bytes) -> Result<Self, DecodeError> {
        DecodeError::require(KIND, body.len(), DeliverHead::BYTES)?;
        let head = DeliverHead {
            subscription: body.get_u32_le(),
            partition: PartitionIndex(body.get_u32_le()),
            first: Offset(body.get_u64_le()),
            appended_at: Timestamp(body.get_u64_le()),
            attempt: body.get_u32_le(),
            generation: Generation(body.get_u32_le()),
            count: body.get_u32_le(),
            durability: durability::decode(KIND, body.get_u8())?,
        };
        DecodeError::require_zero(KIND, "padding", body.get_uint_le(3))?;
        DecodeError::require_range(KIND, "first_offset", head.first.0, head.count)?;
        Ok(Self { head, messages: body })
    }

    /// Checks the messages: limits, with room for headers that the broker added, checksums and
    /// number. Costs one pass over the bytes.
    ///
    /// # Errors
    /// [`DecodeError::Batch`] or [`DecodeError::Count`].
    pub fn check_messages(&self) -> Result<Batch, DecodeError> {
        let batch = Batch::check_delivered(self.messages.clone())?;
        if batch.count() != self.head.count {
            let (announced, held) = (self.head.count, batch.count());
            return Err(DecodeError::Count { kind: KIND, announced, held });
        }
        Ok(batch)
    }
}
