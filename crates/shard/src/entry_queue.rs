//! Entries of a group's log that a replay has read and that may still be overridden: they wait until a later frame
//! says that they are committed. It does not know what an entry is.

use std::collections::VecDeque;

/// Entries in the order of their indexes, without gaps.
#[derive(Debug)]
pub(crate) struct EntryQueue<T> {
    first_index: u64,
    /// Each with its length.
    entries: VecDeque<(usize, T)>,
    bytes: usize,
}

impl<T> Default for EntryQueue<T> {
    fn default() -> Self {
        Self { first_index: 0, entries: VecDeque::new(), bytes: 0 }
    }
}

impl<T> EntryQueue<T> {
    /// The bytes of the entries that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the entry at `index`, which voids those from there on.
    ///
    /// # Panics
    /// If there is a gap before it.
    pub(crate) fn push(&mut self, index: u64, bytes: usize, entry: T) {
        self.void_from(index);
        if self.entries.is_empty() {
            self.first_index = index;
        }
        assert_eq!(self.first_index + self.entries.len() as u64, index, "entries have gaps");
        self.entries.push_back((bytes, entry));
        self.bytes += bytes;
    }

    /// Drops the entries from `index` on.
    pub(crate) fn void_from(&mut self, index: u64) {
        let kept = usize::try_from(index.saturating_sub(self.first_index)).unwrap_or(usize::MAX);
        while self.entries.len() > kept
            && let Some((bytes, _)) = self.entries.pop_back()
        {
            self.bytes -= bytes;
        }
    }

    /// Takes the first entry, if its index is at most `commit`.
    pub(crate) fn pop_committed(&mut self, commit: u64) -> Option<T> {
        if self.first_index > commit {
            return None;
        }
        let (bytes, entry) = self.entries.pop_front()?;
        self.first_index += 1;
        self.bytes -= bytes;
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// Adds an entry so many indexes before the next one.
        Push(u64),
        /// Voids that many.
        Void(u64),
        /// Commits that many.
        Commit(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => Just(Step::Push(0)),
            1 => (0..6_u64).prop_map(Step::Push),
            1 => (0..6_u64).prop_map(Step::Void),
            1 => (0..4_u64).prop_map(Step::Commit),
        ];
        vec(step, 0..60)
    }

    proptest! {
        #[test]
        fn what_comes_out_is_the_last_that_came_in_at_each_index(steps in steps()) {
            let mut queue = EntryQueue::default();
            let (mut log, mut commit, mut out) = (Vec::new(), 0, Vec::new());
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Push(back) => {
                        log.truncate(commit.max(log.len().saturating_sub(back as usize)));
                        log.push(number);
                        queue.push(log.len() as u64, number, number);
                    }
                    Step::Void(back) => {
                        log.truncate(commit.max(log.len().saturating_sub(back as usize)));
                        queue.void_from(log.len() as u64 + 1);
                    }
                    Step::Commit(more) => {
                        commit = log.len().min(commit + more as usize);
                        out.extend(std::iter::from_fn(|| queue.pop_committed(commit as u64)));
                        prop_assert_eq!(&out[..], &log[..commit]);
                    }
                }
                prop_assert_eq!(queue.bytes(), log[out.len()..].iter().sum::<usize>());
            }
        }
    }
}
