//! The one append: it makes records of admitted batches, for native publishes and for appends to streams. Memory
//! and offsets are reserved first, and several batches go into one frame. Admission is not its business.

use sennit_model::{Durability, Offset, PartitionId, ProducerStamp, Timestamp};

use crate::{
    command::Publish,
    content::Content,
    effect::{Confirmed, Effect},
    engine::{Engine, Journal, Outbox},
    producer::Admission,
    record::Record,
    refusal::Refusal,
    stream::StreamNote,
};

/// Something to be appended to a partition at once.
pub(crate) struct Append {
    pub(crate) partition: PartitionId,
    /// The messages; none where there is only a note.
    pub(crate) content: Option<Content>,
    /// The stamp of a native publish, which is one batch.
    pub(crate) producer: ProducerStamp,
    /// It goes with the last batch.
    pub(crate) note: Option<Box<StreamNote>>,
}

impl Append {
    /// The records of an append whose first message gets the offset `first`.
    pub(crate) fn records(self, first: Offset, now: Timestamp) -> impl Iterator<Item = Record> {
        let Self { partition, content, producer, mut note } = self;
        let noted = content.is_none().then(|| {
            let note = note.take().unwrap_or_default();
            Record::StreamNoted { partition, noted_at: now, note }
        });
        let mut batches = content.into_iter().flat_map(Content::into_batches).peekable();
        let mut next = first;
        let appended = std::iter::from_fn(move || {
            let batch = batches.next()?;
            let first = next;
            next = first.plus(u64::from(batch.count()));
            let note = if batches.peek().is_none() { note.take() } else { None };
            Some(Record::Appended { partition, first, appended_at: now, producer, batch, note })
        });
        noted.into_iter().chain(appended)
    }
}

impl Engine {
    pub(crate) fn publish(
        &mut self,
        publish: Publish,
        expected: Option<Offset>,
        now: Timestamp,
        journal: &mut impl Journal,
        out: &mut Outbox,
    ) {
        self.end_if_over(publish.partition, now, journal);
        let (admission, has_rules) = match self.admit_publish(&publish, expected, now) {
            Ok(admitted) => admitted,
            Err(refused) => return refused.tell(publish.origin, out),
        };
        if has_rules {
            return self.publish_by_rules(publish, expected, now, journal, out);
        }
        let Publish { origin, partition, producer, batch } = publish;
        let count = batch.count();
        let (first_offset, has_reserved) = match admission {
            Admission::Duplicate(first) => (first, false),
            Admission::New => {
                let content = Some(Content::from(batch));
                let append = Append { partition, content, producer, note: None };
                match self.append(append, now, journal) {
                    Ok((first, has_reserved)) => (Some(first), has_reserved),
                    Err(refusal) => return out.refuse(origin, refusal),
                }
            }
        };
        if let Some(expected) = expected {
            // One that was there before is answered as it was then.
            let first = first_offset.unwrap_or(expected);
            return out.tell(Effect::PublishedAt { origin, first, count }, false);
        }
        let (is_early, durability) = self.confirms_now(partition, has_reserved, journal);
        let confirmed = Confirmed {
            origin,
            partition,
            producer: producer.id,
            first_sequence: producer.first_sequence,
            count,
            first_offset,
            duplicate: admission != Admission::New,
            durability,
            parts: Box::default(),
        };
        out.tell(Effect::Confirmed(confirmed), is_early);
    }

    /// Appends something that was admitted. Returns the offset of the first message, and whether a
    /// reservation was appended before it. Refuses only for want of memory.
    pub(crate) fn append(
        &mut self,
        append: Append,
        now: Timestamp,
        journal: &mut impl Journal,
    ) -> Result<(Offset, bool), Refusal> {
        let id = append.partition;
        let partition = self.partitions.get(&id).ok_or(Refusal::UnknownTopic)?;
        let (first, durability) = (Offset(partition.log.end()), partition.config.durability);
        let has_reserved = match &append.content {
            Some(content) if durability != Durability::Durable => {
                self.prepare(id, (content.count(), content.bytes() as u64), durability, journal)?
            }
            _ => false,
        };
        self.commit_together(append.records(first, now), journal);
        Ok((first, has_reserved))
    }

    /// Has room and offsets for so many messages and bytes of a topic that is not durable. Returns whether a
    /// reservation was appended.
    pub(crate) fn prepare(
        &mut self,
        id: PartitionId,
        (count, bytes): (u32, u64),
        durability: Durability,
        journal: &mut impl Journal,
    ) -> Result<bool, Refusal> {
        if durability == Durability::Memory {
            self.make_room(id, bytes, journal)?;
        }
        Ok(self.reserve(id, count, journal))
    }

    /// Commits records so that all of them survive a crash, or none: they lie in one frame, if they are
    /// written at all.
    pub(crate) fn commit_together(
        &mut self,
        mut records: impl Iterator<Item = Record>,
        journal: &mut impl Journal,
    ) {
        let Some(first) = records.next() else { return };
        let Some(second) = records.next() else { return self.commit(&first, journal) };
        let records: Vec<Record> = [first, second].into_iter().chain(records).collect();
        if records.iter().all(|record| self.memory.of_record(record).is_none()) {
            journal.hold_together(&records);
        }
        for record in &records {
            self.commit(record, journal);
        }
    }
}
