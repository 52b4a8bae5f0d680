//! When the API keys of a broker were last used. All cores share it. It knows no place where it is kept.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

use sennit_identity::{ApiKeyId, Directory, LAST_USE_ENTRY_PREFIX, LastUse};
use sennit_model::Timestamp;
use tokio::sync::Notify;

use crate::runtime::clock::now;

/// The last use of each key.
#[derive(Debug, Default)]
pub(crate) struct KeyUses {
    uses: RwLock<HashMap<ApiKeyId, Arc<LastUse>>>,
    /// Rung when a use has to be kept.
    due: Arc<Notify>,
}

/// A connection with a key: the key is in use until this is dropped.
#[derive(Debug)]
pub(crate) struct KeyConnection {
    used: Arc<LastUse>,
    due: Arc<Notify>,
}

impl Drop for KeyConnection {
    fn drop(&mut self) {
        if self.used.close(now()) {
            self.due.notify_one();
        }
    }
}

/// The key whose last use the entry of this name keeps; `None` if it is an entry of something else.
pub(crate) fn key_of_entry(name: &str) -> Option<ApiKeyId> {
    name.strip_prefix(LAST_USE_ENTRY_PREFIX)?.parse().ok()
}

impl KeyUses {
    /// Notes that a valid key is used.
    pub(crate) fn note(&self, key: &ApiKeyId, now: Timestamp) {
        if self.of(key).note(now) {
            self.due.notify_one();
        }
    }

    /// Notes that a connection with a valid key is open until what this returns is dropped.
    pub(crate) fn connect(&self, key: &ApiKeyId) -> KeyConnection {
        let used = self.of(key);
        used.open();
        KeyConnection { used, due: self.due.clone() }
    }

    /// When a key was last used; `None` if it never was.
    pub(crate) fn at(&self, key: &ApiKeyId, now: Timestamp) -> Option<Timestamp> {
        let uses = self.uses.read().unwrap_or_else(PoisonError::into_inner);
        uses.get(key)?.at(now)
    }

    /// Takes the entry that was kept of a key.
    pub(crate) fn read(&self, key: &ApiKeyId, entry: &[u8]) {
        if !self.of(key).read(entry) {
            tracing::warn!(%key, "the entry that says when a key was last used cannot be read");
        }
    }

    /// Waits until a use has to be kept.
    pub(crate) async fn wait_until_due(&self) {
        self.due.notified().await;
    }

    /// The entries to keep now: the key, the time and the entry.
    pub(crate) fn due(&self, now: Timestamp) -> Vec<(ApiKeyId, Timestamp, Vec<u8>)> {
        let uses = self.uses.read().unwrap_or_else(PoisonError::into_inner);
        let due = uses.iter().filter_map(|(key, used)| {
            let (at, entry) = used.due(now)?;
            Some((*key, at, entry))
        });
        due.collect()
    }

    /// The use of this time is kept.
    pub(crate) fn kept(&self, key: &ApiKeyId, at: Timestamp) {
        self.of(key).kept(at);
    }

    /// Forgets keys that are not there any more, and returns them.
    pub(crate) fn forget_deleted(&self, directory: &Directory) -> Vec<ApiKeyId> {
        let mut uses = self.uses.write().unwrap_or_else(PoisonError::into_inner);
        let gone: Vec<_> =
            uses.keys().filter(|key| directory.key(key).is_none()).copied().collect();
        gone.iter().for_each(|key| drop(uses.remove(key)));
        gone
    }

    fn of(&self, key: &ApiKeyId) -> Arc<LastUse> {
        let known = self.uses.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned();
        known.unwrap_or_else(|| {
            let mut uses = self.uses.write().unwrap_or_else(PoisonError::into_inner);
            uses.entry(*key).or_default().clone()
        })
    }
}
