//! Reads of HTTP streams: the answer is content, a redirection to another stream's content, or a wait for new
//! content. A read changes nothing but the list of waiting reads.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use sennit_model::{Durability, Offset, OffsetRange, PartitionId, ReadFrom, Timestamp};

use crate::{
    command::Origin,
    effect::GapReason,
    engine::{Engine, Journal, Outbox, Payloads},
    gather::{AtHand, Part},
    partition::Partition,
    stream::{
        ForkOf, StreamAnswer, StreamChunk, StreamRead, StreamRefusal, StreamRest, StreamSettings,
    },
    wakeups::Woken,
};

/// Most parts of a chunk: a read that would have more gets the rest when it asks again.
const PARTS_MAX: usize = 1024;

/// The outcome of a read that is not refused.
enum ReadOutcome {
    /// An answer, and whether it may go before everything is committed that is appended so far.
    Answer(StreamAnswer, bool),
    /// Nothing lies there yet.
    Waits,
    /// A batch has to be fetched first.
    Fetches,
}

impl Engine {
    /// Answers the reads of a stream that can be answered now, and tells of its end.
    pub(crate) fn serve_stream(
        &mut self,
        id: PartitionId,
        now: Timestamp,
        at_hand: &mut AtHand,
        journal: &mut impl Journal,
        payloads: &mut impl Payloads,
        out: &mut Outbox,
    ) {
        let Some(visible) = self.partitions.get(&id).map(|held| held.visible) else { return };
        self.end_if_over(id, now, journal);
        let Some((woken, mut reads)) = self.streams.take_reads(id, visible) else { return };
        let mut goes_on = |origin: &Origin, read: &mut StreamRead| {
            let (answer, is_early) = match self.answer_read(id, read, now, payloads, at_hand) {
                Ok(ReadOutcome::Answer(answer, is_early)) => (answer, is_early),
                Ok(ReadOutcome::Waits) => return true,
                Ok(ReadOutcome::Fetches) => {
                    reads.wakeups.wake(*origin);
                    return true;
                }
                Err(refusal) => (StreamAnswer::Refused(refusal), false),
            };
            out.answer(*origin, answer, is_early);
            false
        };
        match woken {
            Woken::All => reads.waiting.retain(goes_on),
            Woken::These(origins) => {
                for origin in origins {
                    if let Some(read) = reads.waiting.get_mut(&origin)
                        && !goes_on(&origin, read)
                    {
                        reads.waiting.remove(&origin);
                    }
                }
            }
        }
        self.streams.put_back_reads(id, reads);
    }

    /// The outcome of a read now. The read is given the offset at which it goes on, so that it means that one
    /// later too.
    fn answer_read(
        &self,
        id: PartitionId,
        read: &mut StreamRead,
        now: Timestamp,
        payloads: &mut impl Payloads,
        at_hand: &mut AtHand,
    ) -> Result<ReadOutcome, StreamRefusal> {
        let partition = self.living(id, now, read.for_fork)?;
        let settings = self.stream_settings(id);
        let visible = partition.visible;
        let before = read.before.map_or(visible, |before| before.0.min(visible));
        let at = self.begin_of_read(partition, read, settings.fork.is_some())?.min(before);
        read.at = ReadFrom::Offset(Offset(at));
        if let Some(fork) = settings.fork.as_ref().filter(|fork| at < fork.at.0) {
            return self.inherited(id, fork, before);
        }
        let at = partition.begin(&self.lost, at, before).map_err(refusal_of_gap)?;
        read.at = ReadFrom::Offset(Offset(at));
        let before = partition.until_lost(&self.lost, at, before);
        let Some((messages, next)) = gather(partition, at, before, read, payloads, at_hand) else {
            return Ok(ReadOutcome::Fetches);
        };
        let chunk = self.chunk(partition, settings, messages, at..next, before);
        if chunk.messages.is_empty() && read.waits && !chunk.is_closed {
            return Ok(ReadOutcome::Waits);
        }
        let is_early = may_be_early(partition, &chunk);
        Ok(ReadOutcome::Answer(StreamAnswer::Chunk(chunk), is_early))
    }

    /// The offset at which a read begins, which no stream ends before, unless a fork reads its source.
    fn begin_of_read(
        &self,
        partition: &Partition,
        read: &StreamRead,
        is_fork: bool,
    ) -> Result<u64, StreamRefusal> {
        let visible = partition.visible;
        let at = match read.at {
            ReadFrom::Earliest if is_fork => 0,
            ReadFrom::Earliest => partition.read_start(&self.lost),
            ReadFrom::Offset(offset) => offset.0,
            from => partition.locate(from).min(visible),
        };
        if at > visible && !read.for_fork {
            return Err(StreamRefusal::BeyondEnd { next: Offset(visible) });
        }
        Ok(at)
    }

