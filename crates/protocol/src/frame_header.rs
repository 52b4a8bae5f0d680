//! The 16 bytes before every body. It does not know what bodies hold.
//!
//! ```text
//! offset size
//!      0    4  size      of the body, in bytes; these 16 are not counted
//!      4    1  kind
//!      5    1  flags     0 in this version
//!      6    2  reserved, 0
//!      8    8  request   the number the asker gave, repeated by replies; 0 for none
//! ```

use bytes::BufMut;

use crate::{decode_error::DecodeError, kind::Kind};

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Length of the body in bytes.
    pub size: u32,
    /// The number of a [`Kind`]; this version may not know it.
    pub kind: u8,
    /// 0 in this version.
    pub flags: u8,
    /// The number of the request, which replies repeat; 0 for none.
    pub request: u64,
}

impl FrameHeader {
    /// Its length, in bytes.
    pub const BYTES: usize = 16;

    /// The header of a body of `body_bytes` bytes.
    ///
    /// # Panics
    /// When the body has 4 GiB or more, far beyond every limit.
    #[must_use]
    pub fn new(kind: Kind, body_bytes: usize, request: u64) -> Self {
        let size = u32::try_from(body_bytes).expect("a body is shorter than 4 GiB");
        Self { size, kind: kind as u8, flags: 0, request }
    }

    /// Appends the header to `out`, which must have room or grow.
    pub fn encode(&self, out: &mut impl BufMut) {
        out.put_u32_le(self.size);
        out.put_u8(self.kind);
        out.put_u8(self.flags);
        out.put_u16_le(0);
        out.put_u64_le(self.request);
    }

    /// Reads a header. [`crate::FrameReader`] checks the size.
    ///
    /// # Errors
    /// [`DecodeError::Reserved`] when the reserved bytes are not 0.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Result<Self, DecodeError> {
        let [s0, s1, s2, s3, kind, flags, r0, r1, request @ ..] = *bytes;
        let reserved = u16::from_le_bytes([r0, r1]);
        if reserved != 0 {
            return Err(DecodeError::Reserved { value: reserved });
        }
        Ok(Self {
            size: u32::from_le_bytes([s0, s1, s2, s3]),
            kind,
            flags,
            request: u64::from_le_bytes(request),
        })
    }

    /// The kind, if this version knows it and the flags.
    ///
    /// # Errors
    /// [`DecodeError::UnknownKind`] or [`DecodeError::Flags`].
    pub fn known_kind(&self) -> Result<Kind, DecodeError> {
        let kind =
            Kind::of_number(self.kind).ok_or(DecodeError::UnknownKind { kind: self.kind })?;
        if self.flags != 0 {
            return Err(DecodeError::Flags { kind, flags: self.flags });
        }
        Ok(kind)
    }
}
