//! Walks over the messages of a group as bytes, and their pages.

use std::sync::Arc;

use bytes::Bytes;
use sennit_model::{Header, HeaderKind, HeaderName, OffsetRange, TopicId};

use super::{
    decode_error::DecodeError,
    fields::{FieldReader, FieldWriter},
    refusal,
};
use crate::walk::{
    CountBy, CountRow, Destination, Edit, FoundMessage, MessageState, Requeue, Selection, Walk,
    WalkPage, WalkVerb,
};

pub(super) fn encode(walk: &Walk, w: &mut FieldWriter<'_>) {
    let Walk { group, from, selection, fair_key, examined_max, matched_max, verb, dry_run } = walk;
    w.group(*group).u64(from.0);
    encode_selection(selection, w);
    w.optional_text(fair_key.as_ref().map(HeaderName::as_str));
    w.u64(*examined_max).u64(*matched_max);
    match verb {
        WalkVerb::Peek { payload_bytes_max } => {
            w.u8(0).number(*payload_bytes_max);
        }
        WalkVerb::Count(by) => {
            w.u8(1).u8(match by {
                CountBy::Nothing => 0,
                CountBy::Key => 1,
                CountBy::Reason => 2,
                CountBy::Age => 3,
                CountBy::State => 4,
            });
        }
        WalkVerb::Cancel => {
            w.u8(2);
        }
        WalkVerb::Requeue(requeue) => {
            w.u8(3);
            encode_requeue(requeue, w);
        }
        WalkVerb::Copy(requeue) => {
            w.u8(4);
            encode_requeue(requeue, w);
        }
    }
    w.flag(*dry_run);
}

pub(super) fn decode(r: &mut FieldReader) -> Result<Walk, DecodeError> {
    Ok(Walk {
        group: r.group()?,
        from: r.offset()?,
        selection: Arc::new(decode_selection(r)?),
        fair_key: r.optional("has fair key", FieldReader::header_name)?,
        examined_max: r.u64()?,
        matched_max: r.u64()?,
        verb: match r.u8()? {
            0 => WalkVerb::Peek { payload_bytes_max: r.number("bytes of a payload")? },
            1 => WalkVerb::Count(match r.u8()? {
                0 => CountBy::Nothing,
                1 => CountBy::Key,
                2 => CountBy::Reason,
                3 => CountBy::Age,
                4 => CountBy::State,
                tag => return Err(r.wrong("rows of a count", tag)),
            }),
            2 => WalkVerb::Cancel,
            3 => WalkVerb::Requeue(decode_requeue(r)?),
            4 => WalkVerb::Copy(decode_requeue(r)?),
            tag => return Err(r.wrong("verb of a walk", tag)),
        },
        dry_run: r.flag("dry run")?,
    })
}

fn encode_selection(selection: &Selection, w: &mut FieldWriter<'_>) {
    let Selection { offsets, filter, reason, text, since, before, fair_key, redrive } = selection;
    w.list(offsets, |w, range| w.range(*range)).filter(filter.as_ref());
    w.optional_text(reason.as_deref()).optional_text(text.as_deref());
    w.optional_time(*since).optional_time(*before);
    w.optional_text(fair_key.as_deref()).optional_u64(*redrive);
}

fn decode_selection(r: &mut FieldReader) -> Result<Selection, DecodeError> {
    let offsets = r.each(16, |r| Ok(r.range()?))?;
    let is_apart = |pair: &[OffsetRange]| pair[0].end < pair[1].start;
    if !offsets.windows(2).all(is_apart) {
        return Err(r.wrong("ranges of a selection", offsets.len() as u64));
    }
    Ok(Selection {
        offsets,
        filter: r.filter()?,
        reason: r.some_text("has reason")?,
        text: r.some_text("has text")?,
        since: r.optional_time("has since")?,
        before: r.optional_time("has before")?,
        fair_key: r.some_text("has fair key")?,
        redrive: r.optional_u64("has redrive")?,
    })
}

fn encode_requeue(requeue: &Requeue, w: &mut FieldWriter<'_>) {
    let Requeue { to, redrive, edit } = requeue;
    match to {
        Destination::Source => w.u8(0),
        Destination::DeadLetters => w.u8(1),
        Destination::Topic { topic, partitions } => w.u8(2).u32(topic.0).u32(*partitions),
    };
    w.u64(*redrive);
    w.optional(edit.as_ref(), |w, Edit { payload, set, remove }| {
        w.optional(payload.as_ref(), FieldWriter::payload);
        w.list(set, |w, Header { name, kind, value }| w.text(name).u8(*kind as u8).counted(value));
        w.list(remove, |w, name| w.text(name));
    });
}