    /// The answer that the messages before `before` are read from the fork's source.
    fn inherited(
        &self,
        id: PartitionId,
        fork: &ForkOf,
        before: u64,
    ) -> Result<ReadOutcome, StreamRefusal> {
        let status = self.stream_status(id).ok_or(StreamRefusal::Unknown)?;
        let (source, home) = (fork.source, fork.home);
        let before = Offset(fork.at.0.min(before));
        let answer = StreamAnswer::Inherited { source, home, before, status };
        // The stream's status may be committed later, and the stream too.
        Ok(ReadOutcome::Answer(answer, false))
    }

    /// The messages of `range` as an answer to a read that ends before `before`.
    fn chunk(
        &self,
        partition: &Partition,
        settings: Arc<StreamSettings>,
        messages: Vec<Bytes>,
        range: Range<u64>,
        before: u64,
    ) -> StreamChunk {
        let visible = partition.visible;
        // A stream that is closed ends where its log does, and that may be committed later.
        let is_end = |at| at == partition.log.end() && self.is_closed(partition.id);
        let rest = (range.end < before).then(|| StreamRest {
            until: Offset(before),
            is_up_to_date: before >= visible,
            is_closed: is_end(before),
        });
        StreamChunk {
            topic: partition.id.topic,
            first: Offset(range.start),
            next: Offset(range.end),
            is_up_to_date: range.end >= visible,
            is_closed: is_end(range.end),
            rest,
            messages,
            settings,
        }
    }

    /// Refuses the reads that wait, if `is_meant` holds for where they begin.
    pub(crate) fn refuse_reads(
        &mut self,
        id: PartitionId,
        refusal: &StreamRefusal,
        is_meant: impl Fn(ReadFrom) -> bool,
        out: &mut Outbox,
    ) {
        let Some(mut reads) = self.streams.take_all_reads(id) else { return };
        reads.wakeups.wake_all();
        reads.waiting.retain(|origin, read| {
            let is_meant = is_meant(read.at);
            if is_meant {
                out.answer(*origin, StreamAnswer::Refused(refusal.clone()), true);
            }
            !is_meant
        });
        self.streams.put_back_reads(id, reads);
    }
}

/// The refusal of a read that would begin with a gap.
fn refusal_of_gap((range, reason): (OffsetRange, GapReason)) -> StreamRefusal {
    let next = range.end;
    match reason {
        GapReason::RolledBack => StreamRefusal::RolledBack { next },
        GapReason::Retention => StreamRefusal::NotKept { start: next },
        _ => StreamRefusal::Damaged { next },
    }
}

/// Whether a chunk may be sent before everything is committed that is appended so far.
fn may_be_early(partition: &Partition, chunk: &StreamChunk) -> bool {
    let tells_end = chunk.is_closed || chunk.rest.is_some_and(|rest| rest.is_closed);
    // A stream in which nothing is visible yet may be committed later itself.
    let begins = chunk.settings.fork.as_ref().map_or(0, |fork| fork.at.0);
    let may_be_new = partition.visible <= begins;
    let durability = partition.config.durability;
    let awaits_nothing = matches!(durability, Durability::Ephemeral | Durability::Memory);
    awaits_nothing || !(tells_end || may_be_new)
}

/// Gathers the messages of `at..before` that a read wants and whose batches are at hand, and returns where they
/// end; `None` if a batch has to be fetched first.
fn gather(
    partition: &Partition,
    at: u64,
    before: u64,
    read: &StreamRead,
    payloads: &mut impl Payloads,
    at_hand: &mut AtHand,
) -> Option<(Vec<Bytes>, u64)> {
    let (mut messages, mut bytes, mut next) = (Vec::new(), 0, at);
    while next < before && bytes < read.bytes_max && messages.len() < PARTS_MAX {
        let Some((entry, batch)) = at_hand.batch_from(partition, next, before, payloads) else {
            // Nothing is kept of the rest, and nothing of it was lost.
            next = before;
            break;
        };
        let Some(batch) = batch else {
            if messages.is_empty() {
                return None;
            }
            break;
        };
        let start = next.max(entry.first);
        let wanted = start..entry.end().min(before);
        let part = Part::of((&entry, &batch), None, wanted, read.bytes_max - bytes);
        next = start + u64::from(part.count);
        bytes += part.bytes();
        messages.push(part.messages);
        if read.one_append {
            break;
        }
    }
    Some((messages, next))
}
