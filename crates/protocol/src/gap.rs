//! The gap frame: messages of one partition that a subscription does not receive, and the reason.

use bytes::{Buf, BufMut, Bytes};
use sennit_model::{Offset, OffsetRange, PartitionIndex};

use crate::{decode_error::DecodeError, frame_header::FrameHeader, kind::Kind};

const KIND: Kind = Kind::Gap;

/// The reason why a subscription does not receive messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum GapReason {
    /// The messages exist and cannot be read.
    Damaged,
    /// The journal has lost a part that may have held them. Some of the offsets may never have been
    /// messages of this partition.
    Lost,
    /// The messages were freed by the topic's retention, or every group has settled them.
    Retention,
    /// The messages were delivered before they were durable, and were lost. The range may begin
    /// before the subscription's next offset.
    RolledBack,
    /// The reader's filter has skipped them. A reader moves its position and does not report them
    /// to the program.
    Filtered,
    /// The reader has fallen behind and continues with the newest message.
    Skipped,
    /// The messages were superseded by later ones of their keys, or were tombstones, and compaction
    /// has freed them. A reader moves its position and does not report them to the program.
    Compacted,
    /// The number of a reason that only a newer server knows.
    Unknown(u8),
}

impl GapReason {
    /// The reason with this number; `None` for 0.
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

    /// The number on the wire.
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

    /// The name on the page; `unknown` for a reason that this version does not know.
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

/// Messages that a subscription does not receive. A gap costs no credit and is not settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The subscription of the connection.
    pub subscription: u32,
    /// The partition of its topic.
    pub partition: PartitionIndex,
    /// The offsets; at least one.
    pub offsets: OffsetRange,
    /// The reason.
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
            return Err(DecodeError::Length { kind: KIND, needed, received: body.len() });
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
