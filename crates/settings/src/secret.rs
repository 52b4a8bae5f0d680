//! A secret that a file holds: how it is read is an argument.

use std::path::Path;

/// A secret as it was read.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText {
    /// The secret, without the newline behind it.
    pub text: String,
    /// What should be otherwise, though the secret was read: others may read its file too.
    pub warning: Option<String>,
}

impl std::fmt::Debug for SecretText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecretText").field("warning", &self.warning).finish_non_exhaustive()
    }
}

/// Reads the secret that a file holds. Its errors say why it cannot be read.
pub type ReadSecret<'a> = &'a dyn Fn(&Path) -> Result<SecretText, String>;
