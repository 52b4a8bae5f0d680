//! From records to the state. A replay begins with an empty journal, or with a checkpoint: while
//! its pieces come in, records of what is not there yet pass by, because a piece will say what came
//! of them; what is there already is changed as ever.

use bytes::Bytes;
use hashbrown::HashMap;
use sennit_model::{Generation, PartitionId, Timestamp};

use crate::{
    codec::Reader,
    engine::{Engine, stir},
    group::Group,
    kept::{GroupSlice, Head, Item, Slice},
    log::Log,
    partition::Partition,
    record::{CHECKPOINT_PART, Record},
    record_error::RecordError,
    timer::Timer,
};

/// What a record was to a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replayed {
    /// It changed the state, or was part of a checkpoint.
    Applied,
    /// A checkpoint begins, later than the replay did: what it will say is known already.
    LaterCheckpointBegan,
    /// The checkpoint that began last is whole.
    CheckpointEnded,
}

/// A state on its way.
#[derive(Debug)]
pub struct Replay {
    engine: Engine,
    stage: Stage,
    piece: Vec<u8>,
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
}

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
            loading: HashMap::default(),
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
        let is_first = std::mem::replace(&mut self.stage, Stage::Whole);
        let loads = match (&record, is_first) {
            (Record::CheckpointBegan { next_topic, next_group }, Stage::Fresh) => {
                self.engine.catalogue.set_next_ids((*next_topic, *next_group));
                self.stage = Stage::Loading;
                return Ok(Replayed::Applied);
            }
            (_, stage) => stage == Stage::Loading,
        };
        if loads {
            self.stage = Stage::Loading;
        }
        match record {
            Record::CheckpointBegan { .. } => return Ok(Replayed::LaterCheckpointBegan),
            Record::CheckpointPart { ends, bytes } if loads => {
                self.piece.extend_from_slice(&bytes);
                if ends {
                    let piece = Bytes::from(std::mem::take(&mut self.piece));
                    self.put_back(&mut Reader { kind: CHECKPOINT_PART, rest: piece })?;
                }
            }
            Record::CheckpointPart { .. } => {}
            Record::CheckpointEnded { .. } => {
                if loads {
                    self.all_is_there(kind)?;
                    self.stage = Stage::Whole;
                }
                return Ok(Replayed::CheckpointEnded);
            }
            record => {
                self.engine.apply(&record, position + head as u64);
                self.engine.committed(u64::MAX);
            }
        }
        // What a replay frees is not counted: the live batches are, at the end.
        self.engine.take_freed();
        Ok(Replayed::Applied)
    }

    /// The state, in the `generation`th life of the shard; `None` if the checkpoint with which the
    /// replay began is not whole.
    #[must_use]
    pub fn finish(mut self, generation: Generation) -> Option<Engine> {
        if self.stage == Stage::Loading {
            return None;
        }
        self.engine.set_generation(generation);
        Some(self.engine)
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
        replay.all_is_there(items.kind)?;
        replay.engine.take_freed();
        Ok(replay.engine)
    }

    /// A checkpoint ends: nothing it has begun may be missing.
    fn all_is_there(&mut self, kind: u8) -> Result<(), RecordError> {
        let partitions = &self.engine.partitions;
        // One that was dropped meanwhile, or made anew, waits for nothing.
        let waits = |id| partitions.get(id).is_some_and(|partition| partition.is_loading);
        if !self.piece.is_empty() || self.loading.keys().any(waits) {
            return Err(RecordError::Length { kind });
        }
        self.loading = HashMap::default();
        Ok(())
    }

    /// Puts the items of a piece where they belong: each replaces what it names.
    fn put_back(&mut self, r: &mut Reader) -> Result<(), RecordError> {
        while let Some(item) = Item::decode(r)? {
            match item {
                Item::Topic(topic) => self.engine.catalogue.put_back(topic),
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
            }
        }
        Ok(())
    }

    fn put_head(&mut self, head: Head) {
        let Head { id, config, dead_letters, start, end, groups } = head;
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
        stir(&mut self.engine.stirred, &mut partition);
        self.engine.partitions.insert(partition);
    }

    fn put_slice(&mut self, slice: Slice, r: &Reader) -> Result<(), RecordError> {
        let Slice { id, range: whole, start, entries, delays, expiries, groups } = slice;
        let Engine { partitions, wheel, freed, .. } = &mut self.engine;
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
            wheel.set(due, Timer::Due { partition: id, range });
        }
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
            partition.log.start_with_oldest();
            partition.watch_age(wheel);
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
    for (tried, attempts) in slice.tried {
        group.ready.insert(tried.start.0, tried.end.0, attempts);
    }
    for (held, waiting) in slice.waiting {
        group.ready.remove(held.start.0, held.end.0);
        group.wait((held.start.0, held.end.0), waiting, wheel);
    }
    for (held, dying) in slice.dying {
        group.ready.remove(held.start.0, held.end.0);
        group.dying.insert(held.start.0, held.end.0, dying);
    }
}
