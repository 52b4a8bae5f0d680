//! From records to the state. A replay begins with an empty journal, or with a checkpoint. While a checkpoint's
//! pieces arrive, records of missing parts are ignored, since a later piece contains their result; parts that are
//! restored already change as ever.
//!
//! Where the journal is damaged, the known part is kept: no offset is used twice, and the offsets that may be lost
//! are named.

use bytes::Bytes;
use hashbrown::HashMap;
use sennit_model::{
    Durability, Generation, Offset, OffsetRange, PartitionId, Timestamp, TopicConfig, TopicKind,
};

use crate::{
    codec::Reader,
    engine::{Engine, mark_ready},
    group::Group,
    kept::{BatchClasses, GroupSlice, Head, Item, Slice},
    latest::Dirty,
    log::Log,
    lost::Holes,
    partition::Partition,
    record::Record,
    record_codec::CHECKPOINT_PART,
    record_error::RecordError,
    stream_codec::KeptStream,
    streams::Stream,
    timer::Timer,
};

/// What a record was to a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replayed {
    /// It changed the state, or passed by.
    Applied,
    /// The checkpoint begins with which the replay does.
    CheckpointBegan,
    /// It was part of a checkpoint, which is of use once it is whole.
    PartOfCheckpoint,
    /// A checkpoint begins, later than the replay did: what it will say is known already.
    LaterCheckpointBegan,
    /// The checkpoint that began last is whole, and of so many bytes.
    CheckpointEnded {
        /// How many.
        bytes: u64,
    },
}

/// A state on its way.
#[derive(Debug)]
pub struct Replay {
    engine: Engine,
    stage: Stage,
    piece: Vec<u8>,
    /// How much of the checkpoint has come in.
    piece_bytes: u64,
    holes: Holes,
    begins_damaged: bool,
    /// When the replay began.
    begins_at: Timestamp,
    /// Partitions whose head has come, and not all of the rest.
    loading: HashMap<PartitionId, Loading, foldhash::fast::FixedState>,
}

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    /// No record has come yet.
    Fresh,
    /// The pieces of the checkpoint come in with which the replay began.
    Loading,
    /// Everything is there.
    Whole,
    /// The checkpoint is damaged with which the replay began: nothing can be built on it.
    Broken,
}

/// No offset is as high as this: a record that says so says what cannot be.
const OFFSET_END: u64 = 1 << 62;

/// The offsets of a partition that are still to come.
#[derive(Clone, Copy, Debug)]
struct Loading {
    cursor: u64,
    end: u64,
}

