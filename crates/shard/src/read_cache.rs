//! Batches that were read back from the journal. Reads are made in chunks, because a lagging consumer needs the
//! following batches next.

use std::{
    collections::{BTreeSet, VecDeque},
    ops::Range,
};

use bytes::Bytes;
use sennit_engine::Place;
use sennit_journal::Position;
use sennit_model::{Batch, PartitionId};

/// Minimum size of a read in bytes; it includes as many batches as fit.
const CHUNK_BYTES: usize = 1 << 20;
/// Bytes that are read ahead once half of a chunk was used: while one chunk is being used, the disk
/// reads the next, and one is in reserve.
const AHEAD_BYTES: u64 = 2 * CHUNK_BYTES as u64;
/// A rest of at most this size before the end of the readable part is read along.
const REMAINDER_BYTES: usize = CHUNK_BYTES / 4;
/// Bytes of the chunks in the cache.
const BUDGET_BYTES: usize = 16 << 20;
/// Number of chunks in the cache. A lookup searches all of them.
const CHUNKS_MAX: usize = 64;
/// Most reads under way.
const FETCHES_MAX: usize = 8;
/// A read-ahead is made only if at most this many reads are under way.
const AHEAD_FETCHES_MAX: usize = FETCHES_MAX / 2;

/// A read of the journal that the owner of the disk makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// The start.
    pub position: Position,
    /// The number of bytes, all within one segment.
    pub length: usize,
}

/// The result of a lookup.
#[derive(Debug)]
pub(crate) enum CacheLookup {
    /// The batch.
    Batch(Bytes),
    /// The batch is not in the cache; a read is under way or will be.
    Pending,
    /// The bytes are not the batch that was written there.
    Damaged,
}

/// The batches that are waited for. A chunk may have thousands of small ones.
type Waiters = BTreeSet<(PartitionId, Place)>;

/// A read under way, and the batches that wait for it.
#[derive(Debug)]
struct PendingFetch {
    fetch: Fetch,
    waiters: Waiters,
    /// Whether an earlier read failed.
    is_retry: bool,
}

impl PendingFetch {
    fn covers(&self, position: u64) -> bool {
        (self.fetch.position.0..self.end()).contains(&position)
    }

    fn end(&self) -> u64 {
        self.fetch.position.0 + self.fetch.length as u64
    }
}

/// The outcome of a read.
#[derive(Debug, Default)]
pub(crate) struct FetchOutcome {
    /// The partitions that can continue.
    pub(crate) partitions: Vec<PartitionId>,
    /// The batches that could not be read in two attempts.
    pub(crate) unreadable: Vec<(PartitionId, Place)>,
}

/// The bytes of one read.
#[derive(Debug)]
struct Chunk {
    start: u64,
    bytes: Bytes,
    /// The positions of the batches whose checksums have been verified.
    verified: Range<u64>,
}

impl Chunk {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// The batch of `start..end`, or `None` if its checksums are wrong.
    fn batch(&mut self, start: u64, end: u64) -> Option<Bytes> {
        let held = self.bytes.slice((start - self.start) as usize..(end - self.start) as usize);
        if self.verified.start <= start && end <= self.verified.end {
            return Some(held);
        }
        let batch = Batch::check_kept(held).ok()?;
        // The first reader reads them in order as a rule, and others follow.
        if self.verified.is_empty() {
            self.verified = start..end;
        } else if self.verified.end == start {
            self.verified.end = end;
        }
        Some(batch.bytes().clone())
    }
}

/// Chunks of the journal, and the reads under way.
#[derive(Debug, Default)]
pub(crate) struct ReadCache {
    chunks: VecDeque<Chunk>,
    bytes: usize,
    under_way: Vec<PendingFetch>,
    wanted: Vec<Fetch>,
    /// The partitions for which no read could begin, in order.
    starved: Vec<PartitionId>,
    starved_set: BTreeSet<PartitionId>,
}

