//! Answers of streams as bytes.

use std::{ops::Range, sync::Arc};

use sennit_model::TopicId;

use super::{
    decode_error::DecodeError,
    fields::{FieldReader, FieldWriter},
    static_text,
};
use crate::stream::{
    ForkOf, StreamAnswer, StreamAppended, StreamChunk, StreamRefusal, StreamRest, StreamStatus,
};

/// The kinds of answers of streams.
pub(super) const KINDS: Range<u8> = 64..96;

const OPENED: u8 = 64;
const APPENDED: u8 = 65;
const APPENDED_TOGETHER: u8 = 66;
const REFUSED_TOGETHER: u8 = 67;
const CHUNK: u8 = 68;
const INHERITED: u8 = 69;
const STATUS: u8 = 70;
const DELETED: u8 = 71;
const REFUSED: u8 = 72;

/// Bytes of the result of an append, at least.
const APPENDED_BYTES: usize = 11;

/// Writes the fields of an answer; returns its kind.
pub(super) fn encode(answer: &StreamAnswer, w: &mut FieldWriter<'_>) -> u8 {
    match answer {
        StreamAnswer::Opened { created, status } => {
            w.flag(*created);
            encode_status(status, w);
            OPENED
        }
        StreamAnswer::Appended(appended) => {
            encode_appended(w, appended);
            APPENDED
        }
        StreamAnswer::AppendedTogether(appended) => {
            w.each(appended, encode_appended);
            APPENDED_TOGETHER
        }
        StreamAnswer::RefusedTogether { which, refusal } => {
            w.number(*which);
            encode_refusal(refusal, w);
            REFUSED_TOGETHER
        }
        StreamAnswer::Chunk(chunk) => {
            encode_chunk(chunk, w);
            CHUNK
        }
        StreamAnswer::Inherited { source, home, before, status } => {
            w.partition(*source).u32(home.0).u64(before.0);
            encode_status(status, w);
            INHERITED
        }
        StreamAnswer::Status(status) => {
            encode_status(status, w);
            STATUS
        }
        StreamAnswer::Deleted { is_unused, fork_of } => {
            w.flag(*is_unused);
            w.optional(fork_of.as_ref(), |w, fork| {
                w.fork_of(fork);
            });
            DELETED
        }
        StreamAnswer::Refused(refusal) => {
            encode_refusal(refusal, w);
            REFUSED
        }
    }
}

/// Reads the fields of the answer of the reader's kind.
pub(super) fn decode(r: &mut FieldReader) -> Result<StreamAnswer, DecodeError> {
    Ok(match r.kind {
        OPENED => StreamAnswer::Opened { created: r.flag("created")?, status: decode_status(r)? },
        APPENDED => StreamAnswer::Appended(decode_appended(r)?),
        APPENDED_TOGETHER => {
            StreamAnswer::AppendedTogether(r.each(APPENDED_BYTES, decode_appended)?)
        }
        REFUSED_TOGETHER => StreamAnswer::RefusedTogether {
            which: r.number("number of an append")?,
            refusal: decode_refusal(r)?,
        },
        CHUNK => StreamAnswer::Chunk(decode_chunk(r)?),
        INHERITED => StreamAnswer::Inherited {
            source: r.partition()?,
            home: TopicId(r.u32()?),
            before: r.offset()?,
            status: decode_status(r)?,
        },
        STATUS => StreamAnswer::Status(decode_status(r)?),
        DELETED => StreamAnswer::Deleted {
            is_unused: r.flag("unused")?,
            fork_of: r.optional("is fork", |r| -> Result<ForkOf, _> { Ok(r.fork_of()?) })?,
        },
        REFUSED => StreamAnswer::Refused(decode_refusal(r)?),
        kind => return Err(DecodeError::Kind { kind }),
    })
}

fn encode_status(status: &StreamStatus, w: &mut FieldWriter<'_>) {
    let StreamStatus { settings, start, next, is_closed, durability, is_opened } = status;
    w.stream_settings(settings).u64(start.0).u64(next.0).flag(*is_closed);
    w.durability(*durability).flag(*is_opened);
}

fn decode_status(r: &mut FieldReader) -> Result<StreamStatus, DecodeError> {
    Ok(StreamStatus {
        settings: Arc::new(r.stream_settings()?),
        start: r.offset()?,
        next: r.offset()?,
        is_closed: r.flag("closed")?,
        durability: r.durability()?,
        is_opened: r.flag("opened")?,
    })
}

fn encode_appended(w: &mut FieldWriter<'_>, appended: &StreamAppended) {
    let StreamAppended { next, is_closed, is_duplicate, sequence } = appended;
    w.u64(next.0).flag(*is_closed).flag(*is_duplicate).optional_u64(*sequence);
}

