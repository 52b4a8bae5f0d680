//! The bytes of HTTP streams in the journal: settings in the record that opens a stream, notes beside the messages
//! of an append, and the stream's item in a checkpoint. It decides nothing.

use sennit_model::{Offset, PartitionId, Timestamp, TopicId};

use crate::{
    codec::{Reader, Writer},
    record::StreamOpened,
    record_error::RecordError,
    stream::{ForkOf, StreamNote, StreamProducer, StreamSettings},
    streams::{Details, ProducerState, Stream},
};

/// Of the byte of flags in a stream's settings: what is read is checked again.
const VERIFIED: u8 = 1;
/// Of the same byte: the name of its stream group follows.
const IN_GROUP: u8 = 1 << 1;

/// Of the byte of flags of a stream that is kept: it is there for its forks only.
const DELETED: u8 = 1;
/// Of the same byte: it was made natively, and never opened as a stream.
const NATIVE: u8 = 1 << 1;

/// The state of a stream in a checkpoint, beside its log.
#[derive(Debug)]
pub(crate) struct KeptStream {
    pub(crate) id: PartitionId,
    pub(crate) settings: StreamSettings,
    pub(crate) is_opened: bool,
    pub(crate) is_closed: bool,
    pub(crate) details: Option<Box<Details>>,
}

impl Writer<'_> {
    pub(crate) fn stream_note(&mut self, note: &StreamNote) -> &mut Self {
        let StreamNote { producer, sequence, closes } = note;
        self.u8(u8::from(*closes)).optional_text(sequence.as_deref());
        match producer {
            Some(StreamProducer { id, epoch, sequence }) => {
                self.u8(1).text(id).u64(*epoch).u64(*sequence)
            }
            None => self.u8(0),
        }
    }

    pub(crate) fn stream_settings(&mut self, settings: &StreamSettings) -> &mut Self {
        let StreamSettings { content_type, time_to_live, expires_at, is_verified, fork, group } =
            settings;
        let in_group = if group.is_some() { IN_GROUP } else { 0 };
        self.text(content_type).u8(u8::from(*is_verified) | in_group);
        if let Some(group) = group {
            self.text(group);
        }
        match time_to_live {
            Some(seconds) => self.u8(1).u64(*seconds),
            None => self.u8(0),
        };
        match expires_at {
            Some((at, text)) => self.u8(1).u64(at.0).text(text),
            None => self.u8(0),
        };
        match fork {
            Some(fork) => self.u8(1).fork_of(fork),
            None => self.u8(0),
        }
    }

    pub(crate) fn fork_of(&mut self, fork: &ForkOf) -> &mut Self {
        let ForkOf { source, home, name, at, requested: (token, behind) } = fork;
        self.partition(*source).u32(home.0).text(name).u64(at.0).text(token).u64(*behind)
    }

    /// The head of the record: what it begins with follows.
    pub(crate) fn stream_opened(&mut self, opened: &StreamOpened) -> &mut Self {
        let StreamOpened { partition, opened_at, config, first, closes, settings, batch: _ } =
            opened;
        self.partition(*partition).u64(opened_at.0).topic_config(config).u64(first.0);
        self.u8(u8::from(*closes)).stream_settings(settings)
    }

    /// A stream beside its log. Of one in memory alone, what was said with its messages, or behind them,
    /// is as lost as they are.
    pub(crate) fn kept_stream(
        &mut self,
        id: PartitionId,
        stream: &Stream,
        is_lost: bool,
    ) -> &mut Self {
        self.partition(id).stream_settings(&stream.settings);
        let is_closed = if is_lost { stream.was_opened_closed } else { stream.is_closed };
        self.u8(u8::from(is_closed));
        let details = stream.details();
        let flags = if details.is_deleted { DELETED } else { 0 };
        self.u8(flags | if stream.is_opened { 0 } else { NATIVE }).count(details.forks.len());
        for fork in &details.forks {
            self.u32(fork.0);
        }
        self.optional_text(details.sequence.as_deref().filter(|_| !is_lost));
        if is_lost {
            return self.u64(0).count(0);
        }
        self.u64(details.notes).count(details.producers.len());
        for (id, producer) in &details.producers {
            self.text(id).u64(producer.epoch).u64(producer.sequence).u64(producer.note);
        }
        self
    }
}

