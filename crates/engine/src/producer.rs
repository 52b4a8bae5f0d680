//! The memory that a partition has of its producers, so that a batch that was sent twice is appended once.

use std::collections::{BTreeSet, VecDeque};

use hashbrown::HashMap;
use sennit_model::{
    Offset, ProducerId, ProducerStamp,
    limits::{PRODUCER_BATCHES_REMEMBERED, PRODUCERS_PER_PARTITION_MAX},
};

use crate::refusal::Refusal;

/// What a batch is to the producer's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The next one.
    New,
    /// One that was appended before, at this offset if it is still remembered.
    Duplicate(Option<Offset>),
}

/// A batch that was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AppendedBatch {
    pub(crate) first_sequence: u64,
    pub(crate) count: u32,
    pub(crate) first: Offset,
}

/// One producer's history in one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Producer {
    pub(crate) epoch: u32,
    pub(crate) next_sequence: u64,
    /// The end of its latest batch: who was silent longest is forgotten first.
    pub(crate) last_end: u64,
    pub(crate) recent: VecDeque<AppendedBatch>,
}

/// All producers a partition remembers; most partitions have none.
#[derive(Debug, Default)]
pub(crate) struct Producers(Option<Box<Remembered>>);

impl Producers {
    /// Judges a batch of `count` messages. Producer id 0 is always new. What is missing in front of it
    /// may have been confirmed and then lost if the producer has published nothing since
    /// `lost_before`: the end of what the partition has lost, 0 where nothing is confirmed before it
    /// is committed.
    pub(crate) fn admit(
        &self,
        stamp: ProducerStamp,
        count: u32,
        lost_before: u64,
    ) -> Result<Admission, Refusal> {
        match &self.0 {
            Some(remembered) => remembered.admit(stamp, count, lost_before),
            None => Remembered::default().admit(stamp, count, lost_before),
        }
    }

    /// Remembers a batch that was appended at `first`.
    pub(crate) fn appended(&mut self, stamp: ProducerStamp, count: u32, first: Offset) {
        if stamp.id != ProducerId(0) {
            let last_end = first.plus(u64::from(count)).0;
            self.0.get_or_insert_default().answered(stamp, count, first, last_end);
        }
    }

    /// Remembers messages that were not appended, because the one at `first` and those behind it are the same, in
    /// a partition that ends at `end`.
    pub(crate) fn answered(&mut self, stamp: ProducerStamp, count: u32, first: Offset, end: u64) {
        if stamp.id != ProducerId(0) {
            self.0.get_or_insert_default().answered(stamp, count, first, end);
        }
    }

    /// Every producer's id, in descending order.
    pub(crate) fn ids(&self) -> Vec<ProducerId> {
        let known = self.0.iter().flat_map(|remembered| remembered.known.keys());
        let mut ids: Vec<_> = known.copied().collect();
        ids.sort_unstable_by_key(|id| std::cmp::Reverse(id.0));
        ids
    }

    pub(crate) fn get(&self, id: ProducerId) -> Option<&Producer> {
        self.0.as_ref()?.known.get(&id)
    }

    /// The end of the latest batch of whoever was silent longest.
    pub(crate) fn silent_before(&self) -> u64 {
        let remembered = self.0.as_ref();
        remembered.and_then(|held| held.by_last_end.first()).map_or(0, |(end, _)| *end)
    }

    /// Has a producer as a checkpoint says it is.
    pub(crate) fn put_back(&mut self, id: ProducerId, producer: Producer) {
        self.0.get_or_insert_default().put_back(id, producer);
    }

    /// Forgets everyone whose latest batch ended before `offset`.
    pub(crate) fn forget_silent_before(&mut self, offset: u64) {
        if let Some(remembered) = &mut self.0 {
            remembered.forget_silent_before(offset);
        }
    }
}

/// Producers by id and by silence, at most [`PRODUCERS_PER_PARTITION_MAX`].
#[derive(Debug, Default)]
struct Remembered {
    known: HashMap<ProducerId, Producer, foldhash::fast::FixedState>,
    by_last_end: BTreeSet<(u64, ProducerId)>,
}

impl Remembered {
    fn admit(
        &self,
        stamp: ProducerStamp,
        count: u32,
        lost_before: u64,
    ) -> Result<Admission, Refusal> {
        let ProducerStamp { id, epoch, first_sequence: received } = stamp;
        if id == ProducerId(0) {
            return Ok(Admission::New);
        }
        let (expected, recent) = match self.known.get(&id) {
            Some(known) if epoch < known.epoch => {
                return Err(Refusal::ProducerFenced { current: known.epoch, received: epoch });
            }
            Some(known) if epoch == known.epoch => (known.next_sequence, Some(&known.recent)),
            _ => (0, None),
        };
        if received == expected {
            return Ok(Admission::New);
        }
        if received > expected {
            let last_end = self.known.get(&id).map_or(0, |known| known.last_end);
            if last_end < lost_before {
                return Ok(Admission::New);
            }
            return Err(Refusal::SequenceGap { expected, received });
        }
        if received + u64::from(count) > expected {
            return Err(Refusal::SequenceOverlap { expected, received, count });
        }
        let holder = recent.into_iter().flatten().find(|batch| {
            batch.first_sequence <= received
                && received + u64::from(count) <= batch.first_sequence + u64::from(batch.count)
        });
        Ok(Admission::Duplicate(
            holder.map(|batch| batch.first.plus(received - batch.first_sequence)),
        ))
    }

