//! Compacts a partition that keeps the latest message of each key, beside the shard, step by step: first it looks
//! up the latest message of each key, then it says which messages of a batch remain. Where records name places, it
//! copies these at once; otherwise they remain where they are, and moves copy them when it is worth it.
//! The shard chooses the partition and the range (`compaction_scheduling`).

use bytes::Bytes;
use sennit_engine::{CompactedBatch, KeptBatch, KeptPart, KeptRun, Place, SupersededBatch};
use sennit_journal::{Container, Disk, Pack, Position};
use sennit_model::{Batch, Offset, PartitionId};

use crate::{
    key_table::KeyTable,
    mover::{Copied, MoveError, Moved, Mover, RetentionClass},
};

/// Size of one read of adjacent batches, in bytes.
const READ_BYTES: u64 = 1 << 20;

/// Batches with at most this many other bytes between them are read together.
const READ_OVER_BYTES: u64 = 4 << 10;

/// Bytes between two pauses.
const PACED_BYTES: usize = 256 << 10;

/// Each read counts as this many more bytes.
const READ_COST_BYTES: usize = 4 << 10;

/// Remaining messages of at most this size in bytes go to the journal; in short segments less.
const IN_JOURNAL_BYTES: usize = 64 << 10;

/// Bytes of remaining messages that a step may hold in memory, beside one batch.
const KEPT_BYTES: usize = 32 << 20;

/// The work of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactionWork {
    /// Look up the latest message of each key.
    LookUp,
    /// Keep the messages that are not superseded, and of tombstones only those from this offset on.
    Keep(Offset),
}

/// A step of a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactionStep {
    /// The partition.
    pub partition: PartitionId,
    /// The class of packs for its messages.
    pub retention_class: RetentionClass,
    /// The work.
    pub work: CompactionWork,
    /// Whether the remaining messages stay where they are.
    pub is_in_place: bool,
    /// Whether a pass begins with this step.
    pub begins: bool,
    /// Whether the pass ends with this step, if it reaches `to`.
    pub ends: bool,
    /// The batches, by offset; and for each whether to copy it even if all of it is kept, because
    /// it lies in a short pack.
    pub batches: Vec<(KeptBatch, bool)>,
    /// The end of the batches.
    pub to: Offset,
}

/// The result of a step. Everything in it is durable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompactionDone {
    /// The new packs.
    pub packs: Vec<Pack>,
    /// The batches that lost messages or that lie elsewhere now.
    pub batches: Vec<CompactedBatch>,
    /// The batches that lost messages, if the others stay where they are.
    pub superseded: Vec<SupersededBatch>,
    /// Their remaining messages, part by part, if these are few: they are not on disk yet and go to
    /// the journal, as a pack would take more room.
    pub in_journal: Vec<Batch>,
    /// The offset that the step has reached.
    pub to: Offset,
    /// Whether any tombstone remains.
    pub keeps_tombstones: bool,
    /// The number of batches that could not be read. They are unchanged.
    pub unreadable: u64,
}

impl<D: Disk> Mover<D> {
    /// Limits the number of keys in the table of a pass.
    pub fn set_compaction_keys(&mut self, most: usize) {
        self.keys_max = most;
    }

    /// Runs a step of a pass.
    ///
    /// # Errors
    /// A [`MoveError`]; the pass then fails.
    pub fn compact(&mut self, step: &CompactionStep) -> Result<CompactionDone, MoveError> {
        if step.begins {
            self.keys = KeyTable::default();
        }
        let done = match step.work {
            CompactionWork::LookUp => self.look_up(step),
            CompactionWork::Keep(tombstones_from) => self.keep(step, tombstones_from),
        };
        let is_over = step.ends && done.as_ref().is_ok_and(|done| done.to == step.to);
        if done.is_err() || is_over {
            self.keys = KeyTable::default();
        }
        done
    }

