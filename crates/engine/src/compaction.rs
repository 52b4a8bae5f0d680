//! Key compaction, as far as it belongs to the state: it names the partition to compact next and the part that may
//! be compacted, and applies the result to its batches. It does not look for superseded messages itself:
//! `Mover::compact` of the shard reads the batches.

use sennit_model::{Batch, Offset, PartitionId, Timestamp};

use crate::{
    engine::{Engine, Journal, RUNS_PER_RECORD_MAX},
    latest::{Clean, Dirty, Tombstones},
    log::{Entry, KeptBatch, Place},
    partition::Partition,
    record::{CompactedBatch, KeptPart, Record, SupersededBatch},
    timer::Timer,
    wheel::Wheel,
};

/// The scope of a pass over a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionScope {
    /// Nothing is kept below this.
    pub start: Offset,
    /// Below this no two messages have the same key: which is the latest is to be looked up from here.
    pub look_up_from: Offset,
    /// The pass ends here: what is behind it may still come to nothing.
    pub until: Offset,
    /// Tombstones below this go: what they ended is long gone.
    pub tombstones_below: Offset,
}

/// The result of a pass, when all its changes are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionPass {
    /// Below this no two messages have the same key, unless not all was read.
    pub until: Offset,
    /// Whether some tombstone is kept.
    pub keeps_tombstones: bool,
    /// Whether everything was read.
    pub all_read: bool,
}

impl Engine {
    /// The partition that is to be compacted next, if any is.
    #[must_use]
    pub fn next_compaction(&self) -> Option<PartitionId> {
        self.latest.next_due()
    }

    /// Begins a pass: what it is about. What is not committed may still come to nothing, and supersedes
    /// nothing. `None`, and not due any more, if there is nothing to look through.
    pub fn begin_compaction(&mut self, id: PartitionId, now: Timestamp) -> Option<CompactionScope> {
        let now = self.time(now);
        self.latest.taken(id);
        let Partition { log, visible, .. } = self.partitions.get(&id)?;
        let clean = self.latest.get(id)?;
        let start = log.start();
        let due = clean.tombstones.filter(|tombstones| tombstones.at <= now);
        // What could not be read then may be now, and be older than what superseded it.
        let look_up_from = if clean.all_read { clean.to.max(start) } else { start };
        let uncommitted = self.uncommitted.iter().find(|(_, of, _)| *of == id);
        let uncommitted = uncommitted.and_then(|&(_, _, end)| log.find(end.checked_sub(1)?));
        let until = uncommitted.map_or(log.end(), |entry| entry.first).min(*visible);
        let until = until.max(look_up_from);
        if start >= until {
            return None;
        }
        self.latest.set_in_pass(id, true);
        Some(CompactionScope {
            start: Offset(start),
            look_up_from: Offset(look_up_from),
            until: Offset(until),
            tombstones_below: due.map_or(Offset(0), |tombstones| tombstones.below),
        })
    }

    /// Whether the pass goes on that has begun: it does not once the partition keeps all again, even if it
    /// keeps the latest again after that.
    #[must_use]
    pub fn goes_on_compacting(&self, id: PartitionId) -> bool {
        self.latest.is_in_pass(id)
    }

    /// The batches of a partition that lie within `from..to`, in order.
    pub fn batches_within(
        &self,
        id: PartitionId,
        from: Offset,
        to: Offset,
    ) -> impl Iterator<Item = KeptBatch> {
        let partition = self.partitions.get(&id);
        let entries = partition.into_iter().flat_map(move |held| held.log.entries_from(from.0));
        entries.take_while(move |entry| entry.end() <= to.0).map(move |entry| entry.kept(id))
    }

    /// Has the journal keep the parts of a batch that are kept, which nothing else does; says in the batch
    /// where they lie. False if there is no such batch any more, or the pass is over.
    pub fn keep_parts(
        &mut self,
        id: PartitionId,
        batch: &mut CompactedBatch,
        parts: &[Batch],
        journal: &mut impl Journal,
    ) -> bool {
        let held = self.partitions.get(&id).and_then(|held| held.log.find(batch.first.0));
        let held = held.filter(|entry| batch.is_of(entry) && self.goes_on_compacting(id));
        let Some(entry) = held else { return false };
        for (part, messages) in batch.parts.iter_mut().zip(parts) {
            let (partition, first, appended_at) = (id, part.first, entry.appended_at);
            let record = Record::Kept { partition, first, appended_at, batch: messages.clone() };
            part.place.position = journal.append(&record);
            // Who wants it does not wait for the commit.
            journal.keep_until_committed(part.place.position, messages);
        }
        true
    }

