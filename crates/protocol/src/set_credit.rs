//! The set-credit frame: a subscription's new window.

use bytes::{Buf, BufMut, Bytes};

use crate::{decode_error::DecodeError, frame_header::FrameHeader, kind::Kind};

const KIND: Kind = Kind::SetCredit;

/// Replaces a subscription's window: the amount that it may hold unsettled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetCredit {
    /// The subscription of the connection.
    pub subscription: u32,
    /// Messages; 0 pauses the subscription.
    pub messages: u32,
    /// Bytes of encoded messages. One message is always allowed, however large.
    pub bytes: u64,
}

impl SetCredit {
    /// Length of the body, in bytes.
    pub const BYTES: usize = 16;

    /// Appends the frame to `out`, which must have room or grow.
    pub fn encode(&self, request: u64, out: &mut impl BufMut) {
        FrameHeader::new(KIND, Self::BYTES, request).encode(out);
        out.put_u32_le(self.subscription);
        out.put_u32_le(self.messages);
        out.put_u64_le(self.bytes);
    }

    /// Reads the body.
    ///
    /// # Errors
    /// [`DecodeError::Length`] unless it has exactly 16 bytes.
    pub fn decode(mut body: Bytes) -> Result<Self, DecodeError> {
        if body.len() != Self::BYTES {
            let needed = Self::BYTES as u64;
            return Err(DecodeError::Length { kind: KIND, needed, received: body.len() });
        }
        Ok(Self {
            subscription: body.get_u32_le(),
            messages: body.get_u32_le(),
            bytes: body.get_u64_le(),
        })
    }
}
