//! A checkpoint: the state written piece by piece between other records, so that a replay is short and no turn is
//! long. Each piece is true at its place in the log; later records change it. `kept` has the layout of the pieces,
//! `replay` reads them back.

use bytes::Bytes;
use sennit_model::{Durability, PartitionId, ProducerId, TopicId};

use crate::{
    engine::{Engine, Journal},
    kept::{self, SliceLimit},
    record::Record,
};

/// Longest record of a piece, in bytes: some fit the shortest segment.
const PART_BYTES: usize = 4 << 10;

/// A deduplication value takes so many bytes of a piece.
const SEEN_VALUE_BYTES: usize = 32;

/// Most producers in one piece: each remembers some dozen batches.
const PRODUCERS_PER_ITEM: usize = 16;

/// A checkpoint that is under way. Leave it to be dropped, and what was written of it is nothing.
#[derive(Debug)]
pub struct Checkpoint {
    piece_bytes: usize,
    bytes: u64,
    next: Next,
    scratch: Vec<u8>,
}

/// The item to be written next.
#[derive(Debug)]
pub(crate) enum Next {
    /// The record that says that a checkpoint begins.
    Beginning,
    /// The topics that may be lost.
    LostTopics,
    /// The topics after this one.
    Topics(Option<TopicId>),
    /// The partitions after this one.
    Partitions(Option<PartitionId>),
    /// More of one partition.
    Inside(Inside),
    /// Nothing.
    Nothing,
}

/// A partition whose head is written.
#[derive(Debug)]
pub(crate) struct Inside {
    id: PartitionId,
    producers: Vec<ProducerId>,
    /// The deduplication values of messages before this offset are written.
    seen_cursor: u64,
    /// Everything before this offset is written.
    cursor: u64,
    /// Everything from here on was appended later: its records say it.
    end: u64,
}

impl Checkpoint {
    /// The bytes of the state that are written so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Engine {
    /// A checkpoint, of which nothing is written yet. Its steps write about `piece_bytes` each; one
    /// batch of messages in many different states is the least that a step takes.
    #[must_use]
    pub fn begin_checkpoint(&self, piece_bytes: usize) -> Checkpoint {
        Checkpoint { piece_bytes, bytes: 0, next: Next::Beginning, scratch: Vec::new() }
    }

    /// Writes the next piece, and says whether the checkpoint is whole. The first step only says
    /// that it begins: a replay may begin with that record, once the last is committed.
    pub fn checkpoint_step(&self, step: &mut Checkpoint, journal: &mut impl Journal) -> bool {
        if let Next::Beginning = step.next {
            let (next_topic, next_group) = self.catalogue.next_ids();
            journal.append(&Record::CheckpointBegan { next_topic, next_group });
            step.next = Next::LostTopics;
            return false;
        }
        step.scratch.clear();
        if matches!(step.next, Next::LostTopics) && self.highest_place > 0 {
            // No snapshot has it: it is not of the state, but of where that lies.
            kept::encode_highest_place(&mut step.scratch, self.highest_place);
        }
        let limit = step.piece_bytes;
        while step.scratch.len() < limit && !matches!(step.next, Next::Nothing) {
            self.keep_next(&mut step.next, limit, &mut step.scratch);
        }
        step.bytes += step.scratch.len() as u64;
        let mut parts = step.scratch.chunks(PART_BYTES).peekable();
        while let Some(part) = parts.next() {
            let (ends, bytes) = (parts.peek().is_none(), Bytes::copy_from_slice(part));
            journal.append(&Record::CheckpointPart { ends, bytes });
        }
        let is_whole = matches!(step.next, Next::Nothing);
        if is_whole {
            journal.append(&Record::CheckpointEnded { bytes: step.bytes });
        }
        is_whole
    }

