//! The configuration as each core sees it: a snapshot of all entries that can be read without asking anybody, and
//! the latest changes. The first core sends both to each core after a change is durable and before it is confirmed.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    fmt,
    hash::BuildHasher,
    ops::Bound,
    rc::Rc,
    sync::Arc,
};

use bytes::Bytes;
use foldhash::fast::FixedState;
use sennit_model::{ConfigurationKey, ThrottleRule};
use tokio::sync::Notify;

use super::{
    change::ConfigurationChange,
    entries::{Entry, throttle_rule},
    history::History,
    request::{ENTRY_BYTES, ToldEntry},
};

/// Parts of a snapshot. A change copies the parts that it concerns, some 400 entries each if there are
/// 100,000, and shares the others.
const PARTS: usize = 256;

type Part = Arc<BTreeMap<ConfigurationKey, Entry>>;

/// All entries of the configuration at one revision: immutable, and cheap to clone. Code that runs on a core,
/// such as a hook, takes the one of its core from [`CurrentConfiguration::snapshot`] and reads it as long as
/// it likes; it does not change meanwhile. A later change is in a new snapshot, which the first core sends
/// to each core once the change is durable: a set that is confirmed is in the snapshot of every core.
#[derive(Clone)]
pub(crate) struct ConfigurationSnapshot {
    revision: u64,
    parts: Arc<[Part]>,
}

impl ConfigurationSnapshot {
    /// The value of a key, if there is an entry. Costs a hash and a search among some hundred keys.
    pub(crate) fn get(&self, key: &str) -> Option<&[u8]> {
        self.parts[part_of(key)].get(key).map(|entry| &entry.value[..])
    }

    /// The revision of the last change that it has.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// All entries whose keys begin with a prefix, in no order.
    pub(crate) fn entries<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = ToldEntry> + 'a {
        let begins = move |(key, _): &(&ConfigurationKey, &Entry)| key.as_str().starts_with(prefix);
        let behind = self.parts.iter().flat_map(move |part| {
            part.range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
        });
        behind.filter(begins).map(|(key, entry)| ToldEntry {
            key: key.clone(),
            revision: entry.revision,
            value: entry.value.clone(),
        })
    }

    /// The snapshot of these entries.
    pub(crate) fn of<'a>(
        revision: u64,
        entries: impl Iterator<Item = (&'a ConfigurationKey, &'a Entry)>,
    ) -> Self {
        let mut parts = vec![BTreeMap::new(); PARTS];
        for (key, entry) in entries {
            parts[part_of(key.as_str())].insert(key.clone(), entry.clone());
        }
        Self { revision, parts: parts.into_iter().map(Arc::new).collect() }
    }

    /// The snapshot after these changes.
    pub(crate) fn after(&self, changes: &[ConfigurationChange]) -> Self {
        let mut parts = self.parts.to_vec();
        for ConfigurationChange { key, revision, value } in changes {
            let part = Arc::make_mut(&mut parts[part_of(key.as_str())]);
            match value {
                Some(value) => {
                    let entry = Entry { revision: *revision, value: value.clone() };
                    part.insert(key.clone(), entry);
                }
                None => drop(part.remove(key)),
            }
        }
        let revision = changes.last().map_or(self.revision, |change| change.revision);
        Self { revision, parts: parts.into() }
    }
}

impl Default for ConfigurationSnapshot {
    fn default() -> Self {
        Self::of(0, std::iter::empty())
    }
}

impl fmt::Debug for ConfigurationSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigurationSnapshot").field("revision", &self.revision).finish()
    }
}

fn part_of(key: &str) -> usize {
    // Who chooses keys so that they meet in one part makes that part larger, and nothing else.
    FixedState::default().hash_one(key) as usize % PARTS
}

/// All throttle rules of a snapshot, by pattern. An entry that is no rule, as another version of the broker has
/// set it, is left out and told.
pub(crate) fn throttle_rules(snapshot: &ConfigurationSnapshot) -> Arc<[ThrottleRule]> {
    let entries = snapshot.entries(sennit_model::THROTTLE_KEY_PREFIX);
    let rules = entries.filter_map(|ToldEntry { key, value, .. }| {
        let rule = throttle_rule(&key, &value)?;
        if let Err(error) = &rule {
            tracing::error!(%key, %error, "an entry of the configuration is no throttle rule");
        }
        rule.ok()
    });
    let mut rules: Vec<_> = rules.collect();
    rules.sort_by(|one, other| one.pattern.cmp(&other.pattern));
    rules.into()
}

