//! The number that says why a connection ends (RFC 6455, section 7.4, and the registry of IANA).

use std::fmt;

/// Why a connection ends: a code that may lie in a close frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CloseCode(u16);

impl CloseCode {
    /// The purpose of the connection is fulfilled.
    pub const NORMAL: Self = Self(1000);
    /// The server goes down, or the page was left.
    pub const GOING_AWAY: Self = Self(1001);
    /// The other end broke the protocol.
    pub const PROTOCOL_ERROR: Self = Self(1002);
    /// The other end sent a kind of message that is not taken here.
    pub const UNSUPPORTED: Self = Self(1003);
    /// The content of a message is not what its kind promises: text that is not UTF-8.
    pub const INVALID_PAYLOAD: Self = Self(1007);
    /// A message breaks a rule of the receiver's.
    pub const POLICY_VIOLATION: Self = Self(1008);
    /// A message is too large.
    pub const TOO_LARGE: Self = Self(1009);
    /// The client misses an extension in the server's answer.
    pub const MISSING_EXTENSION: Self = Self(1010);
    /// The server cannot go on.
    pub const INTERNAL_ERROR: Self = Self(1011);
    /// The server restarts: connect again, after a random while.
    pub const SERVICE_RESTART: Self = Self(1012);
    /// The server is overloaded.
    pub const TRY_AGAIN_LATER: Self = Self(1013);

    /// The code with this number, if a frame may carry it: those of the registry that are not reserved (1004, 1005, 1006
    /// and 1015 are), and 3000 to 4999, which belong to libraries and applications.
    #[must_use]
    pub const fn of(number: u16) -> Option<Self> {
        match number {
            1000..=1003 | 1007..=1014 | 3000..=4999 => Some(Self(number)),
            _ => None,
        }
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }
}

impl fmt::Display for CloseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for CloseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CloseCode({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::CloseCode;

    #[test]
    fn reserved_and_unknown_codes_lie_in_no_frame() {
        for number in [0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, u16::MAX] {
            assert_eq!(CloseCode::of(number), None, "{number}");
        }
    }

    #[test]
    fn codes_of_the_registry_and_of_applications_do() {
        for number in [1000, 1001, 1002, 1003, 1007, 1010, 1011, 1012, 1014, 3000, 3999, 4000, 4999]
        {
            assert_eq!(CloseCode::of(number).map(CloseCode::number), Some(number));
        }
    }
}
