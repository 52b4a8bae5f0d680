//! The partitions of a shard: found by number in one step, walked in order a few at a time. Partitions at rest are
//! folded; access to a folded one unfolds it.

use std::{
    cell::{Cell, OnceCell},
    hash::BuildHasher,
};

use foldhash::fast::FixedState;
use hashbrown::{HashTable, hash_table::Entry};
use sennit_model::PartitionId;

use crate::{
    folded::{Folded, Form},
    interner::Interner,
    ordered::Ordered,
    pages::Pages,
    partition::{Partition, Rest},
    stored::Stored,
};

/// A partition, folded or not; neither, and the place is free.
#[derive(Debug, Default)]
struct Held {
    id: PartitionId,
    /// Its state when it was last at rest, if nothing has changed it since.
    folded: Option<Folded>,
    /// The partition in use. If it is folded too, it was only read.
    open: OnceCell<Box<Partition>>,
}

impl Held {
    fn new(partition: Partition) -> Self {
        Self { id: partition.id, folded: None, open: OnceCell::from(Box::new(partition)) }
    }

    fn is_free(&self) -> bool {
        self.folded.is_none() && self.open.get().is_none()
    }

    fn unfolded(&self) -> Partition {
        self.folded.as_ref().expect("it is folded unless it is open").unfolded(self.id)
    }

    fn get(&self) -> &Partition {
        self.open.get_or_init(|| Box::new(self.unfolded()))
    }

    fn peek(&self) -> PartitionView<'_> {
        match self.open.get() {
            Some(partition) => PartitionView::Open(partition),
            None => PartitionView::Folded(Box::new(self.unfolded())),
        }
    }

    fn get_mut(&mut self) -> &mut Partition {
        self.get();
        self.folded = None;
        let partition = self.open.get_mut().expect("it was opened just now");
        partition.rest = Rest::Touched;
        partition
    }

    fn fold(&mut self, forms: &mut Interner<Form>) {
        let Some(partition) = self.open.get_mut() else { return };
        if self.folded.is_none() {
            self.folded =
                Folded::of(partition, |partition| forms.get(Form::of(partition), Form::key));
        }
        match self.folded {
            Some(_) => drop(self.open.take()),
            None => partition.rest = Rest::None,
        }
    }
}

/// A partition to be read once: one that is folded stays so.
#[derive(Debug)]
pub(crate) enum PartitionView<'a> {
    Open(&'a Partition),
    Folded(Box<Partition>),
}

impl PartitionView<'_> {
    pub(crate) fn partition(&self) -> &Partition {
        match self {
            Self::Open(partition) => partition,
            Self::Folded(partition) => partition,
        }
    }
}

/// All partitions of a shard.
#[derive(Debug, Default)]
pub(crate) struct Partitions {
    held: Pages<Held>,
    /// Their places by their numbers, which only they hold: the table is half empty as a rule.
    by_id: HashTable<u32>,
    hasher: FixedState,
    /// The one that was found last, which as a rule is the next one too.
    last: Cell<Option<(PartitionId, u32)>>,
    /// Their places in the order of their numbers, because a walk over all of them is made in steps,
    /// between which they change.
    in_order: Ordered<u32>,
    forms: Interner<Form>,
    /// The place at which the walk that folds partitions goes on.
    hand: u32,
}

impl Partitions {
    fn place(&self, id: &PartitionId) -> Option<u32> {
        if let Some((last, place)) = self.last.get()
            && last == *id
        {
            return Some(place);
        }
        let is_it = |place: &u32| self.held[*place].id == *id;
        let place = *self.by_id.find(self.hasher.hash_one(id), is_it)?;
        self.last.set(Some((*id, place)));
        Some(place)
    }