    /// Of these batches only the parts are kept, which lie where they say, and that is durable. The old
    /// places are freed; of a batch that is wanted no more, the new ones, and of all if the pass is over.
    pub fn compact(
        &mut self,
        partition: PartitionId,
        batches: Vec<CompactedBatch>,
        journal: &mut impl Journal,
    ) {
        if !self.goes_on_compacting(partition) {
            let parts = batches.iter().flat_map(|batch| &batch.parts);
            return self.freed.extend(parts.map(|part| part.place));
        }
        for batches in split(batches, |batch| batch.parts.len()) {
            self.commit(&Record::Compacted { partition, batches }, journal);
        }
    }

    /// Of these batches only some runs stay, where they lie. Nothing, if the pass is over.
    pub fn supersede(
        &mut self,
        partition: PartitionId,
        batches: Vec<SupersededBatch>,
        journal: &mut impl Journal,
    ) {
        if !self.goes_on_compacting(partition) {
            return;
        }
        for batches in split(batches, |batch| batch.kept.len()) {
            self.commit(&Record::Superseded { partition, batches }, journal);
        }
    }

    /// A pass has come to its end at `now`. Nothing, if the partition has kept all meanwhile.
    pub fn compacted_to(
        &mut self,
        id: PartitionId,
        pass: CompactionPass,
        now: Timestamp,
        journal: &mut impl Journal,
    ) {
        let now = self.time(now);
        let CompactionPass { until: end, keeps_tombstones, all_read } = pass;
        if !self.goes_on_compacting(id) {
            return;
        }
        self.latest.set_in_pass(id, false);
        let Some(partition) = self.partitions.get(&id) else { return };
        let Some(age) = partition.config.retention.latest_per_key else { return };
        let Some(clean) = self.latest.get(id) else { return };
        // Who has read what they ended has this long to come to them; those that came later wait for
        // the next round.
        let waiting = clean.tombstones.filter(|tombstones| tombstones.at > now);
        let new = keeps_tombstones.then(|| Tombstones { below: end, at: now.plus(age) });
        let tombstones = waiting.or(new).filter(|_| all_read);
        self.commit(&Record::Cleaned { partition: id, end, tombstones, all_read }, journal);
        self.judge_cleanness(id, now);
    }

    /// A pass came to nothing: it is not made again at once.
    pub fn put_off_compaction(&mut self, id: PartitionId, now: Timestamp) {
        self.latest.put_off(id, now);
        self.watch_cleanness(id);
    }

    pub(crate) fn judge_cleanness(&mut self, id: PartitionId, now: Timestamp) {
        if let Some(partition) = self.partitions.get(&id) {
            self.latest.judge(id, partition.log.bytes(), now);
        }
    }

    /// Has the wheel say when a partition is to be judged again.
    pub(crate) fn watch_cleanness(&mut self, id: PartitionId) {
        for at in self.latest.watch(id) {
            self.wheel.set(at, Timer::Compaction { partition: id });
        }
    }

    /// Something was appended to a partition.
    pub(crate) fn note_dirty(&mut self, id: PartitionId, bytes: usize, at: Timestamp) {
        if !self.latest.has(id) {
            return;
        }
        if self.latest.appended(id, bytes as u64, at) {
            self.watch_cleanness(id);
        }
        self.judge_cleanness(id, at);
    }

    /// A partition has these settings now.
    pub(crate) fn note_keeping(&mut self, id: PartitionId) {
        let Some(partition) = self.partitions.get(&id) else { return };
        if partition.config.retention.latest_per_key.is_none() {
            self.latest.forget(id);
        } else if !self.latest.has(id) {
            let start = partition.log.start();
            self.latest.begin(id, start, dirty_from(partition, start));
            self.watch_cleanness(id);
        }
    }

    /// Everything is back that a replay brings: what is dirty is counted, and looked after.
    pub(crate) fn recount_dirty(&mut self) {
        for id in self.latest.ids() {
            if let (Some(partition), Some(clean)) = (self.partitions.get(&id), self.latest.get(id))
            {
                self.latest.set(id, clean, dirty_from(partition, clean.to));
            }
            self.watch_cleanness(id);
            self.judge_cleanness(id, Timestamp(0));
        }
    }

    pub(crate) fn apply_compacted(&mut self, id: PartitionId, batches: &[CompactedBatch]) {
        let mut partition = self.partitions.get_mut(&id);
        for batch in batches {
            let held = partition.as_mut();
            let is_held =
                held.is_some_and(|held| held.compact(batch, &mut self.freed, &mut self.wheel));
            if !is_held {
                // What is wanted no more is not wanted in parts either.
                self.freed.extend(batch.parts.iter().map(|part| part.place));
            }
        }
        self.batches_became_parts(id);
    }

    pub(crate) fn apply_superseded(&mut self, id: PartitionId, batches: &[SupersededBatch]) {
        if let Some(partition) = self.partitions.get_mut(&id) {
            for batch in batches {
                partition.supersede(batch, &mut self.freed, &mut self.wheel);
            }
        }
        self.batches_became_parts(id);
    }

