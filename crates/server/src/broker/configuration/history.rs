//! The latest changes of the configuration, for those who watch it. It is bounded: what is too old is forgotten,
//! and who has not seen it is told so. It knows no watch.

use std::collections::VecDeque;

use sennit_model::limits::{CONFIGURATION_HISTORY_BYTES, CONFIGURATION_HISTORY_CHANGES};

use super::change::ConfigurationChange;

/// Changes in the order of their revisions, without a gap.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    changes: VecDeque<ConfigurationChange>,
    bytes: usize,
    /// All changes of later revisions are here.
    floor: u64,
    /// The revision of the last change, be it here or not.
    revision: u64,
}

impl History {
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// Adds a change. One that is not newer than what is here is an entry written again, and left out.
    pub(crate) fn push(&mut self, change: &ConfigurationChange) {
        if change.revision <= self.revision {
            return;
        }
        if change.revision > self.revision + 1 {
            self.restart(change.revision - 1);
        }
        self.revision = change.revision;
        self.bytes += change.bytes();
        self.changes.push_back(change.clone());
        while self.changes.len() > CONFIGURATION_HISTORY_CHANGES
            || self.bytes > CONFIGURATION_HISTORY_BYTES
        {
            let Some(oldest) = self.changes.pop_front() else { break };
            self.bytes -= oldest.bytes();
            self.floor = oldest.revision;
        }
    }

    /// Begins anew behind this revision: changes before it may be missing.
    pub(crate) fn restart(&mut self, revision: u64) {
        let revision = revision.max(self.revision);
        *self = Self { floor: revision, revision, ..Self::default() };
    }

    /// The changes after a revision; `None` if some of them are forgotten, or it is none that was.
    pub(crate) fn after(
        &self,
        revision: u64,
    ) -> Option<impl Iterator<Item = &ConfigurationChange>> {
        if !(self.floor..=self.revision).contains(&revision) {
            return None;
        }
        let seen = self.changes.partition_point(|change| change.revision <= revision);
        Some(self.changes.range(seen..))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn change(revision: u64, bytes: usize) -> ConfigurationChange {
        let key = "k".parse().expect("it is a key");
        ConfigurationChange { key, revision, value: Some(vec![0; bytes].into()) }
    }

    fn after(history: &History, revision: u64) -> Option<Vec<u64>> {
        Some(history.after(revision)?.map(|change| change.revision).collect())
    }

    #[test]
    fn changes_after_a_revision_come_in_order_and_only_those() {
        let mut history = History::default();
        (1..=4).for_each(|revision| history.push(&change(revision, 1)));
        assert_eq!(after(&history, 0), Some(vec![1, 2, 3, 4]));
        assert_eq!(after(&history, 3), Some(vec![4]));
        assert_eq!(after(&history, 4), Some(vec![]));
        assert_eq!(after(&history, 5), None, "no change has this revision yet");
    }

    #[test]
    fn what_is_too_much_is_forgotten_and_who_has_not_seen_it_is_told_so() {
        let mut history = History::default();
        let many = CONFIGURATION_HISTORY_CHANGES as u64;
        (1..=many + 2).for_each(|revision| history.push(&change(revision, 0)));
        assert_eq!(after(&history, 1), None);
        assert_eq!(after(&history, 2).map(|changes| changes.len()), Some(many as usize));
        let large = CONFIGURATION_HISTORY_BYTES / 2;
        (1..=3).for_each(|n| history.push(&change(many + 2 + n, large)));
        assert_eq!(after(&history, many + 3), None);
        assert_eq!(after(&history, many + 4), Some(vec![many + 5]));
        assert!(history.bytes <= CONFIGURATION_HISTORY_BYTES);
    }

    #[test]
    fn entries_that_were_written_again_are_no_changes_and_a_gap_begins_anew() {
        let mut history = History::default();
        history.restart(7);
        history.push(&change(3, 1));
        history.push(&change(7, 1));
        assert_eq!((after(&history, 6), after(&history, 7)), (None, Some(vec![])));
        history.push(&change(8, 1));
        history.push(&change(11, 1));
        assert_eq!((after(&history, 8), after(&history, 10)), (None, Some(vec![11])));
        history.restart(5);
        assert_eq!(history.revision(), 11);
        let deleted = ConfigurationChange { value: None::<Bytes>, ..change(12, 0) };
        history.push(&deleted);
        assert_eq!(after(&history, 11), Some(vec![12]));
    }
}
