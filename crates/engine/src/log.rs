//! A partition's index: the offsets of each batch, and its place in the journal. Freed batches leave holes. It
//! knows places as numbers, not files.

use std::{collections::VecDeque, ops::Range};

use sennit_model::{Offset, PartitionId, Timestamp};

/// Where the journal keeps a batch. The engine only passes it on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The position of its first byte in the shard's journal.
    pub position: u64,
    /// Its length in bytes.
    pub bytes: u32,
}

impl Place {
    /// Whether it lies within another.
    pub(crate) fn is_inside(self, outer: Self) -> bool {
        let end = |place: Self| place.position + u64::from(place.bytes);
        outer.position <= self.position && end(self) <= end(outer)
    }
}

/// A batch that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptBatch {
    /// Of which partition.
    pub partition: PartitionId,
    /// Its first message's offset.
    pub first: Offset,
    /// The number of messages in it.
    pub count: u32,
    /// The time of its append.
    pub appended_at: Timestamp,
    /// Its place in the journal.
    pub place: Place,
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

    /// The batch as other crates see it.
    pub(crate) fn kept(&self, partition: PartitionId) -> KeptBatch {
        let Self { first, count, place, appended_at } = *self;
        KeptBatch { partition, first: Offset(first), count, appended_at, place }
    }

    fn bytes(&self) -> u64 {
        u64::from(self.place.bytes)
    }
}

/// Most batches in a chunk: what one insertion or removal moves at most.
const CHUNK_ENTRIES: usize = 256;

/// Neighbouring batches, in order; never empty.
#[derive(Debug)]
struct Chunk {
    entries: VecDeque<Entry>,
    bytes: u64,
}

impl Chunk {
    fn first(&self) -> u64 {
        self.entries.front().expect("a chunk is never empty").first
    }

    fn end(&self) -> u64 {
        self.entries.back().expect("a chunk is never empty").end()
    }
}

/// The batches a partition keeps, in the order of their offsets.
#[derive(Debug, Default)]
pub(crate) struct Log {
    kept: Kept,
    start: u64,
    end: u64,
    bytes: u64,
}

/// Most partitions keep nothing or one batch; those pay for no list.
#[derive(Debug, Default)]
enum Kept {
    #[default]
    Nothing,
    One(Entry),
    Many(VecDeque<Chunk>),
}

impl Log {
    /// A log that keeps nothing of `start..end` and goes on at `end`.
    pub(crate) fn empty(start: u64, end: u64) -> Self {
        Self { kept: Kept::Nothing, start, end, bytes: 0 }
    }

    /// Nothing below this offset is kept: the oldest offset kept, or the end, unless batches are
    /// still to be put back.
    pub(crate) fn start(&self) -> u64 {
        self.start
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
        match &self.kept {
            Kept::Nothing => None,
            Kept::One(entry) => Some(entry),
            Kept::Many(chunks) => chunks.front()?.entries.front(),
        }
    }

