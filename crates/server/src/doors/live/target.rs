//! Which live connections are meant: all of them, those of a user, or one. It knows no connections.

use std::fmt;

use super::connection_id::ClientId;
use crate::runtime::{core::Cores, index::CoreIndex};

/// Some live connections, on whichever cores they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// All that are connected.
    All,
    /// Those of a user.
    User(String),
    /// One.
    Connection(ClientId),
}

/// As the audit has it.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::User(user) => write!(f, "user {user}"),
            Self::Connection(id) => write!(f, "connection {id}"),
        }
    }
}

impl Target {
    /// The cores on which they may be.
    pub(crate) fn cores(&self, cores: &Cores) -> Vec<CoreIndex> {
        match self {
            Self::All | Self::User(_) => cores.inboxes.indices().collect(),
            Self::Connection(id) => {
                cores.inboxes.indices().filter(|core| *core == id.core).collect()
            }
        }
    }
}
