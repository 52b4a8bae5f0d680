//! The classes of the messages that a partition keeps: what a scheduler has to know of each, without reading it. A
//! class is kept once, however many messages have it. It knows no group.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, Hash, Hasher},
    ops::Range,
    sync::Arc,
};

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};
use sennit_model::{Batch, Class, ClassRef, MessageFields};

/// The number of a class in a partition, while messages have it.
pub(crate) type ClassNumber = u32;

/// The class of messages of which nothing is known: it is there always.
pub(crate) const NO_CLASS: ClassNumber = 0;

/// The classes of a partition; most have none.
#[derive(Debug, Default)]
pub(crate) struct Classes(Option<Box<Table>>);

/// What is known of a class, and whether a number was given again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClassView<'a> {
    pub(crate) class: &'a Class,
    /// How often the number was given to a class.
    pub(crate) age: u32,
    /// The number of its fair key.
    pub(crate) key: u32,
    /// How often the number of the key was given.
    pub(crate) key_age: u32,
}

#[derive(Debug)]
struct Table {
    classes: Vec<Slot<Class>>,
    free_classes: Vec<u32>,
    numbers: HashTable<ClassNumber>,
    hasher: FixedState,
    keys: Vec<Slot<str>>,
    free_keys: Vec<u32>,
    key_numbers: HashMap<Arc<str>, u32, FixedState>,
    /// By the first offset of the batch. A batch without classes is not in here.
    batches: BTreeMap<u64, OfBatch>,
}

/// A number, and what it means now.
#[derive(Debug)]
struct Slot<T: ?Sized> {
    value: Option<Arc<T>>,
    /// Of a class the number of messages that have it, of a key that of its classes.
    uses: u64,
    age: u32,
    /// Of a class, its key.
    key: u32,
}

/// The classes of a batch's messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OfBatch {
    /// All of so many messages have the same.
    One(ClassNumber, u32),
    /// Each has its own.
    Each(Box<[ClassNumber]>),
}

impl OfBatch {
    fn count(&self) -> u64 {
        match self {
            Self::One(_, count) => u64::from(*count),
            Self::Each(classes) => classes.len() as u64,
        }
    }

    /// The runs of equal classes within `part`, as positions in the batch.
    fn runs(&self, part: Range<u64>, mut each: impl FnMut(Range<u64>, ClassNumber)) {
        match self {
            Self::One(class, _) => each(part, *class),
            Self::Each(classes) => {
                let (mut at, end) = (part.start as usize, part.end as usize);
                while at < end {
                    let class = classes[at];
                    let run = classes[at..end].iter().take_while(|&&other| other == class).count();
                    each(at as u64..(at + run) as u64, class);
                    at += run;
                }
            }
        }
    }
}

impl Default for Table {
    fn default() -> Self {
        let class = Arc::new(Class::default());
        let key: Arc<str> = (&*class.fair_key).into();
        let (mut numbers, hasher) = (HashTable::new(), FixedState::default());
        let hash = hash_of(&hasher, &ClassRef::from(&*class));
        numbers.insert_unique(hash, NO_CLASS, |_| hash);
        Self {
            classes: vec![Slot { value: Some(class), uses: 1, age: 0, key: 0 }],
            free_classes: Vec::new(),
            numbers,
            hasher,
            keys: vec![Slot { value: Some(key.clone()), uses: 1, age: 0, key: 0 }],
            free_keys: Vec::new(),
            key_numbers: [(key, 0)].into_iter().collect(),
            batches: BTreeMap::new(),
        }
    }
}

impl Table {
    /// The number of a class, which some message is about to have.
    fn number(&mut self, class: &ClassRef<'_>) -> ClassNumber {
        let hash = hash_of(&self.hasher, class);
        let is_it = |number: &ClassNumber| {
            self.classes[*number as usize].value.as_deref().is_some_and(|held| is_same(held, class))
        };
        if let Some(&number) = self.numbers.find(hash, is_it) {
            return number;
        }
        let key = self.key_number(class.fair_key);
        let new = Arc::new(class.to_class());
        let number = take_slot(&mut self.classes, &mut self.free_classes, new);
        let slot = &mut self.classes[number as usize];
        (slot.uses, slot.key) = (0, key);
        let Self { classes, numbers, hasher, .. } = self;
        numbers.insert_unique(hash, number, |&other| hash_of(hasher, &of_slot(classes, other)));
        number
    }