impl Replay {
    /// A replay that has seen nothing. Timers count from `now`.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self {
            engine: Engine::new(Generation(0), now),
            stage: Stage::Fresh,
            piece: Vec::new(),
            piece_bytes: 0,
            holes: Holes::default(),
            begins_damaged: false,
            begins_at: now,
            loading: HashMap::default(),
        }
    }

    /// What [`Engine::highest_place`] will say.
    #[must_use]
    pub fn highest_place(&self) -> u64 {
        self.engine.highest_place
    }

    /// The replay begins with an empty state: a checkpoint that comes is a later one, even before all other records.
    pub fn begins_without_checkpoint(&mut self) {
        if self.stage == Stage::Fresh {
            self.stage = Stage::Whole;
        }
    }

    /// Records are missing here, of `bytes` bytes at most.
    pub fn damage(&mut self, bytes: u64) {
        self.holes.add(bytes);
        // If nothing of a checkpoint was lost that comes in, its end will say so.
        if self.stage == Stage::Fresh {
            self.begins_damaged = true;
            self.stage = Stage::Whole;
        }
    }

    /// Takes the next record: its kind, the position of its body in the journal, and its body.
    ///
    /// # Errors
    /// A [`RecordError`] that says what cannot be.
    pub fn record(
        &mut self,
        kind: u8,
        position: u64,
        body: Bytes,
    ) -> Result<Replayed, RecordError> {
        let (record, head) = Record::decode(kind, body)?;
        self.engine.note_places(&record);
        match (&self.stage, &record) {
            (Stage::Fresh, Record::CheckpointBegan { next_topic, next_group }) => {
                self.engine.catalogue.set_next_ids((*next_topic, *next_group));
                self.stage = Stage::Loading;
                return Ok(Replayed::CheckpointBegan);
            }
            (Stage::Fresh, _) => self.stage = Stage::Whole,
            (Stage::Broken, _) => return Ok(Replayed::Applied),
            (Stage::Loading | Stage::Whole, _) => {}
        }
        let loads = self.stage == Stage::Loading;
        match record {
            Record::CheckpointBegan { .. } => return Ok(Replayed::LaterCheckpointBegan),
            Record::CheckpointPart { ends, bytes } => {
                if loads {
                    self.load_part(ends, &bytes)?;
                }
                return Ok(Replayed::PartOfCheckpoint);
            }
            Record::CheckpointEnded { bytes } => {
                if loads {
                    let whole = self.all_is_there(kind, bytes);
                    if self.unless_broken(whole)? {
                        self.stage = Stage::Whole;
                    }
                }
                return Ok(Replayed::CheckpointEnded { bytes });
            }
            record => {
                if let Record::TopicCreated(created) = &record
                    && !self.holes.is_none()
                {
                    self.engine.catalogue.lose_topics_below(created.topic.0);
                }
                self.check_place(&record)?;
                self.engine.apply(&record, position + head as u64);
                self.engine.committed(u64::MAX);
            }
        }
        // What a replay frees is not counted: the live batches are, at the end.
        self.engine.take_freed();
        Ok(Replayed::Applied)
    }

    /// Adds a part of a piece, and puts the piece back if it `ends`.
    fn load_part(&mut self, ends: bool, bytes: &[u8]) -> Result<(), RecordError> {
        self.piece_bytes += bytes.len() as u64;
        self.piece.extend_from_slice(bytes);
        if ends {
            let piece = Bytes::from(std::mem::take(&mut self.piece));
            let put = self.put_back(&mut Reader { kind: CHECKPOINT_PART, rest: piece });
            self.unless_broken(put)?;
        }
        self.engine.take_freed();
        Ok(())
    }

    /// Pieces of a checkpoint that do not fit together are what a hole has left of it; without a
    /// hole they are an error. Says whether they fit.
    fn unless_broken(&mut self, done: Result<(), RecordError>) -> Result<bool, RecordError> {
        match done {
            Err(_) if !self.holes.is_none() => {
                self.stage = Stage::Broken;
                Ok(false)
            }
            done => done.map(|()| true),
        }
    }

    /// Messages go where their partition ends. If they go behind that, what lies between was in a
    /// hole.
    fn check_place(&mut self, record: &Record) -> Result<(), RecordError> {
        let (id, first) = match record {
            Record::Appended { partition, first, .. } => (*partition, first.0),
            Record::Buried { target, first, .. } | Record::Requeued { target, first, .. } => {
                (*target, first.0)
            }
            Record::Lost { partition, range } => (*partition, range.start.0),
            _ => return Ok(()),
        };
        let is_lost = matches!(record, Record::Lost { .. });
        let reach = if let Record::Lost { range, .. } = record { range.end.0 } else { first };
        let has_holes = !self.holes.is_none();
        let end = self.engine.end_of(id).map(|end| end.0);
        if reach < OFFSET_END && (end == Some(first) || end > Some(first) && is_lost) {
            self.holes.is_sure_of(id);
            return Ok(());
        }
        // What has no head yet may not be whole: its head replaces it.
        let may_differ = has_holes || self.stage == Stage::Loading;
        if reach >= OFFSET_END || end.is_some() && !may_differ {
            let (kind, field) = (record.kind(), "first offset");
            return Err(RecordError::Field { kind, field, value: first });
        }
        if end.is_none() && !has_holes {
            // Its head is still to come, or it was dropped meanwhile.
            return Ok(());
        }
        self.holes.is_sure_of(id);
        if end.is_none_or(|end| first < end) {
            // A hole took its opening, and its end before that: the catalogue says soon what its
            // settings are.
            let Engine { partitions, shared, .. } = &mut self.engine;
            let config = shared.config(&TopicConfig::of_kind(TopicKind::Stream));
            partitions.insert(Partition::new(id, config));
        }
        let end = self.engine.end_of(id).unwrap_or_default();
        if end.0 == first {
            return Ok(());
        }
        let range = OffsetRange { start: end, end: Offset(first) };
        self.engine.apply(&Record::Lost { partition: id, range }, 0);
        assert_eq!(self.engine.end_of(id), Some(Offset(first)), "the next message goes there");
        Ok(())
    }

    /// Returns whether damage has left holes in what was replayed.
    #[must_use]
    pub fn has_holes(&self) -> bool {
        !self.holes.is_none()
    }

    /// Ends the replay: what it did not need, a life does.
    fn begin_life(&mut self) {
        // The end of a checkpoint is only taken once nothing of it is missing.
        assert!(self.loading.is_empty() && self.piece.is_empty(), "a checkpoint is not whole");
        let engine = &mut self.engine;
        engine.take_freed();
        engine.use_streams(self.begins_at);
        engine.recount_dirty();
        // A start does not look at all that it has set: that is for the turns to come.
        engine.timers_set = engine.wheel.set_count();
    }

    /// The state, in the `generation`th life of the shard; `None` if the checkpoint is not whole with
    /// which the replay began, or had to begin because the journal is older than that. If there
    /// were holes, the records come with it that say what may be lost: they are applied already,
    /// and are to be journaled before anything else.
    #[must_use]
    pub fn finish(
        mut self,
        generation: Generation,
        is_oldest: bool,
    ) -> Option<(Engine, Vec<Record>)> {
        if !self.is_whole(is_oldest) {
            return None;
        }
        let lost = self.lost_at_end();
        Some((self.into_engine(generation), lost))
    }

    /// The state of a replica, which follows until [`Engine::lead`]; `None` as for [`Replay::finish`]. It is the next
    /// leader that says what is lost. `generation` is that of the last term that is known, and `time` the newest in
    /// the records before those that were replayed.
    #[must_use]
    pub fn finish_as_replica(
        self,
        generation: Generation,
        is_oldest: bool,
        time: Timestamp,
    ) -> Option<Engine> {
        if !self.is_whole(is_oldest) {
            return None;
        }
        let mut engine = self.into_engine(generation);
        engine.join_group(time);
        Some(engine)
    }

    fn is_whole(&self, is_oldest: bool) -> bool {
        let is_whole = matches!(self.stage, Stage::Fresh | Stage::Whole);
        if !is_whole || self.begins_damaged && !is_oldest {
            return false;
        }
        true
    }

    fn into_engine(mut self, generation: Generation) -> Engine {
        let most = self.holes.messages_max();
        let engine = &mut self.engine;
        engine.first_offset = most;
        engine.catalogue.skip_ids(most);
        engine.set_generation(generation);
        self.begin_life();
        self.engine
    }

    /// Applies what is lost at the end, and returns it.
    fn lost_at_end(&mut self) -> Vec<Record> {
        let most = self.holes.messages_max();
        let engine = &mut self.engine;
        let unsure: Vec<_> = match self.holes.is_none() {
            // Only of what gives before it commits may something be missing at the end.
            true => engine.reserved.ids(),
            false => engine.partitions.ids().collect(),
        };
        let lost = |partition| {
            let range = engine.lost_at_end(partition, most, self.holes.knows(partition))?;
            Some(Record::Lost { partition, range })
        };
        let lost: Vec<_> = unsure.into_iter().filter_map(lost).collect();
        for record in &lost {
            engine.apply(record, 0);
        }
        lost
    }

    /// The state out of a snapshot's items.
    pub(crate) fn of_snapshot(
        mut items: Reader,
        next_ids: (u32, u32),
        generation: Generation,
        now: Timestamp,
    ) -> Result<Engine, RecordError> {
        let mut replay = Self::new(now);
        replay.engine.set_generation(generation);
        replay.engine.catalogue.set_next_ids(next_ids);
        replay.put_back(&mut items)?;
        let kind = items.kind;
        replay.all_is_there(kind, 0)?;
        replay.engine.take_freed();
        replay.engine.use_streams(now);
        replay.engine.recount_dirty();
        Ok(replay.engine)
    }

    /// A checkpoint of so many bytes ends: nothing of it may be missing.
    fn all_is_there(&mut self, kind: u8, bytes: u64) -> Result<(), RecordError> {
        let partitions = &self.engine.partitions;
        // One that was dropped meanwhile, or made anew, waits for nothing.
        let waits = |id: &&PartitionId| partitions.get(id).is_some_and(|held| held.is_loading);
        let waiting: Vec<_> = self.loading.keys().filter(waits).copied().collect();
        if self.piece_bytes != bytes || !self.piece.is_empty() {
            return Err(RecordError::Length { kind });
        }
        if !waiting.is_empty() && self.holes.is_none() {
            return Err(RecordError::Length { kind });
        }
        for partition in waiting {
            // Nothing of the checkpoint is missing: a hole took it that this one was dropped.
            self.engine.apply(&Record::PartitionDropped { partition }, 0);
        }
        self.loading = HashMap::default();
        Ok(())
    }

    /// Puts the items of a piece where they belong: each replaces what it names.
    fn put_back(&mut self, r: &mut Reader) -> Result<(), RecordError> {
        while let Some(item) = Item::decode(r)? {
            match item {
                Item::Topic(topic) => {
                    self.engine.catalogue.put_back(topic, &mut self.engine.shared)
                }
                Item::Head(head) => self.put_head(head),
                Item::Producers(some) => {
                    let Some(partition) = self.engine.partitions.get_mut(&some.id) else {
                        continue;
                    };
                    for (id, producer) in some.producers {
                        partition.producers.put_back(id, producer);
                    }
                    if let Some(offset) = some.silent_before {
                        partition.producers.forget_silent_before(offset);
                    }
                }
                Item::Slice(slice) => self.put_slice(slice, r)?,
                Item::Classes(id, batches) => self.put_classes(id, batches, r)?,
                Item::LostTopics(ranges) => self.engine.catalogue.put_back_lost(ranges),
                Item::HighestPlace(position) => self.engine.raise_highest_place(position),
                Item::Lost(id, ranges) => {
                    for range in ranges {
                        self.engine.lost.insert(id, range.start.0, range.end.0);
                    }
                }
                Item::Reserved(id, end) => {
                    let visible = self.engine.partitions.get(&id).map(|held| held.visible);
                    self.engine.reserved.put_back(id, end, visible.unwrap_or(end));
                }
                Item::Stream(KeptStream { id, settings, is_opened, is_closed, details }) => {
                    let settings = self.engine.shared.settings(&settings);
                    let mut stream = Stream::new(settings, self.begins_at);
                    stream.is_opened = is_opened;
                    // Where it matters how it was closed, only what opened it can have done so.
                    (stream.is_closed, stream.was_opened_closed) = (is_closed, is_closed);
                    stream.details = details;
                    self.engine.streams.insert(id, stream);
                }
                Item::Clean(id, clean) => {
                    let nothing = Dirty { bytes: 0, since: None };
                    self.engine.latest.set(id, clean, nothing);
                }
                Item::SeenValues(id, values) => {
                    if let Some(partition) = self.engine.partitions.get_mut(&id) {
                        values.into_iter().for_each(|value| partition.seen.put_back(value));
                    }
                }
                Item::Cursors(id, cursors) => {
                    for (name, offset) in cursors {
                        self.engine.cursors.set(id, name, offset);
                    }
                }
            }
        }
        Ok(())
    }

    fn put_head(&mut self, head: Head) {
        let Head { id, config, dead_letters, start, end, groups } = head;
        self.holes.is_sure_of(id);
        self.engine.lost.forget(id);
        self.engine.cursors.forget(id);
        self.engine.streams.forget(id);
        self.engine.reserved.forget(id);
        self.engine.memory.forget(id);
        self.engine.latest.forget(id);
        if config.durability == Durability::Memory {
            self.engine.memory.holds(id, 0);
        }
        let shared = &mut self.engine.shared;
        let mut partition = Partition::new(id, shared.config(&config));
        partition.dead_letters = dead_letters;
        partition.log = Log::empty(start, end);
        partition.visible = end;
        // Until its slice comes, an offset counts as settled: whatever is said of it changes
        // nothing, and the slice says what came of that.
        partition.groups = groups
            .iter()
            .map(|setting| Group::new(id, (setting.id, shared.terms(setting)), end))
            .collect();
        partition.is_loading = start < end;
        if partition.is_loading {
            self.loading.insert(id, Loading { cursor: start, end });
        }
        let is_whole = !partition.is_loading;
        self.engine.partitions.insert(partition);
        if is_whole {
            self.engine.partitions.fold(&id);
        }
        self.engine.note_keeping(id);
    }

    /// The classes of the slice that has just come.
    fn put_classes(
        &mut self,
        id: PartitionId,
        batches: Vec<BatchClasses>,
        r: &Reader,
    ) -> Result<(), RecordError> {
        let Some(partition) = self.engine.partitions.get_mut(&id) else { return Ok(()) };
        for (first, runs) in batches {
            let count: u64 = runs.iter().map(|(count, _)| u64::from(*count)).sum();
            // Of a partition that was made anew meanwhile, this says nothing.
            let entry = partition.log.find(first).filter(|entry| entry.first == first);
            let Some(entry) = entry.filter(|_| partition.classes.of_batch(first).is_none()) else {
                continue;
            };
            if u64::from(entry.count) != count {
                return Err(r.field("number of classes in a batch", count));
            }
            partition.classes.put(first, &runs);
        }
        Ok(())
    }

    fn put_slice(&mut self, slice: Slice, r: &Reader) -> Result<(), RecordError> {
        let Slice { id, range: whole, start, entries, delays, expiries, groups } = slice;
        let highest = entries.iter().map(|entry| entry.place.position).max();
        self.engine.raise_highest_place(highest.unwrap_or(0));
        let Engine { partitions, wheel, freed, ready_list, .. } = &mut self.engine;
        let Some(partition) = partitions.get_mut(&id).filter(|held| held.is_loading) else {
            return Ok(());
        };
        let Some(loading) = self.loading.get_mut(&id) else { return Ok(()) };
        if whole.start.0 != loading.cursor || whole.end.0 > loading.end {
            return Err(r.field("start of a slice", whole.start.0));
        }
        loading.cursor = whole.end.0;
        for entry in entries {
            partition.log.put_back(entry);
        }
        for (range, due) in delays {
            partition.delays.insert(range.start.0, range.end.0, due);
        }
        partition.watch_delays(wheel);
        for (range, due) in expiries {
            partition.expiries.insert(range.start.0, range.end.0, due);
            wheel.set(due, Timer::Expiry { partition: id, range });
        }
        for of_group in groups {
            let delays = &partition.delays;
            let groups = &mut partition.groups;
            let Ok(index) = groups.binary_search_by_key(&of_group.id, Group::id) else { continue };
            let group = &mut groups[index];
            group.settled.remove(whole.start.0, whole.end.0);
            put_group(
                of_group,
                group,
                |group| {
                    group.appear(whole.start.0, whole.end.0, delays);
                },
                wheel,
            );
        }
        // What the bytes kept have freed since the head was written.
        partition.trim(start, freed, wheel);
        if loading.cursor == loading.end {
            self.loading.remove(&id);
            partition.is_loading = false;
            partition.raise_start(start);
            partition.watch_age(wheel);
            if partition.groups.iter().any(|group| !group.activity().dying.is_empty()) {
                mark_ready(ready_list, partition);
            }
            partitions.fold(&id);
        }
        Ok(())
    }
}

fn put_group(
    slice: GroupSlice,
    group: &mut Group,
    appear: impl FnOnce(&mut Group),
    wheel: &mut crate::wheel::Wheel<Timer>,
) {
    for settled in slice.settled {
        group.settled.insert(settled.start.0, settled.end.0);
    }
    appear(group);
    for (tried, tries) in slice.tried {
        group.ready.insert(tried.start.0, tried.end.0, tries);
    }
    for (held, waiting) in slice.waiting {
        group.ready.remove(held.start.0, held.end.0);
        group.wait(held.start.0..held.end.0, waiting, wheel);
    }
    for (held, dying) in slice.dying {
        group.ready.remove(held.start.0, held.end.0);
        group.activity_mut().dying.insert(held.start.0, held.end.0, dying);
    }
}
