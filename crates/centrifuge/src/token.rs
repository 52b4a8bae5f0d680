//! A secret text of a client. Its `Debug` form does not show it.

use std::fmt;

/// A token, or the value of a header.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Token(pub String);

impl Token {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<&str> for Token {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(if self.0.is_empty() { "Token(none)" } else { "Token(hidden)" })
    }
}
