//! Why bytes of a client are no message. It repeats nothing of them: there may be secrets.

use crate::list::LIST_MAX;

/// The fault of a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// It is compressed, encrypted or MessagePack.
    #[error("a message is JSON: {0} is not served")]
    Form(&'static str),
    /// It is not JSON of the protocol.
    #[error("a message is an object of JSON with its type in `t`: {0}")]
    Json(String),
    /// It has no type.
    #[error("a message has its type in `t`, a text that is not empty")]
    NoType,
    /// Its payload is not that of its type.
    #[error("the payload of `{kind}`: {fault}")]
    Payload {
        /// The type.
        kind: &'static str,
        /// The fault, and its place.
        fault: String,
    },
    /// A list is too long.
    #[error("a list has at most LIST_MAX entries, which is {LIST_MAX}")]
    TooMany,
}

/// The text of a fault of JSON, without anything of the message.
pub(crate) fn fault(error: &serde_json::Error) -> String {
    use serde_json::error::Category;
    let what = match error.classify() {
        Category::Io | Category::Syntax => "this is not JSON",
        Category::Data => "a field has a value of another kind",
        Category::Eof => "it ends too early",
    };
    format!("{what}, at column {}", error.column())
}
