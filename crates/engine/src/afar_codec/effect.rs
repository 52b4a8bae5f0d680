//! Effects as bytes, and the kinds of all.

use std::sync::Arc;

use bytes::Bytes;
use sennit_model::{CursorName, Generation, GroupId, Offset, ProducerId, TopicId};

use super::{
    atomic,
    decode_error::DecodeError,
    description,
    fields::{FieldReader, FieldWriter},
    refusal, stream_answer, wait_reason, walk,
};
use crate::{
    attempts::{FailedAttempt, FailedAttempts},
    command::SessionId,
    effect::{Confirmed, DelayedRun, Delivery, Effect, GapReason, PublishNote, Settled},
    refusal::Refusal,
};

const CONFIRMED: u8 = 1;
const PUBLISH_NOTED: u8 = 2;
const SETTLED: u8 = 3;
const SUBSCRIBED: u8 = 4;
const DELIVER: u8 = 5;
const SUBSCRIPTION_ENDED: u8 = 6;
const SUBSCRIPTION_INTERRUPTED: u8 = 7;
const CURSOR_TAKEN: u8 = 8;
const READER_TOO_SLOW: u8 = 9;
const GAP: u8 = 10;
const DONE: u8 = 11;
const PUBLISHED_AT: u8 = 12;
const PUBLISHED_ATOMIC: u8 = 13;
const DESCRIBED: u8 = 14;
const EXPLAINED: u8 = 15;
const KEYS: u8 = 16;
const DELAYED: u8 = 17;
const DELAYS_CHANGED: u8 = 18;
const LOCATED: u8 = 19;
const STREAM_ENDED: u8 = 20;
const UNPARKED: u8 = 21;
const WALKED: u8 = 22;
const CURSORS: u8 = 23;
const REFUSED: u8 = 24;
const ATTEMPTS_FAILED: u8 = 25;
const DEAD_LETTER_TOPIC_NEEDED: u8 = 26;

/// Writes the fields of an effect; returns its kind.
pub(super) fn encode(effect: &Effect, w: &mut FieldWriter<'_>) -> Result<u8, Refusal> {
    Ok(match effect {
        Effect::Confirmed(confirmed) => {
            encode_confirmed(confirmed, w);
            CONFIRMED
        }
        Effect::PublishNoted(note) => {
            let PublishNote { origin, partition, producer, first_sequence, dropped, replaced } =
                note;
            w.origin(*origin).partition(*partition).u64(producer.0).u64(*first_sequence);
            w.u64(*dropped).u64(*replaced);
            PUBLISH_NOTED
        }
        Effect::Settled(Settled { origin, partition, applied, stale }) => {
            w.origin(*origin).partition(*partition).u64(*applied).runs(stale);
            SETTLED
        }
        Effect::Subscribed { origin, subscription, partition } => {
            w.origin(*origin).u32(*subscription).partition(*partition);
            SUBSCRIBED
        }
        Effect::Deliver(delivery) => {
            encode_delivery(delivery, w);
            DELIVER
        }
        Effect::SubscriptionEnded { session, subscription, partition } => {
            w.session(*session).u32(*subscription).partition(*partition);
            SUBSCRIPTION_ENDED
        }
        Effect::SubscriptionInterrupted { session, subscription, partition } => {
            w.session(*session).u32(*subscription).partition(*partition);
            SUBSCRIPTION_INTERRUPTED
        }
        Effect::CursorTaken { session, subscription, partition } => {
            w.session(*session).u32(*subscription).partition(*partition);
            CURSOR_TAKEN
        }
        Effect::ReaderTooSlow { session, subscription, partition } => {
            w.session(*session).u32(*subscription).partition(*partition);
            READER_TOO_SLOW
        }
        Effect::Gap { session, subscription, partition, range, reason } => {
            w.session(*session).u32(*subscription).partition(*partition).range(*range);
            w.u8(match reason {
                GapReason::Damaged => 0,
                GapReason::Lost => 1,
                GapReason::Retention => 2,
                GapReason::RolledBack => 3,
                GapReason::Skipped => 4,
                GapReason::Filtered => 5,
                GapReason::Compacted => 6,
            });
            GAP
        }
        Effect::Done { origin, topic, group, created } => {
            w.origin(*origin).u32(topic.0);
            w.optional(group.as_ref(), |w, group| {
                w.group(*group);
            });
            w.flag(*created);
            DONE
        }
        Effect::PublishedAt { origin, first, count } => {
            w.origin(*origin).u64(first.0).u32(*count);
            PUBLISHED_AT
        }
        Effect::PublishedAtomic { origin, parts } => {
            w.origin(*origin);
            atomic::encode_parts(parts, w);
            PUBLISHED_ATOMIC
        }
        Effect::Described { origin, description } => {
            w.origin(*origin);
            description::encode(description, w);
            DESCRIBED
        }
        Effect::Explained { origin, explanation } => {
            w.origin(*origin);
            wait_reason::encode_explanation(explanation, w);
            EXPLAINED
        }
        Effect::Keys { origin, keys } => {
            w.origin(*origin);
            w.each(keys, wait_reason::encode_key);
            KEYS
        }
        Effect::Delayed { origin, runs } => {
            w.origin(*origin);
            w.list(runs, |w, DelayedRun { range, due }| w.range(*range).u64(due.0));
            DELAYED
        }
        Effect::DelaysChanged { origin, count } => {
            w.origin(*origin).u64(*count);
            DELAYS_CHANGED
        }
        Effect::Located { origin, first, end } => {
            w.origin(*origin).u64(first.0).u64(end.0);
            LOCATED
        }
        Effect::Stream(origin, answer) => {
            w.origin(*origin);
            stream_answer::encode(answer, w)
        }
        Effect::StreamEnded { topic } => {
            w.u32(topic.0);
            STREAM_ENDED
        }
        Effect::Unparked { origin, count } => {
            w.origin(*origin).u64(*count);
            UNPARKED
        }
        Effect::Walked { origin, page } => {
            w.origin(*origin);
            walk::encode_page(page, w);
            WALKED
        }
        Effect::Cursors { origin, cursors } => {
            w.origin(*origin);
            w.list(cursors, |w, (name, offset)| w.text(name.as_str()).u64(offset.0));
            CURSORS
        }
        Effect::Refused { origin, refusal } => {
            w.origin(*origin);
            refusal::encode(w, refusal);
            REFUSED
        }
        Effect::AttemptsFailed(failed) => {
            encode_failed(failed, w);
            ATTEMPTS_FAILED
        }
        Effect::DeadLetterTopicNeeded { source } => {
            w.u32(source.0);
            DEAD_LETTER_TOPIC_NEEDED
        }
    })
}

