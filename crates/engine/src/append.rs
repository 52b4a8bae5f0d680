//! The one append: it makes records of admitted batches, for native publishes and for appends to streams. Memory
//! and offsets are reserved first, and several batches go into one frame. Admission is not its business.

use sennit_model::{Durability, Offset, PartitionId, ProducerStamp, Timestamp};

use crate::{
    command::Publish,
    content::Content,
    effect::{Confirmed, Effect, PublishNote},
    engine::{Engine, Journal, Outbox},
    producer::Admission,
    record::Record,
    refusal::Refusal,
    stream::StreamNote,
    topic_limit::make_room,
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
    /// What makes room for the messages; in one frame with them, and before them.
    pub(crate) before: Vec<Record>,
}

impl Append {
    /// The records of an append whose first message gets the offset `first`.
    pub(crate) fn records(self, first: Offset, now: Timestamp) -> impl Iterator<Item = Record> {
        let Self { partition, content, producer, mut note, before } = self;
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
        before.into_iter().chain(noted).chain(appended)
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
        let (admission, has_limit) = match self.admit_publish(&publish, expected, now) {
            Ok(admission) => admission,
            Err(refused) => return refused.tell(publish.origin, out),
        };
        let Publish { origin, partition, producer, batch } = publish;
        let count = batch.count();
        let mut dropped = 0;
        let (first_offset, has_reserved) = match admission {
            Admission::Duplicate(first) => (first, false),
            Admission::New => {
                let mut before = Vec::new();
                if has_limit && let Some(held) = self.partitions.get(&partition) {
                    match make_room(held, &batch) {
                        Ok(made) => (before, dropped) = (made.records, made.dropped),
                        Err(refusal) => return out.refuse(origin, refusal),
                    }
                }
                let content = Some(Content::from(batch));
                let append = Append { partition, content, producer, note: None, before };
                match self.append(append, now, journal) {
                    Ok((first, has_reserved)) => (Some(first), has_reserved),
                    Err(refusal) => return out.refuse(origin, refusal),
                }
            }
        };
        let first_sequence = producer.first_sequence;
        let producer = producer.id;
        let note = PublishNote { origin, partition, producer, first_sequence, dropped };
        let note = (dropped > 0).then_some(Effect::PublishNoted(note));
        if let Some(expected) = expected {
            out.after_commit.extend(note);
            // One that was there before is answered as it was then.
            let first = first_offset.unwrap_or(expected);
            return out.tell(Effect::PublishedAt { origin, first, count }, false);
        }
        let (is_early, durability) = self.confirms_now(partition, has_reserved, journal);
        if let Some(note) = note {
            out.tell(note, is_early);
        }
        let confirmed = Confirmed {
            origin,
            partition,
            producer,
            first_sequence,
            count,
            first_offset,
            duplicate: admission != Admission::New,
            durability,
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
        let mut has_reserved = false;
        if let Some(content) = &append.content
            && durability != Durability::Durable
        {
            if durability == Durability::Memory {
                self.make_room(id, content.bytes() as u64, journal)?;
            }
            has_reserved = self.reserve(id, content.count(), journal);
        }
        self.commit_together(append.records(first, now), journal);
        Ok((first, has_reserved))
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
