//! Why bytes from another node are no change of names, and no answer to one.

use sennit_engine::DecodeError;
use sennit_model::{ConfigError, NameError};

/// Why bytes are no change of names, or no answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NameChangeError {
    /// The kind is unknown: a newer program has sent it.
    #[error("kind {0} of a change of names is not known to this version")]
    Kind(u8),
    /// The bytes end before their fields do.
    #[error("a change of names ends before its fields do")]
    Short,
    /// Text is not UTF-8.
    #[error("text of a change of names is not UTF-8")]
    Text,
    /// A field has a value that it cannot have.
    #[error("{field} of a change of names cannot be {value}")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// A name is not one.
    #[error("a change of names: {0}")]
    Name(#[from] NameError),
    /// A setting is out of bounds.
    #[error("a change of names: {0}")]
    Config(#[from] ConfigError),
    /// The changed settings of a group are no request of the native protocol.
    #[error("a change of names holds a request that is none: {0}")]
    Request(#[from] sennit_protocol::DecodeError),
    /// The engine does not know a value in it.
    #[error("a change of names holds {0}")]
    Engine(#[from] DecodeError),
    /// It holds another command or effect of the engine than its kind says.
    #[error("a change of names holds something else than its kind says")]
    Holds,
}