/// Reads the fields of the effect of the reader's kind.
pub(super) fn decode(r: &mut FieldReader) -> Result<Effect, DecodeError> {
    if stream_answer::KINDS.contains(&r.kind) {
        return Ok(Effect::Stream(r.origin()?, Box::new(stream_answer::decode(r)?)));
    }
    Ok(match r.kind {
        SUBSCRIPTION_ENDED..=GAP => decode_to_subscription(r)?,
        DONE..=CURSORS => decode_answer(r)?,
        CONFIRMED => Effect::Confirmed(decode_confirmed(r)?),
        PUBLISH_NOTED => Effect::PublishNoted(PublishNote {
            origin: r.origin()?,
            partition: r.partition()?,
            producer: ProducerId(r.u64()?),
            first_sequence: r.u64()?,
            dropped: r.u64()?,
            replaced: r.u64()?,
        }),
        SETTLED => Effect::Settled(Settled {
            origin: r.origin()?,
            partition: r.partition()?,
            applied: r.u64()?,
            stale: r.runs()?,
        }),
        SUBSCRIBED => Effect::Subscribed {
            origin: r.origin()?,
            subscription: r.u32()?,
            partition: r.partition()?,
        },
        DELIVER => Effect::Deliver(decode_delivery(r)?),
        REFUSED => Effect::Refused { origin: r.origin()?, refusal: refusal::decode(r)? },
        ATTEMPTS_FAILED => Effect::AttemptsFailed(Box::new(decode_failed(r)?)),
        DEAD_LETTER_TOPIC_NEEDED => Effect::DeadLetterTopicNeeded { source: TopicId(r.u32()?) },
        kind => return Err(DecodeError::Kind { kind }),
    })
}

/// News for a subscription.
fn decode_to_subscription(r: &mut FieldReader) -> Result<Effect, DecodeError> {
    let (session, subscription): (SessionId, u32) = (r.session()?, r.u32()?);
    let partition = r.partition()?;
    Ok(match r.kind {
        SUBSCRIPTION_ENDED => Effect::SubscriptionEnded { session, subscription, partition },
        SUBSCRIPTION_INTERRUPTED => {
            Effect::SubscriptionInterrupted { session, subscription, partition }
        }
        CURSOR_TAKEN => Effect::CursorTaken { session, subscription, partition },
        READER_TOO_SLOW => Effect::ReaderTooSlow { session, subscription, partition },
        GAP => {
            let range = r.offsets()?;
            let reason = match r.u8()? {
                0 => GapReason::Damaged,
                1 => GapReason::Lost,
                2 => GapReason::Retention,
                3 => GapReason::RolledBack,
                4 => GapReason::Skipped,
                5 => GapReason::Filtered,
                6 => GapReason::Compacted,
                tag => return Err(r.wrong("reason of a gap", tag)),
            };
            Effect::Gap { session, subscription, partition, range, reason }
        }
        kind => return Err(DecodeError::Kind { kind }),
    })
}

