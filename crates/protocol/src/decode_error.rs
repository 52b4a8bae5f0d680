//! Why bytes are no frame: what was wrong where, and what would be right.

use sennit_model::BatchError;

use crate::{error_code::ErrorCode, kind::Kind};

/// Why bytes are no frame.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DecodeError {
    /// The connection does not begin as this protocol does.
    #[error("the connection begins with {given:02x?}, not with the preface of this protocol")]
    Preface {
        /// The bytes given, as far as they had come.
        given: Vec<u8>,
    },
    /// The peer speaks another major version.
    #[error("the peer speaks version {given} of the protocol, this is version {known}")]
    Version {
        /// The version given.
        given: u8,
        /// The version spoken here.
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
    /// The kind is none that this version knows. The body's length is known, so the connection
    /// can go on.
    #[error("frame kind {kind} is unknown to this version")]
    UnknownKind {
        /// The kind as given.
        kind: u8,
    },
    /// The frame has flags that this version does not know.
    #[error("the {kind} frame has flags {flags:#04x}; they are 0 in this version")]
    Flags {
        /// What the frame is.
        kind: Kind,
        /// The flags given.
        flags: u8,
    },
    /// The frame is one that only the other side sends.
    #[error("{kind} is a frame that only the other side sends")]
    Direction {
        /// What the frame is.
        kind: Kind,
    },
    /// The body has not the length its fields need.
    #[error("the body of the {kind} frame has {given} bytes, its fields need {needed}")]
    Length {
        /// What the frame is.
        kind: Kind,
        /// The length needed, in bytes.
        needed: u64,
        /// The length given, in bytes.
        given: usize,
    },
    /// A field is out of bounds.
    #[error("{field} of the {kind} frame is {value}, allowed is {allowed}")]
    Field {
        /// What the frame is.
        kind: Kind,
        /// The field's name, as the page spells it.
        field: &'static str,
        /// Its value as given.
        value: u64,
        /// What would be right.
        allowed: &'static str,
    },
    /// A text is not UTF-8.
    #[error("{field} of the {kind} frame is not UTF-8")]
    NotText {
        /// What the frame is.
        kind: Kind,
        /// The field's name.
        field: &'static str,
    },
    /// A control body is not what the schema says.
    #[error("the body of the {kind} frame does not follow the schema: {source}")]
    Control {
        /// What the frame is.
        kind: Kind,
        /// Where protobuf stopped.
        source: prost::DecodeError,
    },
    /// The messages are no batch.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The frame's count is not that of its messages.
    #[error("the {kind} frame announces {announced} messages and holds {held}")]
    Count {
        /// What the frame is.
        kind: Kind,
        /// The count in the frame's head.
        announced: u32,
        /// How many messages there are.
        held: u32,
    },
}

impl DecodeError {
    /// The code a server answers with; [`ErrorCode::closes_connection`] says whether it may go on.
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

    /// Errs unless a body of `given` bytes has at least the `needed` ones.
    pub(crate) fn require(kind: Kind, given: usize, needed: usize) -> Result<(), Self> {
        if given < needed {
            return Err(Self::Length { kind, needed: needed as u64, given });
        }
        Ok(())
    }

    /// Errs unless padding or a reserved field is 0.
    pub(crate) fn require_zero(kind: Kind, field: &'static str, value: u64) -> Result<(), Self> {
        if value != 0 {
            return Err(Self::Field { kind, field, value, allowed: "0" });
        }
        Ok(())
    }

    /// Errs unless `count` numbers from `first` on fit 64 bits.
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