/// The configuration on one core: a service that each core has.
#[derive(Debug, Default)]
pub(crate) struct CurrentConfiguration {
    snapshot: RefCell<ConfigurationSnapshot>,
    history: RefCell<History>,
    changed: Notify,
    hooks_changed: Cell<u64>,
    hooks_listener: RefCell<Option<Rc<dyn ChangeListener>>>,
    identity_listeners: RefCell<Vec<Rc<dyn ChangeListener>>>,
}

/// Is told on each core when something has changed there, before the change is confirmed.
pub(crate) trait ChangeListener: fmt::Debug {
    /// The configuration of the core has the change.
    fn changed(&self);
}

impl CurrentConfiguration {
    /// The latest snapshot that this core has.
    pub(crate) fn snapshot(&self) -> ConfigurationSnapshot {
        self.snapshot.borrow().clone()
    }

    /// The value of a key in it, if there is an entry.
    pub(crate) fn value(&self, key: &str) -> Option<Bytes> {
        self.snapshot.borrow().get(key).map(Bytes::copy_from_slice)
    }

    /// The revision of the last change of a hook that this core has.
    pub(crate) fn hooks_changed(&self) -> u64 {
        self.hooks_changed.get()
    }

    /// The first core has read the configuration.
    pub(crate) fn begin(&self, snapshot: ConfigurationSnapshot, history: History) {
        self.hooks_changed.set(snapshot.revision());
        self.snapshot.replace(snapshot);
        self.history.replace(history);
        self.changed.notify_waiters();
        self.tell_hooks_listener();
        self.tell_identity_listeners();
    }

    /// The first core has changed it.
    pub(crate) fn change(&self, snapshot: ConfigurationSnapshot, changes: &[ConfigurationChange]) {
        self.snapshot.replace(snapshot);
        if let Some(last) = changes.iter().rfind(|change| change.key.is_of_hooks()) {
            self.hooks_changed.set(last.revision);
        }
        let mut history = self.history.borrow_mut();
        changes.iter().for_each(|change| history.push(change));
        drop(history);
        self.changed.notify_waiters();
        if changes.iter().any(|change| change.key.is_of_hooks()) {
            self.tell_hooks_listener();
        }
        if changes.iter().any(|change| change.key.identity_entry().is_some()) {
            self.tell_identity_listeners();
        }
    }

    /// From now on this is told when hooks change.
    pub(crate) fn set_hooks_listener(&self, listener: Rc<dyn ChangeListener>) {
        self.hooks_listener.replace(Some(listener));
    }

    /// From now on this is told as well when keys, users, roles or tenants change.
    pub(crate) fn add_identity_listener(&self, listener: Rc<dyn ChangeListener>) {
        self.identity_listeners.borrow_mut().push(listener);
    }

    fn tell_hooks_listener(&self) {
        let listener = self.hooks_listener.borrow().clone();
        if let Some(listener) = listener {
            listener.changed();
        }
    }

    fn tell_identity_listeners(&self) {
        let listeners = self.identity_listeners.borrow().clone();
        listeners.iter().for_each(|listener| listener.changed());
    }

    /// Waits until there is a change after this revision.
    pub(crate) async fn wait_after(&self, revision: u64) {
        loop {
            let changed = self.changed.notified();
            if self.history.borrow().revision() > revision {
                return;
            }
            changed.await;
        }
    }

