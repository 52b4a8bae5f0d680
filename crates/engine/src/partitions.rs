//! The partitions of a shard: found by number in one step, and walked in order a few at a time.

use std::{collections::BTreeSet, hash::BuildHasher};

use foldhash::fast::FixedState;
use hashbrown::{HashTable, hash_table::Entry};
use sennit_model::PartitionId;

use crate::partition::Partition;

/// All partitions of a shard.
#[derive(Debug, Default)]
pub(crate) struct Partitions {
    /// By their numbers, which only they hold: the table is half empty as a rule.
    by_id: HashTable<Box<Partition>>,
    hasher: FixedState,
    /// In order, because a walk over all of them is made in steps, between which they change.
    ids: BTreeSet<PartitionId>,
}

impl Partitions {
    pub(crate) fn get(&self, id: &PartitionId) -> Option<&Partition> {
        let found = self.by_id.find(self.hasher.hash_one(id), |held| held.id == *id);
        found.map(|partition| &**partition)
    }

    pub(crate) fn get_mut(&mut self, id: &PartitionId) -> Option<&mut Partition> {
        let found = self.by_id.find_mut(self.hasher.hash_one(id), |held| held.id == *id);
        found.map(|partition| &mut **partition)
    }

    fn entry(&mut self, id: PartitionId) -> Entry<'_, Box<Partition>> {
        let hasher = &self.hasher;
        let hash = hasher.hash_one(id);
        self.by_id.entry(hash, |held| held.id == id, |held| hasher.hash_one(held.id))
    }

    /// Adds a partition, or replaces the one of the same number.
    pub(crate) fn insert(&mut self, partition: Partition) {
        let id = partition.id;
        self.ids.insert(id);
        match self.entry(id) {
            Entry::Occupied(mut held) => **held.get_mut() = partition,
            Entry::Vacant(place) => drop(place.insert(Box::new(partition))),
        }
    }

    /// The partition of this number, made if it is not there.
    pub(crate) fn get_or_insert(
        &mut self,
        id: PartitionId,
        made: impl FnOnce() -> Partition,
    ) -> &mut Partition {
        if self.get(&id).is_none() {
            self.insert(made());
        }
        self.get_mut(&id).expect("inserted just now")
    }

    pub(crate) fn remove(&mut self, id: &PartitionId) -> Option<Box<Partition>> {
        self.ids.remove(id);
        match self.entry(*id) {
            Entry::Occupied(held) => Some(held.remove().0),
            Entry::Vacant(_) => None,
        }
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
        self.by_id.iter().map(|partition| &**partition)
    }
}
