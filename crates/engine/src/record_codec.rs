//! Records as bytes: a head and, for those that carry messages, the batch behind it as it came: the
//! batch is written once and read from where it lies. A kind's number and layout never change.

use std::sync::Arc;

use bytes::{Buf, Bytes};
use sennit_model::{Batch, GroupId, Incarnation, Offset, ProducerStamp, Timestamp, TopicId};

use crate::{
    codec::{Reader, Writer},
    log::Place,
    record::{Outcome, Record, TopicCreated, TopicSettings},
    record_error::RecordError,
};

const TOPIC_CREATED: u8 = 1;
const TOPIC_ALTERED: u8 = 2;
const TOPIC_DELETED: u8 = 3;
const GROUP_CREATED: u8 = 4;
const GROUP_DELETED: u8 = 5;
const GROUP_ALTERED: u8 = 6;
const PARTITION_OPENED: u8 = 16;
const PARTITION_DROPPED: u8 = 17;
const APPENDED: u8 = 18;
const SETTLED: u8 = 19;
const FAILED: u8 = 20;
const BURIED: u8 = 21;
const TRIMMED: u8 = 22;
const MOVED: u8 = 23;
const LOST: u8 = 24;
const CURSOR_SET: u8 = 25;
const CURSOR_DELETED: u8 = 26;
const RESERVED: u8 = 27;
const STREAM_APPENDED: u8 = 28;
const COMPACTED: u8 = 29;
const CLEANED: u8 = 30;
const KEPT: u8 = 31;
const CHECKPOINT_BEGAN: u8 = 32;
pub(crate) const CHECKPOINT_PART: u8 = 33;
const CHECKPOINT_ENDED: u8 = 34;
const SUPERSEDED: u8 = 35;
const STREAM_OPENED: u8 = 40;
const STREAM_NOTED: u8 = 41;
const STREAM_FORKED: u8 = 42;
const STREAM_DELETED: u8 = 43;
const UNPARKED: u8 = 48;
const REQUEUED: u8 = 49;
const DEDUPLICATED: u8 = 52;
const DELAYS_CANCELLED: u8 = 56;
const DELAYS_CHANGED: u8 = 57;

/// The engine's records have kinds below this; the rest are the shard's own.
pub const RECORD_KIND_END: u8 = 128;

impl Record {
    /// The kind's number.
    #[must_use]
    pub fn kind(&self) -> u8 {
        match self {
            Self::TopicCreated { .. } => TOPIC_CREATED,
            Self::TopicAltered { .. } => TOPIC_ALTERED,
            Self::TopicDeleted { .. } => TOPIC_DELETED,
            Self::GroupCreated { .. } => GROUP_CREATED,
            Self::GroupAltered { .. } => GROUP_ALTERED,
            Self::GroupDeleted { .. } => GROUP_DELETED,
            Self::PartitionOpened { .. } => PARTITION_OPENED,
            Self::PartitionDropped { .. } => PARTITION_DROPPED,
            Self::Appended { note: None, .. } => APPENDED,
            Self::Appended { note: Some(_), .. } => STREAM_APPENDED,
            Self::Deduplicated { .. } => DEDUPLICATED,
            Self::Settled { .. } => SETTLED,
            Self::Failed { .. } => FAILED,
            Self::Unparked { .. } => UNPARKED,
            Self::Buried { .. } => BURIED,
            Self::DelaysCancelled { .. } => DELAYS_CANCELLED,
            Self::DelaysChanged { .. } => DELAYS_CHANGED,
            Self::Requeued { .. } => REQUEUED,
            Self::Trimmed { .. } => TRIMMED,
            Self::Moved { .. } => MOVED,
            Self::Lost { .. } => LOST,
            Self::CursorSet { .. } => CURSOR_SET,
            Self::CursorDeleted { .. } => CURSOR_DELETED,
            Self::Reserved { .. } => RESERVED,
            Self::StreamOpened(_) => STREAM_OPENED,
            Self::StreamNoted { .. } => STREAM_NOTED,
            Self::StreamForked { .. } => STREAM_FORKED,
            Self::StreamDeleted { .. } => STREAM_DELETED,
            Self::Compacted { .. } => COMPACTED,
            Self::Superseded { .. } => SUPERSEDED,
            Self::Cleaned { .. } => CLEANED,
            Self::Kept { .. } => KEPT,
            Self::CheckpointBegan { .. } => CHECKPOINT_BEGAN,
            Self::CheckpointPart { .. } => CHECKPOINT_PART,
            Self::CheckpointEnded { .. } => CHECKPOINT_ENDED,
        }
    }

