//! The gap frame: messages of one partition that a subscription does not get, and why. It does not
//! know who found that out.

use bytes::{Buf, BufMut, Bytes};
use sennit_model::{Offset, OffsetRange, PartitionIndex};

use crate::{decode_error::DecodeError, frame_header::FrameHeader, kind::Kind};

const KIND: Kind = Kind::Gap;

/// Why messages are passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum GapReason {
    /// They are there and cannot be read.
    Damaged,
    /// A part of the journal is gone that may have held them; some of the offsets may never have
    /// been messages of this partition.
    Lost,
    /// They are kept no more: the topic's retention has freed them, or every group has settled them.
    Retention,
    /// They were delivered before they were durable, and are not there any more. The range may begin
    /// before what the subscription gets next.
    RolledBack,
    /// The reader's filter has passed over them. A reader moves its position, and tells nobody.
    Filtered,
    /// The reader has fallen behind, and wants to go on with the newest.
    Skipped,
    /// They are kept no more, and nothing is lost with them: the topic keeps the latest message of each
    /// key, and these were superseded, or tombstones. A reader moves its position, and tells nobody.
    Compacted,
    /// A newer server's reason, by its number, which is none of the above. It is a gap all the same.
    Unknown(u8),
}

impl GapReason {
    /// The reason of this number. 0 is none.
    #[must_use]
    pub fn of_number(number: u8) -> Option<Self> {
        match number {
            0 => None,
            1 => Some(Self::Damaged),
            2 => Some(Self::Lost),
            3 => Some(Self::Retention),
            4 => Some(Self::RolledBack),
            5 => Some(Self::Filtered),
            6 => Some(Self::Skipped),
            7 => Some(Self::Compacted),
            other => Some(Self::Unknown(other)),
        }
    }

    /// Its number on the wire.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Damaged => 1,
            Self::Lost => 2,
            Self::Retention => 3,
            Self::RolledBack => 4,
            Self::Filtered => 5,
            Self::Skipped => 6,
            Self::Compacted => 7,
            Self::Unknown(number) => number,
        }
    }

    /// Its name, as the page spells it; `unknown` for one that this version does not know.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Damaged => "damaged",
            Self::Lost => "lost",
            Self::Retention => "retention",
            Self::RolledBack => "rolled-back",
            Self::Filtered => "filtered",
            Self::Skipped => "skipped",
            Self::Compacted => "compacted",
            Self::Unknown(_) => "unknown",
        }
    }
}

/// Messages that a subscription does not get. It costs no credit and is not settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// For which subscription of the connection.
    pub subscription: u32,
    /// Of which partition of its topic.
    pub partition: PartitionIndex,
    /// Which offsets; at least one.
    pub offsets: OffsetRange,
    /// Why.
    pub reason: GapReason,
}

impl Gap {
    /// Length of the body, in bytes.
    pub const BYTES: usize = 32;

    /// Appends the frame to `out`, which must have room or grow.
    pub fn encode(&self, request: u64, out: &mut impl BufMut) {
        FrameHeader::new(KIND, Self::BYTES, request).encode(out);
        out.put_u32_le(self.subscription);
        out.put_u32_le(self.partition.0);
        out.put_u64_le(self.offsets.start.0);
        out.put_u64_le(self.offsets.count());
        out.put_u8(self.reason.number());
        out.put_bytes(0, 7);
    }

    /// Reads the body.
    ///
    /// # Errors
    /// [`DecodeError::Length`] unless it has exactly 32 bytes, or [`DecodeError::Field`] for the
    /// first field that is out of bounds.
    pub fn decode(mut body: Bytes) -> Result<Self, DecodeError> {
        if body.len() != Self::BYTES {
            let needed = Self::BYTES as u64;
            return Err(DecodeError::Length { kind: KIND, needed, given: body.len() });
        }
        let (subscription, partition) = (body.get_u32_le(), PartitionIndex(body.get_u32_le()));
        let (first, count, number) = (body.get_u64_le(), body.get_u64_le(), body.get_u8());
        let out_of_bounds =
            |field, value, allowed| DecodeError::Field { kind: KIND, field, value, allowed };
        if count == 0 {
            return Err(out_of_bounds("count", count, "1 or more"));
        }
        DecodeError::require_range(KIND, "first_offset", first, count)?;
        let reason = GapReason::of_number(number)
            .ok_or_else(|| out_of_bounds("reason", number.into(), "1 or more"))?;
        DecodeError::require_zero(KIND, "padding", body.get_uint_le(7))?;
        let offsets = OffsetRange::new(Offset(first), count);
        Ok(Self { subscription, partition, offsets, reason })
    }
}
