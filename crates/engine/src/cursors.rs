//! Named cursors: an offset of a partition that outlives its readers. They live beside the partitions, so that a
//! partition without one pays nothing. A cursor that is set often in a turn costs one record. It does not know the
//! readers.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashMap;
use sennit_model::{CursorName, PartitionId};

/// The cursors of all partitions of a shard.
#[derive(Debug, Default)]
pub(crate) struct Cursors {
    held: HashMap<PartitionId, BTreeMap<CursorName, u64>, foldhash::fast::FixedState>,
    /// Set in this turn, and not recorded yet.
    moved: BTreeSet<(PartitionId, CursorName)>,
}

impl Cursors {
    /// Where a cursor is; `None` if it has never been set here.
    pub(crate) fn get(&self, partition: PartitionId, name: &CursorName) -> Option<u64> {
        self.held.get(&partition)?.get(name).copied()
    }

    pub(crate) fn set(&mut self, partition: PartitionId, name: CursorName, offset: u64) {
        self.held.entry(partition).or_default().insert(name, offset);
    }

    /// Sets a cursor, which is recorded at the end of the turn.
    pub(crate) fn advance(&mut self, partition: PartitionId, name: CursorName, offset: u64) {
        self.moved.insert((partition, name.clone()));
        self.set(partition, name, offset);
    }

    /// The next cursor that was set in this turn and still exists, and its offset.
    pub(crate) fn next_moved(&mut self) -> Option<(PartitionId, CursorName, u64)> {
        loop {
            let (partition, name) = self.moved.pop_first()?;
            if let Some(offset) = self.get(partition, &name) {
                return Some((partition, name, offset));
            }
        }
    }

    pub(crate) fn remove(&mut self, partition: PartitionId, name: &CursorName) {
        let Some(held) = self.held.get_mut(&partition) else { return };
        held.remove(name);
        if held.is_empty() {
            self.held.remove(&partition);
        }
    }

    /// The cursors of a partition, by name.
    pub(crate) fn of(&self, partition: PartitionId) -> impl Iterator<Item = (&CursorName, u64)> {
        let held = self.held.get(&partition);
        held.into_iter().flatten().map(|(name, &offset)| (name, offset))
    }

    pub(crate) fn count(&self, partition: PartitionId) -> usize {
        self.held.get(&partition).map_or(0, BTreeMap::len)
    }

    /// Forgets a partition that is dropped or opened anew.
    pub(crate) fn forget(&mut self, partition: PartitionId) {
        self.held.remove(&partition);
    }
}
