//! Readers: subscriptions without a group, each with a position and a window of its own. Nothing is
//! leased or kept for them, and none of it is a record. It does not know where batches come from.
//!
//! Readers live beside the partitions, so that a partition without one pays nothing.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use sennit_model::{
    CursorName, Filter, PartitionId, WhenSlow,
    limits::{CREDIT_BYTES_MAX, CREDIT_MESSAGES_MAX},
};

use crate::{
    command::{Credit, CursorClaim, SessionId},
    lease::Holder,
    wakeups::Wakeups,
};

/// What all filters of a shard may do in a turn, in bytes looked at ([`Filter::cost`]): half a
/// millisecond or so. What they do not get to then comes in the next, and others are served between.
pub(crate) const TURN_WORK: u64 = 4 << 20;

/// The filter of a reader, and how far the reader knows its result.
#[derive(Clone, Debug)]
pub(crate) struct ReaderFilter {
    pub(crate) wanted: Filter,
    /// The reader has received a delivery or a gap up to this offset.
    pub(crate) reported_to: u64,
}

impl ReaderFilter {
    pub(crate) fn new(wanted: Filter, at: u64) -> Self {
        Self { wanted, reported_to: at }
    }
}

/// A reader of one partition.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    pub(crate) holder: Holder,
    /// The offset that it gets next.
    pub(crate) at: u64,
    pub(crate) credit: Credit,
    /// Delivered and not said to be taken.
    pub(crate) held_messages: u64,
    pub(crate) held_bytes: u64,
    /// The cursor that is its own while it reads.
    pub(crate) cursor: Option<CursorClaim>,
    /// Its choice for when it is too far behind.
    pub(crate) when_slow: WhenSlow,
    /// Whether it has come to the newest message.
    pub(crate) was_live: bool,
    /// `None`: it gets all messages.
    pub(crate) filter: Option<Box<ReaderFilter>>,
    /// `(offset, byte)`: the message at `offset` begins at `byte` of its batch.
    pub(crate) place_hint: Option<(u64, usize)>,
}

impl Reader {
    /// How many more messages it may receive; 0 once either window is full.
    pub(crate) fn room_messages(&self) -> u64 {
        if self.held_bytes >= self.credit.bytes && self.held_messages > 0 {
            return 0;
        }
        u64::from(self.credit.messages).saturating_sub(self.held_messages)
    }

    pub(crate) fn room_bytes(&self) -> u64 {
        self.credit.bytes.saturating_sub(self.held_bytes)
    }
}

/// The readers of one partition.
#[derive(Debug, Default)]
pub(crate) struct PartitionReaders {
    pub(crate) readers: BTreeMap<Holder, Reader>,
    pub(crate) wakeups: Wakeups<Holder>,
}

/// All readers of a shard.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    by_partition: HashMap<PartitionId, PartitionReaders, foldhash::fast::FixedState>,
    /// Where each session reads; a partition as often as it has readers of the session there.
    by_session: HashMap<SessionId, Vec<PartitionId>, foldhash::fast::FixedState>,
}

impl Readers {
    pub(crate) fn of(&mut self, partition: PartitionId) -> Option<&mut PartitionReaders> {
        self.by_partition.get_mut(&partition)
    }

    /// Adds a reader at `at`, or sets back the one that is there.
    pub(crate) fn join(
        &mut self,
        partition: PartitionId,
        holder: Holder,
        (at, credit): (u64, Credit),
        (cursor, filter): (Option<CursorClaim>, Option<Filter>),
        when_slow: WhenSlow,
    ) {
        let reader = Reader {
            holder,
            at,
            credit: bounded(credit),
            held_messages: 0,
            held_bytes: 0,
            cursor,
            when_slow,
            was_live: false,
            filter: filter.map(|filter| Box::new(ReaderFilter::new(filter, at))),
            place_hint: None,
        };
        let held = self.by_partition.entry(partition).or_default();
        held.wakeups.wake(holder);
        if held.readers.insert(holder, reader).is_none() {
            self.by_session.entry(holder.session).or_default().push(partition);
        }
    }

    /// Removes a reader; whether it was there.
    pub(crate) fn leave(&mut self, partition: PartitionId, holder: Holder) -> bool {
        let Some(held) = self.by_partition.get_mut(&partition) else { return false };
        if held.readers.remove(&holder).is_none() {
            return false;
        }
        if held.readers.is_empty() {
            self.by_partition.remove(&partition);
        }
        self.forget_place(holder.session, partition);
        true
    }

    fn forget_place(&mut self, session: SessionId, partition: PartitionId) {
        let Some(places) = self.by_session.get_mut(&session) else { return };
        if let Some(index) = places.iter().position(|place| *place == partition) {
            places.swap_remove(index);
        }
        if places.is_empty() {
            self.by_session.remove(&session);
        }
    }

    /// Removes all readers of a session.
    pub(crate) fn end_session(&mut self, session: SessionId) {
        let all = Holder { session, subscription: 0 }..=Holder { session, subscription: u32::MAX };
        for partition in self.by_session.remove(&session).into_iter().flatten() {
            if let Some(held) = self.by_partition.get_mut(&partition) {
                while let Some((&holder, _)) = held.readers.range(all.clone()).next() {
                    held.readers.remove(&holder);
                }
                if held.readers.is_empty() {
                    self.by_partition.remove(&partition);
                }
            }
        }
    }

    /// Removes all readers of a partition.
    pub(crate) fn end_partition(&mut self, partition: PartitionId) {
        let readers =
            self.by_partition.remove(&partition).into_iter().flat_map(|held| held.readers);
        for (holder, _) in readers {
            self.forget_place(holder.session, partition);
        }
    }

    /// Whether this reader has the cursor.
    pub(crate) fn has_cursor(&self, id: PartitionId, holder: Holder, name: &CursorName) -> bool {
        let reader = self.by_partition.get(&id).and_then(|held| held.readers.get(&holder));
        reader.and_then(|reader| reader.cursor.as_ref()).is_some_and(|claim| claim.name == *name)
    }

    /// The reader that holds a cursor of a partition.
    pub(crate) fn cursor_holder(&self, id: PartitionId, name: &CursorName) -> Option<Holder> {
        self.cursor_held(id, name).map(|(holder, _)| holder)
    }

    /// The reader that holds a cursor of a partition, and its claim.
    pub(crate) fn cursor_held(
        &self,
        id: PartitionId,
        name: &CursorName,
    ) -> Option<(Holder, &CursorClaim)> {
        let held = self.by_partition.get(&id)?;
        held.readers.values().find_map(|reader| {
            let claim = reader.cursor.as_ref().filter(|claim| claim.name == *name)?;
            Some((reader.holder, claim))
        })
    }

    /// All readers, by partition.
    pub(crate) fn all(self) -> Vec<(PartitionId, Holder)> {
        let each = |(id, held): (PartitionId, PartitionReaders)| {
            held.readers.into_keys().map(move |holder| (id, holder))
        };
        let mut all: Vec<_> = self.by_partition.into_iter().flat_map(each).collect();
        all.sort_unstable();
        all
    }

    /// The readers of a partition.
    pub(crate) fn holders(&self, partition: PartitionId) -> impl Iterator<Item = Holder> {
        let held = self.by_partition.get(&partition);
        held.into_iter().flat_map(|held| held.readers.keys().copied())
    }
}

pub(crate) fn bounded(credit: Credit) -> Credit {
    Credit {
        messages: credit.messages.min(CREDIT_MESSAGES_MAX),
        bytes: credit.bytes.min(CREDIT_BYTES_MAX),
    }
}
