//! Partitions that keep the latest message of each key: how far each is clean, and when a compaction is worth its
//! cost. It knows no key; the compactor reads the messages.

use std::{collections::VecDeque, time::Duration};

use hashbrown::HashMap;
use sennit_model::{Offset, PartitionId, Timestamp};

/// So many dirty bytes make a pass worth its while, if the clean ones are not more.
const DIRTY_BYTES_MIN: u64 = 1 << 20;

/// After so long a partition of up to [`TIDY_BYTES`] is compacted for much less.
const TIDY_AFTER: Duration = Duration::from_secs(10);

/// What is not longer is read in no time.
const TIDY_BYTES: u64 = 64 << 20;

/// The part of a short partition that may stay dirty: one in so many bytes of what is clean.
const TIDY_SHARE: u64 = 4;

/// A pass that came to nothing is made again after this.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// How clean a partition is. Below `clean_to` no two messages have the same key, but for what could
/// not be read.
#[derive(Clone, Copy, Debug)]
struct Cleanness {
    clean_to: u64,
    /// Bytes of the batches behind that.
    dirty_bytes: u64,
    /// When the oldest of them was appended.
    dirty_since: Option<Timestamp>,
    tombstones: Option<Tombstones>,
    /// Whether all that is clean was read: if not, some key may have an older message there.
    all_read: bool,
    /// After a pass that came to nothing.
    not_before: Timestamp,
    /// The times that timers were set for: when it may be untidy or is to be tried again, and when its
    /// tombstones may go.
    watched: [Option<Timestamp>; 2],
    /// Whether it is in the queue.
    is_due: bool,
    /// Whether a pass is under way that began since it keeps the latest, without a break.
    is_in_pass: bool,
}

/// The tombstones below an offset: what they ended is gone, and everybody has had the time to learn of
/// it by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tombstones {
    /// Those below this may go.
    pub below: Offset,
    /// From then on.
    pub at: Timestamp,
}

/// What a checkpoint says of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Clean {
    pub(crate) to: u64,
    pub(crate) tombstones: Option<Tombstones>,
    pub(crate) all_read: bool,
}

/// What lies behind the clean part of a partition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dirty {
    pub(crate) bytes: u64,
    pub(crate) since: Option<Timestamp>,
}

/// All such partitions of a shard: some 100 bytes each, whatever they hold.
#[derive(Debug, Default)]
pub(crate) struct Latest {
    by_partition: HashMap<PartitionId, Cleanness, foldhash::fast::FixedState>,
    due: VecDeque<PartitionId>,
}

impl Latest {
    pub(crate) fn has(&self, id: PartitionId) -> bool {
        !self.by_partition.is_empty() && self.by_partition.contains_key(&id)
    }

    /// A partition keeps the latest from now on, if it did not.
    pub(crate) fn begin(&mut self, id: PartitionId, clean_to: u64, dirty: Dirty) {
        self.by_partition.entry(id).or_insert(Cleanness {
            clean_to,
            dirty_bytes: dirty.bytes,
            dirty_since: dirty.since,
            tombstones: None,
            all_read: true,
            not_before: Timestamp(0),
            watched: [None; 2],
            is_due: false,
            is_in_pass: false,
        });
    }

    pub(crate) fn forget(&mut self, id: PartitionId) {
        self.by_partition.remove(&id);
    }