    /// Appends the next item of the state to `out`.
    pub(crate) fn keep_next(&self, next: &mut Next, piece_bytes: usize, out: &mut Vec<u8>) {
        *next = match next {
            Next::Beginning | Next::Nothing => return,
            Next::LostTopics => {
                if !self.catalogue.lost().is_empty() {
                    kept::encode_lost_topics(out, self.catalogue.lost());
                }
                Next::Topics(None)
            }
            Next::Topics(after) => match self.catalogue.topic_after(*after) {
                Some(topic) => {
                    kept::encode_topic(out, topic);
                    Next::Topics(Some(topic.id()))
                }
                None => Next::Partitions(None),
            },
            Next::Partitions(after) => match self.partitions.next_after(*after) {
                Some(id) => self.keep_head(id, out),
                None => Next::Nothing,
            },
            Next::Inside(inside) => {
                if !self.keep_more(inside, piece_bytes, out) {
                    return;
                }
                Next::Partitions(Some(inside.id))
            }
        };
    }

    fn keep_head(&self, id: PartitionId, out: &mut Vec<u8>) -> Next {
        let Some(view) = self.partitions.peek(&id) else { return Next::Partitions(Some(id)) };
        let partition = view.partition();
        kept::encode_head(out, partition);
        let lost: Vec<_> = self.lost.of(id).collect();
        if !lost.is_empty() {
            kept::encode_lost(out, id, &lost);
        }
        let cursors = self.cursors.count(id);
        if cursors > 0 {
            kept::encode_cursors(out, id, cursors, self.cursors.of(id));
        }
        if let Some(stream) = self.streams.get(id) {
            kept::encode_stream(out, partition, stream);
        }
        if let Some(reservation) = self.reserved.get(id) {
            kept::encode_reserved(out, id, reservation.end);
        }
        if let Some(clean) = self.latest.get(id) {
            kept::encode_clean(out, id, clean);
        }
        let producers = match partition.config.durability {
            Durability::Memory => Vec::new(),
            _ => partition.producers.ids(),
        };
        let (cursor, end) = (kept::kept_from(partition), partition.log.end());
        let has_seen =
            !partition.seen.is_empty() && partition.config.durability != Durability::Memory;
        let seen_cursor = if has_seen { 0 } else { end };
        if producers.is_empty() && !has_seen && cursor == end {
            return Next::Partitions(Some(id));
        }
        Next::Inside(Inside { id, producers, seen_cursor, cursor, end })
    }

    /// Appends more of a partition; says whether that was the last of it.
    fn keep_more(&self, inside: &mut Inside, piece_bytes: usize, out: &mut Vec<u8>) -> bool {
        // A partition that is gone needs no more items. One that was made anew meanwhile has its own
        // records, and a replay ignores the items of this checkpoint for it.
        let Some(view) = self.partitions.peek(&inside.id) else { return true };
        let partition = view.partition();
        // Of the one that was begun no batch goes over either.
        let goes_over = |at: u64| {
            partition.log.find(at).is_some_and(|batch| batch.first < at && at < batch.end())
        };
        if partition.log.end() < inside.end || goes_over(inside.cursor) || goes_over(inside.end) {
            return true;
        }
        if !inside.producers.is_empty() {
            let rest = inside.producers.len().saturating_sub(PRODUCERS_PER_ITEM);
            let some = inside.producers.split_off(rest);
            kept::encode_producers(out, partition, &some, rest == 0);
        } else if inside.seen_cursor < inside.end {
            let some = inside.seen_cursor..inside.end;
            let count_max = (piece_bytes / SEEN_VALUE_BYTES).max(1);
            inside.seen_cursor = kept::encode_seen_values(out, partition, some, count_max);
        } else if inside.cursor < inside.end {
            let limit = SliceLimit {
                batches: (piece_bytes / 128).max(1),
                messages: (piece_bytes / 32).max(1) as u64,
            };
            let from = inside.cursor;
            inside.cursor = kept::encode_slice(out, partition, from..inside.end, limit);
        }
        let is_seen = inside.seen_cursor >= inside.end;
        inside.producers.is_empty() && is_seen && inside.cursor >= inside.end
    }
}