impl Reader {
    fn boxed_text(&mut self) -> Result<Box<str>, RecordError> {
        self.text().map(String::into_boxed_str)
    }

    fn optional_text(&mut self, field: &'static str) -> Result<Option<Box<str>>, RecordError> {
        Ok(if self.flag(field)? { Some(self.boxed_text()?) } else { None })
    }

    pub(crate) fn stream_note(&mut self) -> Result<StreamNote, RecordError> {
        let closes = self.flag("closes")?;
        let sequence = self.optional_text("has sequence")?;
        let producer = if self.flag("has producer")? {
            let (id, epoch, sequence) = (self.boxed_text()?, self.u64()?, self.u64()?);
            Some(StreamProducer { id, epoch, sequence })
        } else {
            None
        };
        Ok(StreamNote { producer, sequence, closes })
    }

    pub(crate) fn stream_settings(&mut self) -> Result<StreamSettings, RecordError> {
        let (content_type, flags) = (self.boxed_text()?, self.u8()?);
        if flags & !(VERIFIED | IN_GROUP) != 0 {
            return Err(self.field("flags of a stream", flags));
        }
        let is_verified = flags & VERIFIED != 0;
        let group = if flags & IN_GROUP != 0 { Some(self.boxed_text()?) } else { None };
        let time_to_live = if self.flag("has time to live")? { Some(self.u64()?) } else { None };
        let expires_at = if self.flag("has end")? {
            Some((Timestamp(self.u64()?), self.boxed_text()?))
        } else {
            None
        };
        let fork = if self.flag("is fork")? { Some(self.fork_of()?) } else { None };
        Ok(StreamSettings { content_type, time_to_live, expires_at, is_verified, fork, group })
    }

    pub(crate) fn fork_of(&mut self) -> Result<ForkOf, RecordError> {
        let (source, home) = (self.partition()?, TopicId(self.u32()?));
        let (name, at) = (self.boxed_text()?, Offset(self.u64()?));
        let requested = (self.boxed_text()?, self.u64()?);
        Ok(ForkOf { source, home, name, at, requested })
    }

    /// The stream, with the batch that is the rest of the body.
    pub(crate) fn stream_opened(&mut self) -> Result<StreamOpened, RecordError> {
        let (partition, opened_at) = (self.partition()?, Timestamp(self.u64()?));
        let (config, first) = (self.topic_config()?, Offset(self.u64()?));
        let (closes, settings) = (self.flag("closes")?, self.stream_settings()?);
        let batch = if self.rest.is_empty() { None } else { Some(self.batch()?) };
        Ok(StreamOpened { partition, opened_at, config, first, closes, settings, batch })
    }

