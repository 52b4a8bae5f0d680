//! What an append to a stream comes to before anything is done: refused, known already, or a record. It
//! changes nothing.

use sennit_model::{Batch, Offset, PartitionId, ProducerStamp, Timestamp};

use crate::{
    engine::Engine,
    record::Record,
    refusal::Refusal,
    stream::{
        StreamAppend, StreamAppended, StreamNote, StreamProducer, StreamRefusal, is_same_media_type,
    },
    stream_content::StreamContent,
};

/// Why an append came to nothing: what the stream says, or what any publish would be refused for.
#[derive(Debug)]
pub(crate) enum NotAppended {
    Stream(StreamRefusal),
    Topic(Refusal),
}

impl From<StreamRefusal> for NotAppended {
    fn from(refusal: StreamRefusal) -> Self {
        Self::Stream(refusal)
    }
}

impl From<Refusal> for NotAppended {
    fn from(refusal: Refusal) -> Self {
        Self::Topic(refusal)
    }
}

/// What an append comes to, if it is not refused.
pub(crate) enum Decided {
    /// There is nothing to append: it is so already.
    Already(StreamAppended),
    /// It is to be appended, or noted.
    New,
}

/// The record of what is said without content.
pub(crate) fn note_record(id: PartitionId, note: StreamNote, now: Timestamp) -> Record {
    Record::StreamNoted { partition: id, noted_at: now, note: Box::new(note) }
}

/// The record of a batch that is appended at `first`.
pub(crate) fn batch_record(
    id: PartitionId,
    first: Offset,
    batch: Batch,
    note: StreamNote,
    now: Timestamp,
) -> Record {
    let (producer, appended_at) = (ProducerStamp::default(), now);
    let note = (note != StreamNote::default()).then(|| Box::new(note));
    Record::Appended { partition: id, first, appended_at, producer, batch, note }
}

/// The records of batches that are appended one after the other from `first` on; what is noted goes with
/// the last.
pub(crate) fn batch_records(
    id: PartitionId,
    mut first: Offset,
    batches: impl Iterator<Item = Batch>,
    mut note: StreamNote,
    now: Timestamp,
) -> Vec<Record> {
    let mut batches = batches.peekable();
    let mut records = Vec::new();
    while let Some(batch) = batches.next() {
        let count = u64::from(batch.count());
        let is_last = batches.peek().is_none();
        let note = if is_last { std::mem::take(&mut note) } else { StreamNote::default() };
        records.push(batch_record(id, first, batch, note, now));
        first = first.plus(count);
    }
    records
}

/// What an append is to its producer's history.
enum Standing {
    New,
    Duplicate { sequence: u64 },
}

impl Engine {
    /// Whether an append may be done, and whether there is anything to do.
    pub(crate) fn decide_append(
        &self,
        id: PartitionId,
        append: &StreamAppend,
        now: Timestamp,
    ) -> Result<Decided, NotAppended> {
        let StreamAppend { content, content_type, note } = append;
        self.living(id, now, false)?;
        let partition = self.partitions.get(&id).ok_or(StreamRefusal::Unknown)?;
        if !self.is_opened(id) {
            return Err(StreamRefusal::NativeTopic.into());
        }
        let next = Offset(partition.log.end());
        let settings = self.stream_settings(id);
        let is_closed = self.streams.get(id).is_some_and(|stream| stream.is_closed);
        let standing = self.standing(id, note.producer.as_ref());
        match standing {
            // Whoever is fenced, or was heard before, is told so whatever has become of the stream.
            Err(fenced @ StreamRefusal::ProducerFenced { .. }) => return Err(fenced.into()),
            Ok(Standing::Duplicate { sequence }) => {
                let (is_duplicate, sequence) = (true, Some(sequence));
                let appended = StreamAppended { next, is_closed, is_duplicate, sequence };
                return Ok(Decided::Already(appended));
            }
            _ if is_closed => {
                if content.is_none() && note.producer.is_none() {
                    let (is_duplicate, sequence) = (false, None);
                    let appended = StreamAppended { next, is_closed, is_duplicate, sequence };
                    return Ok(Decided::Already(appended));
                }
                return Err(StreamRefusal::Closed { next }.into());
            }
            _ => {}
        }
        if let (Some(_), Some(given)) = (content, content_type)
            && !is_same_media_type(&settings.content_type, given)
        {
            let content_type = settings.content_type.clone();
            return Err(StreamRefusal::ContentType { content_type }.into());
        }
        standing?;
        let last = self.streams.get(id).and_then(|stream| stream.said().sequence.as_ref());
        if let (Some(given), Some(last)) = (&note.sequence, last)
            && given <= last
        {
            return Err(StreamRefusal::Sequence { last: last.clone() }.into());
        }
        let keeps_keys = partition.config.retention.latest_per_key.is_some();
        if keeps_keys && content.as_ref().is_some_and(|content| !content.is_keyed()) {
            return Err(Refusal::KeyMissing.into());
        }
        Ok(Decided::New)
    }

    /// The records of an append that was decided: with content, or only a note.
    pub(crate) fn append_records(
        &self,
        id: PartitionId,
        content: Option<StreamContent>,
        note: StreamNote,
        now: Timestamp,
    ) -> Vec<Record> {
        let Some(content) = content else { return vec![note_record(id, note, now)] };
        let first = self.end_of(id).unwrap_or_default();
        let (batch, further) = content.into_parts();
        batch_records(id, first, [batch].into_iter().chain(further), note, now)
    }

    fn standing(
        &self,
        id: PartitionId,
        producer: Option<&StreamProducer>,
    ) -> Result<Standing, StreamRefusal> {
        let Some(StreamProducer { id: name, epoch, sequence: given }) = producer else {
            return Ok(Standing::New);
        };
        let held = self.streams.get(id).and_then(|stream| stream.said().producers.get(name));
        let Some(life) = held else {
            return match given {
                0 => Ok(Standing::New),
                _ => Err(StreamRefusal::ProducerGap { expected: 0, given: *given }),
            };
        };
        if *epoch < life.epoch {
            return Err(StreamRefusal::ProducerFenced { current: life.epoch });
        }
        if *epoch > life.epoch {
            return if *given == 0 {
                Ok(Standing::New)
            } else {
                Err(StreamRefusal::ProducerBegins)
            };
        }
        if *given <= life.sequence {
            return Ok(Standing::Duplicate { sequence: life.sequence });
        }
        if *given == life.sequence + 1 {
            return Ok(Standing::New);
        }
        Err(StreamRefusal::ProducerGap { expected: life.sequence + 1, given: *given })
    }
}
