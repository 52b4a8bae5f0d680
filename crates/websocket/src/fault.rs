//! What is wrong with the bytes of a peer. A connection ends with the first fault.

use crate::{
    close_code::CloseCode,
    inflater::InflateFault,
    limits::{CLOSE_REASON_BYTES_MAX, CONTROL_BYTES_MAX, DEFLATE_STREAMS_MAX},
};

/// Why nothing more of a connection is decoded. Its text may be the reason of the close.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A reserved opcode.
    #[error("opcode {0} is reserved: send 0, 1, 2, 8, 9 or 10")]
    ReservedOpcode(u8),
    /// A bit that belongs to an extension that was not negotiated, or a compressed frame that is not the first of a
    /// message.
    #[error("a reserved bit is set, and no extension gives it a meaning in this frame")]
    ReservedBit,
    /// A control frame in parts.
    #[error("a control frame may not be fragmented")]
    FragmentedControl,
    /// A control frame that is too long.
    #[error("a control frame may have {CONTROL_BYTES_MAX} bytes at most")]
    ControlTooLong,
    /// A client's frame without a mask.
    #[error("a client masks its frames")]
    NotMasked,
    /// A server's frame with a mask.
    #[error("a server does not mask its frames")]
    Masked,
    /// A length in more bytes than it needs.
    #[error("a length takes as few bytes as it fits in")]
    LengthNotMinimal,
    /// A length with its highest bit set.
    #[error("a length is below 2^63")]
    LengthTooLarge,
    /// A continuation that continues nothing.
    #[error("a continuation frame comes without a message to continue")]
    NothingToContinue,
    /// A message that begins before the last one has ended.
    #[error("a message begins before the last fragment of the one before")]
    MessageUnfinished,
    /// A close whose payload has one byte.
    #[error(
        "a close has no payload, or a code of two bytes and a reason of {CLOSE_REASON_BYTES_MAX}"
    )]
    CloseOfOneByte,
    /// A close with a code that may not be sent.
    #[error("close code {0} may not be sent")]
    CloseCode(u16),
    /// Text, or the reason of a close, that is not UTF-8.
    #[error("text is not UTF-8")]
    NotUtf8,
    /// A message that is larger than the receiver's limit, as sent or when inflated.
    #[error("a message may have {bytes_max} bytes at most")]
    MessageTooLarge {
        /// The limit.
        bytes_max: usize,
    },
    /// Compressed content that cannot be inflated.
    #[error("compressed content is not DEFLATE, or has more than {DEFLATE_STREAMS_MAX} streams")]
    NotDeflate,
}

impl Fault {
    /// The code with which the connection is closed.
    #[must_use]
    pub const fn close_code(&self) -> CloseCode {
        match self {
            Self::NotUtf8 | Self::NotDeflate => CloseCode::INVALID_PAYLOAD,
            Self::MessageTooLarge { .. } => CloseCode::TOO_LARGE,
            _ => CloseCode::PROTOCOL_ERROR,
        }
    }
}

impl From<InflateFault> for Fault {
    fn from(fault: InflateFault) -> Self {
        match fault {
            InflateFault::TooLarge { bytes_max } => Self::MessageTooLarge { bytes_max },
            InflateFault::NotDeflate => Self::NotDeflate,
        }
    }
}