    /// All batches.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries_from(0)
    }

    /// The batches that do not end before or at `offset`.
    pub(crate) fn entries_from(&self, offset: u64) -> impl Iterator<Item = &Entry> {
        let (one, chunks) = match &self.kept {
            Kept::Nothing => (None, None),
            Kept::One(entry) => (Some(entry), None),
            Kept::Many(chunks) => {
                (None, Some(chunks.range(chunks.partition_point(|c| c.end() <= offset)..)))
            }
        };
        let in_chunks = chunks.into_iter().flatten().flat_map(|chunk| chunk.entries.iter());
        one.into_iter().chain(in_chunks).skip_while(move |entry| entry.end() <= offset)
    }

    /// The batch that holds `offset`; `None` if that is a hole. O(log n).
    pub(crate) fn find(&self, offset: u64) -> Option<&Entry> {
        let entry = match &self.kept {
            Kept::Nothing => return None,
            Kept::One(entry) => entry,
            Kept::Many(chunks) => {
                let chunk = chunks.get(chunks.partition_point(|c| c.end() <= offset))?;
                let at = chunk.entries.partition_point(|entry| entry.end() <= offset);
                chunk.entries.get(at)?
            }
        };
        (entry.first <= offset && offset < entry.end()).then_some(entry)
    }

    /// The batch that holds `offset`, or else the first behind it. O(log n).
    pub(crate) fn find_from(&self, offset: u64) -> Option<&Entry> {
        match &self.kept {
            Kept::Nothing => None,
            Kept::One(entry) => Some(entry).filter(|entry| entry.end() > offset),
            Kept::Many(chunks) => {
                let chunk = chunks.get(chunks.partition_point(|c| c.end() <= offset))?;
                let at = chunk.entries.partition_point(|entry| entry.end() <= offset);
                chunk.entries.get(at)
            }
        }
    }

    /// The offset of the first batch that was appended at `time` or later. O(log n), and exact as far
    /// as the clock went forward.
    pub(crate) fn find_time(&self, time: Timestamp) -> Option<u64> {
        let is_before = |entry: &Entry| entry.appended_at < time;
        match &self.kept {
            Kept::Nothing => None,
            Kept::One(entry) => (!is_before(entry)).then_some(entry.first),
            Kept::Many(chunks) => {
                let is_behind = |chunk: &Chunk| chunk.entries.back().is_some_and(is_before);
                let chunk = chunks.get(chunks.partition_point(is_behind))?;
                let at = chunk.entries.partition_point(is_before);
                Some(chunk.entries.get(at)?.first)
            }
        }
    }

    /// The parts of `start..end` of which nothing is kept.
    pub(crate) fn holes(&self, start: u64, end: u64) -> Vec<Range<u64>> {
        let mut holes = Vec::new();
        let mut at = start;
        for entry in self.entries_from(start).take_while(|entry| entry.first < end) {
            if at < entry.first {
                holes.push(at..entry.first);
            }
            at = entry.end();
        }
        if at < end {
            holes.push(at..end);
        }
        holes
    }

    /// Bytes of the messages in `start..end`; those of a batch that lies across an end are shared
    /// out by count. Costs a step per [`CHUNK_ENTRIES`] batches.
    pub(crate) fn bytes_within(&self, start: u64, end: u64) -> u64 {
        let share = |entry: &Entry| {
            let count = entry.end().min(end).saturating_sub(entry.first.max(start));
            entry.bytes() * count / u64::from(entry.count.max(1))
        };
        match &self.kept {
            Kept::Nothing => 0,
            Kept::One(entry) => share(entry),
            Kept::Many(chunks) => chunks
                .range(chunks.partition_point(|chunk| chunk.end() <= start)..)
                .take_while(|chunk| chunk.first() < end)
                .map(|chunk| {
                    let whole = start <= chunk.first() && chunk.end() <= end;
                    if whole { chunk.bytes } else { chunk.entries.iter().map(share).sum() }
                })
                .sum(),
        }
    }

    /// Adds the batch that begins at the end.
    pub(crate) fn push(&mut self, entry: Entry) {
        assert_eq!(entry.first, self.end, "offsets are dense");
        self.end = entry.end();
        self.bytes += entry.bytes();
        if let Kept::Nothing = self.kept {
            self.kept = Kept::One(entry);
            return;
        }
        let chunks = self.many();
        match chunks.back_mut().filter(|chunk| chunk.entries.len() < CHUNK_ENTRIES) {
            Some(chunk) => {
                chunk.bytes += entry.bytes();
                chunk.entries.push_back(entry);
            }
            None => {
                let bytes = entry.bytes();
                chunks.push_back(Chunk { entries: VecDeque::from([entry]), bytes });
            }
        }
    }

    /// Nothing is appended below `end` any more.
    pub(crate) fn skip_to(&mut self, end: u64) {
        if let Kept::Nothing = self.kept
            && self.start == self.end
        {
            self.start = self.start.max(end);
        }
        self.end = self.end.max(end);
    }

    /// Puts a batch back that was kept before a restart, into a hole. O(log n).
    pub(crate) fn put_back(&mut self, entry: Entry) {
        debug_assert!(entry.end() <= self.end && self.find(entry.first).is_none());
        self.bytes += entry.bytes();
        if let Kept::Nothing = self.kept {
            self.kept = Kept::One(entry);
            return;
        }
        let chunks = self.many();
        // Batches come back in order: the chunk before is the one that grows.
        let after = chunks.partition_point(|chunk| chunk.first() < entry.first);
        let into = after.saturating_sub(1);
        let chunk = &mut chunks[into];
        let at = chunk.entries.partition_point(|held| held.first < entry.first);
        chunk.entries.insert(at, entry);
        chunk.bytes += entry.bytes();
        if chunk.entries.len() > CHUNK_ENTRIES {
            // As a rule everything behind is what was appended since.
            let cut = if at + 1 < chunk.entries.len() { at + 1 } else { at };
            let entries = chunk.entries.split_off(cut);
            let bytes = entries.iter().map(Entry::bytes).sum();
            chunk.bytes -= bytes;
            chunks.insert(into + 1, Chunk { entries, bytes });
        }
    }

    fn many(&mut self) -> &mut VecDeque<Chunk> {
        if let Kept::One(entry) = self.kept {
            let (entries, bytes) = (VecDeque::from([entry]), entry.bytes());
            self.kept = Kept::Many(VecDeque::from([Chunk { entries, bytes }]));
        }
        if let Kept::Nothing = self.kept {
            self.kept = Kept::Many(VecDeque::new());
        }
        match &mut self.kept {
            Kept::Many(chunks) => chunks,
            Kept::Nothing | Kept::One(_) => unreachable!("made many just now"),
        }
    }

    /// Drops the batch that begins at `first`. Its start stays: see [`Log::start_with_oldest`].
    pub(crate) fn remove(&mut self, first: u64) -> Option<Entry> {
        let removed = match &mut self.kept {
            Kept::Nothing => return None,
            Kept::One(entry) if entry.first == first => {
                let entry = *entry;
                self.kept = Kept::Nothing;
                entry
            }
            Kept::One(_) => return None,
            Kept::Many(chunks) => {
                let index = chunks.partition_point(|chunk| chunk.end() <= first);
                let chunk = chunks.get_mut(index)?;
                let at = chunk.entries.binary_search_by_key(&first, |entry| entry.first).ok()?;
                let entry = chunk.entries.remove(at)?;
                chunk.bytes -= entry.bytes();
                let left = chunk.entries.len();
                if left == 0 {
                    chunks.remove(index);
                } else if left < CHUNK_ENTRIES / 4 && left.is_power_of_two() {
                    join_neighbours(chunks, index);
                }
                if chunks.is_empty() {
                    self.kept = Kept::Nothing;
                } else if chunks.len() == 1
                    && let [only] = chunks[0].entries.as_slices().0
                    && chunks[0].entries.len() == 1
                    && chunks[0].entries.capacity() > 4
                {
                    // What was a long log holds one batch: it gives its memory back.
                    self.kept = Kept::One(*only);
                }
                entry
            }
        };
        self.bytes -= removed.bytes();
        Some(removed)
    }

    /// Nothing before the oldest batch kept is to be put back: the log starts there.
    pub(crate) fn start_with_oldest(&mut self) {
        self.start = self.oldest().map_or(self.end, |entry| entry.first);
    }

    /// Nothing below `start` is kept, whatever is put back later.
    pub(crate) fn start_from(&mut self, start: u64) {
        self.start = self.start.max(start.min(self.end));
    }

    /// Has the batch that begins at `first` lie at `place` from now on, and returns the place where
    /// it lay. `None` if it is not kept, or is not as long: a part of it begins where it does.
    pub(crate) fn move_to(&mut self, first: u64, place: Place) -> Option<Place> {
        let entry = match &mut self.kept {
            Kept::Nothing => return None,
            Kept::One(entry) => Some(entry).filter(|entry| entry.first == first)?,
            Kept::Many(chunks) => {
                let index = chunks.partition_point(|chunk| chunk.end() <= first);
                let chunk = chunks.get_mut(index)?;
                let at = chunk.entries.binary_search_by_key(&first, |entry| entry.first).ok()?;
                &mut chunk.entries[at]
            }
        };
        if entry.place.bytes != place.bytes {
            return None;
        }
        Some(std::mem::replace(&mut entry.place, place))
    }
}

