//! Refusals as bytes.

use sennit_model::{ConfigError, NameError};

use super::{
    decode_error::DecodeError,
    fields::{FieldReader, FieldWriter},
    static_text,
};
use crate::{
    codec::Writer,
    refusal::{AtomicItem, Refusal},
};

/// The refusal of an atomic publish, which has another refusal for its reason.
const ATOMIC: u8 = 19;

pub(super) fn encode(w: &mut FieldWriter<'_>, refusal: &Refusal) {
    append(refusal, w);
}

fn append<'w, 'a>(refusal: &Refusal, w: &'w mut Writer<'a>) -> &'w mut Writer<'a> {
    match refusal {
        Refusal::UnknownTopic => w.u8(0),
        Refusal::StreamClosed => w.u8(1),
        Refusal::UnknownGroup => w.u8(2),
        Refusal::SettingsDiffer { name, field, existing, requested } => {
            w.u8(3).text(name).text(field).text(existing).text(requested)
        }
        Refusal::SettingFixed { field } => w.u8(4).text(field),
        Refusal::Config(ConfigError { field, value, allowed }) => {
            w.u8(5).text(field).text(value).text(allowed)
        }
        Refusal::Name(error) => append_name_error(error, w.u8(6)),
        Refusal::SequenceGap { expected, received } => w.u8(7).u64(*expected).u64(*received),
        Refusal::ProducerFenced { current, received } => w.u8(8).u32(*current).u32(*received),
        Refusal::SequenceOverlap { expected, received, count } => {
            w.u8(9).u64(*expected).u64(*received).u32(*count)
        }
        Refusal::OffsetMismatch { expected, next } => w.u8(10).u64(expected.0).u64(next.0),
        Refusal::KeyMissing => w.u8(11),
        Refusal::TopicFull { limit, value, held } => w.u8(12).text(limit).u64(*value).u64(*held),
        Refusal::DedupFull => w.u8(13),
        Refusal::UnknownMessage { offset } => w.u8(14).u64(offset.0),
        Refusal::NotDelayed { offset, state } => w.u8(15).u64(offset.0).text(state),
        Refusal::StaleDelivery { stale, named } => w.u8(16).u64(*stale).u64(*named),
        Refusal::AtomicRepeated => w.u8(17),
        Refusal::AtomicPartly => w.u8(18),
        Refusal::Atomic { item, why } => {
            let (tag, at, partition) = match item {
                AtomicItem::Part { at, partition } => (0, at, partition),
                AtomicItem::Ack { at, partition } => (1, at, partition),
            };
            append(why, w.u8(ATOMIC).u8(tag).number(*at).partition(*partition))
        }
        Refusal::Limit { limit, value } => w.u8(20).text(limit).u64(*value),
        Refusal::CursorHeld { name } => w.u8(21).text(name.as_str()),
        Refusal::CursorLost { name } => w.u8(22).text(name.as_str()),
        Refusal::NotDeadLetters => w.u8(23),
        Refusal::MessageLeased => w.u8(24),
        Refusal::StorageFull => w.u8(25),
        Refusal::OutcomeUnknown => w.u8(26),
        Refusal::NotLeader { leader } => w.u8(27).u64(*leader),
        Refusal::NoLeader => w.u8(28),
    }
}

pub(super) fn decode(r: &mut FieldReader) -> Result<Refusal, DecodeError> {
    match r.u8()? {
        ATOMIC => {
            let item = decode_item(r)?;
            let why = match r.u8()? {
                // It has parts, and they have none.
                ATOMIC => return Err(r.wrong("refusal of a part", ATOMIC)),
                tag => decode_plain(tag, r)?,
            };
            Ok(Refusal::Atomic { item, why: Box::new(why) })
        }
        tag => decode_plain(tag, r),
    }
}

fn decode_plain(tag: u8, r: &mut FieldReader) -> Result<Refusal, DecodeError> {
    Ok(match tag {
        0 => Refusal::UnknownTopic,
        1 => Refusal::StreamClosed,
        2 => Refusal::UnknownGroup,
        3 => Refusal::SettingsDiffer {
            name: r.text()?,
            field: static_text::decode(r)?,
            existing: r.text()?,
            requested: r.text()?,
        },
        4 => Refusal::SettingFixed { field: static_text::decode(r)? },
        5 => Refusal::Config(ConfigError {
            field: static_text::decode(r)?,
            value: r.text()?,
            allowed: r.text()?,
        }),
        6 => Refusal::Name(decode_name_error(r)?),
        7 => Refusal::SequenceGap { expected: r.u64()?, received: r.u64()? },
        8 => Refusal::ProducerFenced { current: r.u32()?, received: r.u32()? },
        9 => Refusal::SequenceOverlap { expected: r.u64()?, received: r.u64()?, count: r.u32()? },
        10 => Refusal::OffsetMismatch { expected: r.offset()?, next: r.offset()? },
        11 => Refusal::KeyMissing,
        12 => {
            Refusal::TopicFull { limit: static_text::decode(r)?, value: r.u64()?, held: r.u64()? }
        }
        13 => Refusal::DedupFull,
        14 => Refusal::UnknownMessage { offset: r.offset()? },
        15 => Refusal::NotDelayed { offset: r.offset()?, state: static_text::decode(r)? },
        16 => Refusal::StaleDelivery { stale: r.u64()?, named: r.u64()? },
        17 => Refusal::AtomicRepeated,
        18 => Refusal::AtomicPartly,
        20 => Refusal::Limit { limit: static_text::decode(r)?, value: r.u64()? },
        21 => Refusal::CursorHeld { name: r.cursor_name()? },
        22 => Refusal::CursorLost { name: r.cursor_name()? },
        23 => Refusal::NotDeadLetters,
        24 => Refusal::MessageLeased,
        25 => Refusal::StorageFull,
        26 => Refusal::OutcomeUnknown,
        27 => Refusal::NotLeader { leader: r.u64()? },
        28 => Refusal::NoLeader,
        tag => return Err(r.wrong("refusal", tag)),
    })
}

fn decode_item(r: &mut FieldReader) -> Result<AtomicItem, DecodeError> {
    let (tag, at, partition) = (r.u8()?, r.number("number of a part")?, r.partition()?);
    match tag {
        0 => Ok(AtomicItem::Part { at, partition }),
        1 => Ok(AtomicItem::Ack { at, partition }),
        tag => Err(r.wrong("part of an atomic publish", tag)),
    }
}

fn append_name_error<'w, 'a>(error: &NameError, w: &'w mut Writer<'a>) -> &'w mut Writer<'a> {
    match error {
        NameError::Empty => w.u8(0),
        NameError::TooLong { length } => w.u8(1).number(*length),
        NameError::Character { name, character, position } => {
            w.u8(2).text(name).u32(u32::from(*character)).number(*position)
        }
        NameError::EmptyPart { name } => w.u8(3).text(name),
    }
}

fn decode_name_error(r: &mut FieldReader) -> Result<NameError, DecodeError> {
    Ok(match r.u8()? {
        0 => NameError::Empty,
        1 => NameError::TooLong { length: r.number("length of a name")? },
        2 => {
            let (name, number) = (r.text()?, r.u32()?);
            let character = char::from_u32(number).ok_or_else(|| r.wrong("character", number))?;
            NameError::Character { name, character, position: r.number("position")? }
        }
        3 => NameError::EmptyPart { name: r.text()? },
        tag => return Err(r.wrong("problem of a name", tag)),
    })
}
