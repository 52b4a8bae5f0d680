//! Moves batches that are still wanted out of a segment or a thin pack into new packs, so that the slot or the file
//! comes free. It runs beside the shard on a slow disk, and gets the list of wanted batches from the shard.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use sennit_engine::{KeptBatch, Place, RECORD_KIND_END, Record, RecordError};
use sennit_journal::{
    BLOCK_BYTES, Container, Disk, FRAME_TARGET_BYTES, Fault, LaneConfig, Pack, PackPushError,
    PackRemoval, PackWriter, Position, Reader, Slot, WalkItem, remove_pack, remove_slot,
};
use sennit_model::{
    Batch, Offset, PartitionId, PartitionIndex, Timestamp, TopicId, limits::COMPACTION_KEYS_MAX,
};

use crate::key_table::KeyTable;

/// A batch in a pack: partition, first offset, time of append, and the batch.
const PACKED: u8 = 1;
/// Bytes of a packed record before the batch.
const PACKED_HEAD_BYTES: usize = 24;

/// Set in the class of a pack that holds only one partition.
const OWN_PACK: u64 = 1 << 63;

/// The lengths of packs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackLengths {
    /// A pack is finished at this length in bytes, which is also the amount held in memory at a
    /// time.
    pub finished: u64,
    /// A partition of which a move has this many bytes gets packs of its own, so that a reader from
    /// its start reads file after file.
    pub own: u64,
}

impl Default for PackLengths {
    fn default() -> Self {
        Self { finished: 64 << 20, own: 8 << 20 }
    }
}

/// How long messages are kept. Packs hold messages of one class, which are freed at about the same
/// time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RetentionClass {
    /// Until they are settled, or for ever.
    Open,
    /// Up to an hour.
    Hour,
    /// Up to a day.
    Day,
    /// Up to a week.
    Week,
}

impl RetentionClass {
    /// The class for a retention of at most `limit`.
    pub(crate) fn of(limit: Option<Duration>) -> Self {
        const HOUR: Duration = Duration::from_secs(3600);
        match limit {
            Some(limit) if limit <= HOUR => Self::Hour,
            Some(limit) if limit <= 24 * HOUR => Self::Day,
            Some(limit) if limit <= 7 * 24 * HOUR => Self::Week,
            _ => Self::Open,
        }
    }
}

/// A batch in a segment or a pack, wanted or not, or a part of one that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredBatch {
    /// Its partition.
    pub partition: PartitionId,
    /// Its first offset.
    pub first: Offset,
    /// The number of messages in it.
    pub count: u32,
    /// Its place.
    pub place: Place,
    /// Its class; set by [`crate::Shard::retain_wanted`].
    pub retention_class: RetentionClass,
}

/// A batch that was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MovedBatch {
    /// Its partition.
    pub partition: PartitionId,
    /// Its first offset.
    pub first: Offset,
    /// Its new place.
    pub place: Place,
}

/// The result of a move. Everything in it is durable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// The new packs.
    pub packs: Vec<Pack>,
    /// The batches in them, by partition and offset.
    pub batches: Vec<MovedBatch>,
}

/// The reason why a move failed. Nothing refers to the packs that it wrote.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// A fault of the disk, or damage.
    #[error(transparent)]
    Journal(#[from] Fault),
    /// A record is impossible.
    #[error("record at position {position}: {error}")]
    Record {
        /// The position of its body.
        position: Position,
        /// The error.
        error: RecordError,
    },
    /// A record in a pack is impossible.
    #[error("the packed record at position {position} is not one")]
    Packed {
        /// The position of its body.
        position: Position,
    },
    /// Wanted batches were not found again.
    #[error("{missing} wanted batches are not there")]
    Missing {
        /// Their number.
        missing: usize,
    },
    /// The caller stopped the move.
    #[error("the move was stopped")]
    Stopped,
}

