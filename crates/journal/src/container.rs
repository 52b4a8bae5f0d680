//! The containers of records: segments of the lane, and packs.

use crate::position::Position;

/// A container of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Container {
    /// A segment of the lane, by its number.
    Segment(u64),
    /// A pack, by its number.
    Pack(u32),
}

impl Container {
    /// The container of `position`, for segments of `segment_bytes`.
    #[must_use]
    pub fn of(position: Position, segment_bytes: u64) -> Self {
        match position.pack() {
            Some((pack, _)) => Self::Pack(pack),
            None => Self::Segment(position.segment(segment_bytes)),
        }
    }
}
