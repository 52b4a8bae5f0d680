//! The kinds of frames (RFC 6455, section 5.2).

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// The next part of a message that an earlier frame began.
    Continuation = 0,
    /// A message in UTF-8, or its first part.
    Text = 1,
    /// A message of any bytes, or its first part.
    Binary = 2,
    /// The sender sends nothing more.
    Close = 8,
    /// Asks for a pong with the same payload.
    Ping = 9,
    /// Answers a ping.
    Pong = 10,
}

impl Opcode {
    /// The kind with this number, unless it is reserved.
    #[must_use]
    pub const fn of(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Continuation,
            1 => Self::Text,
            2 => Self::Binary,
            8 => Self::Close,
            9 => Self::Ping,
            10 => Self::Pong,
            _ => return None,
        })
    }

    /// Whether it is a control frame: short, whole, and allowed between the parts of a message.
    #[must_use]
    pub const fn is_control(self) -> bool {
        self as u8 >= Self::Close as u8
    }
}