    fn answered(&mut self, stamp: ProducerStamp, count: u32, first: Offset, last_end: u64) {
        let ProducerStamp { id, epoch, first_sequence } = stamp;
        let fresh = || Producer { epoch, next_sequence: 0, last_end, recent: VecDeque::new() };
        let producer = self.known.entry(id).or_insert_with(fresh);
        self.by_last_end.remove(&(producer.last_end, id));
        self.by_last_end.insert((last_end, id));
        if producer.epoch != epoch {
            *producer = fresh();
        }
        producer.last_end = last_end;
        producer.next_sequence = first_sequence + u64::from(count);
        if producer.recent.len() == PRODUCER_BATCHES_REMEMBERED {
            producer.recent.pop_front();
        }
        producer.recent.push_back(AppendedBatch { first_sequence, count, first });
        if self.known.len() > PRODUCERS_PER_PARTITION_MAX
            && let Some((_, silent)) = self.by_last_end.pop_first()
        {
            self.known.remove(&silent);
        }
    }

    fn put_back(&mut self, id: ProducerId, producer: Producer) {
        let last_end = producer.last_end;
        self.by_last_end.insert((last_end, id));
        if let Some(before) = self.known.insert(id, producer)
            && last_end != before.last_end
        {
            self.by_last_end.remove(&(before.last_end, id));
        }
    }

    fn forget_silent_before(&mut self, offset: u64) {
        let kept = self.by_last_end.split_off(&(offset, ProducerId(0)));
        for (_, silent) in std::mem::replace(&mut self.by_last_end, kept) {
            self.known.remove(&silent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(epoch: u32, first_sequence: u64) -> ProducerStamp {
        ProducerStamp { id: ProducerId(5), epoch, first_sequence }
    }

    #[test]
    fn a_batch_sent_again_is_a_duplicate_at_its_first_offset() {
        let mut producers = Producers::default();
        producers.appended(stamp(0, 0), 10, Offset(100));
        producers.appended(stamp(0, 10), 5, Offset(200));
        assert_eq!(
            producers.admit(stamp(0, 0), 10, 0),
            Ok(Admission::Duplicate(Some(Offset(100))))
        );
        assert_eq!(
            producers.admit(stamp(0, 12), 2, 0),
            Ok(Admission::Duplicate(Some(Offset(202))))
        );
        assert_eq!(producers.admit(stamp(0, 15), 1, 0), Ok(Admission::New));
    }

    #[test]
    fn the_offsets_of_as_many_batches_are_known_as_are_remembered_and_of_none_before() {
        let mut producers = Producers::default();
        let all = PRODUCER_BATCHES_REMEMBERED as u64;
        (0..all).for_each(|at| producers.appended(stamp(0, at), 1, Offset(100 + at)));
        let first = |producers: &Producers| producers.admit(stamp(0, 0), 1, 0);
        assert_eq!(first(&producers), Ok(Admission::Duplicate(Some(Offset(100)))));
        producers.appended(stamp(0, all), 1, Offset(100 + all));
        assert_eq!(first(&producers), Ok(Admission::Duplicate(None)));
    }

    #[test]
    fn a_gap_and_a_lower_epoch_are_refused() {
        let mut producers = Producers::default();
        assert_eq!(
            producers.admit(stamp(0, 3), 1, 0),
            Err(Refusal::SequenceGap { expected: 0, received: 3 })
        );
        producers.appended(stamp(2, 0), 4, Offset(0));
        assert_eq!(
            producers.admit(stamp(1, 4), 1, 0),
            Err(Refusal::ProducerFenced { current: 2, received: 1 })
        );
        assert_eq!(producers.admit(stamp(3, 0), 1, 0), Ok(Admission::New));
        assert_eq!(
            producers.admit(stamp(2, 3), 2, 0),
            Err(Refusal::SequenceOverlap { expected: 4, received: 3, count: 2 })
        );
    }

    #[test]
    fn the_producer_silent_longest_is_forgotten_first() {
        let mut producers = Producers::default();
        for id in 1..=PRODUCERS_PER_PARTITION_MAX as u64 + 1 {
            let stamp = ProducerStamp { id: ProducerId(id), epoch: 0, first_sequence: 0 };
            producers.appended(stamp, 1, Offset(id));
        }
        assert_eq!(producers.0.as_ref().unwrap().known.len(), PRODUCERS_PER_PARTITION_MAX);
        assert!(!producers.0.as_ref().unwrap().known.contains_key(&ProducerId(1)));
    }
}
