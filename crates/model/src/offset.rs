//! A message's number in its partition, and half-open ranges of such numbers.

use std::fmt;

/// A message's number in its partition: dense, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(pub u64);

impl Offset {
    /// The first offset of every partition.
    pub const ZERO: Self = Self(0);

    /// The offset `count` places later. A partition never reaches 2^64 messages.
    #[must_use]
    pub fn plus(self, count: u64) -> Self {
        Self(self.0 + count)
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A half-open range of offsets, `start..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OffsetRange {
    /// The first offset inside.
    pub start: Offset,
    /// The first offset outside, at or after `start`.
    pub end: Offset,
}

impl OffsetRange {
    /// The range of `count` offsets from `first`.
    #[must_use]
    pub fn new(first: Offset, count: u64) -> Self {
        Self { start: first, end: first.plus(count) }
    }

    /// How many offsets lie inside.
    #[must_use]
    pub fn count(self) -> u64 {
        self.end.0 - self.start.0
    }

    /// Whether no offset lies inside.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// Whether `offset` lies inside.
    #[must_use]
    pub fn contains(self, offset: Offset) -> bool {
        self.start <= offset && offset < self.end
    }
}

impl fmt::Display for OffsetRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}