/// The answer to a request, other than that of a stream. The end of a stream answers none.
fn decode_answer(r: &mut FieldReader) -> Result<Effect, DecodeError> {
    if r.kind == STREAM_ENDED {
        return Ok(Effect::StreamEnded { topic: TopicId(r.u32()?) });
    }
    let origin = r.origin()?;
    Ok(match r.kind {
        DONE => Effect::Done {
            origin,
            topic: TopicId(r.u32()?),
            group: r.optional("has group", |r| Ok(GroupId(r.u32()?)))?,
            created: r.flag("created")?,
        },
        PUBLISHED_AT => Effect::PublishedAt { origin, first: r.offset()?, count: r.u32()? },
        PUBLISHED_ATOMIC => Effect::PublishedAtomic { origin, parts: atomic::decode_parts(r)? },
        DESCRIBED => Effect::Described { origin, description: description::decode(r)? },
        EXPLAINED => Effect::Explained { origin, explanation: wait_reason::decode_explanation(r)? },
        KEYS => Effect::Keys { origin, keys: r.each(24, wait_reason::decode_key)? },
        DELAYED => {
            let runs = r.each(24, |r| Ok(DelayedRun { range: r.offsets()?, due: r.time()? }))?;
            Effect::Delayed { origin, runs }
        }
        DELAYS_CHANGED => Effect::DelaysChanged { origin, count: r.u64()? },
        LOCATED => Effect::Located { origin, first: r.offset()?, end: r.offset()? },
        UNPARKED => Effect::Unparked { origin, count: r.u64()? },
        WALKED => Effect::Walked { origin, page: Box::new(walk::decode_page(r)?) },
        CURSORS => {
            let cursor = |r: &mut FieldReader| -> Result<(CursorName, Offset), DecodeError> {
                Ok((r.cursor_name()?, r.offset()?))
            };
            Effect::Cursors { origin, cursors: r.each(13, cursor)? }
        }
        kind => return Err(DecodeError::Kind { kind }),
    })
}

fn encode_confirmed(confirmed: &Confirmed, w: &mut FieldWriter<'_>) {
    let Confirmed {
        origin,
        partition,
        producer,
        first_sequence,
        count,
        first_offset,
        duplicate,
        durability,
        parts,
    } = confirmed;
    w.origin(*origin).partition(*partition).u64(producer.0).u64(*first_sequence).u32(*count);
    w.optional_u64(first_offset.map(|first| first.0)).flag(*duplicate).durability(*durability);
    atomic::encode_confirmed(parts, w);
}

fn decode_confirmed(r: &mut FieldReader) -> Result<Confirmed, DecodeError> {
    Ok(Confirmed {
        origin: r.origin()?,
        partition: r.partition()?,
        producer: ProducerId(r.u64()?),
        first_sequence: r.u64()?,
        count: r.u32()?,
        first_offset: r.optional("has offset", FieldReader::offset)?,
        duplicate: r.flag("duplicate")?,
        durability: r.durability()?,
        parts: atomic::decode_confirmed(r)?,
    })
}

fn encode_delivery(delivery: &Delivery, w: &mut FieldWriter<'_>) {
    let Delivery {
        session,
        subscription,
        partition,
        first,
        count,
        attempt,
        generation,
        appended_at,
        durability,
        messages,
    } = delivery;
    w.session(*session).u32(*subscription).partition(*partition).u64(first.0).u32(*count);
    w.u32(*attempt).u32(generation.0).u64(appended_at.0).durability(*durability);
    w.payload(messages);
}

fn decode_delivery(r: &mut FieldReader) -> Result<Delivery, DecodeError> {
    Ok(Delivery {
        session: r.session()?,
        subscription: r.u32()?,
        partition: r.partition()?,
        first: r.offset()?,
        count: r.u32()?,
        attempt: r.u32()?,
        generation: Generation(r.u32()?),
        appended_at: r.time()?,
        durability: r.durability()?,
        messages: r.payload()?,
    })
}

fn encode_failed(failed: &FailedAttempts, w: &mut FieldWriter<'_>) {
    let FailedAttempts { partition, group, attempts } = failed;
    w.partition(*partition).group(*group);
    w.each(attempts, |w, attempt| {
        let FailedAttempt { offset, attempts, appended_at, failed_at, reason, message } = attempt;
        w.u64(offset.0).u32(*attempts).u64(appended_at.0).u64(failed_at.0).text(reason);
        w.payload(message);
    });
}

fn decode_failed(r: &mut FieldReader) -> Result<FailedAttempts, DecodeError> {
    let (partition, group) = (r.partition()?, r.group()?);
    let attempts = r.each(36, |r| {
        let (offset, attempts) = (r.offset()?, r.u32()?);
        let (appended_at, failed_at) = (r.time()?, r.time()?);
        let (reason, message): (Arc<str>, Bytes) = (r.text()?.into(), r.payload()?);
        Ok(FailedAttempt { offset, attempts, appended_at, failed_at, reason, message })
    })?;
    Ok(FailedAttempts { partition, group, attempts })
}