    fn key_number(&mut self, key: &str) -> u32 {
        if let Some(&number) = self.key_numbers.get(key) {
            self.keys[number as usize].uses += 1;
            return number;
        }
        let key: Arc<str> = key.into();
        let number = take_slot(&mut self.keys, &mut self.free_keys, key.clone());
        self.keys[number as usize].uses = 1;
        self.key_numbers.insert(key, number);
        number
    }

    /// So many messages fewer have a class.
    fn release(&mut self, number: ClassNumber, messages: u64) {
        let slot = &mut self.classes[number as usize];
        slot.uses -= messages;
        if slot.uses > 0 {
            return;
        }
        let key = slot.key;
        let hash = hash_of(&self.hasher, &of_slot(&self.classes, number));
        let found = self.numbers.find_entry(hash, |other| *other == number);
        found.expect("a class that messages have is in the table").remove();
        self.classes[number as usize].value = None;
        self.free_classes.push(number);
        let slot = &mut self.keys[key as usize];
        slot.uses -= 1;
        if slot.uses == 0 {
            let name = slot.value.take().expect("a key that classes have is there");
            self.key_numbers.remove(&name);
            self.free_keys.push(key);
        }
    }
}

/// Most messages have no throttle key, and a class has room for eight: those that are not there cost nothing.
fn hash_of(hasher: &FixedState, class: &ClassRef<'_>) -> u64 {
    let mut state = hasher.build_hasher();
    (class.fair_key, class.weight, class.priority).hash(&mut state);
    class.throttle_keys().for_each(|key| key.hash(&mut state));
    state.finish()
}

/// Whether a class is the one of a message; what differs most is compared first.
fn is_same(held: &Class, class: &ClassRef<'_>) -> bool {
    *held.fair_key == *class.fair_key
        && (held.weight, held.priority) == (class.weight, class.priority)
        && held.throttle_keys.iter().map(|key| &**key).eq(class.throttle_keys())
}

fn of_slot(classes: &[Slot<Class>], number: ClassNumber) -> ClassRef<'_> {
    let class = classes[number as usize].value.as_deref();
    class.expect("a class that messages have is there").into()
}

fn take_slot<T: ?Sized>(slots: &mut Vec<Slot<T>>, free: &mut Vec<u32>, value: Arc<T>) -> u32 {
    if let Some(number) = free.pop() {
        let slot = &mut slots[number as usize];
        slot.age = slot.age.wrapping_add(1);
        slot.value = Some(value);
        return number;
    }
    let number = u32::try_from(slots.len()).expect("fewer than 2^32 messages are kept");
    slots.push(Slot { value: Some(value), uses: 0, age: 0, key: 0 });
    number
}