    fn look_up(&mut self, step: &CompactionStep) -> Result<CompactionDone, MoveError> {
        let mut done = CompactionDone { to: step.to, ..CompactionDone::default() };
        let mut batches = step.batches.as_slice();
        while !batches.is_empty() {
            let (together, rest) = batches.split_at(self.together(batches));
            batches = rest;
            let read = self.read_together(together)?;
            for ((kept, _), batch) in together.iter().zip(read) {
                let Some(batch) = batch else {
                    done.unreadable += 1;
                    continue;
                };
                if self.keys.len() > 0 && self.keys.len() + kept.count as usize > self.keys_max {
                    done.to = kept.first;
                    return Ok(done);
                }
                for (offset, message) in (kept.first.0..).zip(batch.messages()) {
                    if !message.key().is_empty() {
                        self.keys.note(message.key(), offset);
                    }
                }
            }
        }
        Ok(done)
    }

    fn keep(
        &mut self,
        step: &CompactionStep,
        tombstones_from: Offset,
    ) -> Result<CompactionDone, MoveError> {
        let mut done = CompactionDone { to: step.to, ..CompactionDone::default() };
        let (mut copies, mut kept_bytes) = (Vec::new(), 0);
        let mut batches = step.batches.as_slice();
        while !batches.is_empty() {
            if kept_bytes >= KEPT_BYTES {
                done.to = batches[0].0.first;
                break;
            }
            let (together, rest) = batches.split_at(self.together(batches));
            batches = rest;
            let read = self.read_together(together)?;
            for ((kept, is_copied_along), batch) in together.iter().zip(read) {
                let Some(batch) = batch else {
                    done.unreadable += 1;
                    continue;
                };
                let runs =
                    self.runs_kept(kept, &batch, tombstones_from, &mut done.keeps_tombstones);
                let is_whole = runs.first().is_some_and(|run| run.count == kept.count);
                if is_whole && !is_copied_along {
                    continue;
                }
                if step.is_in_place {
                    let (first, count, bytes) = (kept.first, kept.count, kept.place.bytes);
                    let kept = runs.iter().map(Run::in_batch).collect();
                    done.superseded.push(SupersededBatch { first, count, bytes, kept });
                    continue;
                }
                kept_bytes += runs.iter().map(|run| run.bytes.len()).sum::<usize>();
                copies.extend(runs.iter().map(|run| run.copy(step, kept)));
                let parts = runs.iter().map(Run::part_without_place).collect();
                let (first, count) = (kept.first, kept.count);
                done.batches.push(CompactedBatch { first, count, parts });
            }
        }
        self.write_copies(copies, kept_bytes, done)
    }

    /// Writes the copies of remaining messages, `kept_bytes` in all, to packs, or leaves them to
    /// the journal if they are few.
    fn write_copies(
        &mut self,
        copies: Vec<Copied>,
        kept_bytes: usize,
        mut done: CompactionDone,
    ) -> Result<CompactionDone, MoveError> {
        if kept_bytes <= IN_JOURNAL_BYTES.min(self.segment_bytes() as usize / 8) {
            let batches = copies.into_iter().map(|copied| Batch::from_journal(copied.batch));
            // They were read and checked just now.
            done.in_journal = batches.collect::<Result<_, _>>().expect("whole messages");
            return Ok(done);
        }
        let Moved { packs, batches: copied } = self.write_all(copies)?;
        // They were written in the order of their offsets.
        let mut copied = copied.into_iter();
        for part in done.batches.iter_mut().flat_map(|batch| &mut batch.parts) {
            let written = copied.next().filter(|written| written.first == part.first);
            part.place = written.ok_or(MoveError::Missing { missing: 1 })?.place;
        }
        done.packs = packs;
        Ok(done)
    }