    /// The batch behind the head, for records that carry one.
    #[must_use]
    pub fn batch(&self) -> Option<&Batch> {
        match self {
            Self::Appended { batch, .. }
            | Self::Buried { batch, .. }
            | Self::Requeued { batch, .. }
            | Self::Kept { batch, .. } => Some(batch),
            Self::StreamOpened(opened) => opened.batch.as_ref(),
            _ => None,
        }
    }

    /// Appends the head to `out`. The record's body is the head and then the bytes of
    /// [`Record::batch`].
    pub fn encode_head(&self, out: &mut Vec<u8>) {
        let mut w = Writer(out);
        match self {
            Self::TopicCreated(t) => {
                w.u32(t.topic.0).text(t.name.as_str()).u64(t.incarnation.0);
                w.topic_config(t.config()).u32(t.home.0);
                // A topic that is no stream has no such byte, as before there were streams.
                if t.is_stream() { w.u8(1) } else { &mut w }
            }
            Self::TopicAltered { topic, config } => w.u32(topic.0).topic_config(config),
            Self::TopicDeleted { topic } => w.u32(topic.0),
            Self::GroupCreated { topic, name, setting } => {
                w.u32(topic.0).text(name.as_str()).group_setting(setting)
            }
            Self::GroupAltered { topic, setting } => w.u32(topic.0).group_setting(setting),
            Self::GroupDeleted { topic, group } => w.u32(topic.0).u32(group.0),
            Self::PartitionOpened { partition, config, dead_letters, groups } => {
                w.partition(*partition).topic_config(config).dead_letters(*dead_letters);
                w.list(groups, Writer::group_setting)
            }
            Self::PartitionDropped { partition } => w.partition(*partition),
            Self::Appended { partition, first, appended_at, producer, note: None, batch: _ } => {
                w.partition(*partition).u64(first.0).u64(appended_at.0).u64(producer.id.0);
                w.u64(producer.first_sequence).u32(producer.epoch).u32(0)
            }
            // The note of an append to a stream names the producer.
            Self::Appended { partition, first, appended_at, note: Some(note), .. } => {
                w.partition(*partition).u64(first.0).u64(appended_at.0).stream_note(note)
            }
            Self::Deduplicated { partition, producer, count, first } => {
                w.partition(*partition).u64(first.0).u32(*count).u64(producer.id.0);
                w.u64(producer.first_sequence).u32(producer.epoch).u32(0)
            }
            Self::Settled { partition, group, outcome, ranges } => {
                w.partition(*partition).u32(group.0).u8(match outcome {
                    Outcome::Acked => 1,
                    Outcome::Expired => 2,
                    Outcome::Dropped => 3,
                    Outcome::Replaced => 4,
                    Outcome::Cancelled => 5,
                });
                w.list(ranges, |w, range| w.range(*range))
            }
            Self::Failed { partition, group, failed_at, due, dead, reason, runs } => {
                w.partition(*partition).u32(group.0).u64(failed_at.0).u64(due.0);
                w.u8(u8::from(*dead)).text(reason);
                w.list(runs, |w, (range, attempts)| w.range(*range).u32(*attempts))
            }
            Self::Unparked { partition, group, ranges } => {
                w.partition(*partition).u32(group.0).list(ranges, |w, range| w.range(*range))
            }
            Self::Buried { source, group, offset, target, first, appended_at, batch: _ } => {
                w.partition(*source).u32(group.0).u64(offset.0);
                w.partition(*target).u64(first.0).u64(appended_at.0)
            }
            Self::DelaysCancelled { partition, ranges } => {
                w.partition(*partition).list(ranges, |w, range| w.range(*range))
            }
            Self::DelaysChanged { partition, due, ranges } => {
                w.partition(*partition).u64(due.0).list(ranges, |w, range| w.range(*range))
            }
            Self::Requeued { source, group, ranges, target, first, appended_at, batch: _ } => {
                w.partition(*source).u32(group.0).partition(*target).u64(first.0);
                w.u64(appended_at.0).list(ranges, |w, range| w.range(*range))
            }
            Self::Trimmed { partition, start } => w.partition(*partition).u64(start.0),
            Self::Moved { partition, moves } => w.partition(*partition).list(moves, |w, moved| {
                let (first, place) = moved;
                w.u64(first.0).u64(place.position).u32(place.bytes)
            }),
            Self::Lost { partition, range } => w.partition(*partition).range(*range),
            Self::CursorSet { partition, name, offset } => {
                w.partition(*partition).text(name.as_str()).u64(offset.0)
            }
            Self::CursorDeleted { partition, name } => w.partition(*partition).text(name.as_str()),
            Self::Reserved { partition, end } => w.partition(*partition).u64(end.0),
            Self::StreamOpened(opened) => w.stream_opened(opened),
            Self::StreamNoted { partition, noted_at, note } => {
                w.partition(*partition).u64(noted_at.0).stream_note(note)
            }
            Self::StreamForked { partition, fork, is_there } => {
                w.partition(*partition).u32(fork.0).u8(u8::from(*is_there))
            }
            Self::StreamDeleted { partition } => w.partition(*partition),
            Self::Compacted { partition, batches } => {
                w.partition(*partition).list(batches, Writer::compacted)
            }
            Self::Superseded { partition, batches } => {
                w.partition(*partition).list(batches, Writer::superseded)
            }
            Self::Kept { partition, first, appended_at, batch: _ } => {
                w.partition(*partition).u64(first.0).u64(appended_at.0)
            }
            Self::Cleaned { partition, end, tombstones, all_read } => {
                w.partition(*partition).u64(end.0).tombstones(*tombstones).u8(u8::from(*all_read))
            }
            Self::CheckpointBegan { next_topic, next_group } => w.u32(*next_topic).u32(*next_group),
            Self::CheckpointPart { ends, bytes } => w.u8(u8::from(*ends)).bytes(bytes),
            Self::CheckpointEnded { bytes } => w.u64(*bytes),
        };
    }

