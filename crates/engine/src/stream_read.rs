//! What reads of streams come to: what lies at an offset, or that it lies elsewhere, or that nothing
//! does yet and the read waits. It changes nothing but the list of those who wait.

use bytes::Bytes;
use sennit_model::{Durability, Offset, PartitionId, ReadFrom, Timestamp};

use crate::{
    command::Origin,
    deliver::{byte_of, cut},
    engine::{Engine, Journal, Outbox, Payloads},
    log::Entry,
    partition::Partition,
    stream::{StreamAnswer, StreamChunk, StreamRead, StreamRefusal, StreamRest},
};

/// Most parts of a chunk: a read that would have more gets the rest when it asks again.
const PARTS_MAX: usize = 1024;

/// Whether an answer may go before everything is committed that is appended so far.
struct Answered {
    answer: StreamAnswer,
    is_early: bool,
}

/// The batch that was looked at last, for the next read that wants it too.
type AtHand = Option<(u64, Bytes)>;

impl Engine {
    /// Answers the reads of a stream that can be answered now, and tells of its end.
    pub(crate) fn serve_stream(
        &mut self,
        id: PartitionId,
        now: Timestamp,
        journal: &mut impl Journal,
        payloads: &mut impl Payloads,
        out: &mut Outbox,
    ) {
        let Some(visible) = self.partitions.get(&id).map(|held| held.visible) else { return };
        self.end_if_over(id, now, journal);
        let Some(mut reads) = self.streams.take_reads(id, visible) else { return };
        let is_same = reads.served_to == Some(visible);
        reads.served_to = Some(visible);
        let awake = std::mem::take(&mut reads.awake);
        let mut at_hand = None;
        let mut has_answer = |origin: &Origin, read: &mut StreamRead| {
            match self.answer_read(id, read, now, payloads, &mut at_hand) {
                Ok(Some(Answered { answer, is_early })) => {
                    out.answer(*origin, answer, is_early);
                    true
                }
                Ok(None) => false,
                // A batch has to be fetched first.
                Err(Fetched) => {
                    reads.awake.push(*origin);
                    false
                }
            }
        };
        if is_same {
            for origin in awake {
                if let Some(read) = reads.waiting.get_mut(&origin)
                    && has_answer(&origin, read)
                {
                    reads.waiting.remove(&origin);
                }
            }
        } else {
            reads.waiting.retain(|origin, read| !has_answer(origin, read));
        }
        self.streams.put_back_reads(id, reads);
    }

