//! Why bytes from another node are no command and no effect of this version.

use sennit_model::{BatchError, ConfigError, FilterError, NameError};

use crate::record_error::RecordError;

/// Why bytes are no command, or no effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The kind is unknown: a newer program has sent it.
    #[error("kind {kind} is not known to this version")]
    Kind {
        /// The kind.
        kind: u8,
    },
    /// The bytes end before the kind, the lengths or what they announce.
    #[error("the bytes end after {found}, {expected} were announced")]
    Short {
        /// The bytes that are there.
        found: u64,
        /// The bytes that would be needed.
        expected: u64,
    },
    /// It is longer than allowed.
    #[error("{found} bytes of kind {kind}: {limit} is {value}")]
    TooLong {
        /// The kind.
        kind: u8,
        /// The limit's name.
        limit: &'static str,
        /// Its value.
        value: u64,
        /// The bytes that are announced.
        found: u64,
    },
    /// Fields or payloads are longer than their part.
    #[error("kind {kind} ends before its fields do")]
    Length {
        /// The kind.
        kind: u8,
    },
    /// A field has a value that it cannot have.
    #[error("{field} of kind {kind} cannot be {value}")]
    Field {
        /// The kind.
        kind: u8,
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// A name is not one.
    #[error("kind {kind}: {error}")]
    Name {
        /// The kind.
        kind: u8,
        /// The problem.
        error: NameError,
    },
    /// Text is not UTF-8.
    #[error("text of kind {kind} is not UTF-8")]
    Text {
        /// The kind.
        kind: u8,
    },
    /// Settings are out of bounds.
    #[error("kind {kind}: {error}")]
    Config {
        /// The kind.
        kind: u8,
        /// The problem.
        error: ConfigError,
    },
    /// A filter is not one.
    #[error("kind {kind}: {error}")]
    Filter {
        /// The kind.
        kind: u8,
        /// The problem.
        error: FilterError,
    },
    /// A batch is not one.
    #[error("kind {kind}: {error}")]
    Batch {
        /// The kind.
        kind: u8,
        /// The problem.
        error: BatchError,
    },
}

/// Fields that records have too are read by the same functions.
impl From<RecordError> for DecodeError {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Kind { kind } => Self::Kind { kind },
            RecordError::Length { kind } => Self::Length { kind },
            RecordError::Field { kind, field, value } => Self::Field { kind, field, value },
            RecordError::Name { kind, error } => Self::Name { kind, error },
            RecordError::Text { kind } => Self::Text { kind },
            RecordError::Config { kind, error } => Self::Config { kind, error },
            RecordError::Batch { kind, error } => Self::Batch { kind, error },
        }
    }
}
