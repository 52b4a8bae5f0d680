//! A place in a lane's endless log.

use std::fmt;

/// A byte in a lane's log: the segment's number times the length of a segment, and the byte within
/// the segment. Grows with every frame; the same place is never used twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

impl Position {
    /// Which segment of `segment_bytes` it lies in.
    #[must_use]
    pub fn segment(self, segment_bytes: u64) -> u64 {
        self.0 / segment_bytes
    }

    /// The byte within that segment.
    #[must_use]
    pub fn in_segment(self, segment_bytes: u64) -> u64 {
        self.0 % segment_bytes
    }

    /// The place `bytes` later.
    #[must_use]
    pub fn plus(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
