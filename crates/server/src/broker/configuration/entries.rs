//! The entries of the configuration as the first core has them, and what becomes of a change: it is decided here,
//! against the entries and the changes decided before it, and applied once it is durable. It knows no stream.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Bound,
};

use bytes::Bytes;
use foldhash::fast::RandomState;
use sennit_model::{
    ConfigurationKey, ThrottleError, ThrottlePattern, ThrottleRule,
    limits::{
        CONFIGURATION_BYTES_MAX, CONFIGURATION_ENTRIES_MAX, CONFIGURATION_VALUE_BYTES_MAX,
        THROTTLE_RULES_MAX,
    },
};

use super::{
    change::ConfigurationChange,
    request::{ConfigurationAnswer, ConfigurationRefusal, ListEntries, ToldEntry, Write},
};

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) revision: u64,
    pub(crate) value: Bytes,
}

/// Numbers that have limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) entries: usize,
    /// Of keys and values.
    pub(crate) bytes: usize,
    pub(crate) throttles: usize,
}

impl Totals {
    fn add(&mut self, key: &ConfigurationKey, value_bytes: usize) {
        self.entries += 1;
        self.bytes += key.as_str().len() + value_bytes;
        self.throttles += usize::from(key.throttle_pattern().is_some());
    }

    fn remove(&mut self, key: &ConfigurationKey, value_bytes: usize) {
        self.entries -= 1;
        self.bytes -= key.as_str().len() + value_bytes;
        self.throttles -= usize::from(key.throttle_pattern().is_some());
    }
}

/// All entries, by key.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    by_key: BTreeMap<ConfigurationKey, Entry>,
    totals: Totals,
    /// The revision of the last change, of whatever entry; 0 before the first.
    revision: u64,
}

impl Entries {
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn totals(&self) -> Totals {
        self.totals
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&ConfigurationKey, &Entry)> {
        self.by_key.iter()
    }

    pub(crate) fn get(&self, key: &ConfigurationKey) -> Option<ToldEntry> {
        self.by_key.get(key).map(|entry| told(key, entry))
    }

    /// A page of the entries that may be told.
    pub(crate) fn list(
        &self,
        list: &ListEntries,
        may_tell: impl Fn(&ConfigurationKey) -> bool,
    ) -> ConfigurationAnswer {
        let ListEntries { prefix, after, entries_max, bytes_max } = list;
        // What is behind the text and begins with the prefix is behind both.
        let from = if after.as_str() < prefix.as_str() {
            Bound::Included(prefix.as_str())
        } else {
            Bound::Excluded(after.as_str())
        };
        let all = self.by_key.range::<str, _>((from, Bound::Unbounded));
        let all = all.take_while(|(key, _)| key.as_str().starts_with(prefix));
        let mut all = all.filter(|(key, _)| may_tell(key)).peekable();
        let (mut entries, mut bytes) = (Vec::new(), 0);
        while let Some((key, entry)) = all.peek() {
            let entry = told(key, entry);
            bytes += entry.bytes();
            if entries.len() >= *entries_max || (!entries.is_empty() && bytes > *bytes_max) {
                break;
            }
            entries.push(entry);
            all.next();
        }
        let more = all.peek().is_some();
        ConfigurationAnswer::Page { entries, more, revision: self.revision }
    }

    /// Applies a change that is durable. Those that were read may come again.
    pub(crate) fn apply(&mut self, change: &ConfigurationChange) {
        let ConfigurationChange { key, revision, value } = change;
        self.revision = self.revision.max(*revision);
        let before = match value {
            Some(value) => {
                self.totals.add(key, value.len());
                let entry = Entry { revision: *revision, value: value.clone() };
                self.by_key.insert(key.clone(), entry)
            }
            None => self.by_key.remove(key),
        };
        if let Some(before) = before {
            self.totals.remove(key, before.value.len());
        }
    }

    /// The revision is at least this one: what was lost may have had it.
    pub(crate) fn skip_to(&mut self, revision: u64) {
        self.revision = self.revision.max(revision);
    }
}

fn told(key: &ConfigurationKey, entry: &Entry) -> ToldEntry {
    ToldEntry { key: key.clone(), revision: entry.revision, value: entry.value.clone() }
}