/// Moves batches into packs, and compacts partitions.
#[derive(Debug)]
pub struct Mover<D: Disk> {
    disk: D,
    config: LaneConfig,
    reader: Reader<D>,
    lengths: PackLengths,
    next_pack: u32,
    pace: Pace,
    /// The keys of the compaction under way.
    pub(crate) keys: KeyTable,
    pub(crate) keys_max: usize,
    /// Bytes that were read since the last pause.
    pub(crate) unpaced: usize,
    /// Packs of failed moves.
    orphaned_packs: Vec<u32>,
    /// Whether a move writes one pack, which takes less room than several.
    in_one_pack: bool,
    /// Bytes of the disk that packs leave free.
    left_bytes: u64,
}

/// Called with the size of each read and write; it may pause.
struct Pace(Box<dyn FnMut(usize) -> bool + Send>);

impl std::fmt::Debug for Pace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pace")
    }
}

/// A batch that is being moved.
pub(crate) struct Copied {
    pub(crate) retention_class: RetentionClass,
    pub(crate) partition: PartitionId,
    pub(crate) first: Offset,
    pub(crate) appended_at: Timestamp,
    pub(crate) batch: Bytes,
}

/// A batch as it was found in a segment or a pack.
struct FoundBatch {
    partition: PartitionId,
    first: Offset,
    appended_at: Timestamp,
    batch: Batch,
}

impl<D: Disk> Mover<D> {
    /// A mover with these pack lengths, whose packs have numbers from `next_pack` on.
    pub(crate) fn new(
        disk: D,
        config: LaneConfig,
        reader: Reader<D>,
        lengths: PackLengths,
        next_pack: u32,
    ) -> Self {
        let pace = Pace(Box::new(|_| true));
        let (keys, keys_max) = (KeyTable::default(), COMPACTION_KEYS_MAX);
        let (unpaced, orphaned_packs) = (0, Vec::new());
        let (in_one_pack, left_bytes) = (false, 0);
        Self {
            disk,
            config,
            reader,
            lengths,
            next_pack,
            pace,
            keys,
            keys_max,
            unpaced,
            orphaned_packs,
            in_one_pack,
            left_bytes,
        }
    }

    /// Pauses for this many bytes; returns false to stop.
    pub(crate) fn pace(&mut self, bytes: usize) -> bool {
        (self.pace.0)(bytes)
    }

    /// The bytes at `position`.
    pub(crate) fn read(&mut self, position: Position, length: usize) -> Result<Bytes, Fault> {
        self.reader.read(position, length)
    }

    /// The length of a segment in bytes.
    #[must_use]
    pub fn segment_bytes(&self) -> u64 {
        self.config.segment_bytes
    }

    /// Sets a function that is called with the size of each quarter of a MiB that is read and about
    /// each MiB that is written. It may pause, so that others can use the disk, or return false,
    /// and the move fails.
    pub fn set_pace(&mut self, pace: impl FnMut(usize) -> bool + Send + 'static) {
        self.pace = Pace(Box::new(pace));
    }

    /// The size in bytes that the packs of these batches take at most, if they lie in one.
    #[must_use]
    pub fn bytes_for(&self, wanted: &[StoredBatch]) -> u64 {
        Self::bytes_of(wanted.iter().map(|held| u64::from(held.place.bytes)))
    }

    /// The same for batches of these lengths.
    fn bytes_of(batches: impl Iterator<Item = u64>) -> u64 {
        let records: u64 = batches.map(|bytes| bytes + (PACKED_HEAD_BYTES + 16) as u64).sum();
        // Each frame fills its last block; the header and the last frame have one each.
        let blocks = 3 + 2 * records / FRAME_TARGET_BYTES as u64;
        records + blocks * BLOCK_BYTES as u64
    }

    /// Returns whether the disk has this many free bytes.
    ///
    /// # Errors
    /// [`Fault::Io`].
    pub fn has_room(&self, bytes: u64) -> Result<bool, Fault> {
        let available = self.disk.available_bytes(&self.config.directory);
        available.map(|available| available >= bytes).map_err(|error| Fault::Io {
            action: "measure",
            path: self.config.directory.clone(),
            error,
        })
    }

