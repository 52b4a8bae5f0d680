//! The state of HTTP streams beside their partitions: settings, producers, forks, and waiting reads. A partition
//! that is no stream costs nothing here. It decides nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use hashbrown::HashMap;
use sennit_model::{PartitionId, Timestamp, TopicId, limits::STREAM_PRODUCERS_MAX};

use crate::{
    command::Origin,
    stream::{StreamNote, StreamProducer, StreamRead, StreamRefusal, StreamSettings},
    wakeups::{Wakeups, Woken},
};

/// A stream, beside its partition's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stream {
    pub(crate) settings: Arc<StreamSettings>,
    /// Whether it was opened as a stream; if not, it is a topic that was made natively, of which only this
    /// is remembered: its forks.
    pub(crate) is_opened: bool,
    /// When it was used last. No record says that of a read: a start counts as a use.
    pub(crate) touched_at: Timestamp,
    pub(crate) is_closed: bool,
    /// Whether the record that opened it closed it: what is in memory alone stays closed by that only.
    pub(crate) was_opened_closed: bool,
    pub(crate) details: Option<Box<Details>>,
}

/// The state that only some streams have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Details {
    /// Whether it is there for its forks only.
    pub(crate) is_deleted: bool,
    pub(crate) forks: BTreeSet<TopicId>,
    /// The sequence of the latest append that had one.
    pub(crate) sequence: Option<Box<str>>,
    pub(crate) producers: BTreeMap<Box<str>, ProducerState>,
    /// Notes with a producer so far.
    pub(crate) notes: u64,
}

/// A producer of a stream, in its current epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProducerState {
    pub(crate) epoch: u64,
    /// The number of its latest append.
    pub(crate) sequence: u64,
    /// Which of the stream's notes that was: who was silent longest is forgotten first.
    pub(crate) note: u64,
}

impl Details {
    /// Checks an append of a producer: `Some` with the latest sequence of its epoch if it was appended
    /// before.
    pub(crate) fn admit(&self, producer: &StreamProducer) -> Result<Option<u64>, StreamRefusal> {
        let StreamProducer { id, epoch, sequence } = producer;
        let expected = match self.producers.get(id) {
            Some(&ProducerState { epoch: current, .. }) if *epoch < current => {
                return Err(StreamRefusal::ProducerFenced { current });
            }
            Some(known) if *epoch > known.epoch && *sequence > 0 => {
                return Err(StreamRefusal::ProducerBegins);
            }
            Some(known) if *epoch == known.epoch && *sequence <= known.sequence => {
                return Ok(Some(known.sequence));
            }
            Some(known) if *epoch == known.epoch => known.sequence + 1,
            _ => 0,
        };
        match *sequence {
            received if received == expected => Ok(None),
            received => Err(StreamRefusal::ProducerGap { expected, received }),
        }
    }
}

impl Stream {
    pub(crate) fn new(settings: Arc<StreamSettings>, touched_at: Timestamp) -> Self {
        Self {
            settings,
            is_opened: true,
            touched_at,
            is_closed: false,
            was_opened_closed: false,
            details: None,
        }
    }

    /// What is remembered of a topic that was made natively. It never ends by itself.
    pub(crate) fn of_topic(settings: Arc<StreamSettings>) -> Self {
        Self { is_opened: false, ..Self::new(settings, Timestamp(0)) }
    }

    pub(crate) fn details(&self) -> &Details {
        static NOTHING: Details = Details {
            is_deleted: false,
            forks: BTreeSet::new(),
            sequence: None,
            producers: BTreeMap::new(),
            notes: 0,
        };
        self.details.as_deref().unwrap_or(&NOTHING)
    }

    /// When it is gone, if nobody uses it.
    pub(crate) fn ends_at(&self) -> Option<Timestamp> {
        self.settings.ends_at(self.touched_at)
    }

    pub(crate) fn is_over(&self, now: Timestamp) -> bool {
        self.ends_at().is_some_and(|end| end <= now)
    }

    /// Whether it is there: for its forks, one that is deleted is too.
    pub(crate) fn check_life(&self, now: Timestamp, for_fork: bool) -> Result<(), StreamRefusal> {
        let details = self.details();
        match (details.is_deleted || self.is_over(now), details.forks.is_empty()) {
            (false, _) => Ok(()),
            (true, false) if for_fork => Ok(()),
            (true, false) => Err(StreamRefusal::Deleted),
            (true, true) => Err(StreamRefusal::Unknown),
        }
    }

    /// An append has said this.
    pub(crate) fn note(&mut self, note: &StreamNote) {
        self.is_closed |= note.closes;
        if let Some(sequence) = &note.sequence {
            self.details.get_or_insert_default().sequence = Some(sequence.clone());
        }
        if let Some(StreamProducer { id, epoch, sequence }) = &note.producer {
            let details = self.details.get_or_insert_default();
            details.notes += 1;
            let producer =
                ProducerState { epoch: *epoch, sequence: *sequence, note: details.notes };
            details.producers.insert(id.clone(), producer);
            if details.producers.len() > STREAM_PRODUCERS_MAX {
                let silent = details.producers.iter().min_by_key(|(_, producer)| producer.note);
                if let Some(silent) = silent.map(|(id, _)| id.clone()) {
                    details.producers.remove(&silent);
                }
            }
        }
    }
}

/// More of them are kept in a tree.
const WAITING_FEW: usize = 8;