    pub(crate) fn ids(&self) -> Vec<PartitionId> {
        let mut ids: Vec<_> = self.by_partition.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    pub(crate) fn get(&self, id: PartitionId) -> Option<Clean> {
        let held = self.by_partition.get(&id)?;
        let Cleanness { clean_to, tombstones, all_read, .. } = *held;
        Some(Clean { to: clean_to, tombstones, all_read })
    }

    /// A batch was appended at the end; says whether it is the first behind what is clean.
    pub(crate) fn appended(&mut self, id: PartitionId, bytes: u64, at: Timestamp) -> bool {
        let Some(held) = self.by_partition.get_mut(&id) else { return false };
        held.dirty_bytes += bytes;
        let is_first = held.dirty_since.is_none();
        held.dirty_since.get_or_insert(at);
        is_first
    }

    /// This much is clean now, and that is what lies behind it.
    pub(crate) fn set(&mut self, id: PartitionId, clean: Clean, dirty: Dirty) {
        let Some(held) = self.by_partition.get_mut(&id) else { return };
        held.clean_to = clean.to;
        (held.tombstones, held.all_read) = (clean.tombstones, clean.all_read);
        (held.dirty_bytes, held.dirty_since) = (dirty.bytes, dirty.since);
    }

    /// When it is to be judged again, if nothing is appended, as far as no timer is set for that yet: each
    /// of these times gets one, which is needed until another takes its place.
    pub(crate) fn watch(&mut self, id: PartitionId) -> impl Iterator<Item = Timestamp> {
        let times = self.by_partition.get_mut(&id).map(|held| {
            let tidy = held.dirty_since.map(|since| since.plus(TIDY_AFTER));
            let again = Some(held.not_before).filter(|at| at.0 > 0);
            let wanted = [tidy.max(again), held.tombstones.map(|tombstones| tombstones.at)];
            let watched = std::mem::replace(&mut held.watched, wanted);
            [0, 1].map(|at| wanted[at].filter(|_| wanted[at] != watched[at]))
        });
        times.into_iter().flatten().flatten()
    }

    /// Whether a timer that is due at `due` is needed.
    pub(crate) fn watches(&self, id: PartitionId, due: Timestamp) -> bool {
        self.by_partition.get(&id).is_some_and(|held| held.watched.contains(&Some(due)))
    }

    /// Puts a partition of so many bytes into the queue if a pass is worth its while at `now`.
    pub(crate) fn judge(&mut self, id: PartitionId, bytes: u64, now: Timestamp) {
        let Some(held) = self.by_partition.get_mut(&id) else { return };
        if held.is_due || now < held.not_before {
            return;
        }
        let dirty = held.dirty_bytes.min(bytes);
        let clean = bytes - dirty;
        let is_old = held.dirty_since.is_some_and(|since| since.plus(TIDY_AFTER) <= now);
        let is_much = dirty >= clean.max(DIRTY_BYTES_MIN);
        let is_untidy = is_old && bytes <= TIDY_BYTES && dirty > 0 && dirty >= clean / TIDY_SHARE;
        let may_forget = held.tombstones.is_some_and(|tombstones| tombstones.at <= now);
        if is_much || is_untidy || may_forget {
            held.is_due = true;
            self.due.push_back(id);
        }
    }

    fn is_due(&self, id: PartitionId) -> bool {
        self.by_partition.get(&id).is_some_and(|held| held.is_due)
    }

    /// Whether the pass under way is still about this partition: not if it keeps the latest no more, nor
    /// if that was switched off and on again.
    pub(crate) fn is_in_pass(&self, id: PartitionId) -> bool {
        self.by_partition.get(&id).is_some_and(|held| held.is_in_pass)
    }

    /// A pass begins, or is over.
    pub(crate) fn set_in_pass(&mut self, id: PartitionId, is_in_pass: bool) {
        if let Some(held) = self.by_partition.get_mut(&id) {
            held.is_in_pass = is_in_pass;
        }
    }

    /// The partition that is due longest.
    pub(crate) fn next_due(&self) -> Option<PartitionId> {
        self.due.iter().find(|id| self.is_due(**id)).copied()
    }

    /// A pass has begun that was due, or has come to nothing: it is due no more until it is judged again.
    pub(crate) fn taken(&mut self, id: PartitionId) {
        if let Some(held) = self.by_partition.get_mut(&id) {
            held.is_due = false;
        }
        while self.due.front().is_some_and(|id| !self.is_due(*id)) {
            self.due.pop_front();
        }
    }

    /// A pass came to nothing.
    pub(crate) fn put_off(&mut self, id: PartitionId, now: Timestamp) {
        self.taken(id);
        if let Some(held) = self.by_partition.get_mut(&id) {
            held.is_in_pass = false;
            held.not_before = now.plus(AGAIN_AFTER);
        }
    }
}
