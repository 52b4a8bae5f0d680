//! A partition's index: which batch holds which offsets, and where the journal keeps it. It knows
//! places as numbers, not files.

use std::collections::VecDeque;

use sennit_model::Timestamp;

/// Where the journal keeps a batch. The engine only passes it on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The position of its first byte in the shard's journal.
    pub position: u64,
    /// Its length in bytes.
    pub bytes: u32,
}

/// One batch in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) first: u64,
    pub(crate) count: u32,
    pub(crate) place: Place,
    pub(crate) appended_at: Timestamp,
}

impl Entry {
    pub(crate) fn end(&self) -> u64 {
        self.first + u64::from(self.count)
    }
}

/// The batches a partition keeps, oldest first, without gaps.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Log {
    entries: VecDeque<Entry>,
    end: u64,
    bytes: u64,
}

impl Log {
    /// A log that keeps nothing and goes on at `end`.
    pub(crate) fn empty_at(end: u64) -> Self {
        Self { entries: VecDeque::new(), end, bytes: 0 }
    }

    /// The oldest offset kept; the end if nothing is.
    pub(crate) fn start(&self) -> u64 {
        self.entries.front().map_or(self.end, |entry| entry.first)
    }

    /// The offset that the next message gets.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Bytes of all batches kept.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn oldest(&self) -> Option<&Entry> {
        self.entries.front()
    }

    pub(crate) fn entries(&self) -> impl ExactSizeIterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Adds the batch that begins at the end.
    pub(crate) fn push(&mut self, entry: Entry) {
        assert_eq!(entry.first, self.end, "offsets are dense");
        self.end = entry.end();
        self.bytes += u64::from(entry.place.bytes);
        self.entries.push_back(entry);
    }

    /// The batch that holds `offset`.
    pub(crate) fn find(&self, offset: u64) -> Option<&Entry> {
        let after = self.entries.partition_point(|entry| entry.first <= offset);
        self.entries.get(after.checked_sub(1)?).filter(|entry| offset < entry.end())
    }

    /// Drops the oldest batch.
    pub(crate) fn pop(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front()?;
        self.bytes -= u64::from(entry.place.bytes);
        Some(entry)
    }
}