    /// Removes a slot that the lane has given up, to make room for a pack.
    ///
    /// # Errors
    /// [`Fault::Io`]; the rest of the slot is spare at the next start.
    pub fn make_room(&self, slot: &Slot) -> Result<(), Fault> {
        remove_slot(&self.disk, &self.config.directory, slot)
    }

    /// Makes a move write one pack, or one for each class of its batches.
    pub fn set_in_one_pack(&mut self, in_one_pack: bool) {
        self.in_one_pack = in_one_pack;
    }

    /// Sets the number of bytes that packs leave free, because lanes need the room for slots.
    pub fn set_left_bytes(&mut self, left_bytes: u64) {
        self.left_bytes = left_bytes;
    }

    /// All batches in `container`.
    ///
    /// # Errors
    /// A [`MoveError`]; the container then stays as it is.
    pub fn list(&mut self, container: Container) -> Result<Vec<StoredBatch>, MoveError> {
        let mut held = Vec::new();
        self.walk(container, |found, place| {
            let FoundBatch { partition, first, batch, .. } = found;
            let (count, retention_class) = (batch.count(), RetentionClass::Open);
            held.push(StoredBatch { partition, first, count, place, retention_class });
        })?;
        Ok(held)
    }

    /// Copies the `wanted` batches of `container`, and parts of batches, into packs, by partition and
    /// offset.
    ///
    /// # Errors
    /// A [`MoveError`]; then nothing was moved, and the packs are
    /// [orphaned](Mover::take_orphaned_packs).
    pub fn copy(
        &mut self,
        container: Container,
        wanted: &[StoredBatch],
    ) -> Result<Moved, MoveError> {
        let wanted_at: BTreeMap<u64, &StoredBatch> =
            wanted.iter().map(|held| (held.place.position, held)).collect();
        let mut batches = Vec::with_capacity(wanted.len());
        self.walk(container, |found, place| {
            let end = place.position + u64::from(place.bytes);
            for (position, part) in wanted_at.range(place.position..end) {
                let begin = (position - place.position) as usize;
                let bytes = found.batch.bytes().get(begin..begin + part.place.bytes as usize);
                let Some(bytes) = bytes else { continue };
                let FoundBatch { partition, appended_at, .. } = found;
                let (retention_class, first) = (part.retention_class, part.first);
                // A copy, because the body keeps some MiB of a read in memory.
                let batch = Bytes::copy_from_slice(bytes);
                batches.push(Copied { retention_class, partition, first, appended_at, batch });
            }
        })?;
        if batches.len() != wanted.len() {
            return Err(MoveError::Missing { missing: wanted.len() - batches.len() });
        }
        self.write_all(batches)
    }

    /// Finds a part of a stored batch: `count` messages from `first` on. `None` if it has no such part, or
    /// cannot be read.
    pub(crate) fn find_part(
        &mut self,
        stored: &StoredBatch,
        first: Offset,
        count: u32,
    ) -> Option<Place> {
        let Place { position, bytes } = stored.place;
        let index = u32::try_from(first.0.checked_sub(stored.first.0)?).ok()?;
        index.checked_add(count).filter(|end| *end <= stored.count)?;
        let batch = Batch::check_kept(self.read(Position(position), bytes as usize).ok()?).ok()?;
        let mut messages = batch.messages();
        let begin = messages.skip_bytes(index) as u64;
        let bytes = u32::try_from(messages.skip_bytes(count)).ok()?;
        Some(Place { position: position + begin, bytes })
    }

    /// Copies batches that are read one by one, because the frames around them may be damaged.
    ///
    /// # Errors
    /// A [`MoveError`]; then nothing was moved.
    pub(crate) fn copy_each(
        &mut self,
        batches: &[(KeptBatch, RetentionClass)],
    ) -> Result<Moved, MoveError> {
        let read = |&(kept, retention_class): &(KeptBatch, RetentionClass)| {
            let KeptBatch { partition, first, appended_at, place, .. } = kept;
            let batch = self.reader.read(Position(place.position), place.bytes as usize)?;
            Ok(Copied { retention_class, partition, first, appended_at, batch })
        };
        let copied: Result<_, MoveError> = batches.iter().map(read).collect();
        self.write_all(copied?)
    }