impl ReadCache {
    /// The batch at `position`. On a miss, notes that `partition` waits for it; nothing at or after
    /// `limit` is read.
    pub(crate) fn read(
        &mut self,
        partition: PartitionId,
        position: Position,
        length: usize,
        limit: Position,
    ) -> CacheLookup {
        let end = position.0 + length as u64;
        let missing = match self.batch(position.0, end) {
            Ok(batch) => {
                self.read_ahead(end, limit);
                return batch.map_or(CacheLookup::Damaged, CacheLookup::Batch);
            }
            Err(missing) => missing,
        };
        let bytes = u32::try_from(length).expect("a batch is limited far below 4 GiB");
        let want = (partition, Place { position: position.0, bytes });
        if let Some(held) = self.under_way.iter_mut().find(|held| held.covers(missing)) {
            held.waiters.insert(want);
        } else if self.under_way.len() < FETCHES_MAX {
            let waiters = BTreeSet::from([want]);
            self.begin_chunk(Position(missing), (end - missing) as usize, limit, waiters);
        } else if self.starved_set.insert(partition) {
            self.starved.push(partition);
        }
        CacheLookup::Pending
    }

    /// The batch of `start..end`, `None` if it is damaged; or its first position that is not in the
    /// cache. Bytes from the disk are verified.
    fn batch(&mut self, start: u64, end: u64) -> Result<Option<Bytes>, u64> {
        if let Some(chunk) = self.chunk_at(start)
            && end <= self.chunks[chunk].end()
        {
            return Ok(self.chunks[chunk].batch(start, end));
        }
        // It goes on in the chunk that follows.
        let mut joined = Vec::new();
        let mut at = start;
        while at < end {
            let Chunk { start: from, bytes, .. } = &self.chunks[self.chunk_at(at).ok_or(at)?];
            let to = end.min(from + bytes.len() as u64);
            joined.extend_from_slice(&bytes[(at - from) as usize..(to - from) as usize]);
            at = to;
        }
        Ok(Batch::check_kept(joined.into()).ok().map(|batch| batch.bytes().clone()))
    }

    /// The chunk with the byte at `position`; of several the one that reaches furthest.
    fn chunk_at(&self, position: u64) -> Option<usize> {
        let chunks = self.chunks.iter().enumerate();
        let holds = |(_, chunk): &(usize, &Chunk)| (chunk.start..chunk.end()).contains(&position);
        chunks.filter(holds).max_by_key(|(_, chunk)| chunk.end()).map(|(index, _)| index)
    }

    /// Reads ahead behind the batch that ends at `end`.
    fn read_ahead(&mut self, end: u64, limit: Position) {
        let chunk = self.chunk_at(end - 1).map(|chunk| &self.chunks[chunk]);
        if chunk.is_none_or(|held| end - held.start < held.bytes.len() as u64 / 2) {
            return;
        }
        let mut at = end;
        let far = end.saturating_add(AHEAD_BYTES).min(limit.0);
        while at < far {
            let held = self.chunk_at(at).map(|chunk| self.chunks[chunk].end());
            let coming = self.under_way.iter().find(|held| held.covers(at)).map(PendingFetch::end);
            if let Some(to) = held.or(coming) {
                at = to;
                continue;
            }
            // A short rest is read once more of it is committed.
            let is_worth_it = limit.0 - at > REMAINDER_BYTES as u64;
            if !is_worth_it || self.under_way.len() >= AHEAD_FETCHES_MAX {
                return;
            }
            self.begin_chunk(Position(at), 1, limit, BTreeSet::new());
        }
    }

    fn begin_chunk(
        &mut self,
        position: Position,
        length: usize,
        limit: Position,
        waiters: Waiters,
    ) {
        // A pack that has lost its end is shorter than the batch.
        let room = limit.0.saturating_sub(position.0) as usize;
        let most = if room <= CHUNK_BYTES + REMAINDER_BYTES { room } else { CHUNK_BYTES };
        let fetch = Fetch { position, length: most.max(length) };
        self.begin(fetch, waiters, false);
    }

    /// Takes the reads that have to be made.
    pub(crate) fn take_wanted(&mut self, out: &mut Vec<Fetch>) {
        out.append(&mut self.wanted);
    }

    fn begin(&mut self, fetch: Fetch, waiters: Waiters, is_retry: bool) {
        self.under_way.push(PendingFetch { fetch, waiters, is_retry });
        self.wanted.push(fetch);
    }

