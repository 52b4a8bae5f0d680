//! The position of a record: in a lane's endless log, or in a pack.

use std::fmt;

/// Set in the position of a byte in a pack. Behind it come 31 bits for the number of the pack, and
/// 32 bits for the byte.
const PACK_BIT: u64 = 1 << 63;

/// A byte in a lane's log, below 2^63: the segment's number times the length of a segment, plus the
/// byte within the segment. It grows with every frame, and no position is used twice. Or a byte in
/// a pack: [`Position::of_pack`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

impl Position {
    /// The highest number a pack can have.
    pub const PACK_MAX: u32 = (1 << 31) - 1;

    /// The byte `byte` of the pack `pack`.
    ///
    /// # Panics
    /// If `pack` is above [`Position::PACK_MAX`].
    #[must_use]
    pub fn of_pack(pack: u32, byte: u32) -> Self {
        assert!(pack <= Self::PACK_MAX, "pack {pack} is above the highest");
        Self(PACK_BIT | u64::from(pack) << 32 | u64::from(byte))
    }

    /// The number of its pack, and the byte there; `None` for a position in the lane.
    #[must_use]
    pub fn pack(self) -> Option<(u32, u32)> {
        // Each half fits 32 bits once the highest bit is off.
        let rest = self.0 & !PACK_BIT;
        (self.0 & PACK_BIT != 0).then_some(((rest >> 32) as u32, rest as u32))
    }

    /// The number of its segment, for segments of `segment_bytes`. Meaningless for a position in a
    /// pack.
    #[must_use]
    pub fn segment(self, segment_bytes: u64) -> u64 {
        self.0 / segment_bytes
    }

    /// The byte within its segment.
    #[must_use]
    pub fn in_segment(self, segment_bytes: u64) -> u64 {
        self.0 % segment_bytes
    }

    /// The position `bytes` later.
    #[must_use]
    pub fn plus(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pack() {
            Some((pack, byte)) => write!(f, "{byte} of pack {pack}"),
            None => self.0.fmt(f),
        }
    }
}