    pub(crate) fn kept_stream(&mut self) -> Result<KeptStream, RecordError> {
        let (id, settings) = (self.partition()?, self.stream_settings()?);
        let (is_closed, flags) = (self.flag("closed")?, self.u8()?);
        if flags & !(DELETED | NATIVE) != 0 {
            return Err(self.field("flags of a stream", flags));
        }
        let (is_deleted, is_opened) = (flags & DELETED != 0, flags & NATIVE == 0);
        let forks = self.list(|r| r.u32().map(TopicId))?.into_iter().collect();
        let sequence = self.optional_text("has sequence")?;
        let notes = self.u64()?;
        let producers = self.list(|r| {
            let id = r.boxed_text()?;
            Ok((id, ProducerState { epoch: r.u64()?, sequence: r.u64()?, note: r.u64()? }))
        })?;
        let producers = producers.into_iter().collect();
        let details = Details { is_deleted, forks, sequence, producers, notes };
        let details = (details != Details::default()).then(|| Box::new(details));
        Ok(KeptStream { id, settings, is_opened, is_closed, details })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use bytes::Bytes;
    use sennit_model::{
        Batch, BatchBuilder, Message, PartitionIndex, ProducerStamp, TopicConfig, TopicKind,
    };

    use super::*;
    use crate::record::Record;

    const PARTITION: PartitionId = PartitionId { topic: TopicId(7), index: PartitionIndex(0) };

    fn body(record: &Record) -> (Bytes, usize) {
        let mut body = Vec::new();
        record.encode_head(&mut body);
        let head_len = body.len();
        body.extend(record.batch().iter().flat_map(|batch| batch.bytes().iter()));
        (body.into(), head_len)
    }

    fn batch() -> Batch {
        let mut builder = BatchBuilder::new();
        builder.push(&Message::new("hello")).unwrap();
        builder.take().unwrap()
    }

    fn opened(batch: Option<Batch>) -> Record {
        Record::StreamOpened(Box::new(StreamOpened {
            partition: PARTITION,
            opened_at: Timestamp(3),
            config: TopicConfig::of_kind(TopicKind::Stream),
            first: Offset(12),
            closes: true,
            settings: StreamSettings {
                content_type: "text/plain; charset=utf-8".into(),
                time_to_live: Some(60),
                expires_at: Some((Timestamp(99), "1970-01-01T00:00:00.099Z".into())),
                is_verified: true,
                group: Some("accounts".into()),
                fork: Some(ForkOf {
                    source: PartitionId::default(),
                    home: TopicId(4),
                    name: "doc/1".into(),
                    at: Offset(12),
                    requested: ("".into(), 3),
                }),
            },
            batch,
        }))
    }

    pub(crate) fn examples() -> Vec<Record> {
        let partition = PARTITION;
        let note = Box::new(StreamNote {
            producer: Some(StreamProducer { id: "writer".into(), epoch: 1 << 50, sequence: 4 }),
            sequence: Some("b7".into()),
            closes: true,
        });
        vec![
            opened(None),
            Record::Appended {
                partition,
                first: Offset(1 << 40),
                appended_at: Timestamp(77),
                producer: ProducerStamp::default(),
                batch: batch(),
                note: Some(note.clone()),
            },
            Record::StreamNoted { partition, noted_at: Timestamp(9), note },
            Record::StreamForked { partition, fork: TopicId(9), is_there: true },
            Record::StreamDeleted { partition },
        ]
    }

    #[test]
    fn what_is_said_of_a_stream_comes_back_as_it_was_written() {
        for record in examples().into_iter().chain([opened(Some(batch()))]) {
            let (bytes, head_len) = body(&record);
            assert_eq!(Record::decode(record.kind(), bytes), Ok((record, head_len)));
        }
    }

    #[test]
    fn a_checkpoint_keeps_whether_a_partition_was_opened_as_a_stream() {
        use std::sync::Arc;
        let settings = Arc::new(StreamSettings::of_topic());
        let opened = Stream::new(settings.clone(), Timestamp(3));
        let mut native = Stream::of_topic(settings);
        let details = native.details.get_or_insert_default();
        (details.is_deleted, details.forks) = (true, [TopicId(9)].into());
        for stream in [opened, native] {
            let mut body = Vec::new();
            Writer(&mut body).kept_stream(PARTITION, &stream, false);
            let kept = Reader { kind: 0, rest: body.into() }.kept_stream().unwrap();
            assert_eq!((kept.is_opened, &kept.details), (stream.is_opened, &stream.details));
        }
    }

    #[test]
    fn what_is_said_of_a_stream_and_ends_early_or_late_is_refused() {
        for record in examples() {
            let (bytes, _) = body(&record);
            for length in 0..bytes.len() {
                assert!(Record::decode(record.kind(), bytes.slice(..length)).is_err());
            }
            let longer = [&bytes[..], b"x"].concat();
            assert!(Record::decode(record.kind(), longer.into()).is_err());
        }
    }
}