    /// Handles a read. A failed read, without bytes, is repeated once for exactly the batches that
    /// were waited for.
    pub(crate) fn fetched(&mut self, fetch: Fetch, bytes: Option<Bytes>) -> FetchOutcome {
        // A place is free: who found none comes first, so that none starves.
        self.starved_set.clear();
        let partitions = std::mem::take(&mut self.starved);
        let mut done = FetchOutcome { partitions, unreadable: Vec::new() };
        let held = self.under_way.iter().position(|held| held.fetch == fetch);
        let held = held.map(|index| self.under_way.swap_remove(index));
        match (bytes, held) {
            (Some(bytes), held) => {
                assert_eq!(bytes.len(), fetch.length, "a read returns what was requested");
                self.bytes += bytes.len();
                let start = fetch.position.0;
                self.chunks.push_back(Chunk { start, bytes, verified: start..start });
                let waiters = held.into_iter().flat_map(|held| held.waiters);
                done.partitions.extend(waiters.map(|(partition, _)| partition));
            }
            (None, Some(PendingFetch { waiters, is_retry: false, .. })) => {
                for (partition, place) in waiters {
                    let position = Position(place.position);
                    let fetch = Fetch { position, length: place.bytes as usize };
                    self.begin(fetch, BTreeSet::from([(partition, place)]), true);
                }
            }
            (None, Some(PendingFetch { waiters, .. })) => {
                done.partitions.extend(waiters.iter().map(|(partition, _)| partition));
                done.unreadable.extend(waiters);
            }
            (None, None) => {}
        }
        while (self.bytes > BUDGET_BYTES || self.chunks.len() > CHUNKS_MAX)
            && self.chunks.len() > FETCHES_MAX
            && let Some(oldest) = self.chunks.pop_front()
        {
            self.bytes -= oldest.bytes.len();
        }
        done
    }

    /// Drops chunks in `start..end`, because the slot will hold another segment.
    pub(crate) fn forget(&mut self, start: Position, end: Position) {
        self.chunks.retain(|chunk| {
            let kept = !(start.0..end.0).contains(&chunk.start);
            if !kept {
                self.bytes -= chunk.bytes.len();
            }
            kept
        });
    }

