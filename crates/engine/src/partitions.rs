//! The partitions of a shard: found by number in one step, and walked in order a few at a time.

use std::collections::BTreeSet;

use hashbrown::HashMap;
use sennit_model::PartitionId;

use crate::partition::Partition;

/// All partitions of a shard.
#[derive(Debug, Default)]
pub(crate) struct Partitions {
    by_id: HashMap<PartitionId, Box<Partition>, foldhash::fast::FixedState>,
    /// In order, because a walk over all of them is made in steps, between which they change.
    ids: BTreeSet<PartitionId>,
}

impl Partitions {
    pub(crate) fn get(&self, id: &PartitionId) -> Option<&Partition> {
        self.by_id.get(id).map(|partition| &**partition)
    }

    pub(crate) fn get_mut(&mut self, id: &PartitionId) -> Option<&mut Partition> {
        self.by_id.get_mut(id).map(|partition| &mut **partition)
    }

    /// Adds a partition, or replaces the one of the same number.
    pub(crate) fn insert(&mut self, partition: Partition) {
        self.ids.insert(partition.id);
        self.by_id.insert(partition.id, Box::new(partition));
    }

    /// The partition of this number, made if it is not there.
    pub(crate) fn get_or_insert(
        &mut self,
        id: PartitionId,
        made: impl FnOnce() -> Partition,
    ) -> &mut Partition {
        self.by_id.entry(id).or_insert_with(|| {
            self.ids.insert(id);
            Box::new(made())
        })
    }

    pub(crate) fn remove(&mut self, id: &PartitionId) -> Option<Box<Partition>> {
        self.ids.remove(id);
        self.by_id.remove(id)
    }

    /// The numbers of all partitions, in order.
    pub(crate) fn ids(&self) -> impl Iterator<Item = PartitionId> {
        self.ids.iter().copied()
    }

    /// The lowest number above `id`, or of all. O(log n).
    pub(crate) fn next_after(&self, id: Option<PartitionId>) -> Option<PartitionId> {
        match id {
            Some(id) => {
                let above = (std::ops::Bound::Excluded(id), std::ops::Bound::Unbounded);
                self.ids.range(above).next().copied()
            }
            None => self.ids.first().copied(),
        }
    }

    /// All partitions, in no order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Partition> {
        self.by_id.values().map(|partition| &**partition)
    }
}
