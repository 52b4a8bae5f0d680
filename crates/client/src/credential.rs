//! The credentials that a client shows to a broker.

use std::fmt;

/// The credentials that a client shows. Debug shows no secret.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Credential {
    /// An API key: `sennit_ID_SECRET`.
    Key(String),
    /// The name of a user, and the password.
    Password {
        /// The name.
        user: String,
        /// The password.
        password: String,
    },
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(_) => f.write_str("Key(..)"),
            Self::Password { user, .. } => write!(f, "Password({user:?}, ..)"),
        }
    }
}
