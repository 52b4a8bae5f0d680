//! What is told of the configuration: entries, and their changes.

use bytes::Bytes;
use sennit_model::ConfigurationKey;

use crate::error::Error;

/// An entry of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigurationEntry {
    /// Its key.
    pub key: ConfigurationKey,
    /// The revision of its last change.
    pub revision: u64,
    /// Its value.
    pub value: Bytes,
}

/// What a watch tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigurationEvent {
    /// All entries that there are, in no order: what is not among them is not there. A watch that was started
    /// without a revision begins with it. It comes again, instead of the changes, when the watch was so far
    /// behind that the broker did not remember them, or when the broker has started anew.
    All {
        /// The entries.
        entries: Vec<ConfigurationEntry>,
        /// The revision of the configuration at that moment.
        revision: u64,
    },
    /// Some entries were changed, in this order.
    Changes {
        /// The changes.
        changes: Vec<ConfigurationChange>,
        /// All changes up to this revision were told.
        revision: u64,
    },
}

impl ConfigurationEvent {
    /// The revision up to which all is told. A watch that is started after it goes on there.
    #[must_use]
    pub fn revision(&self) -> u64 {
        match self {
            Self::All { revision, .. } | Self::Changes { revision, .. } => *revision,
        }
    }
}

/// A change of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigurationChange {
    /// The entry's key.
    pub key: ConfigurationKey,
    /// The revision of the change.
    pub revision: u64,
    /// The entry's value from then on; `None` if it was deleted.
    pub value: Option<Bytes>,
}

/// An event, or why no more come.
pub(crate) type Event = Result<ConfigurationEvent, Error>;

/// A key that the broker has sent.
pub(crate) fn checked(key: &str) -> Result<ConfigurationKey, Error> {
    key.parse().map_err(|error| Error::Unexpected(format!("{error}")))
}