    /// The changes after a revision to entries that may be told and whose keys begin with a prefix, the oldest first and at most so
    /// many bytes of them as [`ENTRY_BYTES`] counts them, but one; and up to which revision they reach. `None` if some are forgotten.
    pub(crate) fn changes_after(
        &self,
        revision: u64,
        prefix: &str,
        may_tell: impl Fn(&ConfigurationKey) -> bool,
        bytes_max: usize,
    ) -> Option<(Vec<ConfigurationChange>, u64)> {
        let history = self.history.borrow();
        let (mut told, mut bytes, mut reached) = (Vec::new(), 0, revision);
        for change in history.after(revision)? {
            if change.key.as_str().starts_with(prefix) && may_tell(&change.key) {
                bytes += change.bytes() + ENTRY_BYTES;
                if !told.is_empty() && bytes > bytes_max {
                    return Some((told, reached));
                }
                told.push(change.clone());
            }
            reached = change.revision;
        }
        Some((told, reached))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(key: &str, revision: u64, value: Option<&str>) -> ConfigurationChange {
        let key = key.parse().expect("it is a key");
        let value = value.map(|value| value.to_owned().into());
        ConfigurationChange { key, revision, value }
    }

    fn keys(snapshot: &ConfigurationSnapshot, prefix: &str) -> Vec<String> {
        let mut keys: Vec<_> =
            snapshot.entries(prefix).map(|entry| entry.key.to_string()).collect();
        keys.sort();
        keys
    }

    #[test]
    fn a_snapshot_does_not_change_and_the_next_one_has_the_changes() {
        let none = ConfigurationSnapshot::default();
        let two = none.after(&[change("a", 1, Some("x")), change("b", 2, Some(""))]);
        let one = two.after(&[change("a", 3, None)]);
        assert_eq!((none.get("a"), none.revision()), (None, 0));
        assert_eq!(
            (two.get("a"), two.get("b"), two.revision()),
            (Some(&b"x"[..]), Some(&b""[..]), 2)
        );
        assert_eq!((one.get("a"), one.get("b"), one.revision()), (None, Some(&b""[..]), 3));
    }

    #[test]
    fn entries_are_found_by_prefix_in_all_parts() {
        let changes: Vec<_> = (1..=2000)
            .map(|n| {
                change(&format!("{}{n}", if n % 2 == 0 { "even." } else { "odd." }), n, Some("v"))
            })
            .collect();
        let snapshot = ConfigurationSnapshot::default().after(&changes);
        assert_eq!((keys(&snapshot, "even.").len(), keys(&snapshot, "").len()), (1000, 2000));
        assert_eq!(
            keys(&snapshot, "odd.199"),
            ["odd.199", "odd.1991", "odd.1993", "odd.1995", "odd.1997", "odd.1999"]
        );
        assert!(keys(&snapshot, "p").is_empty());
    }

    #[test]
    fn the_rules_of_a_snapshot_are_its_throttles_that_can_be_read() {
        let snapshot = ConfigurationSnapshot::default().after(&[
            change("throttle.b:*", 1, Some("10/s burst 20")),
            change("throttle.a", 2, Some("1/m")),
            change("throttle.wrong", 3, Some("fast")),
            change("throttles", 4, Some("1/s")),
        ]);
        let rules = throttle_rules(&snapshot);
        let shown: Vec<_> =
            rules.iter().map(|rule| format!("{} {}", rule.pattern, rule.rate)).collect();
        assert_eq!(shown, ["a 1/m burst 1", "b:* 10/s burst 20"]);
    }

    #[test]
    fn a_core_tells_the_changes_with_a_prefix_and_how_far_they_reach() {
        let current = CurrentConfiguration::default();
        let changes = [change("a", 1, Some("1")), change("b", 2, Some("2")), change("a", 3, None)];
        current.change(current.snapshot().after(&changes), &changes);
        let told = |after, prefix, bytes_max| {
            let (changes, reached) = current.changes_after(after, prefix, |_| true, bytes_max)?;
            Some((changes.iter().map(|change| change.revision).collect::<Vec<_>>(), reached))
        };
        assert_eq!(told(0, "", 101), Some((vec![1, 2, 3], 3)));
        assert_eq!(told(0, "a", 100), Some((vec![1, 3], 3)));
        assert_eq!(told(0, "a", 66), Some((vec![1], 2)), "the next does not fit");
        assert_eq!(told(1, "b", 0), Some((vec![2], 3)), "one is told, however large");
        assert_eq!(told(3, "", 100), Some((vec![], 3)));
        assert_eq!(told(4, "", 100), None);
    }
}
