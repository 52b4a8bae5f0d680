//! raft's storage: the labels of the log, in memory. It answers at once and never fails: the labels begin where the
//! log does, and the entry before them is known.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};

use raft::eraftpb::{Entry, HardState, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Result, Storage, StorageError};

use crate::label::{EntryId, Label};
use crate::raft_form;
use crate::settings::Start;

/// The labels of a group's log, as one replica has them.
pub(crate) struct Log {
    /// The entry before the first label.
    before: EntryId,
    labels: VecDeque<Label>,
    /// With what raft begins.
    begin: RaftState,
    /// The replicas that need a shipment, since this was asked last. raft asks for a snapshot through a shared reference.
    behind: RefCell<BTreeSet<u64>>,
}

impl Log {
    pub(crate) fn new(start: Start) -> Self {
        let hard_state = HardState {
            term: start.vote.term,
            vote: start.vote.vote.unwrap_or(raft::INVALID_ID),
            commit: start.commit,
            ..HardState::default()
        };
        Self {
            before: start.before,
            labels: start.labels.into(),
            begin: RaftState::new(hard_state, raft_form::conf_state(&start.membership)),
            behind: RefCell::default(),
        }
    }

    pub(crate) fn first_index(&self) -> u64 {
        self.before.index + 1
    }

    pub(crate) fn last(&self) -> EntryId {
        self.labels.back().map_or(self.before, |label| label.id)
    }

    /// The label of an entry.
    pub(crate) fn label(&self, index: u64) -> Option<&Label> {
        self.labels.get(self.nth(index)?)
    }

    /// The term of an entry, or of the one before the first.
    pub(crate) fn term_of(&self, index: u64) -> Option<u64> {
        match index == self.before.index {
            true => Some(self.before.term),
            false => self.label(index).map(|label| label.id.term),
        }
    }

    /// Appends labels. If the first is not the next of the log, the log is cut there, and that index is returned.
    pub(crate) fn append(&mut self, labels: &[Label]) -> Option<u64> {
        let first = labels.first()?.id.index;
        let kept = (first - self.first_index()) as usize;
        assert!(kept <= self.labels.len(), "entry {first} does not follow {}", self.last().index);
        let cut_from = (kept < self.labels.len()).then_some(first);
        self.labels.truncate(kept);
        self.labels.extend(labels.iter().cloned());
        cut_from
    }

    /// Lets go of the labels before an index.
    pub(crate) fn begin_with(&mut self, index: u64) {
        while self.first_index() < index {
            let label =
                self.labels.pop_front().expect("a log begins at most behind its last entry");
            self.before = label.id;
        }
    }

    /// The replicas that need a shipment. They are named again when they next ask for an entry.
    pub(crate) fn take_behind(&self) -> BTreeSet<u64> {
        self.behind.take()
    }

    fn nth(&self, index: u64) -> Option<usize> {
        index.checked_sub(self.first_index()).map(|nth| nth as usize)
    }
}

impl Storage for Log {
    fn initial_state(&self) -> Result<RaftState> {
        Ok(self.begin.clone())
    }

    /// raft asks for all entries from `low` on and a size of 0 when it sends one entry a message.
    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> Result<Vec<Entry>> {
        let from = self.nth(low).ok_or(Error::Store(StorageError::Compacted))?;
        let to = match max_size.into() {
            Some(0) => low + 1,
            _ => high,
        };
        let count = (to.min(high) - low) as usize;
        Ok(self.labels.range(from..from + count).map(raft_form::entry).collect())
    }

    fn term(&self, index: u64) -> Result<u64> {
        let missing = match index < self.before.index {
            true => StorageError::Compacted,
            false => StorageError::Unavailable,
        };
        self.term_of(index).ok_or(Error::Store(missing))
    }

    fn first_index(&self) -> Result<u64> {
        Ok(Self::first_index(self))
    }

    fn last_index(&self) -> Result<u64> {
        Ok(self.last().index)
    }

    /// A snapshot is not made of labels: the replica is named as one that needs a shipment, outside of raft.
    fn snapshot(&self, _request_index: u64, to: u64) -> Result<Snapshot> {
        self.behind.borrow_mut().insert(to);
        Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::label::{Content, GROUP_BEGINS};
    use crate::membership::Membership;

    #[test]
    fn a_size_of_0_is_one_entry_and_all_others_are_all() {
        let label = |index| Label { id: EntryId { term: 1, index }, content: Content::TermBegan };
        let start = Start {
            labels: (2..=9).map(label).collect(),
            ..Start::of_new_group(Membership::of([1]))
        };
        let mut log = Log::new(start);
        let indexes = |log: &Log, low, size| {
            let entries = log.entries(low, 9, size, GetEntriesContext::empty(false));
            entries.map(|entries| entries.iter().map(|entry| entry.index).collect::<Vec<_>>())
        };
        assert_eq!(indexes(&log, 4, Some(0)), Ok(vec![4]));
        assert_eq!(indexes(&log, 4, None), Ok(vec![4, 5, 6, 7, 8]));
        log.begin_with(5);
        assert_eq!(indexes(&log, 4, Some(0)), Err(Error::Store(StorageError::Compacted)));
        assert_eq!((log.term_of(3), log.term_of(4)), (None, Some(GROUP_BEGINS.term)));
    }
}
