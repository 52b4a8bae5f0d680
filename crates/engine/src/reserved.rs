//! Offsets reserved ahead. A partition that is not durable delivers messages before they are
//! committed, so a crash may take messages that were delivered. The record that reserved their offsets is
//! committed before, and no reserved offset is used again. Reservations live beside the partitions: a
//! durable one pays nothing. It knows no record.

use std::collections::VecDeque;

use hashbrown::HashMap;
use sennit_model::{
    Durability, PartitionId,
    limits::{BATCH_MESSAGES_MAX, RESERVED_OFFSETS},
};

/// The reservation of one partition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reservation {
    /// Offsets below this are reserved, by records that are appended.
    pub(crate) end: u64,
    /// The same, by records that are committed. A batch that ends before this may be delivered when it is
    /// appended; one that ends at this may not, so that each reader stands before the end of the reservation.
    committed_end: u64,
    /// Batches that end here or before are committed.
    committed: u64,
    /// The position of a record on whose commit a confirm waits: later confirms wait behind it.
    awaited: Option<u64>,
    /// The number of its records that are not committed.
    uncommitted: u32,
}

impl Reservation {
    /// Whether so many messages behind `end` are to be reserved first.
    pub(crate) fn is_short(&self, end: u64) -> bool {
        self.end < end + RESERVED_OFFSETS / 2
    }

    /// Batches that end here or before are committed.
    pub(crate) fn committed(&self) -> u64 {
        self.committed
    }
}

/// The durability that the messages of a partition have reached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach {
    durability: Durability,
    committed: u64,
}

impl Reach {
    /// The durability that a batch which ends at `end` has reached.
    pub(crate) fn of(self, end: u64) -> Durability {
        match self.durability {
            Durability::Memory => Durability::Memory,
            _ if end <= self.committed => Durability::Durable,
            durability => durability,
        }
    }
}

/// The reservations of all partitions of a shard.
#[derive(Debug, Default)]
pub(crate) struct Reserved {
    by_partition: HashMap<PartitionId, Reservation, foldhash::fast::FixedState>,
    /// Appended and not committed: `(position, partition, end)`, in the journal's order.
    uncommitted: VecDeque<(u64, PartitionId, u64)>,
}

impl Reserved {
    pub(crate) fn get(&self, id: PartitionId) -> Option<&Reservation> {
        self.by_partition.get(&id)
    }

    /// The partitions that have one, in order.
    pub(crate) fn ids(&self) -> Vec<PartitionId> {
        let mut ids: Vec<_> = self.by_partition.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// Offsets below `end` are reserved by the record at `position`. All that is `visible` counts as
    /// committed if nothing was reserved before.
    pub(crate) fn set(&mut self, id: PartitionId, end: u64, position: u64, visible: u64) {
        let held = self.by_partition.entry(id).or_insert(Reservation {
            end,
            committed_end: 0,
            committed: visible,
            awaited: None,
            uncommitted: 0,
        });
        let is_given_back = end < held.end;
        held.end = end;
        held.uncommitted += 1;
        if is_given_back {
            // Nothing of it is delivered any more because of an earlier record: a replay that reads this
            // record ignores the earlier one.
            held.committed_end = held.committed_end.min(end);
            // As a rule there is none: one who stops gives back for all partitions, one by one.
            let count = held.uncommitted as usize - 1;
            let own = self.uncommitted.iter_mut().rev().filter(|(_, other, _)| *other == id);
            own.take(count).for_each(|(_, _, earlier)| *earlier = (*earlier).min(end));
        }
        self.uncommitted.push_back((position, id, end));
    }

    /// Has a reservation as a checkpoint says it is.
    pub(crate) fn put_back(&mut self, id: PartitionId, end: u64, visible: u64) {
        let (committed_end, committed) = (end, visible);
        let held = Reservation { end, committed_end, committed, awaited: None, uncommitted: 0 };
        self.by_partition.insert(id, held);
    }

    /// Whether a batch that ends at `end` may be delivered before it is committed.
    pub(crate) fn covers(&self, id: PartitionId, end: u64) -> bool {
        self.get(id).is_some_and(|held| end < held.committed_end)
    }

    /// Takes the first of the reservations that end before `position`, which is committed.
    pub(crate) fn next_committed(&mut self, position: u64) -> Option<PartitionId> {
        let &(_, id, end) = self.uncommitted.front().filter(|(at, ..)| *at < position)?;
        self.uncommitted.pop_front();
        if let Some(held) = self.by_partition.get_mut(&id) {
            held.committed_end = end;
            held.uncommitted = held.uncommitted.saturating_sub(1);
            held.awaited = held.awaited.filter(|at| *at >= position);
        }
        Some(id)
    }

    /// Everything of a partition below `end` is committed.
    pub(crate) fn batch_committed(&mut self, id: PartitionId, end: u64) {
        if let Some(held) = self.by_partition.get_mut(&id) {
            held.committed = held.committed.max(end);
        }
    }

    /// A confirm waits for the reservation that was appended last.
    pub(crate) fn await_last(&mut self, id: PartitionId) {
        let last = self.uncommitted.back().map(|&(position, ..)| position);
        if let Some(held) = self.by_partition.get_mut(&id) {
            held.awaited = last;
        }
    }

    /// Whether a confirm of this partition waits for a commit: those behind it do too.
    pub(crate) fn is_awaited(&self, id: PartitionId) -> bool {
        self.get(id).is_some_and(|held| held.awaited.is_some())
    }

    /// The durability that the batches of a partition have reached.
    pub(crate) fn reach(&self, id: PartitionId, durability: Durability) -> Reach {
        let held = match durability {
            Durability::Durable => None,
            _ => self.get(id),
        };
        Reach { durability, committed: held.map_or(u64::MAX, |held| held.committed) }
    }

    /// Forgets a partition that is dropped or opened anew.
    pub(crate) fn forget(&mut self, id: PartitionId) {
        if self.by_partition.remove(&id).is_some_and(|held| held.uncommitted > 0) {
            self.uncommitted.retain(|(_, of, _)| *of != id);
        }
    }
}

/// How many offsets a hole of the journal may have reserved, of a partition that is not durable, in
/// which so many records can have been.
pub(crate) fn reserved_max(records: u64) -> u64 {
    let step = RESERVED_OFFSETS + BATCH_MESSAGES_MAX as u64;
    records.saturating_add(1).saturating_mul(step)
}