fn decode_requeue(r: &mut FieldReader) -> Result<Requeue, DecodeError> {
    let to = match r.u8()? {
        0 => Destination::Source,
        1 => Destination::DeadLetters,
        2 => Destination::Topic { topic: TopicId(r.u32()?), partitions: r.u32()? },
        tag => return Err(r.wrong("destination", tag)),
    };
    let redrive = r.u64()?;
    let edit = r.optional("has edit", |r| {
        let payload = r.optional("has payload", FieldReader::payload)?;
        let set = r.each(9, decode_header)?;
        Ok(Edit { payload, set, remove: r.each(4, |r| Ok(r.text()?))? })
    })?;
    Ok(Requeue { to, redrive, edit })
}

fn decode_header(r: &mut FieldReader) -> Result<Header, DecodeError> {
    let name = r.text()?;
    let kind = match r.u8()? {
        0 => HeaderKind::Text,
        1 => HeaderKind::Binary,
        2 => HeaderKind::Number,
        3 => HeaderKind::Boolean,
        kind => return Err(r.wrong("kind of a header", kind)),
    };
    Ok(Header { name, kind, value: r.counted()? })
}

pub(super) fn encode_page(page: &WalkPage, w: &mut FieldWriter<'_>) {
    let WalkPage {
        next,
        examined,
        matched,
        leased,
        damaged,
        homeless,
        done,
        bytes,
        messages,
        rows,
        other,
        copies,
        refusal: early,
    } = page;
    w.optional_u64(next.map(|next| next.0));
    for number in [examined, matched, leased, damaged, homeless, done, bytes] {
        w.u64(*number);
    }
    w.each(messages, encode_found);
    w.list(rows, |w, CountRow { name, count, oldest }| w.text(name).u64(*count).u64(oldest.0));
    w.u64(*other);
    w.optional(copies.as_ref(), |w, (batch, offsets)| {
        w.batch(batch);
        w.list(offsets, |w, offset| w.u64(offset.0));
    });
    w.optional(early.as_ref(), refusal::encode);
}

pub(super) fn decode_page(r: &mut FieldReader) -> Result<WalkPage, DecodeError> {
    Ok(WalkPage {
        next: r.optional("has next", FieldReader::offset)?,
        examined: r.u64()?,
        matched: r.u64()?,
        leased: r.u64()?,
        damaged: r.u64()?,
        homeless: r.u64()?,
        done: r.u64()?,
        bytes: r.u64()?,
        messages: r.each(45, decode_found)?,
        rows: r
            .each(20, |r| Ok(CountRow { name: r.text()?, count: r.u64()?, oldest: r.time()? }))?,
        other: r.u64()?,
        copies: r.optional("has copies", |r| Ok((r.batch()?, r.each(8, FieldReader::offset)?)))?,
        refusal: r.optional("ended early", refusal::decode)?,
    })
}

fn encode_found(w: &mut FieldWriter<'_>, found: &FoundMessage) {
    let FoundMessage { offset, appended_at, state, failed, key, headers, payload, payload_bytes } =
        found;
    w.u64(offset.0).u64(appended_at.0);
    match state {
        MessageState::Ready => w.u8(0),
        MessageState::Delayed { until } => w.u8(1).u64(until.0),
        MessageState::Retrying { until } => w.u8(2).u64(until.0),
        MessageState::Dead { failed_at, reason } => w.u8(3).u64(failed_at.0).text(reason),
        MessageState::Leased { until } => w.u8(4).u64(until.0),
    };
    w.u32(*failed).counted(key).counted(headers);
    w.payload(payload);
    w.u64(*payload_bytes);
}

fn decode_found(r: &mut FieldReader) -> Result<FoundMessage, DecodeError> {
    let (offset, appended_at) = (r.offset()?, r.time()?);
    let state = match r.u8()? {
        0 => MessageState::Ready,
        1 => MessageState::Delayed { until: r.time()? },
        2 => MessageState::Retrying { until: r.time()? },
        3 => MessageState::Dead { failed_at: r.time()?, reason: r.text()?.into() },
        4 => MessageState::Leased { until: r.time()? },
        tag => return Err(r.wrong("state of a message", tag)),
    };
    let failed = r.u32()?;
    let [key, headers]: [Bytes; 2] = [r.counted()?, r.counted()?];
    let (payload, payload_bytes) = (r.payload()?, r.u64()?);
    Ok(FoundMessage { offset, appended_at, state, failed, key, headers, payload, payload_bytes })
}
