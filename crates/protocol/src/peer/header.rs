//! The 24 bytes before every frame between nodes. Numbers are little-endian.
//!
//! ```text
//! offset size
//!      0    4  length    of what follows, in bytes; of a body that comes in pieces, all of it counts
//!      4    1  kind
//!      5    1  class     1 to 3
//!      6    2  flags     0 in this version
//!      8    4  group     the group that it concerns; 0 if none
//!     12    8  number    its meaning is the kind's
//!     20    4  checksum  CRC-32C of the 20 bytes before and of the fixed part behind
//! ```

use bytes::BufMut;
use crc_fast::{CrcAlgorithm, Digest};

use super::{
    error::PeerError,
    kind::{Class, PeerKind},
};

/// The header of a frame between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerHeader {
    /// Length of what follows, in bytes; of a body that comes in pieces, all of it counts.
    pub length: u32,
    /// The kind.
    pub kind: PeerKind,
    /// The class.
    pub class: Class,
    /// The group that it concerns; 0 if none.
    pub group: u32,
    /// Its meaning is the kind's.
    pub number: u64,
}

impl PeerHeader {
    /// Its length in bytes.
    pub const BYTES: usize = 24;

    /// Appends the header and the fixed part to `out`, which must have room or grow.
    pub fn encode(&self, fixed: &[u8], out: &mut impl BufMut) {
        let mut head = Vec::with_capacity(Self::BYTES);
        head.put_u32_le(self.length);
        head.put_u8(self.kind as u8);
        head.put_u8(self.class as u8);
        head.put_u16_le(0);
        head.put_u32_le(self.group);
        head.put_u64_le(self.number);
        let checksum = checksum_of(&[&head, fixed]);
        head.put_u32_le(checksum);
        out.put_slice(&head);
        out.put_slice(fixed);
    }

    /// Reads a header and checks what it says; [`PeerHeader::matches`] checks the bytes once the fixed part is there.
    ///
    /// # Errors
    /// [`PeerError::Kind`], [`PeerError::Class`], [`PeerError::Flags`] or [`PeerError::Length`].
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Result<Self, PeerError> {
        let [l0, l1, l2, l3, kind, class, f0, f1, g0, g1, g2, g3, rest @ ..] = *bytes;
        let [n0, n1, n2, n3, n4, n5, n6, n7, ..] = rest;
        let kind = PeerKind::of_number(kind).ok_or(PeerError::Kind { kind })?;
        let known = Class::of_number(class).filter(|class| kind.may_have(*class));
        let class = known.ok_or(PeerError::Class { kind, class })?;
        let flags = u16::from_le_bytes([f0, f1]);
        if flags != 0 {
            return Err(PeerError::Flags { kind, flags });
        }
        let length = u32::from_le_bytes([l0, l1, l2, l3]);
        let (least, most) = kind.lengths(class);
        if !(least..=most).contains(&(length as usize)) {
            return Err(PeerError::Length { kind, length, least, most });
        }
        let group = u32::from_le_bytes([g0, g1, g2, g3]);
        let number = u64::from_le_bytes([n0, n1, n2, n3, n4, n5, n6, n7]);
        Ok(Self { length, kind, class, group, number })
    }

    /// The length of the fixed part in bytes.
    #[must_use]
    pub fn fixed_bytes(&self) -> usize {
        self.kind.fixed_bytes(self.length as usize)
    }

    /// The length of the body in bytes, pieces included.
    #[must_use]
    pub fn body_bytes(&self) -> usize {
        self.length as usize - self.fixed_bytes()
    }

    /// Checks the header, as its bytes came, and the fixed part against the checksum.
    ///
    /// # Errors
    /// [`PeerError::HeadChecksum`].
    pub fn matches(&self, bytes: &[u8; Self::BYTES], fixed: &[u8]) -> Result<(), PeerError> {
        let [head @ .., c0, c1, c2, c3] = bytes;
        match checksum_of(&[head, fixed]) == u32::from_le_bytes([*c0, *c1, *c2, *c3]) {
            true => Ok(()),
            false => Err(PeerError::HeadChecksum { kind: self.kind }),
        }
    }
}

/// The CRC-32C of the parts, one behind the other.
pub(super) fn checksum_of(parts: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    parts.iter().for_each(|part| digest.update(part));
    digest.finalize() as u32
}
