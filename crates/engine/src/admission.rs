//! Admission: decides whether a batch may be appended to a partition. The partition must exist, its stream must be
//! live and open, messages need keys where the topic keeps the latest of each key, and no batch is appended twice.
//! It changes nothing, except that it deletes a stream whose time is over.

use sennit_model::{Durability, Offset, PartitionId, Timestamp, TopicConfig};

use crate::{
    command::{Origin, Publish},
    content::Content,
    effect::Effect,
    engine::{Engine, Journal, Outbox},
    partition::Partition,
    producer::Admission,
    record::Record,
    refusal::Refusal,
    stream::{StreamAnswer, StreamAppend, StreamAppended, StreamRefusal, is_same_media_type},
    streams::Stream,
};

/// Why a command was refused, and when the refusal is sent.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The command itself is wrong: sent at once.
    AtOnce(Refusal),
    /// Another command has caused it: sent once that one is committed, with its own answer.
    AfterCommit(Refusal),
    /// A stream's refusal is sent once all records that it depends on are committed.
    Stream(StreamRefusal),
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::ProducerFenced { .. }
            | Refusal::StreamClosed
            | Refusal::OffsetMismatch { .. } => Self::AfterCommit(refusal),
            _ => Self::AtOnce(refusal),
        }
    }
}

impl From<StreamRefusal> for Refused {
    fn from(refusal: StreamRefusal) -> Self {
        Self::Stream(refusal)
    }
}

impl Refused {
    /// Sends the refusal.
    pub(crate) fn tell(self, origin: Origin, out: &mut Outbox) {
        match self {
            Self::AtOnce(refusal) => out.refuse(origin, refusal),
            Self::AfterCommit(refusal) => out.tell(Effect::Refused { origin, refusal }, false),
            Self::Stream(refusal) => out.answer(origin, StreamAnswer::Refused(refusal), false),
        }
    }
}

/// Refuses messages without keys where the topic keeps the latest of each key.
pub(crate) fn check_keys(config: &TopicConfig, is_keyed: bool) -> Result<(), Refusal> {
    match config.retention.latest_per_key {
        Some(_) if !is_keyed => Err(Refusal::KeyMissing),
        _ => Ok(()),
    }
}

impl Engine {
    /// A stream whose time is over is deleted before anybody hears of it: a start counts as a use, and
    /// would have it back.
    pub(crate) fn end_if_over(
        &mut self,
        id: PartitionId,
        now: Timestamp,
        journal: &mut impl Journal,
    ) {
        let is_over = |stream: &Stream| !stream.details().is_deleted && stream.is_over(now);
        if self.streams.get(id).is_some_and(is_over) {
            self.commit(&Record::StreamDeleted { partition: id }, journal);
        }
    }

    /// The partition of a stream that is there, and whose time is not over.
    pub(crate) fn living(
        &self,
        id: PartitionId,
        now: Timestamp,
        for_fork: bool,
    ) -> Result<&Partition, StreamRefusal> {
        let partition = self.partitions.get(&id).ok_or(StreamRefusal::Unknown)?;
        if let Some(stream) = self.streams.get(id) {
            stream.check_life(now, for_fork)?;
        }
        Ok(partition)
    }

    /// Whether nothing is appended to a partition any more.
    pub(crate) fn is_closed(&self, id: PartitionId) -> bool {
        self.streams.get(id).is_some_and(|stream| stream.is_closed)
    }

    /// Whether a batch may be published, and whether it was published before; and whether the topic has a limit or looks for
    /// duplicates.
    pub(crate) fn admit_publish(
        &self,
        publish: &Publish,
        expected: Option<Offset>,
        now: Timestamp,
    ) -> Result<(Admission, bool), Refused> {
        let Publish { partition: id, producer, batch, .. } = publish;
        let partition = self.partitions.get(id).ok_or(Refusal::UnknownTopic)?;
        // Messages that were confirmed before their commit may be lost, and their producer does not send them again.
        let lost_before = match partition.config.durability {
            Durability::Ephemeral | Durability::Memory => self.lost.of(*id).last(),
            Durability::Durable | Durability::Speculative => None,
        };
        let lost_before = lost_before.map_or(0, |lost| lost.end);
        let admission = partition.producers.admit(*producer, batch.count(), lost_before)?;
        if admission != Admission::New {
            // A duplicate stays one whatever has become of the stream.
            return Ok((admission, false));
        }
        if let Some(stream) = self.streams.get(*id) {
            let gone = |_| Refused::AfterCommit(Refusal::UnknownTopic);
            stream.check_life(now, false).map_err(gone)?;
            if stream.is_closed {
                return Err(Refusal::StreamClosed.into());
            }
        }
        let next = Offset(partition.log.end());
        if let Some(expected) = expected.filter(|expected| *expected != next) {
            return Err(Refusal::OffsetMismatch { expected, next }.into());
        }
        check_keys(&partition.config, batch.is_keyed())?;
        let has_rules = partition.config.limit.is_set() || partition.config.dedup.is_some();
        Ok((admission, has_rules))
    }

    /// Whether an append to a stream may be done. Returns an answer if there is nothing to do: it was done
    /// before.
    pub(crate) fn admit_append(
        &self,
        id: PartitionId,
        append: &StreamAppend,
        now: Timestamp,
    ) -> Result<Option<StreamAppended>, Refused> {
        let StreamAppend { content, content_type, note } = append;
        let partition = self.living(id, now, false)?;
        let stream = self.streams.get(id).filter(|stream| stream.is_opened);
        let stream = stream.ok_or(StreamRefusal::NativeTopic)?;
        let (next, is_closed) = (Offset(partition.log.end()), stream.is_closed);
        let already = |is_duplicate, sequence| {
            Ok(Some(StreamAppended { next, is_closed, is_duplicate, sequence }))
        };
        let producer = note.producer.as_ref();
        let admission = producer.map_or(Ok(None), |producer| stream.details().admit(producer));
        match admission {
            // A fenced producer and a duplicate get their answers whatever has become of the stream.
            Err(fenced @ StreamRefusal::ProducerFenced { .. }) => return Err(fenced.into()),
            Ok(Some(latest)) => return already(true, Some(latest)),
            _ if is_closed && content.is_none() && producer.is_none() => {
                return already(false, None);
            }
            _ if is_closed => return Err(StreamRefusal::Closed { next }.into()),
            _ => {}
        }
        let content_type = content_type.as_ref().filter(|_| content.is_some());
        let held = &stream.settings.content_type;
        if content_type.is_some_and(|appended| !is_same_media_type(held, appended)) {
            return Err(StreamRefusal::ContentType { content_type: held.clone() }.into());
        }
        admission?;
        if let (Some(sequence), Some(last)) = (&note.sequence, &stream.details().sequence)
            && sequence <= last
        {
            return Err(StreamRefusal::Sequence { last: last.clone() }.into());
        }
        check_keys(&partition.config, content.as_ref().is_none_or(Content::is_keyed))?;
        Ok(None)
    }
}
