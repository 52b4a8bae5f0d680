//! The reasons why bytes in the journal are not a record of this version.

use sennit_model::{BatchError, ConfigError, NameError};

/// Why bytes are no record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The kind is unknown: the journal was written by a newer program.
    #[error("record kind {kind} is not known to this version")]
    Kind {
        /// The kind.
        kind: u8,
    },
    /// The bytes end too early or too late.
    #[error("a record of kind {kind} does not end where its fields end")]
    Length {
        /// The kind.
        kind: u8,
    },
    /// A field has a value that it cannot have.
    #[error("{field} of a record of kind {kind} cannot be {value}")]
    Field {
        /// The kind.
        kind: u8,
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// A name is not one.
    #[error("a record of kind {kind}: {error}")]
    Name {
        /// The kind.
        kind: u8,
        /// The problem.
        error: NameError,
    },
    /// Text is not UTF-8.
    #[error("text in a record of kind {kind} is not UTF-8")]
    Text {
        /// The kind.
        kind: u8,
    },
    /// The settings are out of bounds.
    #[error("a record of kind {kind}: {error}")]
    Config {
        /// The kind.
        kind: u8,
        /// The problem.
        error: ConfigError,
    },
    /// The batch is not one.
    #[error("a record of kind {kind}: {error}")]
    Batch {
        /// The kind.
        kind: u8,
        /// The problem.
        error: BatchError,
    },
}