impl Classes {
    /// Whether no message has a class.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|table| table.batches.is_empty())
    }

    /// Notes the classes of a batch whose first message is at `first`. Costs a step for each header.
    pub(crate) fn append(&mut self, first: u64, batch: &Batch, fields: &MessageFields) {
        let mut last = (ClassRef::default(), NO_CLASS);
        let mut each = Vec::with_capacity(batch.count() as usize);
        for message in batch.messages() {
            let class = fields.class(&message);
            if class != last.0 {
                last = (class, self.table().number(&class));
            }
            each.push(last.1);
        }
        self.insert(first, each);
    }

    /// The messages from `first` on have these classes, each so many.
    pub(crate) fn put(&mut self, first: u64, runs: &[(u32, Class)]) {
        let mut each = Vec::new();
        for (count, class) in runs {
            let number = self.table().number(&class.into());
            each.extend(std::iter::repeat_n(number, *count as usize));
        }
        self.insert(first, each);
    }

    fn table(&mut self) -> &mut Table {
        self.0.get_or_insert_default()
    }

    fn insert(&mut self, first: u64, each: Vec<ClassNumber>) {
        if each.iter().all(|&number| number == NO_CLASS) {
            return;
        }
        let table = self.table();
        let is_one = each.iter().all(|&number| number == each[0]);
        let of_batch = if is_one {
            let count = u32::try_from(each.len()).expect("a batch holds fewer");
            OfBatch::One(each[0], count)
        } else {
            OfBatch::Each(each.into())
        };
        let count = |run: Range<u64>, number: ClassNumber| {
            table.classes[number as usize].uses += run.end - run.start;
        };
        of_batch.runs(0..of_batch.count(), count);
        let before = table.batches.insert(first, of_batch);
        assert!(before.is_none(), "the classes of a batch are noted once");
    }

    /// The batch that begins at `first` is not kept any more.
    pub(crate) fn free(&mut self, first: u64) {
        let Some(table) = &mut self.0 else { return };
        let Some(of_batch) = table.batches.remove(&first) else { return };
        of_batch.runs(0..of_batch.count(), |run, class| table.release(class, run.end - run.start));
    }

    /// Of the batch that begins at `first` these parts are kept, each as a batch: its first offset and its count.
    pub(crate) fn keep_parts(&mut self, first: u64, parts: impl Iterator<Item = (u64, u32)>) {
        let Some(table) = &mut self.0 else { return };
        let Some(whole) = table.batches.remove(&first) else { return };
        for (begin, count) in parts {
            let mut each = Vec::with_capacity(count as usize);
            let at = begin - first;
            whole.runs(at..at + u64::from(count), |run, class| each.extend(run.map(|_| class)));
            if each.iter().all(|&class| class == NO_CLASS) {
                continue;
            }
            each.iter().for_each(|&class| table.classes[class as usize].uses += 1);
            table.batches.insert(begin, OfBatch::Each(each.into()));
        }
        whole.runs(0..whole.count(), |run, class| table.release(class, run.end - run.start));
    }

    /// The runs of equal classes within `range`, in order. Costs a step for each message of a batch with several.
    pub(crate) fn runs(&self, range: Range<u64>, mut each: impl FnMut(Range<u64>, ClassNumber)) {
        let Range { start, end } = range;
        let mut at = start;
        let Some(table) = &self.0 else {
            return if at < end {
                each(at..end, NO_CLASS)
            };
        };
        let before = table.batches.range(..start).next_back();
        for (&first, of_batch) in before.into_iter().chain(table.batches.range(start..end)) {
            let batch_end = first + of_batch.count();
            if batch_end <= at {
                continue;
            }
            if at < first {
                each(at..first, NO_CLASS);
                at = first;
            }
            let part = at - first..batch_end.min(end) - first;
            of_batch.runs(part, |run, class| each(first + run.start..first + run.end, class));
            at = batch_end.min(end);
        }
        if at < end {
            each(at..end, NO_CLASS);
        }
    }

    /// What is known of a class that some message has.
    pub(crate) fn get(&self, number: ClassNumber) -> Option<ClassView<'_>> {
        let table = self.0.as_ref()?;
        let slot = table.classes.get(number as usize)?;
        let (age, key, key_age) = (slot.age, slot.key, table.keys[slot.key as usize].age);
        Some(ClassView { class: slot.value.as_deref()?, age, key, key_age })
    }

    /// The number of messages in the batch that begins at `first`, if they have classes.
    pub(crate) fn of_batch(&self, first: u64) -> Option<u64> {
        self.0.as_ref()?.batches.get(&first).map(OfBatch::count)
    }

    /// The name of a key that classes have.
    pub(crate) fn key_name(&self, key: u32) -> Option<&str> {
        match &self.0 {
            Some(table) => table.keys.get(key as usize)?.value.as_deref(),
            None => (key == 0).then_some(""),
        }
    }

    /// The classes of the batches that begin within `range`, as `put` takes them.
    pub(crate) fn within(&self, range: Range<u64>) -> Vec<(u64, Vec<(u32, &Class)>)> {
        let Some(table) = &self.0 else { return Vec::new() };
        let of_batch = |(&first, of_batch): (&u64, &OfBatch)| {
            let mut runs = Vec::new();
            of_batch.runs(0..of_batch.count(), |run, class| {
                let class = table.classes[class as usize].value.as_deref();
                let count = u32::try_from(run.end - run.start).expect("a batch holds fewer");
                runs.push((count, class.expect("a class that messages have is there")));
            });
            (first, runs)
        };
        table.batches.range(range).map(of_batch).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(key: &str) -> Class {
        Class { fair_key: key.into(), ..Class::default() }
    }

    fn listed(classes: &Classes, range: Range<u64>) -> Vec<(Range<u64>, String)> {
        let mut listed = Vec::new();
        classes.runs(range, |run, number| {
            let key = classes
                .get(number)
                .map_or_else(String::new, |view| view.class.fair_key.to_string());
            listed.push((run, key));
        });
        listed
    }

    #[test]
    fn each_message_has_the_class_of_its_headers_and_others_have_none() {
        let mut classes = Classes::default();
        assert_eq!(listed(&classes, 3..9), [(3..9, String::new())]);
        classes.put(10, &[(2, class("a")), (3, class("b")), (1, class("a"))]);
        classes.put(20, &[(5, class("b"))]);
        let text = |key: &str| key.to_owned();
        let all = [
            (8..10, text("")),
            (10..12, text("a")),
            (12..15, text("b")),
            (15..16, text("a")),
            (16..20, text("")),
            (20..24, text("b")),
        ];
        assert_eq!(listed(&classes, 8..24), all);
        assert_eq!(listed(&classes, 13..16), [(13..15, text("b")), (15..16, text("a"))]);
        assert_eq!(listed(&classes, 24..26), [(24..25, text("b")), (25..26, text(""))]);
    }

    #[test]
    fn the_parts_of_a_batch_that_are_kept_keep_their_classes() {
        let mut classes = Classes::default();
        classes.put(10, &[(2, class("a")), (3, class("b"))]);
        classes.put(20, &[(5, class("a"))]);
        classes.keep_parts(10, [(11, 2), (14, 1)].into_iter());
        classes.keep_parts(20, [].into_iter());
        assert_eq!(
            [10, 11, 14, 20].map(|first| classes.of_batch(first)),
            [None, Some(2), Some(1), None]
        );
        let text = |key: &str| key.to_owned();
        let all = [
            (10..11, text("")),
            (11..12, text("a")),
            (12..13, text("b")),
            (13..14, text("")),
            (14..15, text("b")),
        ];
        assert_eq!(listed(&classes, 10..15), all);
        classes.free(11);
        classes.free(14);
        // A part without classes costs nothing, as a batch without them.
        classes.put(30, &[(2, Class::default()), (1, class("a"))]);
        classes.keep_parts(30, [(30, 2), (32, 1)].into_iter());
        assert_eq!([30, 32].map(|first| classes.of_batch(first)), [None, Some(1)]);
        classes.free(32);
        assert!(classes.is_empty());
        assert!(classes.get(1).is_none() && classes.get(2).is_none(), "nobody has them");
    }

    #[test]
    fn the_number_of_a_class_that_no_message_has_is_given_again_with_another_age() {
        let mut classes = Classes::default();
        classes.put(0, &[(1, class("a"))]);
        let number = 1;
        let before = classes.get(number).map(|view| (view.age, view.key_age));
        classes.put(1, &[(1, class("b"))]);
        classes.free(0);
        assert!(classes.get(number).is_none());
        classes.put(2, &[(1, class("c"))]);
        let view = classes.get(number).unwrap();
        assert_eq!(&*view.class.fair_key, "c");
        assert_ne!(Some((view.age, view.key_age)), before);
        classes.free(1);
        classes.free(2);
        assert!(classes.is_empty());
    }
}