    pub(crate) fn write_all(&mut self, batches: Vec<Copied>) -> Result<Moved, MoveError> {
        if self.left_bytes > 0 {
            let bytes = Self::bytes_of(batches.iter().map(|copied| copied.batch.len() as u64));
            if !self.has_room(bytes.saturating_add(self.left_bytes))? {
                let path = self.config.directory.clone();
                return Err(Fault::StorageFull { path }.into());
            }
        }
        let first = self.next_pack;
        let written = self.write(batches);
        if written.is_err() {
            self.orphaned_packs.extend(first..self.next_pack);
        }
        written
    }

    /// The numbers of packs that failed moves and compactions have left. Nothing refers to them,
    /// and a full disk needs the room. They are removed like other packs; the next start removes
    /// the rest.
    pub fn take_orphaned_packs(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.orphaned_packs)
    }

    /// Starts to remove a pack without references, step by step.
    ///
    /// # Errors
    /// [`Fault::Io`].
    pub fn start_removal(&mut self, pack: u32) -> Result<PackRemoval<D>, Fault> {
        self.reader.forget_pack(pack);
        remove_pack(&self.disk, &self.config, pack)
    }

    fn walk(
        &mut self,
        container: Container,
        mut each: impl FnMut(FoundBatch, Place),
    ) -> Result<(), MoveError> {
        self.reader.walk(container, &mut self.pace.0, |walked| {
            // A batch that cannot be read stays where it is.
            let WalkItem::Record { kind, position, body, .. } = walked else { return Ok(()) };
            let found = match container {
                Container::Segment(_) => journaled(kind, position, body)?,
                Container::Pack(_) => Some(packed(kind, position, body)?),
            };
            if let Some((found, head)) = found {
                let bytes = u32::try_from(found.batch.bytes().len());
                let bytes = bytes.expect("batches are below 4 GiB");
                each(found, Place { position: position.plus(head as u64).0, bytes });
            }
            Ok(())
        })
    }

    fn write(&mut self, mut batches: Vec<Copied>) -> Result<Moved, MoveError> {
        let mut sums: BTreeMap<PartitionId, u64> = BTreeMap::new();
        for copied in &batches {
            *sums.entry(copied.partition).or_default() += copied.batch.len() as u64;
        }
        let (PackLengths { finished, own }, in_one_pack) = (self.lengths, self.in_one_pack);
        let finished = if in_one_pack { u64::MAX } else { finished };
        let class = |copied: &Copied| match sums[&copied.partition] >= own {
            _ if in_one_pack => RetentionClass::Open as u64,
            true => own_class(copied.partition),
            false => copied.retention_class as u64,
        };
        batches.sort_by_cached_key(|copied| (class(copied), copied.partition, copied.first));
        let mut moved = Moved::default();
        let count = batches.len();
        let mut under_way: Option<PackWriter<D>> = None;
        let mut unpaced = 0;
        for copied in batches {
            let class = class(&copied);
            let ends =
                |writer: &mut PackWriter<D>| writer.class() != class || writer.bytes() >= finished;
            if let Some(writer) = under_way.take_if(ends) {
                moved.packs.push(writer.finish()?);
            }
            let place = self.write_batch(&copied, class, &mut under_way, &mut moved.packs)?;
            unpaced += place.bytes as usize;
            if unpaced >= FRAME_TARGET_BYTES && !self.pace(std::mem::take(&mut unpaced)) {
                return Err(MoveError::Stopped);
            }
            let Copied { partition, first, .. } = copied;
            moved.batches.push(MovedBatch { partition, first, place });
        }
        if let Some(writer) = under_way {
            moved.packs.push(writer.finish()?);
        }
        assert_eq!(moved.batches.len(), count, "every batch has a new place");
        let in_packs: u64 = moved.packs.iter().map(|pack| pack.bytes).sum();
        let bytes: u64 = moved.batches.iter().map(|batch| u64::from(batch.place.bytes)).sum();
        assert!(bytes <= in_packs, "the packs are shorter than what was written to them");
        Ok(moved)
    }

    /// Writes a batch to the pack `under_way`, or begins another if there is none or it is full.
    fn write_batch(
        &mut self,
        copied: &Copied,
        class: u64,
        under_way: &mut Option<PackWriter<D>>,
        finished: &mut Vec<Pack>,
    ) -> Result<Place, MoveError> {
        loop {
            let writer = match under_way {
                Some(writer) => writer,
                None => under_way.insert(self.begin(class)?),
            };
            match writer.push(PACKED, &[&packed_head(copied), &copied.batch]) {
                Ok(position) => {
                    let position = position.plus(PACKED_HEAD_BYTES as u64).0;
                    let bytes = u32::try_from(copied.batch.len());
                    return Ok(Place { position, bytes: bytes.expect("batches are below 4 GiB") });
                }
                Err(PackPushError::Fault(fault)) => return Err(fault.into()),
                Err(error @ PackPushError::TooLarge { .. }) => {
                    unreachable!("a batch within its limits fits a pack: {error}")
                }
                Err(PackPushError::Full) => {
                    let full = under_way.take().expect("it is full");
                    finished.push(full.finish()?);
                }
            }
        }
    }

    fn begin(&mut self, class: u64) -> Result<PackWriter<D>, Fault> {
        let number = self.next_pack;
        self.next_pack += 1;
        PackWriter::create(&self.disk, &self.config, number, class)
    }
}