    /// Readers have hints that name bytes of batches which are other batches now.
    fn batches_became_parts(&mut self, id: PartitionId) {
        if let Some(held) = self.readers.of(id) {
            held.readers.values_mut().for_each(|reader| reader.place_hint = None);
        }
        self.mark_ready(id);
    }

    pub(crate) fn apply_cleaned(
        &mut self,
        id: PartitionId,
        (end, tombstones, all_read): (u64, Option<Tombstones>, bool),
    ) {
        let Some(partition) = self.partitions.get(&id) else { return };
        let clean = Clean { to: end, tombstones, all_read };
        self.latest.set(id, clean, dirty_from(partition, end));
        self.watch_cleanness(id);
    }
}

/// What of a partition lies behind what is clean.
fn dirty_from(partition: &Partition, clean_to: u64) -> Dirty {
    let log = &partition.log;
    let since = log.find_from(clean_to).map(|entry| entry.appended_at);
    Dirty { bytes: log.bytes_within(clean_to, log.end()), since }
}

/// Batches in as many lists as they need records. `runs_of` says how many runs a batch has: one of many is shorter
/// said than it was, and goes into a record alone.
fn split<T>(batches: Vec<T>, runs_of: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let (mut lists, mut runs): (Vec<Vec<T>>, _) = (Vec::new(), 0);
    for batch in batches {
        let more = 1 + runs_of(&batch);
        match lists.last_mut().filter(|_| runs + more <= RUNS_PER_RECORD_MAX) {
            Some(list) => {
                list.push(batch);
                runs += more;
            }
            None => {
                lists.push(vec![batch]);
                runs = more;
            }
        }
    }
    lists
}

impl SupersededBatch {
    /// Whether it is this one of which messages are superseded, and not a part of it.
    fn is_of(&self, entry: &Entry) -> bool {
        let Self { first, count, bytes, .. } = self;
        (entry.first, entry.count, entry.place.bytes) == (first.0, *count, *bytes)
    }
}

impl CompactedBatch {
    /// Whether it is this one that is compacted, and not a part of it.
    fn is_of(&self, entry: &Entry) -> bool {
        (entry.first, entry.count) == (self.first.0, self.count)
    }
}

impl Partition {
    /// Keeps of a batch what is said; false if there is no such batch. Every group is through with the
    /// rest.
    fn compact(
        &mut self,
        batch: &CompactedBatch,
        freed: &mut Vec<Place>,
        wheel: &mut Wheel<Timer>,
    ) -> bool {
        let held = self.log.find(batch.first.0).copied();
        let Some(entry) = held.filter(|entry| batch.is_of(entry)) else { return false };
        freed.push(entry.place);
        self.keep_parts(entry, &batch.parts, wheel);
        true
    }

    /// Keeps of a batch the runs that stay, where they lie; nothing, if there is no such batch. Every group is
    /// through with the rest, whose bytes are freed.
    fn supersede(
        &mut self,
        batch: &SupersededBatch,
        freed: &mut Vec<Place>,
        wheel: &mut Wheel<Timer>,
    ) {
        let held = self.log.find(batch.first.0).copied();
        let Some(entry) = held.filter(|entry| batch.is_of(entry)) else { return };
        let place = |begin: u32, end: u32| {
            let position = entry.place.position + u64::from(begin);
            Place { position, bytes: end - begin }
        };
        let (mut parts, mut at) = (Vec::with_capacity(batch.kept.len()), 0);
        for run in &batch.kept {
            let end = run.begin + run.bytes;
            parts.push(KeptPart {
                first: run.first,
                count: run.count,
                place: place(run.begin, end),
            });
            freed.extend((at < run.begin).then(|| place(at, run.begin)));
            at = end;
        }
        freed.extend((at < batch.bytes).then(|| place(at, batch.bytes)));
        self.keep_parts(entry, &parts, wheel);
    }

    /// Has the parts of a batch stand for it.
    fn keep_parts(&mut self, entry: Entry, parts: &[KeptPart], wheel: &mut Wheel<Timer>) {
        self.log.remove(entry.first);
        let mut at = entry.first;
        for part in parts {
            let (first, count, place) = (part.first.0, part.count, part.place);
            self.log.put_back(Entry { first, count, place, appended_at: entry.appended_at });
            self.settle_superseded(at, first, wheel);
            at = first + u64::from(count);
        }
        self.settle_superseded(at, entry.end(), wheel);
        for group in &mut self.groups {
            group.activity_mut().place_hint = None;
            group.account(&self.classes, 0..0);
        }
        let parts = parts.iter().map(|part| (part.first.0, part.count));
        self.classes.keep_parts(entry.first, parts);
    }

    fn settle_superseded(&mut self, start: u64, end: u64, wheel: &mut Wheel<Timer>) {
        if start == end {
            return;
        }
        if !self.delays.is_empty() {
            self.delays.remove(start, end);
        }
        if !self.expiries.is_empty() {
            self.expiries.remove(start, end);
        }
        for group in &mut self.groups {
            group.settle(start, end, wheel);
        }
    }
}
