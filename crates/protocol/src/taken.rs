//! The taken frame: a reader makes room in its window.

use bytes::{Buf, BufMut, Bytes};
use sennit_model::PartitionIndex;

use crate::{decode_error::DecodeError, frame_header::FrameHeader, kind::Kind};

const KIND: Kind = Kind::Taken;

/// Messages of one partition that a reader has taken; its window has room for as many more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// The subscription of the connection.
    pub subscription: u32,
    /// The partition of its topic.
    pub partition: PartitionIndex,
    /// The number of messages.
    pub messages: u32,
    /// Their encoded size in bytes, as delivered.
    pub bytes: u64,
}

impl Taken {
    /// Length of the body, in bytes.
    pub const BYTES: usize = 24;

    /// Appends the frame to `out`, which must have room or grow.
    pub fn encode(&self, request: u64, out: &mut impl BufMut) {
        FrameHeader::new(KIND, Self::BYTES, request).encode(out);
        out.put_u32_le(self.subscription);
        out.put_u32_le(self.partition.0);
        out.put_u32_le(self.messages);
        out.put_u32_le(0);
        out.put_u64_le(self.bytes);
    }

    /// Reads the body.
    ///
    /// # Errors
    /// [`DecodeError::Length`] unless it has exactly 24 bytes, [`DecodeError::Field`] for padding
    /// that is not 0.
    pub fn decode(mut body: Bytes) -> Result<Self, DecodeError> {
        if body.len() != Self::BYTES {
            let needed = Self::BYTES as u64;
            return Err(DecodeError::Length { kind: KIND, needed, received: body.len() });
        }
        let (subscription, partition) = (body.get_u32_le(), PartitionIndex(body.get_u32_le()));
        let messages = body.get_u32_le();
        DecodeError::require_zero(KIND, "padding", body.get_u32_le().into())?;
        Ok(Self { subscription, partition, messages, bytes: body.get_u64_le() })
    }
}