/// The class of packs that hold only this partition: bit 63, the topic from bit 24 on, and below it
/// the number of the partition.
fn own_class(partition: PartitionId) -> u64 {
    assert!(partition.index.0 < 1 << 24, "the number of a partition has 24 bits");
    OWN_PACK | u64::from(partition.topic.0) << 24 | u64::from(partition.index.0)
}

/// The batch of a journaled record, if it has one, and its start in the body.
fn journaled(
    kind: u8,
    position: Position,
    body: Bytes,
) -> Result<Option<(FoundBatch, usize)>, MoveError> {
    if kind >= RECORD_KIND_END {
        return Ok(None);
    }
    let wrong = |error| MoveError::Record { position, error };
    let (record, head) = Record::decode(kind, body).map_err(wrong)?;
    let (partition, first, appended_at, batch) = match record {
        Record::Appended { partition, first, appended_at, batch, .. }
        | Record::Kept { partition, first, appended_at, batch } => {
            (partition, first, appended_at, batch)
        }
        Record::Buried { target, first, appended_at, batch, .. }
        | Record::Requeued { target, first, appended_at, batch, .. } => {
            (target, first, appended_at, batch)
        }
        Record::StreamOpened(opened) => match opened.batch {
            Some(batch) => (opened.partition, opened.first, opened.opened_at, batch),
            None => return Ok(None),
        },
        _ => return Ok(None),
    };
    Ok(Some((FoundBatch { partition, first, appended_at, batch }, head)))
}

fn packed_head(copied: &Copied) -> [u8; PACKED_HEAD_BYTES] {
    let mut head = [0; PACKED_HEAD_BYTES];
    head[..4].copy_from_slice(&copied.partition.topic.0.to_le_bytes());
    head[4..8].copy_from_slice(&copied.partition.index.0.to_le_bytes());
    head[8..16].copy_from_slice(&copied.first.0.to_le_bytes());
    head[16..].copy_from_slice(&copied.appended_at.0.to_le_bytes());
    head
}

fn packed(kind: u8, position: Position, body: Bytes) -> Result<(FoundBatch, usize), MoveError> {
    let Some((head, batch)) = body.split_at_checked(PACKED_HEAD_BYTES).filter(|_| kind == PACKED)
    else {
        return Err(MoveError::Packed { position });
    };
    let four = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
    let eight = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
    let batch = Batch::from_journal(body.slice_ref(batch));
    let found = FoundBatch {
        partition: PartitionId { topic: TopicId(four(0)), index: PartitionIndex(four(4)) },
        first: Offset(eight(8)),
        appended_at: Timestamp(eight(16)),
        batch: batch.map_err(|_| MoveError::Packed { position })?,
    };
    Ok((found, PACKED_HEAD_BYTES))
}
