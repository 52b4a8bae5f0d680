//! How far back compressed content refers to (RFC 7692, section 7.1.2): the window of DEFLATE.

use std::fmt;

/// The binary logarithm of a window, 8 to 15.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WindowBits(u8);

impl WindowBits {
    /// 32 KiB: the largest, which an end has that asks for no other.
    pub const MAX: Self = Self(15);

    /// The window with this many bits, 8 to 15.
    #[must_use]
    pub const fn of(bits: u8) -> Option<Self> {
        if bits >= 8 && bits <= 15 { Some(Self(bits)) } else { None }
    }

    /// Its bits.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether a message of `bytes` cannot refer back beyond this window, however it is compressed: it has no context, so
    /// its references end at its own first byte. A frame with such a message serves every connection whose window covers
    /// it.
    #[must_use]
    pub const fn covers(self, bytes: usize) -> bool {
        bytes <= 1 << self.0
    }
}

impl Default for WindowBits {
    fn default() -> Self {
        Self::MAX
    }
}

impl fmt::Display for WindowBits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
