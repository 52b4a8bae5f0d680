//! The requests to the configuration, its answers and refusals, in the broker's own types. It knows no protocol.

use bytes::Bytes;
use sennit_model::{
    ConfigurationKey, ConfigurationKeyError, HOOK_KEY_PREFIX, IDENTITY_KEY_PREFIX, ThrottleError,
    limits::{
        CONFIGURATION_BYTES_MAX, CONFIGURATION_ENTRIES_MAX, CONFIGURATION_VALUE_BYTES_MAX,
        CONFIGURATION_WAITING_BYTES_MAX, THROTTLE_RULES_MAX,
    },
};

use crate::broker::control_request::ControlRefusal;

/// A request. Each variant says its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConfigurationRequest {
    /// Finds one entry. [`ConfigurationAnswer::Entry`].
    Get { key: ConfigurationKey },
    /// Lists a page of the entries whose keys begin with a prefix, by key.
    /// [`ConfigurationAnswer::Page`].
    List(ListEntries),
    /// Changes one entry. [`ConfigurationAnswer::Changed`], once that is durable, and each core has it.
    Write(Write),
}

/// Bytes that are counted for an entry beside its key and value: no fewer than a protocol needs for it.
pub(crate) const ENTRY_BYTES: usize = 32;

/// A page of entries, by key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListEntries {
    pub(crate) prefix: String,
    /// The page begins behind this text, which need not be a key; empty for the first page.
    pub(crate) after: String,
    /// The most entries on the page, at least 1.
    pub(crate) entries_max: usize,
    /// The most bytes of the page, as [`ENTRY_BYTES`] counts them, unless the first entry has more.
    pub(crate) bytes_max: usize,
}

/// A change of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) key: ConfigurationKey,
    /// The value to set; `None` to delete the entry.
    pub(crate) value: Option<Bytes>,
    /// The revision that the entry must have; 0 if there must be none.
    pub(crate) if_revision: Option<u64>,
    /// The revision that the authority must have, whose directory was the ground of this change.
    pub(crate) if_authority: Option<u64>,
}

impl Write {
    /// Bytes of its key and value.
    pub(crate) fn bytes(&self) -> usize {
        self.key.as_str().len() + self.value.as_ref().map_or(0, Bytes::len)
    }
}

/// An entry as it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ToldEntry {
    pub(crate) key: ConfigurationKey,
    pub(crate) revision: u64,
    pub(crate) value: Bytes,
}

impl ToldEntry {
    /// Bytes that are counted for it.
    pub(crate) fn bytes(&self) -> usize {
        self.key.as_str().len() + self.value.len() + ENTRY_BYTES
    }
}

/// The answer to a request that was not refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConfigurationAnswer {
    /// The entry, if there is one, and the revision of the configuration.
    Entry { entry: Option<ToldEntry>, revision: u64 },
    /// A page of entries.
    Page {
        entries: Vec<ToldEntry>,
        /// Whether others follow.
        more: bool,
        /// The revision of the configuration.
        revision: u64,
    },
    /// The entry is as was asked.
    Changed {
        /// The revision of the change; that of the configuration if nothing had to be changed.
        revision: u64,
        /// Whether there was an entry before.
        existed: bool,
    },
}

/// Why a request was refused. A refusal changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConfigurationRefusal {
    /// The key is none.
    #[error(transparent)]
    Key(#[from] ConfigurationKeyError),
    /// The entry is part of a hook.
    #[error("keys that begin with {HOOK_KEY_PREFIX} are those of hooks: use `sennit hook`")]
    OfHooks,
    /// The entry is about who may do what.
    #[error(
        "keys that begin with {IDENTITY_KEY_PREFIX} are those of keys, users, roles and tenants: use `sennit auth`"
    )]
    OfIdentity,
    /// The value is too long.
    #[error(
        "the value has {0} bytes: CONFIGURATION_VALUE_BYTES_MAX is {CONFIGURATION_VALUE_BYTES_MAX}"
    )]
    ValueTooLong(usize),
    /// The key names a throttle rule, and its pattern or value is none.
    #[error(transparent)]
    Throttle(#[from] ThrottleError),
    /// There would be too many throttle rules.
    #[error("THROTTLE_RULES_MAX is {THROTTLE_RULES_MAX}: delete one first")]
    TooManyThrottles,
    /// There would be too many entries.
    #[error("CONFIGURATION_ENTRIES_MAX is {CONFIGURATION_ENTRIES_MAX}: delete one first")]
    TooManyEntries,
    /// All of it would be too large.
    #[error(
        "CONFIGURATION_BYTES_MAX is {CONFIGURATION_BYTES_MAX}, and the configuration would have {0} bytes"
    )]
    TooManyBytes(usize),
    /// The entry has another revision than was expected.
    #[error("{}", revision_mismatch(.expected, .found))]
    Revision {
        expected: u64,
        /// 0 if there is no entry.
        found: u64,
    },
    /// The directory has changed since this was decided.
    #[error("keys, users, roles or tenants have changed meanwhile")]
    OtherDirectory,
    /// Too many changes wait for the disk.
    #[error(
        "CONFIGURATION_WAITING_BYTES_MAX is {CONFIGURATION_WAITING_BYTES_MAX}: the disk is slower than the changes"
    )]
    Busy,
    /// The change could not be kept.
    #[error("{0}")]
    Broker(Box<ControlRefusal>),
    /// The configuration could not be read when the broker started.
    #[error("the configuration could not be read when the broker started: see its log")]
    Unreadable,
}

fn revision_mismatch(expected: &u64, found: &u64) -> String {
    match (expected, found) {
        (0, found) => format!("there is an entry already, of revision {found}"),
        (expected, 0) => format!("there is no entry, expected was one of revision {expected}"),
        (expected, found) => format!("the entry has revision {found}, expected was {expected}"),
    }
}