    /// Decodes a body. Returns the record and the length of its head; the batch follows the head.
    ///
    /// # Errors
    /// A [`RecordError`] that names the invalid field.
    pub fn decode(kind: u8, body: Bytes) -> Result<(Self, usize), RecordError> {
        let length = body.len();
        let mut r = Reader { kind, rest: body };
        let record = match kind {
            TOPIC_CREATED..=GROUP_ALTERED => Self::decode_of_catalogue(&mut r)?,
            APPENDED | STREAM_APPENDED | STREAM_OPENED | BURIED | REQUEUED | KEPT => {
                Self::decode_with_batch(&mut r)?
            }
            SETTLED | FAILED | UNPARKED => Self::decode_of_group(&mut r)?,
            STREAM_NOTED..=STREAM_DELETED => Self::decode_of_stream(&mut r)?,
            CHECKPOINT_BEGAN..=CHECKPOINT_ENDED => Self::decode_of_checkpoint(&mut r)?,
            _ => Self::decode_of_partition(&mut r)?,
        };
        if r.rest.has_remaining() {
            return Err(RecordError::Length { kind });
        }
        let head = length - record.batch().map_or(0, |batch| batch.bytes().len());
        Ok((record, head))
    }

    fn decode_of_catalogue(r: &mut Reader) -> Result<Self, RecordError> {
        Ok(match r.kind {
            TOPIC_CREATED => {
                let (topic, name) = (TopicId(r.u32()?), r.topic_name()?);
                let (incarnation, config) = (Incarnation(r.u64()?), r.topic_config()?);
                let home = TopicId(r.u32()?);
                let is_stream = !r.rest.is_empty();
                if is_stream && !r.flag("is a stream")? {
                    return Err(r.field("is a stream", 0u8));
                }
                let settings = Arc::new(TopicSettings { config, is_stream });
                Self::TopicCreated(TopicCreated { topic, name, incarnation, settings, home })
            }
            TOPIC_ALTERED => {
                Self::TopicAltered { topic: TopicId(r.u32()?), config: r.topic_config()? }
            }
            TOPIC_DELETED => Self::TopicDeleted { topic: TopicId(r.u32()?) },
            GROUP_CREATED => Self::GroupCreated {
                topic: TopicId(r.u32()?),
                name: r.group_name()?,
                setting: r.group_setting()?,
            },
            GROUP_ALTERED => {
                Self::GroupAltered { topic: TopicId(r.u32()?), setting: r.group_setting()? }
            }
            GROUP_DELETED => {
                Self::GroupDeleted { topic: TopicId(r.u32()?), group: GroupId(r.u32()?) }
            }
            kind => return Err(RecordError::Kind { kind }),
        })
    }