/// Makes one chunk of a sparse chunk and the one after or before it, if they fit half a chunk.
fn join_neighbours(chunks: &mut VecDeque<Chunk>, index: usize) {
    let fits = |a: usize| {
        let pair = chunks.get(a).zip(chunks.get(a + 1));
        pair.is_some_and(|(a, b)| a.entries.len() + b.entries.len() <= CHUNK_ENTRIES / 2)
    };
    let before = index.checked_sub(1).filter(|&before| fits(before));
    if let Some(at) = Some(index).filter(|&at| fits(at)).or(before)
        && let Some(mut chunk) = chunks.remove(at + 1)
    {
        let into = &mut chunks[at];
        into.entries.append(&mut chunk.entries);
        into.bytes += chunk.bytes;
    } else {
        chunks[index].entries.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::{collection::vec, prelude::*};

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Push(u32),
        Remove(prop::sample::Index),
        PutBack(prop::sample::Index),
        Move(prop::sample::Index),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (1..5u32).prop_map(Step::Push),
            5 => any::<prop::sample::Index>().prop_map(Step::Remove),
            2 => any::<prop::sample::Index>().prop_map(Step::PutBack),
            1 => any::<prop::sample::Index>().prop_map(Step::Move),
        ]
    }

    fn entry(first: u64, count: u32, position: u64) -> Entry {
        let place = Place { position, bytes: 10 * count };
        Entry { first, count, place, appended_at: Timestamp(first) }
    }

    proptest! {
        #[test]
        fn a_log_says_the_same_as_a_plain_map(
            // Short ones too: a log of one batch is kept in another way.
            ahead in prop_oneof![Just(0), 0..1200u64],
            steps in prop_oneof![vec(any_step(), 1..4), vec(any_step(), 1..800)],
            ask in prop_oneof![(0..6u64, 0..6u64), (0..4000u64, 0..300u64)],
        ) {
            let mut log = Log::default();
            let mut twin = BTreeMap::new();
            let mut gone = Vec::new();
            for n in 0..ahead {
                log.push(entry(n, 1, n));
                twin.insert(n, entry(n, 1, n));
            }
            let nth = |twin: &BTreeMap<u64, Entry>, index: prop::sample::Index| {
                (!twin.is_empty()).then(|| *twin.keys().nth(index.index(twin.len())).unwrap())
            };
            for step in steps {
                match step {
                    Step::Push(count) => {
                        let new = entry(log.end(), count, log.end());
                        twin.insert(new.first, new);
                        log.push(new);
                    }
                    Step::Remove(index) => if let Some(first) = nth(&twin, index) {
                        prop_assert_eq!(log.remove(first), twin.remove(&first));
                        gone.push(entry(first, log.holes(first, log.end())[0].end.saturating_sub(first).min(1) as u32, 7));
                    },
                    Step::PutBack(index) => if !gone.is_empty() {
                        let back = gone.swap_remove(index.index(gone.len()));
                        log.put_back(back);
                        twin.insert(back.first, back);
                    },
                    Step::Move(index) => if let Some(first) = nth(&twin, index) {
                        let held = twin.get_mut(&first).unwrap();
                        let place = Place { position: held.place.position + 1, ..held.place };
                        let longer = Place { bytes: held.place.bytes + 1, ..place };
                        prop_assert_eq!(log.move_to(first, longer), None);
                        prop_assert_eq!(log.move_to(first, place), Some(held.place));
                        held.place = place;
                    },
                }
                log.start_with_oldest();
                gone.retain(|entry| entry.first > log.start());
            }
            prop_assert!(log.entries().eq(twin.values()));
            prop_assert_eq!(log.bytes(), twin.values().map(|entry| u64::from(entry.place.bytes)).sum::<u64>());
            prop_assert_eq!(log.bytes_within(0, log.end()), log.bytes());
            prop_assert_eq!(log.start(), twin.values().next().map_or(log.end(), |entry| entry.first));
            let (from, to) = (ask.0, ask.0 + ask.1);
            let held = |offset: u64| twin.values().find(|entry| entry.first <= offset && offset < entry.end());
            prop_assert_eq!(log.find(from), held(from));
            prop_assert_eq!(log.find_from(from), twin.values().find(|entry| entry.end() > from));
            let since = twin.values().find(|entry| entry.appended_at.0 >= from);
            prop_assert_eq!(log.find_time(Timestamp(from)), since.map(|entry| entry.first));
            let holes = log.holes(from, to);
            prop_assert!(holes.iter().all(|hole| !hole.is_empty()), "{holes:?}");
            let holes: Vec<u64> = holes.into_iter().flatten().collect();
            prop_assert_eq!(holes, (from..to).filter(|&offset| held(offset).is_none()).collect::<Vec<_>>());
        }
    }
}