    fn answer_read(
        &self,
        id: PartitionId,
        read: &mut StreamRead,
        now: Timestamp,
        payloads: &mut impl Payloads,
        at_hand: &mut AtHand,
    ) -> Result<Option<Answered>, Fetched> {
        let refused = |refusal| {
            let answer = StreamAnswer::Refused(refusal);
            Ok(Some(Answered { answer, is_early: false }))
        };
        if let Err(refusal) = self.living(id, now, read.for_fork) {
            return refused(refusal);
        }
        let Some(partition) = self.partitions.get(&id) else {
            return refused(StreamRefusal::Unknown);
        };
        let settings = self.stream_settings(id);
        let visible = partition.visible;
        let before = read.before.map_or(visible, |before| before.0.min(visible));
        let at = match (read.at, &settings.fork) {
            (ReadFrom::Earliest, Some(_)) => 0,
            (ReadFrom::Earliest, None) => self.first_of_stream(partition),
            (ReadFrom::Offset(offset), _) => offset.0,
            (from, _) => self.locate(id, from).map_or(visible, |(first, _)| first.0),
        };
        if at > visible && !read.for_fork {
            return refused(StreamRefusal::BeyondEnd { next: Offset(visible) });
        }
        let at = at.min(before);
        // From now on it means this very place.
        read.at = ReadFrom::Offset(Offset(at));
        if let Some(fork) = &settings.fork
            && at < fork.at.0
        {
            let Some(status) = self.stream_status(id) else {
                return refused(StreamRefusal::Unknown);
            };
            let (source, home) = (fork.source, fork.home);
            let before = Offset(fork.at.0.min(before));
            let answer = StreamAnswer::Inherited { source, home, before, status };
            // How it is may be committed later, that it is there at all too.
            return Ok(Some(Answered { answer, is_early: false }));
        }
        let durability = partition.config.durability;
        let lost = self.lost.of(id).find(|&(from, to)| from <= at && at < to);
        let at = match lost {
            // Of what was reserved it has seen nothing: it goes on behind that.
            Some((from, end)) if from == at && durability != Durability::Durable => end.min(before),
            // What it has seen is not there any more.
            Some((_, end)) if durability != Durability::Durable => {
                return refused(StreamRefusal::RolledBack { next: Offset(end) });
            }
            Some((_, end)) => return refused(StreamRefusal::Damaged { next: Offset(end) }),
            None => at,
        };
        if at < partition.log.start() {
            return refused(StreamRefusal::NotKept { start: Offset(partition.log.start()) });
        }
        read.at = ReadFrom::Offset(Offset(at));
        let before = self.until_lost(partition, (at, before));
        let gathered = gather(partition, (at, before), read, payloads, at_hand)?;
        let Gathered { messages, next } = gathered;
        let is_up_to_date = next >= visible;
        // A stream that is closed ends where its log does, and that may be committed later.
        let stream = self.streams.get(id).filter(|stream| stream.is_closed);
        let is_end = |at| stream.is_some() && at == partition.log.end();
        let is_closed = is_end(next);
        let rest = (next < before).then(|| StreamRest {
            until: Offset(before),
            is_up_to_date: before >= visible,
            is_closed: is_end(before),
        });
        if messages.is_empty() && read.waits && !is_closed {
            return Ok(None);
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
        let awaits_nothing = matches!(durability, Durability::Ephemeral | Durability::Memory);
        Ok(Some(Answered { answer, is_early: !(tells_end || may_be_new) || awaits_nothing }))
    }

    /// Where a stream begins, for one who reads all of it: of what was lost at its beginning he is told.
    fn first_of_stream(&self, partition: &Partition) -> u64 {
        let start = partition.log.start();
        if partition.config.durability != Durability::Durable {
            return start;
        }
        let lost = self.lost.of(partition.id).find(|&(_, to)| to == start);
        lost.map_or(start, |(from, _)| from)
    }

    /// How far a read goes from `at`: in a durable stream nothing that was lost is passed over unsaid.
    fn until_lost(&self, partition: &Partition, (at, before): (u64, u64)) -> u64 {
        if partition.config.durability != Durability::Durable {
            return before;
        }
        let next = self.lost.of(partition.id).map(|(from, _)| from).find(|from| *from > at);
        next.map_or(before, |from| from.min(before))
    }

    /// Tells whoever waits to read a stream that it is gone.
    pub(crate) fn tell_stream_ended(&mut self, id: PartitionId, out: &mut Outbox) {
        for origin in self.streams.end_reads(id) {
            out.answer(origin, StreamAnswer::Refused(StreamRefusal::Unknown), true);
        }
    }

    /// A batch cannot be read: whoever waits to read it is told.
    pub(crate) fn tell_stream_damaged(&mut self, id: PartitionId, entry: &Entry, out: &mut Outbox) {
        let Some(mut reads) = self.streams.take_all_reads(id) else { return };
        reads.served_to = None;
        reads.waiting.retain(|origin, read| {
            let ReadFrom::Offset(at) = read.at else { return true };
            if !(entry.first..entry.end()).contains(&at.0) {
                return true;
            }
            let next = Offset(entry.end());
            out.answer(*origin, StreamAnswer::Refused(StreamRefusal::Damaged { next }), true);
            false
        });
        self.streams.put_back_reads(id, reads);
    }
}

/// A batch has to be fetched first; whoever asked is heard again once it is there.
struct Fetched;

struct Gathered {
    messages: Vec<Bytes>,
    next: u64,
}

/// What lies from `at` on, before `before`, as far as a read wants it and it is at hand.
fn gather(
    partition: &Partition,
    (at, before): (u64, u64),
    read: &StreamRead,
    payloads: &mut impl Payloads,
    at_hand: &mut AtHand,
) -> Result<Gathered, Fetched> {
    let (mut messages, mut bytes, mut next) = (Vec::new(), 0, at);
    while next < before && bytes < read.bytes_max && messages.len() < PARTS_MAX {
        let Some(entry) = partition.log.find_from(next).filter(|entry| entry.first < before) else {
            // Nothing is kept of the rest, and nothing of it was lost.
            next = before;
            break;
        };
        let batch = match at_hand {
            Some((first, batch)) if *first == entry.first => batch.clone(),
            _ => match payloads.batch(partition.id, entry.place) {
                Some(batch) => {
                    *at_hand = Some((entry.first, batch.clone()));
                    batch
                }
                None if messages.is_empty() => return Err(Fetched),
                None => break,
            },
        };
        let start = next.max(entry.first);
        let from = byte_of(None, entry, &batch, start);
        let wanted = entry.end().min(before) - start;
        let room = read.bytes_max - bytes;
        let (count, length) = cut(&batch[from..], (start, wanted), entry, room);
        messages.push(batch.slice(from..from + length));
        bytes += length as u64;
        next = start + count;
        if read.one_append {
            break;
        }
    }
    Ok(Gathered { messages, next })
}
