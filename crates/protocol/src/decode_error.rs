//! Decode errors: the frame, the field and the allowed values.

use sennit_model::BatchError;

use crate::{error_code::ErrorCode, kind::Kind};

/// The reason why bytes are not a frame.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DecodeError {
    /// The connection does not begin with the preface of this protocol.
    #[error("the connection begins with {received:02x?}, not with the preface of this protocol")]
    Preface {
        /// The received bytes.
        received: Vec<u8>,
    },
    /// The peer speaks another major version.
    #[error("the peer speaks version {received} of the protocol, this is version {known}")]
    Version {
        /// The peer's version.
        received: u8,
        /// The version of this program.
        known: u8,
    },
    /// A body is longer than the limit in force. Nothing was allocated for it.
    #[error(
        "a frame of kind {kind} announces a body of {size} bytes, the limit in force is {limit}"
    )]
    FrameTooLarge {
        /// The frame's kind, as a number.
        kind: u8,
        /// The length announced, in bytes.
        size: u32,
        /// The limit, in bytes.
        limit: usize,
    },
    /// The reserved bytes of a frame header are not 0.
    #[error("bytes 6 and 7 of a frame header are {value:#06x}; they are 0 in this version")]
    Reserved {
        /// Their value.
        value: u16,
    },
    /// The kind is unknown to this version. The length of the body is known, so the connection can
    /// continue.
    #[error("frame kind {kind} is unknown to this version")]
    UnknownKind {
        /// The kind as received.
        kind: u8,
    },
    /// A flag is unknown to this version.
    #[error("the {kind} frame has flags {flags:#04x}; they are 0 in this version")]
    Flags {
        /// The kind of the frame.
        kind: Kind,
        /// The flags received.
        flags: u8,
    },
    /// Only the other side may send this frame.
    #[error("{kind} is a frame that only the other side sends")]
    Direction {
        /// The kind of the frame.
        kind: Kind,
    },
    /// The length of the body does not match its fields.
    #[error("the body of the {kind} frame has {received} bytes, its fields need {needed}")]
    Length {
        /// The kind of the frame.
        kind: Kind,
        /// The length needed, in bytes.
        needed: u64,
        /// The length given, in bytes.
        received: usize,
    },
    /// A field is out of bounds.
    #[error("{field} of the {kind} frame is {value}, allowed is {allowed}")]
    Field {
        /// The kind of the frame.
        kind: Kind,
        /// The field's name, as the page spells it.
        field: &'static str,
        /// Its value as received.
        value: u64,
        /// The allowed values.
        allowed: &'static str,
    },
    /// A text is not UTF-8.
    #[error("{field} of the {kind} frame is not UTF-8")]
    NotText {
        /// The kind of the frame.
        kind: Kind,
        /// The field's name.
        field: &'static str,
    },
    /// The body does not match the schema.
    #[error("the body of the {kind} frame does not follow the schema: {source}")]
    Control {
        /// The kind of the frame.
        kind: Kind,
        /// Where protobuf stopped.
        source: prost::DecodeError,
    },
    /// The messages are not a batch.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The number of messages differs from the frame's head.
    #[error("the {kind} frame announces {announced} messages and holds {held}")]
    Count {
        /// The kind of the frame.
        kind: Kind,
        /// The count in the frame's head.
        announced: u32,
        /// The number of messages in the frame.
        held: u32,
    },
}

impl DecodeError {
    /// The error code of the server's reply; [`ErrorCode::closes_connection`] says whether the
    /// connection ends.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Preface { .. } => ErrorCode::BadPreface,
            Self::Version { .. } => ErrorCode::UnsupportedVersion,
            Self::FrameTooLarge { .. } => ErrorCode::FrameTooLarge,
            Self::UnknownKind { .. } => ErrorCode::UnknownKind,
            Self::Batch(_) | Self::Count { .. } => ErrorCode::BatchInvalid,
            Self::Reserved { .. }
            | Self::Flags { .. }
            | Self::Direction { .. }
            | Self::Length { .. }
            | Self::Field { .. }
            | Self::NotText { .. }
            | Self::Control { .. } => ErrorCode::BadFrame,
        }
    }

    /// Returns an error if a body of `given` bytes is shorter than `needed`.
    pub(crate) fn require(kind: Kind, received: usize, needed: usize) -> Result<(), Self> {
        if received < needed {
            return Err(Self::Length { kind, needed: needed as u64, received });
        }
        Ok(())
    }

    /// Returns an error if padding or a reserved field is not 0.
    pub(crate) fn require_zero(kind: Kind, field: &'static str, value: u64) -> Result<(), Self> {
        if value != 0 {
            return Err(Self::Field { kind, field, value, allowed: "0" });
        }
        Ok(())
    }

    /// Returns an error if `count` numbers from `first` exceed 64 bits.
    pub(crate) fn require_range(
        kind: Kind,
        field: &'static str,
        first: u64,
        count: impl Into<u64>,
    ) -> Result<(), Self> {
        if first.checked_add(count.into()).is_none() {
            let allowed = "a number that still fits 64 bits after count is added";
            return Err(Self::Field { kind, field, value: first, allowed });
        }
        Ok(())
    }
}