/// Changes that are decided and not durable yet.
#[derive(Debug)]
pub(crate) struct Draft<'a> {
    entries: &'a Entries,
    /// The revision of the authority.
    authority: u64,
    totals: Totals,
    revision: u64,
    /// The changed entries: revision and bytes of the value.
    changed: HashMap<ConfigurationKey, Option<(u64, usize)>, RandomState>,
    pub(crate) changes: Vec<ConfigurationChange>,
}

impl<'a> Draft<'a> {
    pub(crate) fn of(entries: &'a Entries, authority: u64) -> Self {
        let (totals, revision) = (entries.totals, entries.revision);
        Self {
            entries,
            authority,
            totals,
            revision,
            changed: HashMap::default(),
            changes: Vec::new(),
        }
    }

    /// Decides one change, as if those before it were durable.
    ///
    /// # Errors
    /// The refusal. Nothing changes then.
    pub(crate) fn decide(
        &mut self,
        write: &Write,
    ) -> Result<ConfigurationAnswer, ConfigurationRefusal> {
        let Write { key, value, if_revision, if_authority } = write;
        if if_authority.is_some_and(|expected| expected != self.authority) {
            return Err(ConfigurationRefusal::OtherDirectory);
        }
        let before = match self.changed.get(key) {
            Some(changed) => *changed,
            None => {
                let entry = self.entries.by_key.get(key);
                entry.map(|entry| (entry.revision, entry.value.len()))
            }
        };
        let found = before.map_or(0, |(revision, _)| revision);
        if let Some(expected) = if_revision.filter(|&expected| expected != found) {
            return Err(ConfigurationRefusal::Revision { expected, found });
        }
        let existed = before.is_some();
        if value.is_none() && !existed {
            return Ok(ConfigurationAnswer::Changed { revision: self.revision, existed });
        }
        let mut totals = self.totals;
        if let Some((_, bytes)) = before {
            totals.remove(key, bytes);
        }
        if let Some(value) = value {
            check_value(key, value)?;
            totals.add(key, value.len());
            check_totals(self.totals, totals)?;
        }
        let revision = self.revision + 1;
        (self.totals, self.revision) = (totals, revision);
        self.changed.insert(key.clone(), value.as_ref().map(|value| (revision, value.len())));
        let (key, value) = (key.clone(), value.clone());
        self.changes.push(ConfigurationChange { key, revision, value });
        Ok(ConfigurationAnswer::Changed { revision, existed })
    }
}

/// Checks a value by itself: its length and, of a throttle rule, its meaning.
fn check_value(key: &ConfigurationKey, value: &Bytes) -> Result<(), ConfigurationRefusal> {
    if value.len() > CONFIGURATION_VALUE_BYTES_MAX {
        return Err(ConfigurationRefusal::ValueTooLong(value.len()));
    }
    if let Some(rule) = throttle_rule(key, value) {
        rule?;
    }
    Ok(())
}

/// The rule that an entry is, if its key names one.
pub(super) fn throttle_rule(
    key: &ConfigurationKey,
    value: &[u8],
) -> Option<Result<ThrottleRule, ThrottleError>> {
    let pattern = key.throttle_pattern()?.parse::<ThrottlePattern>();
    Some(pattern.and_then(|pattern| {
        // What is not text is no rule: it is shown as far as it is text.
        ThrottleRule::parse(pattern, &String::from_utf8_lossy(value))
    }))
}

/// Refuses what grows beyond a limit. What was beyond it before, as limits were higher then, may shrink.
fn check_totals(before: Totals, after: Totals) -> Result<(), ConfigurationRefusal> {
    let exceeds = |before: usize, after: usize, most: usize| after > most && after > before;
    if exceeds(before.entries, after.entries, CONFIGURATION_ENTRIES_MAX) {
        return Err(ConfigurationRefusal::TooManyEntries);
    }
    if exceeds(before.bytes, after.bytes, CONFIGURATION_BYTES_MAX) {
        return Err(ConfigurationRefusal::TooManyBytes(after.bytes));
    }
    if exceeds(before.throttles, after.throttles, THROTTLE_RULES_MAX) {
        return Err(ConfigurationRefusal::TooManyThrottles);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