fn decode_appended(r: &mut FieldReader) -> Result<StreamAppended, DecodeError> {
    Ok(StreamAppended {
        next: r.offset()?,
        is_closed: r.flag("closed")?,
        is_duplicate: r.flag("duplicate")?,
        sequence: r.optional_u64("has sequence")?,
    })
}

fn encode_chunk(chunk: &StreamChunk, w: &mut FieldWriter<'_>) {
    let StreamChunk { topic, first, next, is_up_to_date, is_closed, rest, messages, settings } =
        chunk;
    w.u32(topic.0).u64(first.0).u64(next.0).flag(*is_up_to_date).flag(*is_closed);
    w.optional(rest.as_ref(), |w, StreamRest { until, is_up_to_date, is_closed }| {
        w.u64(until.0).flag(*is_up_to_date).flag(*is_closed);
    });
    w.each(messages, FieldWriter::payload);
    w.stream_settings(settings);
}

fn decode_chunk(r: &mut FieldReader) -> Result<StreamChunk, DecodeError> {
    Ok(StreamChunk {
        topic: TopicId(r.u32()?),
        first: r.offset()?,
        next: r.offset()?,
        is_up_to_date: r.flag("up to date")?,
        is_closed: r.flag("closed")?,
        rest: r.optional("has rest", |r| {
            let (until, is_up_to_date) = (r.offset()?, r.flag("up to date")?);
            Ok(StreamRest { until, is_up_to_date, is_closed: r.flag("closed")? })
        })?,
        messages: r.each(4, FieldReader::payload)?,
        settings: Arc::new(r.stream_settings()?),
    })
}

fn encode_refusal(refusal: &StreamRefusal, w: &mut FieldWriter<'_>) {
    match refusal {
        StreamRefusal::Unknown => w.u8(0),
        StreamRefusal::Deleted => w.u8(1),
        StreamRefusal::NotKept { start } => w.u8(2).u64(start.0),
        StreamRefusal::BeyondEnd { next } => w.u8(3).u64(next.0),
        StreamRefusal::NativeTopic => w.u8(4),
        StreamRefusal::Damaged { next } => w.u8(5).u64(next.0),
        StreamRefusal::RolledBack { next } => w.u8(6).u64(next.0),
        StreamRefusal::SettingsDiffer { field } => w.u8(7).text(field),
        StreamRefusal::Closed { next } => w.u8(8).u64(next.0),
        StreamRefusal::ContentType { content_type } => w.u8(9).text(content_type),
        StreamRefusal::Sequence { last } => w.u8(10).text(last),
        StreamRefusal::ProducerFenced { current } => w.u8(11).u64(*current),
        StreamRefusal::ProducerBegins => w.u8(12),
        StreamRefusal::ProducerGap { expected, received } => w.u8(13).u64(*expected).u64(*received),
        StreamRefusal::OtherGroup => w.u8(14),
        StreamRefusal::Repeated => w.u8(15),
        StreamRefusal::PartlyAppended => w.u8(16),
        StreamRefusal::Limit { name, limit } => w.u8(17).text(name).u64(*limit),
    };
}

fn decode_refusal(r: &mut FieldReader) -> Result<StreamRefusal, DecodeError> {
    Ok(match r.u8()? {
        0 => StreamRefusal::Unknown,
        1 => StreamRefusal::Deleted,
        2 => StreamRefusal::NotKept { start: r.offset()? },
        3 => StreamRefusal::BeyondEnd { next: r.offset()? },
        4 => StreamRefusal::NativeTopic,
        5 => StreamRefusal::Damaged { next: r.offset()? },
        6 => StreamRefusal::RolledBack { next: r.offset()? },
        7 => StreamRefusal::SettingsDiffer { field: static_text::decode(r)? },
        8 => StreamRefusal::Closed { next: r.offset()? },
        9 => StreamRefusal::ContentType { content_type: r.text()?.into() },
        10 => StreamRefusal::Sequence { last: r.text()?.into() },
        11 => StreamRefusal::ProducerFenced { current: r.u64()? },
        12 => StreamRefusal::ProducerBegins,
        13 => StreamRefusal::ProducerGap { expected: r.u64()?, received: r.u64()? },
        14 => StreamRefusal::OtherGroup,
        15 => StreamRefusal::Repeated,
        16 => StreamRefusal::PartlyAppended,
        17 => StreamRefusal::Limit { name: static_text::decode(r)?, limit: r.u64()? },
        tag => return Err(r.wrong("refusal of a stream", tag)),
    })
}
