//! What reads of streams come to: what lies at an offset, or that it lies elsewhere, or that nothing
//! does yet and the read waits. It changes nothing but the list of those who wait.

use bytes::Bytes;
use sennit_model::{Durability, Offset, PartitionId, ReadFrom, Timestamp};

use crate::{
    command::Origin,
    effect::GapReason,
    engine::{Engine, Journal, Outbox, Payloads},
    gather::{AtHand, Part},
    partition::Partition,
    stream::{StreamAnswer, StreamChunk, StreamRead, StreamRefusal, StreamRest},
    wakeups::Woken,
};

/// Most parts of a chunk: a read that would have more gets the rest when it asks again.
const PARTS_MAX: usize = 1024;

/// The outcome of a look at a read that is not refused.
enum Look {
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
            let (answer, is_early) = match self.look(id, read, now, payloads, at_hand) {
                Ok(Look::Answer(answer, is_early)) => (answer, is_early),
                Ok(Look::Waits) => return true,
                Ok(Look::Fetches) => {
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

    fn look(
        &self,
        id: PartitionId,
        read: &mut StreamRead,
        now: Timestamp,
        payloads: &mut impl Payloads,
        at_hand: &mut AtHand,
    ) -> Result<Look, StreamRefusal> {
        let partition = self.living(id, now, read.for_fork)?;
        let settings = self.stream_settings(id);
        let visible = partition.visible;
        let before = read.before.map_or(visible, |before| before.0.min(visible));
        let at = match (read.at, &settings.fork) {
            (ReadFrom::Earliest, Some(_)) => 0,
            (ReadFrom::Earliest, None) => partition.read_start(&self.lost),
            (ReadFrom::Offset(offset), _) => offset.0,
            (from, _) => partition.locate(from).min(visible),
        };
        if at > visible && !read.for_fork {
            return Err(StreamRefusal::BeyondEnd { next: Offset(visible) });
        }
        let at = at.min(before);
        // From now on it means this very place.
        read.at = ReadFrom::Offset(Offset(at));
        if let Some(fork) = &settings.fork
            && at < fork.at.0
        {
            let status = self.stream_status(id).ok_or(StreamRefusal::Unknown)?;
            let (source, home) = (fork.source, fork.home);
            let before = Offset(fork.at.0.min(before));
            let answer = StreamAnswer::Inherited { source, home, before, status };
            // How it is may be committed later, that it is there at all too.
            return Ok(Look::Answer(answer, false));
        }
        let at = partition.begin(&self.lost, at, before).map_err(|(range, reason)| {
            let next = range.end;
            match reason {
                GapReason::RolledBack => StreamRefusal::RolledBack { next },
                GapReason::Retention => StreamRefusal::NotKept { start: next },
                _ => StreamRefusal::Damaged { next },
            }
        })?;
        read.at = ReadFrom::Offset(Offset(at));
        let before = partition.until_lost(&self.lost, at, before);
        let Some((messages, next)) = gather(partition, at, before, read, payloads, at_hand) else {
            return Ok(Look::Fetches);
        };
        let is_up_to_date = next >= visible;
        // A stream that is closed ends where its log does, and that may be committed later.
        let is_end = |at| at == partition.log.end() && self.is_closed(id);
        let is_closed = is_end(next);
        let rest = (next < before).then(|| StreamRest {
            until: Offset(before),
            is_up_to_date: before >= visible,
            is_closed: is_end(before),
        });
        if messages.is_empty() && read.waits && !is_closed {
            return Ok(Look::Waits);
        }
        let (first, next) = (Offset(at), Offset(next));
        // Of one in which nothing is visible yet, that it is there at all may be committed later.
        let begins = settings.fork.as_ref().map_or(0, |fork| fork.at.0);
        let may_be_new = visible <= begins;
        let answer = StreamAnswer::Chunk(StreamChunk {
            topic: id.topic,
            first,
            next,
            is_up_to_date,
            is_closed,
            rest,
            messages,
            settings,
        });
        let tells_end = is_closed || rest.is_some_and(|rest| rest.is_closed);
        let durability = partition.config.durability;
        let awaits_nothing = matches!(durability, Durability::Ephemeral | Durability::Memory);
        Ok(Look::Answer(answer, !(tells_end || may_be_new) || awaits_nothing))
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