    fn decode_with_batch(r: &mut Reader) -> Result<Self, RecordError> {
        Ok(match r.kind {
            APPENDED => {
                let partition = r.partition()?;
                let (first, appended_at) = (Offset(r.u64()?), Timestamp(r.u64()?));
                let (producer, batch, note) = (r.producer()?, r.batch()?, None);
                Self::Appended { partition, first, appended_at, producer, batch, note }
            }
            STREAM_APPENDED => {
                let partition = r.partition()?;
                let (first, appended_at) = (Offset(r.u64()?), Timestamp(r.u64()?));
                let (note, producer) = (Some(Box::new(r.stream_note()?)), ProducerStamp::default());
                let batch = r.batch()?;
                Self::Appended { partition, first, appended_at, producer, batch, note }
            }
            STREAM_OPENED => Self::StreamOpened(Box::new(r.stream_opened()?)),
            BURIED => Self::Buried {
                source: r.partition()?,
                group: GroupId(r.u32()?),
                offset: Offset(r.u64()?),
                target: r.partition()?,
                first: Offset(r.u64()?),
                appended_at: Timestamp(r.u64()?),
                batch: r.batch()?,
            },
            REQUEUED => {
                let (source, group, target) = (r.partition()?, GroupId(r.u32()?), r.partition()?);
                let (first, appended_at) = (Offset(r.u64()?), Timestamp(r.u64()?));
                let (ranges, batch) = (r.list(Reader::range)?, r.batch()?);
                let count =
                    ranges.iter().fold(0u64, |sum, range| sum.saturating_add(range.count()));
                if count != u64::from(batch.count()) {
                    return Err(r.field("ranges", count));
                }
                Self::Requeued { source, group, ranges, target, first, appended_at, batch }
            }
            KEPT => Self::Kept {
                partition: r.partition()?,
                first: Offset(r.u64()?),
                appended_at: Timestamp(r.u64()?),
                batch: r.batch()?,
            },
            kind => return Err(RecordError::Kind { kind }),
        })
    }

    fn decode_of_group(r: &mut Reader) -> Result<Self, RecordError> {
        Ok(match r.kind {
            SETTLED => Self::Settled {
                partition: r.partition()?,
                group: GroupId(r.u32()?),
                outcome: match r.u8()? {
                    1 => Outcome::Acked,
                    2 => Outcome::Expired,
                    3 => Outcome::Dropped,
                    4 => Outcome::Replaced,
                    5 => Outcome::Cancelled,
                    value => return Err(r.field("outcome", value)),
                },
                ranges: r.list(Reader::range)?,
            },
            FAILED => Self::Failed {
                partition: r.partition()?,
                group: GroupId(r.u32()?),
                failed_at: Timestamp(r.u64()?),
                due: Timestamp(r.u64()?),
                dead: r.flag("dead")?,
                reason: r.text()?,
                runs: r.list(|r| Ok((r.range()?, r.u32()?)))?,
            },
            UNPARKED => Self::Unparked {
                partition: r.partition()?,
                group: GroupId(r.u32()?),
                ranges: r.list(Reader::range)?,
            },
            kind => return Err(RecordError::Kind { kind }),
        })
    }