    /// The number of bytes in the cache.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use sennit_model::{
        BatchBuilder, Message, PartitionIndex, TopicId,
        limits::{APPEND_BYTES_MAX, MESSAGE_BYTES_MAX},
    };

    use super::*;

    const PARTITION: PartitionId = PartitionId { topic: TopicId(1), index: PartitionIndex(0) };
    const CHUNK: u64 = CHUNK_BYTES as u64;

    /// A journal of nothing but batches of one length, and that length.
    fn journal(bytes: usize) -> (Vec<u8>, usize) {
        let mut builder = BatchBuilder::new();
        builder.push(&Message::new(vec![7; 99_990])).unwrap();
        let batch = builder.take().unwrap();
        let one = batch.bytes();
        let count = bytes / one.len();
        (one.repeat(count), one.len())
    }

    fn wanted(cache: &mut ReadCache) -> Vec<Fetch> {
        let mut out = Vec::new();
        cache.take_wanted(&mut out);
        out
    }

    fn fetched(cache: &mut ReadCache, journal: &[u8], fetch: Fetch) -> FetchOutcome {
        let from = fetch.position.0 as usize;
        cache.fetched(fetch, Some(Bytes::copy_from_slice(&journal[from..from + fetch.length])))
    }

    #[test]
    fn one_that_reads_in_order_reads_each_byte_once_and_all_chunks_but_the_first_ahead() {
        let (journal, length) = journal(20 << 20);
        let limit = Position(journal.len() as u64);
        let mut cache = ReadCache::default();
        let (mut read_bytes, mut waits, mut behind) = (0, 0, VecDeque::new());
        for position in (0..journal.len()).step_by(length) {
            let position = Position(position as u64);
            loop {
                let found = cache.read(PARTITION, position, length, limit);
                behind.extend(wanted(&mut cache));
                if let CacheLookup::Batch(batch) = found {
                    let from = position.0 as usize;
                    assert_eq!(batch, journal[from..from + length]);
                    break;
                }
                waits += 1;
                let fetch = behind.pop_front().expect("what is waited for is being read");
                read_bytes += fetch.length;
                fetched(&mut cache, &journal, fetch);
                assert!(waits == 1 || !behind.is_empty() || fetch.position.0 + 2 * CHUNK > limit.0);
            }
        }
        assert_eq!((read_bytes, behind.len()), (journal.len(), 0));
    }

    #[test]
    fn a_batch_across_two_chunks_is_read_alone_when_the_second_cannot_be_read() {
        let (journal, length) = journal(4 << 20);
        let limit = Position(journal.len() as u64);
        let mut cache = ReadCache::default();
        let across = Position((CHUNK_BYTES / length * length) as u64);
        cache.begin_chunk(Position(0), 1, limit, BTreeSet::new());
        let first = wanted(&mut cache)[0];
        fetched(&mut cache, &journal, first);
        assert!(matches!(cache.read(PARTITION, across, length, limit), CacheLookup::Pending));
        let second = wanted(&mut cache)[0];
        assert_eq!(second.position, Position(CHUNK));
        assert!(cache.fetched(second, None).unreadable.is_empty());
        let alone = wanted(&mut cache);
        assert_eq!(alone, [Fetch { position: across, length }]);
        let place = Place { position: across.0, bytes: length as u32 };
        assert_eq!(cache.fetched(alone[0], None).unreadable, [(PARTITION, place)]);
    }

    #[test]
    fn what_was_committed_just_now_is_not_read_ahead() {
        let (journal, length) = journal(4 << 20);
        let mut cache = ReadCache::default();
        cache.begin_chunk(Position(0), 1, Position(CHUNK), BTreeSet::new());
        let first = wanted(&mut cache)[0];
        fetched(&mut cache, &journal, first);
        let last = Position(((CHUNK_BYTES / length - 1) * length) as u64);
        for (limit, ahead) in [(CHUNK + 4096, 0), (3 * CHUNK, 2)] {
            let found = cache.read(PARTITION, last, length, Position(limit));
            assert!(matches!(found, CacheLookup::Batch(_)));
            assert_eq!(wanted(&mut cache).len(), ahead);
        }
    }

    #[test]
    fn an_append_to_a_stream_is_read_back_though_it_is_longer_than_a_publishers_batch() {
        let mut builder = BatchBuilder::for_append(APPEND_BYTES_MAX);
        for _ in 0..2 {
            builder.push(&Message::new(vec![7; MESSAGE_BYTES_MAX - 100])).unwrap();
        }
        let batch = builder.take().unwrap().bytes().clone();
        let limit = Position(batch.len() as u64);
        let mut cache = ReadCache::default();
        assert!(matches!(
            cache.read(PARTITION, Position(0), batch.len(), limit),
            CacheLookup::Pending
        ));
        let fetch = wanted(&mut cache)[0];
        fetched(&mut cache, &batch, fetch);
        let found = cache.read(PARTITION, Position(0), batch.len(), limit);
        assert!(matches!(found, CacheLookup::Batch(found) if found == batch));
    }

    fn of_topic(topic: u64) -> PartitionId {
        PartitionId { topic: TopicId(topic as u32), ..PARTITION }
    }

    /// A cache that makes as many reads as it can, one for each topic from 0 on.
    fn busy(length: usize) -> (ReadCache, Vec<Fetch>) {
        let mut cache = ReadCache::default();
        for topic in 0..FETCHES_MAX as u64 {
            let (partition, position) = (of_topic(topic), Position(topic * 4 * CHUNK));
            let found = cache.read(partition, position, length, position.plus(CHUNK));
            assert!(matches!(found, CacheLookup::Pending));
        }
        let fetches = wanted(&mut cache);
        assert_eq!(fetches.len(), FETCHES_MAX);
        (cache, fetches)
    }

    #[test]
    fn a_read_that_is_done_wakes_those_who_found_no_place_and_then_those_who_wait_for_it() {
        let (_, length) = journal(1 << 20);
        let (mut cache, fetches) = busy(length);
        for topic in [90, 70, 90, 80] {
            let position = Position(topic * 4 * CHUNK);
            cache.read(of_topic(topic), position, length, position.plus(CHUNK));
        }
        assert_eq!(wanted(&mut cache), []);
        let done = cache.fetched(fetches[3], Some(Bytes::from(vec![0; fetches[3].length])));
        assert_eq!(done.partitions, [90, 70, 80, 3].map(of_topic));
        assert_eq!(cache.fetched(fetches[4], None).partitions, []);
        let again = wanted(&mut cache);
        assert_eq!(cache.fetched(again[0], None).partitions, [of_topic(4)]);
    }

    #[test]
    fn a_read_ahead_that_fails_makes_place_for_those_who_found_none() {
        let mut cache = ReadCache::default();
        for index in 0..FETCHES_MAX as u64 {
            let position = Position(index * 4 * CHUNK);
            cache.begin_chunk(position, 1, position.plus(CHUNK), BTreeSet::new());
        }
        let ahead = wanted(&mut cache);
        let far = Position(400 * CHUNK);
        assert!(matches!(cache.read(PARTITION, far, 100, far.plus(CHUNK)), CacheLookup::Pending));
        assert_eq!(cache.fetched(ahead[0], None).partitions, [PARTITION]);
    }
}
