//! Commands to a stream as bytes.

use std::ops::Range;

use sennit_model::TopicId;

use super::{
    catalogue_command::encode_topic_config,
    decode_error::DecodeError,
    fields::{FieldReader, FieldWriter},
};
use crate::{
    refusal::Refusal,
    stream::{OpenStream, StreamAppend, StreamCommand, StreamRead},
};

/// The kinds of commands to a stream.
pub(super) const KINDS: Range<u8> = 96..128;

const OPEN: u8 = 96;
const APPEND: u8 = 97;
const READ: u8 = 98;
const STOP_READING: u8 = 99;
const STATUS: u8 = 100;
const ADD_FORK: u8 = 101;
const REMOVE_FORK: u8 = 102;
const DELETE: u8 = 103;

pub(super) fn encode(command: &StreamCommand, w: &mut FieldWriter<'_>) -> Result<u8, Refusal> {
    Ok(match command {
        StreamCommand::Open(open) => {
            let OpenStream { config, settings, content, closes } = &**open;
            encode_topic_config(config, w)?;
            w.stream_settings(settings);
            w.optional(content.as_ref(), FieldWriter::batches);
            w.flag(*closes);
            OPEN
        }
        StreamCommand::Append(append) => {
            encode_append(append, w);
            APPEND
        }
        StreamCommand::Read(read) => {
            let StreamRead { at, before, bytes_max, waits, one_append, for_fork } = read;
            w.read_from(*at).optional_u64(before.map(|before| before.0)).u64(*bytes_max);
            w.flag(*waits).flag(*one_append).flag(*for_fork);
            READ
        }
        StreamCommand::StopReading => STOP_READING,
        StreamCommand::Status { touches } => {
            w.flag(*touches);
            STATUS
        }
        StreamCommand::AddFork(topic) => {
            w.u32(topic.0);
            ADD_FORK
        }
        StreamCommand::RemoveFork(topic) => {
            w.u32(topic.0);
            REMOVE_FORK
        }
        StreamCommand::Delete => DELETE,
    })
}

pub(super) fn decode(r: &mut FieldReader) -> Result<StreamCommand, DecodeError> {
    Ok(match r.kind {
        OPEN => StreamCommand::Open(Box::new(OpenStream {
            config: r.topic_config()?,
            settings: r.stream_settings()?,
            content: r.optional("has content", FieldReader::content)?,
            closes: r.flag("closes")?,
        })),
        APPEND => StreamCommand::Append(Box::new(decode_append(r)?)),
        READ => StreamCommand::Read(StreamRead {
            at: r.read_from()?,
            before: r.optional("ends before", FieldReader::offset)?,
            bytes_max: r.u64()?,
            waits: r.flag("waits")?,
            one_append: r.flag("one append")?,
            for_fork: r.flag("for a fork")?,
        }),
        STOP_READING => StreamCommand::StopReading,
        STATUS => StreamCommand::Status { touches: r.flag("touches")? },
        ADD_FORK => StreamCommand::AddFork(TopicId(r.u32()?)),
        REMOVE_FORK => StreamCommand::RemoveFork(TopicId(r.u32()?)),
        DELETE => StreamCommand::Delete,
        kind => return Err(DecodeError::Kind { kind }),
    })
}

pub(super) fn encode_append(append: &StreamAppend, w: &mut FieldWriter<'_>) {
    let StreamAppend { content, content_type, note } = append;
    w.optional(content.as_ref(), FieldWriter::batches);
    w.optional_text(content_type.as_deref()).stream_note(note);
}

pub(super) fn decode_append(r: &mut FieldReader) -> Result<StreamAppend, DecodeError> {
    Ok(StreamAppend {
        content: r.optional("has content", FieldReader::content)?,
        content_type: r.some_text("has content type")?.map(String::into_boxed_str),
        note: r.stream_note()?,
    })
}