/// Reads that wait, by their origin: most streams have one for each core, and many streams have some.
#[derive(Debug)]
pub(crate) enum Waiting {
    Few(Vec<(Origin, StreamRead)>),
    Many(BTreeMap<Origin, StreamRead>),
}

impl Default for Waiting {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl Waiting {
    fn len(&self) -> usize {
        match self {
            Self::Few(few) => few.len(),
            Self::Many(many) => many.len(),
        }
    }

    /// Says whether it was not there before.
    fn insert(&mut self, origin: Origin, read: StreamRead) -> bool {
        if let Some(held) = self.get_mut(&origin) {
            *held = read;
            return false;
        }
        match self {
            Self::Few(few) if few.len() < WAITING_FEW => {
                few.reserve_exact(1);
                few.push((origin, read));
            }
            Self::Few(few) => {
                let many = few.drain(..).chain([(origin, read)]).collect();
                *self = Self::Many(many);
            }
            Self::Many(many) => drop(many.insert(origin, read)),
        }
        true
    }

    pub(crate) fn get_mut(&mut self, origin: &Origin) -> Option<&mut StreamRead> {
        match self {
            Self::Few(few) => few.iter_mut().find(|(of, _)| of == origin).map(|(_, read)| read),
            Self::Many(many) => many.get_mut(origin),
        }
    }

    fn origins(self) -> Vec<Origin> {
        match self {
            Self::Few(few) => few.into_iter().map(|(origin, _)| origin).collect(),
            Self::Many(many) => many.into_keys().collect(),
        }
    }

    pub(crate) fn remove(&mut self, origin: &Origin) {
        match self {
            Self::Few(few) => few.retain(|(of, _)| of != origin),
            Self::Many(many) => drop(many.remove(origin)),
        }
    }

    pub(crate) fn retain(&mut self, mut stays: impl FnMut(&Origin, &mut StreamRead) -> bool) {
        match self {
            Self::Few(few) => few.retain_mut(|(origin, read)| stays(origin, read)),
            Self::Many(many) => many.retain(stays),
        }
    }
}

/// The reads of one stream that wait.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    pub(crate) waiting: Waiting,
    pub(crate) wakeups: Wakeups<Origin>,
}

/// All streams of a shard.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    by_partition: HashMap<PartitionId, Stream, foldhash::fast::FixedState>,
    reads: HashMap<PartitionId, Reads, foldhash::fast::FixedState>,
    /// The number of reads that wait in all of them.
    waiting: usize,
    /// Streams whose time is over, and whose end is not reported yet.
    pub(crate) ended: Vec<PartitionId>,
}

impl Streams {
    pub(crate) fn get(&self, id: PartitionId) -> Option<&Stream> {
        self.by_partition.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: PartitionId) -> Option<&mut Stream> {
        self.by_partition.get_mut(&id)
    }

    pub(crate) fn insert(&mut self, id: PartitionId, stream: Stream) -> &mut Stream {
        self.by_partition.entry(id).insert(stream).into_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (PartitionId, &Stream)> {
        self.by_partition.iter().map(|(id, stream)| (*id, stream))
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = (PartitionId, &mut Stream)> {
        self.by_partition.iter_mut().map(|(id, stream)| (*id, stream))
    }

    /// Forgets a partition that is dropped or opened anew.
    pub(crate) fn forget(&mut self, id: PartitionId) {
        self.by_partition.remove(&id);
    }

    pub(crate) fn await_something(&mut self, id: PartitionId, origin: Origin, read: StreamRead) {
        let reads = self.reads.entry(id).or_default();
        if reads.waiting.insert(origin, read) {
            self.waiting += 1;
        }
        reads.wakeups.wake(origin);
    }

    /// The number of reads that wait, of any stream.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    pub(crate) fn stop_waiting(&mut self, id: PartitionId, origin: Origin) {
        if let Some(mut reads) = self.take_all_reads(id) {
            reads.waiting.remove(&origin);
            self.put_back_reads(id, reads);
        }
    }

    /// Takes all reads of all streams: their origins, in order.
    pub(crate) fn take_all_waiting(&mut self) -> Vec<Origin> {
        self.waiting = 0;
        let reads = std::mem::take(&mut self.reads).into_values();
        let mut origins: Vec<Origin> = reads.flat_map(|reads| reads.waiting.origins()).collect();
        origins.sort_unstable();
        origins
    }

    /// Has all waiting reads checked, though nothing was appended.
    pub(crate) fn wake(&mut self, id: PartitionId) {
        if let Some(reads) = self.reads.get_mut(&id) {
            reads.wakeups.wake_all();
        }
    }

    /// The reads of a partition, and which are to be looked at now that the visible end is there; to be put
    /// back.
    pub(crate) fn take_reads(
        &mut self,
        id: PartitionId,
        visible: u64,
    ) -> Option<(Woken<Origin>, Reads)> {
        let woken = self.reads.get_mut(&id)?.wakeups.take(visible)?;
        Some((woken, self.take_all_reads(id)?))
    }

    /// All reads of a partition; those that go on waiting are to be put back.
    pub(crate) fn take_all_reads(&mut self, id: PartitionId) -> Option<Reads> {
        let reads = self.reads.remove(&id)?;
        self.waiting -= reads.waiting.len();
        Some(reads)
    }

    pub(crate) fn put_back_reads(&mut self, id: PartitionId, reads: Reads) {
        if reads.waiting.len() > 0 {
            self.waiting += reads.waiting.len();
            self.reads.insert(id, reads);
        }
    }
}