    fn decode_of_partition(r: &mut Reader) -> Result<Self, RecordError> {
        Ok(match r.kind {
            PARTITION_OPENED => Self::PartitionOpened {
                partition: r.partition()?,
                config: r.topic_config()?,
                dead_letters: r.dead_letters()?,
                groups: r.list(Reader::group_setting)?,
            },
            PARTITION_DROPPED => Self::PartitionDropped { partition: r.partition()? },
            DELAYS_CANCELLED => {
                Self::DelaysCancelled { partition: r.partition()?, ranges: r.list(Reader::range)? }
            }
            DELAYS_CHANGED => Self::DelaysChanged {
                partition: r.partition()?,
                due: Timestamp(r.u64()?),
                ranges: r.list(Reader::range)?,
            },
            TRIMMED => Self::Trimmed { partition: r.partition()?, start: Offset(r.u64()?) },
            MOVED => Self::Moved {
                partition: r.partition()?,
                moves: r.list(|r| {
                    let first = Offset(r.u64()?);
                    Ok((first, Place { position: r.u64()?, bytes: r.u32()? }))
                })?,
            },
            DEDUPLICATED => {
                let (partition, first, count) = (r.partition()?, Offset(r.u64()?), r.u32()?);
                let producer = r.producer()?;
                if count == 0 || first.0.checked_add(count.into()).is_none() {
                    return Err(r.field("duplicates", count));
                }
                Self::Deduplicated { partition, producer, count, first }
            }
            LOST => Self::Lost { partition: r.partition()?, range: r.range()? },
            CURSOR_SET => Self::CursorSet {
                partition: r.partition()?,
                name: r.cursor_name()?,
                offset: Offset(r.u64()?),
            },
            CURSOR_DELETED => {
                Self::CursorDeleted { partition: r.partition()?, name: r.cursor_name()? }
            }
            RESERVED => Self::Reserved { partition: r.partition()?, end: Offset(r.u64()?) },
            COMPACTED => {
                Self::Compacted { partition: r.partition()?, batches: r.list(Reader::compacted)? }
            }
            SUPERSEDED => {
                Self::Superseded { partition: r.partition()?, batches: r.list(Reader::superseded)? }
            }
            CLEANED => Self::Cleaned {
                partition: r.partition()?,
                end: Offset(r.u64()?),
                tombstones: r.tombstones()?,
                all_read: r.flag("all read")?,
            },
            kind => return Err(RecordError::Kind { kind }),
        })
    }

    fn decode_of_stream(r: &mut Reader) -> Result<Self, RecordError> {
        Ok(match r.kind {
            STREAM_NOTED => Self::StreamNoted {
                partition: r.partition()?,
                noted_at: Timestamp(r.u64()?),
                note: Box::new(r.stream_note()?),
            },
            STREAM_FORKED => Self::StreamForked {
                partition: r.partition()?,
                fork: TopicId(r.u32()?),
                is_there: r.flag("is there")?,
            },
            STREAM_DELETED => Self::StreamDeleted { partition: r.partition()? },
            kind => return Err(RecordError::Kind { kind }),
        })
    }

    fn decode_of_checkpoint(r: &mut Reader) -> Result<Self, RecordError> {
        Ok(match r.kind {
            CHECKPOINT_BEGAN => {
                Self::CheckpointBegan { next_topic: r.u32()?, next_group: r.u32()? }
            }
            CHECKPOINT_PART => {
                let ends = r.flag("last part of a piece")?;
                Self::CheckpointPart { ends, bytes: std::mem::take(&mut r.rest) }
            }
            CHECKPOINT_ENDED => Self::CheckpointEnded { bytes: r.u64()? },
            kind => return Err(RecordError::Kind { kind }),
        })
    }
}

#[cfg(test)]
mod tests;