    /// The runs of a batch's messages that remain.
    fn runs_kept<'a>(
        &self,
        kept: &KeptBatch,
        batch: &'a Batch,
        tombstones_from: Offset,
        keeps_tombstones: &mut bool,
    ) -> Vec<Run<'a>> {
        let mut runs: Vec<Run<'a>> = Vec::new();
        let (mut byte, mut continues) = (0usize, false);
        for (offset, message) in (kept.first.0..).zip(batch.messages()) {
            let length = message.encoded().len();
            let mut stays =
                message.key().is_empty() || !self.keys.supersedes(message.key(), offset);
            if stays && message.is_tombstone() {
                stays = offset >= tombstones_from.0;
                *keeps_tombstones |= stays;
            }
            if stays {
                match runs.last_mut().filter(|_| continues) {
                    Some(run) => {
                        run.count += 1;
                        run.bytes = &batch.bytes()[byte - run.bytes.len()..byte + length];
                    }
                    None => {
                        let bytes = &batch.bytes()[byte..byte + length];
                        runs.push(Run {
                            first: Offset(offset),
                            count: 1,
                            begin: byte as u32,
                            bytes,
                        });
                    }
                }
            }
            continues = stays;
            byte += length;
        }
        runs
    }

    /// The number of adjacent batches at the front.
    fn together(&self, batches: &[(KeptBatch, bool)]) -> usize {
        let segment_bytes = self.segment_bytes();
        let container =
            |kept: &KeptBatch| Container::of(Position(kept.place.position), segment_bytes);
        let first = batches[0].0;
        let follows = |pair: &[(KeptBatch, bool)]| {
            let (before, next) = (pair[0].0.place, pair[1].0.place);
            let end = before.position + u64::from(before.bytes);
            container(&pair[1].0) == container(&first)
                && (end..=end + READ_OVER_BYTES).contains(&next.position)
                && next.position + u64::from(next.bytes) - first.place.position <= READ_BYTES
        };
        1 + batches.windows(2).take_while(|pair| follows(pair)).count()
    }

    /// Reads adjacent batches; `None` for each that cannot be read.
    fn read_together(
        &mut self,
        batches: &[(KeptBatch, bool)],
    ) -> Result<Vec<Option<Batch>>, MoveError> {
        let (first, last) = (batches[0].0.place, batches[batches.len() - 1].0.place);
        let length = (last.position + u64::from(last.bytes) - first.position) as usize;
        // Short reads rest together.
        self.unpaced += length + READ_COST_BYTES;
        if self.unpaced >= PACED_BYTES {
            let unpaced = std::mem::take(&mut self.unpaced);
            if !self.pace(unpaced) {
                return Err(MoveError::Stopped);
            }
        }
        let all = self.read(Position(first.position), length).ok();
        let mut read = Vec::with_capacity(batches.len());
        for (kept, _) in batches {
            let bytes = match &all {
                Some(all) => {
                    let at = (kept.place.position - first.position) as usize;
                    Some(all.slice(at..at + kept.place.bytes as usize))
                }
                None => self.read(Position(kept.place.position), kept.place.bytes as usize).ok(),
            };
            let batch = bytes.and_then(|bytes| Batch::check_kept(bytes).ok());
            read.push(batch.filter(|batch| batch.count() == kept.count));
        }
        Ok(read)
    }
}

/// Adjacent messages of a batch.
struct Run<'a> {
    first: Offset,
    count: u32,
    /// The number of bytes of the batch before them.
    begin: u32,
    bytes: &'a [u8],
}

impl Run<'_> {
    /// A copy of the run, which is a part of the batch `kept`.
    fn copy(&self, step: &CompactionStep, kept: &KeptBatch) -> Copied {
        Copied {
            retention_class: step.retention_class,
            partition: step.partition,
            first: self.first,
            appended_at: kept.appended_at,
            // A copy, because the batch keeps a longer read in memory.
            batch: Bytes::copy_from_slice(self.bytes),
        }
    }

    /// The run as a part of its batch.
    fn in_batch(&self) -> KeptRun {
        let Self { first, count, begin, bytes } = *self;
        KeptRun { first, count, begin, bytes: bytes.len() as u32 }
    }

    /// The run as a part whose place is not known yet.
    fn part_without_place(&self) -> KeptPart {
        let place = Place { position: 0, bytes: self.bytes.len() as u32 };
        KeptPart { first: self.first, count: self.count, place }
    }
}
