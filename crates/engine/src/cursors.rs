//! Named cursors: an offset of a partition that outlives whoever reads there. They live beside the
//! partitions, so that a partition without one pays nothing. It does not know who reads.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use sennit_model::{CursorName, PartitionId};

/// The cursors of all partitions of a shard.
#[derive(Debug, Default)]
pub(crate) struct Cursors(
    HashMap<PartitionId, BTreeMap<CursorName, u64>, foldhash::fast::FixedState>,
);

impl Cursors {
    /// Where a cursor is; `None` if it has never been set here.
    pub(crate) fn get(&self, partition: PartitionId, name: &CursorName) -> Option<u64> {
        self.0.get(&partition)?.get(name).copied()
    }

    pub(crate) fn set(&mut self, partition: PartitionId, name: CursorName, offset: u64) {
        self.0.entry(partition).or_default().insert(name, offset);
    }

    pub(crate) fn remove(&mut self, partition: PartitionId, name: &CursorName) {
        let Some(held) = self.0.get_mut(&partition) else { return };
        held.remove(name);
        if held.is_empty() {
            self.0.remove(&partition);
        }
    }

    /// The cursors of a partition, by name.
    pub(crate) fn of(&self, partition: PartitionId) -> impl Iterator<Item = (&CursorName, u64)> {
        let held = self.0.get(&partition);
        held.into_iter().flatten().map(|(name, &offset)| (name, offset))
    }

    pub(crate) fn count(&self, partition: PartitionId) -> usize {
        self.0.get(&partition).map_or(0, BTreeMap::len)
    }

    /// The partition is gone, or told anew.
    pub(crate) fn forget(&mut self, partition: PartitionId) {
        self.0.remove(&partition);
    }
}