    fn entry(&mut self, id: PartitionId) -> Entry<'_, u32> {
        let Self { held, by_id, hasher, .. } = self;
        let hash = hasher.hash_one(id);
        by_id.entry(hash, |&place| held[place].id == id, |&place| hasher.hash_one(held[place].id))
    }

    /// The partition of this number.
    pub(crate) fn get(&self, id: &PartitionId) -> Option<&Partition> {
        Some(self.held[self.place(id)?].get())
    }

    /// The same, for a walk over many: a folded partition stays folded.
    pub(crate) fn peek(&self, id: &PartitionId) -> Option<PartitionView<'_>> {
        Some(self.held[self.place(id)?].peek())
    }

    /// The same, where a folded one is unfolded only if `may_be_there` says that it is worth it.
    pub(crate) fn peek_if(
        &self,
        id: &PartitionId,
        may_be_there: impl FnOnce(&Folded) -> bool,
    ) -> Option<PartitionView<'_>> {
        let held = &self.held[self.place(id)?];
        let is_worth_it = match (&held.folded, held.open.get()) {
            (Some(folded), None) => may_be_there(folded),
            _ => true,
        };
        is_worth_it.then(|| held.peek())
    }

    /// What the partition of this number stores. A folded one stays so.
    pub(crate) fn stored(&self, id: &PartitionId) -> Stored {
        let Some(place) = self.place(id) else { return Stored::default() };
        let held = &self.held[place];
        match (held.open.get(), &held.folded) {
            (Some(partition), _) => Stored::of(&partition.log, &partition.config),
            (None, Some(folded)) => folded.stored(),
            (None, None) => Stored::default(),
        }
    }

    /// Whether there is a partition of this number.
    pub(crate) fn has(&self, id: &PartitionId) -> bool {
        self.place(id).is_some()
    }

    /// The partition of this number, to be changed.
    pub(crate) fn get_mut(&mut self, id: &PartitionId) -> Option<&mut Partition> {
        let place = self.place(id)?;
        Some(self.held[place].get_mut())
    }

    /// Adds a partition, or replaces the one of the same number.
    pub(crate) fn insert(&mut self, partition: Partition) {
        let id = partition.id;
        if let Some(place) = self.place(&id) {
            self.held[place] = Held::new(partition);
            return;
        }
        let place = self.held.insert(Held::new(partition));
        if let Entry::Vacant(vacant) = self.entry(id) {
            vacant.insert(place);
        }
        self.last.set(Some((id, place)));
        let Self { held, in_order, .. } = self;
        in_order.insert(place, |other| held[other].id.cmp(&id));
    }

    /// The partition of this number, made if it is not there.
    pub(crate) fn get_or_insert(
        &mut self,
        id: PartitionId,
        made: impl FnOnce() -> Partition,
    ) -> &mut Partition {
        if self.place(&id).is_none() {
            self.insert(made());
        }
        self.get_mut(&id).expect("inserted just now")
    }

    pub(crate) fn remove(&mut self, id: &PartitionId) -> Option<Partition> {
        let Self { held, in_order, last, .. } = self;
        last.set(None);
        in_order.remove(|other| held[other].id.cmp(id));
        let Entry::Occupied(found) = self.entry(*id) else { return None };
        let place = found.remove().0;
        let held = self.held.remove(place);
        held.get();
        held.open.into_inner().map(|partition| *partition)
    }

    /// The numbers of all partitions, in order.
    pub(crate) fn ids(&self) -> impl Iterator<Item = PartitionId> {
        self.in_order.iter().map(|place| self.held[place].id)
    }

    /// The lowest number above `id`, or of all. O(log n).
    pub(crate) fn next_after(&self, id: Option<PartitionId>) -> Option<PartitionId> {
        let Some(id) = id else { return self.ids().next() };
        let mut above = self.in_order.after(|place| self.held[place].id.cmp(&id));
        above.next().map(|place| self.held[place].id)
    }

    /// All partitions, in no order.
    pub(crate) fn values(&self) -> impl Iterator<Item = PartitionView<'_>> {
        self.held.iter().filter(|held| !held.is_free()).map(Held::peek)
    }

    /// Reads one of so many `parts` of all partitions, from this place on, and returns where the next part begins:
    /// 0 after the last. A folded one is unfolded only if `may_tell` says that it is worth it.
    pub(crate) fn peek_part(
        &self,
        from: u32,
        parts: u32,
        may_tell: impl Fn(&Folded) -> bool,
        mut look: impl FnMut(&Partition),
    ) -> u32 {
        let places = self.held.places();
        let until = from.saturating_add(places.div_ceil(parts)).min(places);
        for place in from..until {
            let held = &self.held[place];
            match (held.open.get(), &held.folded) {
                (Some(partition), _) => look(partition),
                (None, Some(folded)) if may_tell(folded) => look(held.peek().partition()),
                _ => {}
            }
        }
        if until < places { until } else { 0 }
    }

    /// Folds a partition now if nothing is under way in it.
    pub(crate) fn fold(&mut self, id: &PartitionId) {
        if let Some(place) = self.place(id) {
            self.held[place].fold(&mut self.forms);
        }
    }

    /// Visits the next of so many `parts` of all places, round and round, and folds each partition that was not
    /// changed since the last visit.
    pub(crate) fn fold_untouched(&mut self, parts: u32) {
        for _ in 0..self.held.places().div_ceil(parts) {
            self.hand = if self.hand + 1 < self.held.places() { self.hand + 1 } else { 0 };
            let held = &mut self.held[self.hand];
            let Some(partition) = held.open.get_mut() else { continue };
            match partition.rest {
                Rest::Touched => partition.rest = Rest::LeftAlone,
                Rest::LeftAlone => held.fold(&mut self.forms),
                Rest::None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sennit_model::{
        GroupConfig, GroupId, PartitionIndex, StartAt, Timestamp, TopicConfig, TopicId, TopicKind,
    };

    use super::*;
    use crate::{
        command::{Credit, GroupSetting, SessionId},
        lease::Holder,
        log::{Entry as Batch, Place},
        terms::Terms,
        wheel::Wheel,
    };

    fn id(topic: u32) -> PartitionId {
        PartitionId { topic: TopicId(topic), index: PartitionIndex(0) }
    }

    /// A queue's partition with a message.
    fn partition(topic: u32) -> Partition {
        let config = Arc::new(TopicConfig::of_kind(TopicKind::Queue));
        let mut partition = Partition::new(id(topic), config);
        let place = Place { position: 1 << 40, bytes: 100 };
        partition.log.push(Batch { first: 0, count: 1, place, appended_at: Timestamp(7) });
        let (config, start) = (GroupConfig::default(), StartAt::Earliest);
        let terms = Arc::new(Terms { config: config.clone(), start });
        let setting = GroupSetting { id: GroupId(topic), config, start };
        partition.set_groups(&[setting], |_| terms.clone(), &mut Wheel::new(Timestamp(7)));
        partition.show(1);
        partition
    }

    fn are_open(partitions: &Partitions, topics: impl Iterator<Item = u32>) -> Vec<u32> {
        let is_open = |topic: &u32| {
            partitions.peek(&id(*topic)).is_some_and(|view| matches!(view, PartitionView::Open(_)))
        };
        topics.filter(is_open).collect()
    }

    #[test]
    fn what_was_left_alone_for_a_round_is_folded_and_unfolded_to_be_changed() {
        let mut partitions = Partitions::default();
        (0..300).for_each(|topic| partitions.insert(partition(topic)));
        partitions.get_mut(&id(7)).expect("it is there").is_in_ready_list = false;
        partitions.fold_untouched(1);
        assert_eq!(are_open(&partitions, 0..300), [7]);
        (0..10).for_each(|_| partitions.fold_untouched(10));
        assert_eq!(are_open(&partitions, 0..300), [0; 0]);
        partitions.get_mut(&id(9)).expect("it is there").dead_letter_topic_requested = true;
        assert_eq!(are_open(&partitions, 0..300), [9]);
        (0..2).for_each(|_| partitions.fold_untouched(1));
        assert_eq!(are_open(&partitions, 0..300), [0; 0]);
        let was_asked = |topic| {
            partitions.peek(&id(topic)).map(|view| view.partition().dead_letter_topic_requested)
        };
        assert_eq!((was_asked(9), was_asked(8)), (Some(true), Some(false)));
    }

    #[test]
    fn what_was_only_looked_at_is_folded_the_next_time_round() {
        let mut partitions = Partitions::default();
        partitions.insert(partition(7));
        partitions.fold(&id(7));
        assert_eq!(partitions.values().map(|view| view.partition().log.bytes()).sum::<u64>(), 100);
        assert_eq!(are_open(&partitions, 0..9), [0; 0]);
        assert_eq!(partitions.get(&id(7)).map(|held| held.groups.len()), Some(1));
        assert_eq!(are_open(&partitions, 0..9), [7]);
        partitions.fold_untouched(1);
        assert_eq!(are_open(&partitions, 0..9), [0; 0]);
    }

    #[test]
    fn where_something_is_under_way_nothing_is_folded_until_that_changes() {
        let mut partitions = Partitions::default();
        let holder = Holder { session: SessionId(1), subscription: 1 };
        let acts: [fn(&mut Partition, Holder); 4] = [
            |held, holder| held.groups[0].join(holder, Credit { messages: 1, bytes: 1 }),
            |held, _| held.is_in_ready_list = true,
            |held, _| held.is_loading = true,
            |held, _| drop(held.groups[0].damage(0, 1)),
        ];
        for (topic, act) in (0..).zip(acts) {
            let mut partition = partition(topic);
            act(&mut partition, holder);
            partitions.insert(partition);
        }
        (0..9).for_each(|_| partitions.fold_untouched(1));
        assert_eq!(are_open(&partitions, 0..9), [0, 1, 2, 3]);
        partitions.get_mut(&id(1)).expect("it is there").is_in_ready_list = false;
        (0..2).for_each(|_| partitions.fold_untouched(1));
        assert_eq!(are_open(&partitions, 0..9), [0, 2, 3]);
    }

    #[test]
    fn places_that_come_free_are_given_again_and_the_walk_stays_in_order() {
        let mut partitions = Partitions::default();
        (0..300).for_each(|topic| partitions.insert(partition(topic)));
        (0..2).for_each(|_| partitions.fold_untouched(1));
        for topic in (0..300).filter(|topic| topic % 3 == 0) {
            assert_eq!(partitions.remove(&id(topic)).map(|gone| gone.id), Some(id(topic)));
        }
        assert!(partitions.remove(&id(0)).is_none() && partitions.get(&id(3)).is_none());
        (300..400).rev().for_each(|topic| partitions.insert(partition(topic)));
        assert_eq!(partitions.held.places(), 300);
        let there: Vec<_> = (0..400).filter(|n| n % 3 != 0 || *n >= 300).map(id).collect();
        assert_eq!(partitions.ids().collect::<Vec<_>>(), there);
        assert_eq!(partitions.next_after(None), Some(id(1)));
        assert_eq!(partitions.next_after(Some(id(2))), Some(id(4)));
        assert_eq!(partitions.next_after(Some(id(399))), None);
        assert_eq!(partitions.values().count(), 300);
    }
}
