//! Answers to changes of names as bytes: a kind, then the fields in the order below. Refusals of the engine, and how a stream is, lie in
//! an effect of the engine that has them.
//!
//! ```text
//! kind                     fields                                                      last
//!    1 Changed             topic u32, flag and group u32, created flag                 -
//!    2 Stream              new flag, topic u32, home u32, partitions u32, tag u64      Stream: Status
//!    3 Done                -                                                           -
//!   16 Stream refuses      -                                                           Stream: Refused
//!   17 - at an offset      tag u64                                                     Stream: Refused
//!   18 OtherStream         -                                                           -
//!   19 SourceUnknown       -                                                           -
//!   20 SourceDeleted       -                                                           -
//!   21 SourceContentType   text                                                        -
//!   22 BeyondSource        offset u64                                                  -
//!   23 BeyondAppend        length u64                                                  -
//!   24 Partitioned         partitions u32                                              -
//! ```
//!
//! From 32 on it is a refusal of the control: `refusal_codec`.

use sennit_engine::{Effect, Refusal, StreamAnswer, StreamRefusal};
use sennit_model::GroupId;

use super::{
    Changed, NameAnswer,
    codec_error::NameChangeError,
    fields::{FieldReader, FieldWriter, NOBODY},
    refusal_codec::{decode_refusal, encode_refusal},
};
use crate::broker::{
    stream_offset::Identified,
    stream_request::{Created, Located, StreamFailure},
};

const CHANGED: u8 = 1;
const STREAM: u8 = 2;
const DONE: u8 = 3;
const STREAM_REFUSES: u8 = 16;
const STREAM_REFUSES_AT: u8 = 17;
const OTHER_STREAM: u8 = 18;
const SOURCE_UNKNOWN: u8 = 19;
const SOURCE_DELETED: u8 = 20;
const SOURCE_CONTENT_TYPE: u8 = 21;
const BEYOND_SOURCE: u8 = 22;
const BEYOND_APPEND: u8 = 23;
const PARTITIONED: u8 = 24;

pub(super) type Outcome = Result<NameAnswer, StreamFailure>;

/// # Errors
/// It is longer than what travels.
pub(super) fn encode(outcome: &Outcome, w: &mut FieldWriter) -> Result<(), Refusal> {
    match outcome {
        Ok(NameAnswer::Changed(Changed { topic, group, created })) => {
            w.u8(CHANGED).u32(topic.0).optional(*group, |w, group| {
                w.u32(group.0);
            });
            w.flag(*created);
            Ok(())
        }
        Ok(NameAnswer::Stream(Created { is_new, status, located })) => {
            let Located { topic, home, partitions, tag } = located;
            w.u8(STREAM).flag(*is_new).u32(topic.0).u32(home.0).u32(*partitions);
            let status = StreamAnswer::Status(status.clone());
            w.u64(tag.number()).effect(&Effect::Stream(NOBODY, Box::new(status)))
        }
        Ok(NameAnswer::Done) => {
            w.u8(DONE);
            Ok(())
        }
        Err(failure) => encode_failure(failure, w),
    }
}

fn encode_failure(failure: &StreamFailure, w: &mut FieldWriter) -> Result<(), Refusal> {
    let refused = |w: &mut FieldWriter, refusal: &StreamRefusal| {
        let refused = StreamAnswer::Refused(refusal.clone());
        w.effect(&Effect::Stream(NOBODY, Box::new(refused)))
    };
    match failure {
        StreamFailure::Stream(refusal) => return refused(w.u8(STREAM_REFUSES), refusal),
        StreamFailure::StreamAt(Identified { of, answer }) => {
            return refused(w.u8(STREAM_REFUSES_AT).u64(of.number()), answer);
        }
        StreamFailure::OtherStream => w.u8(OTHER_STREAM),
        StreamFailure::SourceUnknown => w.u8(SOURCE_UNKNOWN),
        StreamFailure::SourceDeleted => w.u8(SOURCE_DELETED),
        StreamFailure::SourceContentType(held) => w.u8(SOURCE_CONTENT_TYPE).text(held),
        StreamFailure::BeyondSource(next) => w.u8(BEYOND_SOURCE).u64(next.0),
        StreamFailure::BeyondAppend(length) => w.u8(BEYOND_APPEND).u64(*length),
        StreamFailure::Partitioned(partitions) => w.u8(PARTITIONED).u32(*partitions),
        StreamFailure::Broker(refusal) => return encode_refusal(refusal, w),
    };
    Ok(())
}

pub(super) fn decode(r: &mut FieldReader) -> Result<Outcome, NameChangeError> {
    Ok(match r.u8()? {
        CHANGED => {
            let topic = r.topic()?;
            let group = r.optional("has a group", |r| Ok(GroupId(r.u32()?)))?;
            Ok(NameAnswer::Changed(Changed { topic, group, created: r.flag("was created")? }))
        }
        STREAM => {
            let is_new = r.flag("is new")?;
            let (topic, home, partitions) = (r.topic()?, r.topic()?, r.u32()?);
            let located = Located { topic, home, partitions, tag: r.tag()? };
            let Effect::Stream(_, answer) = r.effect()? else { return Err(NameChangeError::Holds) };
            let StreamAnswer::Status(status) = *answer else { return Err(NameChangeError::Holds) };
            Ok(NameAnswer::Stream(Created { is_new, status, located }))
        }
        DONE => Ok(NameAnswer::Done),
        kind => Err(decode_failure(kind, r)?),
    })
}

fn decode_failure(kind: u8, r: &mut FieldReader) -> Result<StreamFailure, NameChangeError> {
    Ok(match kind {
        STREAM_REFUSES => StreamFailure::Stream(decode_stream_refusal(r)?),
        STREAM_REFUSES_AT => {
            let of = r.tag()?;
            StreamFailure::StreamAt(Identified { of, answer: decode_stream_refusal(r)? })
        }
        OTHER_STREAM => StreamFailure::OtherStream,
        SOURCE_UNKNOWN => StreamFailure::SourceUnknown,
        SOURCE_DELETED => StreamFailure::SourceDeleted,
        SOURCE_CONTENT_TYPE => StreamFailure::SourceContentType(r.text()?.into()),
        BEYOND_SOURCE => StreamFailure::BeyondSource(r.offset()?),
        BEYOND_APPEND => StreamFailure::BeyondAppend(r.u64()?),
        PARTITIONED => StreamFailure::Partitioned(r.u32()?),
        kind => decode_refusal(kind, r)?.into(),
    })
}

fn decode_stream_refusal(r: &mut FieldReader) -> Result<StreamRefusal, NameChangeError> {
    match r.effect()? {
        Effect::Stream(_, answer) => match *answer {
            StreamAnswer::Refused(refusal) => Ok(refusal),
            _ => Err(NameChangeError::Holds),
        },
        _ => Err(NameChangeError::Holds),
    }
}
