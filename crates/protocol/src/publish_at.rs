//! The conditional publish and its answer: a batch that is appended at one offset or not at all.

use bytes::{Buf, BufMut, Bytes};
use sennit_model::Offset;

use crate::{
    decode_error::DecodeError,
    frame_header::FrameHeader,
    kind::Kind,
    publish::{Publish, PublishHead},
};

/// A batch that is appended if the partition's next offset is `expected`, and refused otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishAt {
    /// The offset of its first message.
    pub expected: Offset,
    /// The batch, its partition and its producer.
    pub publish: Publish,
}

impl PublishAt {
    /// The encoded length of the part before the batch, in bytes.
    pub const HEAD_BYTES: usize = size_of::<u64>() + PublishHead::BYTES;

    /// Appends the frame to `out`, which must have room or grow.
    pub fn encode(&self, request: u64, out: &mut impl BufMut) {
        let Publish { head, batch } = &self.publish;
        let bytes = Self::HEAD_BYTES + batch.len();
        FrameHeader::new(Kind::PublishAt, bytes, request).encode(out);
        out.put_u64_le(self.expected.0);
        head.encode_body(out);
        out.put_slice(batch);
    }

    /// Reads the body. The batch shares its memory and is not checked.
    ///
    /// # Errors
    /// As [`Publish::decode`].
    pub fn decode(mut body: Bytes) -> Result<Self, DecodeError> {
        DecodeError::require(Kind::PublishAt, body.len(), Self::HEAD_BYTES)?;
        let expected = Offset(body.get_u64_le());
        Ok(Self { expected, publish: Publish::decode(body)? })
    }
}

/// The answer: the batch is committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublishedAt {
    /// The offset of its first message.
    pub first: Offset,
    /// The number of messages.
    pub count: u32,
}

impl PublishedAt {
    /// Length of the body, in bytes.
    pub const BYTES: usize = 16;

    /// Appends the frame to `out`, which must have room or grow.
    pub fn encode(&self, request: u64, out: &mut impl BufMut) {
        FrameHeader::new(Kind::PublishedAt, Self::BYTES, request).encode(out);
        out.put_u64_le(self.first.0);
        out.put_u32_le(self.count);
        out.put_u32_le(0);
    }

    /// Reads the body.
    ///
    /// # Errors
    /// [`DecodeError::Length`] unless it has exactly 16 bytes, [`DecodeError::Field`] where offsets
    /// would overflow or for padding that is not 0.
    pub fn decode(mut body: Bytes) -> Result<Self, DecodeError> {
        const KIND: Kind = Kind::PublishedAt;
        if body.len() != Self::BYTES {
            let needed = Self::BYTES as u64;
            return Err(DecodeError::Length { kind: KIND, needed, received: body.len() });
        }
        let (first, count) = (body.get_u64_le(), body.get_u32_le());
        DecodeError::require_range(KIND, "first", first, count)?;
        DecodeError::require_zero(KIND, "padding", body.get_u32_le().into())?;
        Ok(Self { first: Offset(first), count })
    }
}
