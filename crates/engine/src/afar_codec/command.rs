//! Commands as bytes: those about deliveries, readers, sessions and the whole shard, and the kinds of all.

use std::sync::Arc;

use sennit_model::{ThrottleRule, TopicId, WhenSlow};

use super::{
    atomic, catalogue_command,
    decode_error::DecodeError,
    fields::{FieldReader, FieldWriter},
    partition_command, publish, stream_command,
};
use crate::{
    attempts::{FailureAnswer, FailureAnswers, FailureDecision},
    command::{Command, Read, ReaderChange, Settle, Subscribe, Verdict},
    refusal::Refusal,
};

const PUBLISH: u8 = 1;
const PUBLISH_AT: u8 = 2;
const SETTLE: u8 = 3;
const SUBSCRIBE: u8 = 4;
const READ: u8 = 5;
const READER: u8 = 6;
const SET_CREDIT: u8 = 7;
const UNSUBSCRIBE: u8 = 8;
const END_SESSION: u8 = 9;
const SET_THROTTLES: u8 = 10;
const WATCH_FAILURES: u8 = 11;
const DECIDE_FAILURES: u8 = 12;
const APPEND_TOGETHER: u8 = 13;
const PUBLISH_ATOMIC: u8 = 14;

/// Writes the fields of a command; returns its kind.
pub(super) fn encode(command: &Command, w: &mut FieldWriter<'_>) -> Result<u8, Refusal> {
    Ok(match command {
        Command::Publish(publish) => {
            publish::encode(publish, w);
            PUBLISH
        }
        Command::PublishAt(publish, at) => {
            publish::encode(publish, w);
            w.u64(at.0);
            PUBLISH_AT
        }
        Command::Settle(settle) => {
            encode_settle(settle, w);
            SETTLE
        }
        Command::Subscribe(Subscribe { origin, subscription, partition, group, credit }) => {
            w.origin(*origin).u32(*subscription).partition(*partition).group(*group);
            w.credit(*credit);
            SUBSCRIBE
        }
        Command::Read(read) => {
            encode_read(read, w);
            READ
        }
        Command::Reader { session, subscription, partition, change } => {
            w.session(*session).u32(*subscription).partition(*partition);
            match change {
                ReaderChange::Credit(credit) => w.u8(0).credit(*credit),
                ReaderChange::Taken { messages, bytes } => w.u8(1).u32(*messages).u64(*bytes),
                ReaderChange::End => w.u8(2),
            };
            READER
        }
        Command::SetCredit { session, subscription, partition, group, credit } => {
            w.session(*session).u32(*subscription).partition(*partition).group(*group);
            w.credit(*credit);
            SET_CREDIT
        }
        Command::Unsubscribe { session, subscription, partition, group } => {
            w.session(*session).u32(*subscription).partition(*partition).group(*group);
            UNSUBSCRIBE
        }
        Command::EndSession { session, grace } => {
            w.session(*session).span(*grace);
            END_SESSION
        }
        Command::SetThrottles(rules) => {
            w.list(rules, |w, ThrottleRule { pattern, rate }| {
                w.text(pattern.as_str()).optional_rate(Some(*rate))
            });
            SET_THROTTLES
        }
        Command::WatchFailures(topics) => {
            w.list(topics, |w, topic| w.u32(topic.0));
            WATCH_FAILURES
        }
        Command::DecideFailures(answers) => {
            encode_answers(answers, w);
            DECIDE_FAILURES
        }
        Command::AppendTogether(origin, appends) => {
            w.origin(*origin);
            w.each(appends, |w, (partition, append)| {
                w.partition(*partition);
                stream_command::encode_append(append, w);
            });
            APPEND_TOGETHER
        }
        Command::PublishAtomic(step) => {
            atomic::encode(step, w);
            PUBLISH_ATOMIC
        }
        Command::Catalogue(origin, command) => {
            w.origin(*origin);
            catalogue_command::encode(command, w)?
        }
        Command::Partition(origin, partition, command) => {
            w.origin(*origin).partition(*partition);
            partition_command::encode(command, w)?
        }
        Command::Stream(origin, partition, command) => {
            w.origin(*origin).partition(*partition);
            stream_command::encode(command, w)?
        }
    })
}

/// Reads the fields of the command of the reader's kind.
pub(super) fn decode(r: &mut FieldReader) -> Result<Command, DecodeError> {
    if catalogue_command::KINDS.contains(&r.kind) {
        return Ok(Command::Catalogue(r.origin()?, catalogue_command::decode(r)?));
    }
    if partition_command::KINDS.contains(&r.kind) {
        let (origin, partition) = (r.origin()?, r.partition()?);
        return Ok(Command::Partition(origin, partition, partition_command::decode(r)?));
    }
    if stream_command::KINDS.contains(&r.kind) {
        let (origin, partition) = (r.origin()?, r.partition()?);
        return Ok(Command::Stream(origin, partition, stream_command::decode(r)?));
    }
    Ok(match r.kind {
        PUBLISH => Command::Publish(publish::decode(r)?),
        PUBLISH_AT => Command::PublishAt(publish::decode(r)?, r.offset()?),
        SETTLE => Command::Settle(decode_settle(r)?),
        SUBSCRIBE => Command::Subscribe(Subscribe {
            origin: r.origin()?,
            subscription: r.u32()?,
            partition: r.partition()?,
            group: r.group()?,
            credit: r.credit()?,
        }),
        READ => Command::Read(decode_read(r)?),
        READER => Command::Reader {
            session: r.session()?,
            subscription: r.u32()?,
            partition: r.partition()?,
            change: match r.u8()? {
                0 => ReaderChange::Credit(r.credit()?),
                1 => ReaderChange::Taken { messages: r.u32()?, bytes: r.u64()? },
                2 => ReaderChange::End,
                tag => return Err(r.wrong("change of a reader", tag)),
            },
        },
        SET_CREDIT => Command::SetCredit {
            session: r.session()?,
            subscription: r.u32()?,
            partition: r.partition()?,
            group: r.group()?,
            credit: r.credit()?,
        },
        UNSUBSCRIBE => Command::Unsubscribe {
            session: r.session()?,
            subscription: r.u32()?,
            partition: r.partition()?,
            group: r.group()?,
        },
        END_SESSION => Command::EndSession { session: r.session()?, grace: r.span()? },
        SET_THROTTLES => Command::SetThrottles(decode_rules(r)?),
        WATCH_FAILURES => Command::WatchFailures(r.each(4, |r| Ok(TopicId(r.u32()?)))?.into()),
        DECIDE_FAILURES => Command::DecideFailures(decode_answers(r)?),
        APPEND_TOGETHER => Command::AppendTogether(
            r.origin()?,
            r.each(12, |r| Ok((r.partition()?, stream_command::decode_append(r)?)))?,
        ),
        PUBLISH_ATOMIC => Command::PublishAtomic(atomic::decode(r)?),
        kind => return Err(DecodeError::Kind { kind }),
    })
}

fn encode_settle(settle: &Settle, w: &mut FieldWriter<'_>) {
    let Settle { origin, partition, group, verdict, runs, confirm } = settle;
    w.origin(*origin).partition(*partition).group(*group);
    match verdict {
        Verdict::Ack => w.u8(0),
        Verdict::Retry => w.u8(1),
        Verdict::RetryAfter(delay) => w.u8(2).span(*delay),
        Verdict::DeadLetter { reason } => w.u8(3).text(reason),
        Verdict::Extend(span) => w.u8(4).span(*span),
        Verdict::Started => w.u8(5),
    };
    w.runs(runs).flag(*confirm);
}

fn decode_settle(r: &mut FieldReader) -> Result<Settle, DecodeError> {
    Ok(Settle {
        origin: r.origin()?,
        partition: r.partition()?,
        group: r.group()?,
        verdict: match r.u8()? {
            0 => Verdict::Ack,
            1 => Verdict::Retry,
            2 => Verdict::RetryAfter(r.span()?),
            3 => Verdict::DeadLetter { reason: r.text()? },
            4 => Verdict::Extend(r.span()?),
            5 => Verdict::Started,
            tag => return Err(r.wrong("verdict", tag)),
        },
        runs: r.runs()?,
        confirm: r.flag("confirm")?,
    })
}

fn encode_read(read: &Read, w: &mut FieldWriter<'_>) {
    let Read { origin, subscription, partition, at, credit, cursor, when_slow, filter } = read;
    w.origin(*origin).u32(*subscription).partition(*partition).u64(at.0).credit(*credit);
    w.claim(cursor.as_ref()).u8(match when_slow {
        WhenSlow::Wait => 0,
        WhenSlow::Skip => 1,
        WhenSlow::Disconnect => 2,
    });
    w.filter(filter.as_ref());
}

fn decode_read(r: &mut FieldReader) -> Result<Read, DecodeError> {
    Ok(Read {
        origin: r.origin()?,
        subscription: r.u32()?,
        partition: r.partition()?,
        at: r.offset()?,
        credit: r.credit()?,
        cursor: r.claim()?,
        when_slow: match r.u8()? {
            0 => WhenSlow::Wait,
            1 => WhenSlow::Skip,
            2 => WhenSlow::Disconnect,
            tag => return Err(r.wrong("choice of a slow reader", tag)),
        },
        filter: r.filter()?,
    })
}

/// Each has a pattern of a byte at least, behind its length, and a rate.
fn decode_rules(r: &mut FieldReader) -> Result<Arc<[ThrottleRule]>, DecodeError> {
    let rules = r.each(17, |r| {
        let kind = r.kind;
        let pattern = r.text()?.parse().map_err(|_| DecodeError::Text { kind })?;
        let rate = r.optional_rate()?.ok_or_else(|| r.wrong("rate of a throttle", 0_u8))?;
        Ok(ThrottleRule { pattern, rate })
    })?;
    Ok(rules.into())
}

fn encode_answers(answers: &FailureAnswers, w: &mut FieldWriter<'_>) {
    let FailureAnswers { partition, group, answers } = answers;
    w.partition(*partition).group(*group);
    w.each(answers, |w, FailureAnswer { offset, attempts, decision }| {
        w.u64(offset.0).u32(*attempts);
        match decision {
            FailureDecision::Policy => {
                w.u8(0);
            }
            FailureDecision::RetryAfter(delay) => {
                w.u8(1).span(*delay);
            }
            FailureDecision::DeadLetter { reason } => {
                w.u8(2).text(reason);
            }
            FailureDecision::Route { topic, partitions, message } => {
                w.u8(3).u32(topic.0).u32(*partitions);
                w.payload(message);
            }
        }
    });
}

fn decode_answers(r: &mut FieldReader) -> Result<FailureAnswers, DecodeError> {
    let (partition, group) = (r.partition()?, r.group()?);
    let answers = r.each(13, |r| {
        let (offset, attempts) = (r.offset()?, r.u32()?);
        let decision = match r.u8()? {
            0 => FailureDecision::Policy,
            1 => FailureDecision::RetryAfter(r.span()?),
            2 => FailureDecision::DeadLetter { reason: r.text()? },
            3 => FailureDecision::Route {
                topic: TopicId(r.u32()?),
                partitions: r.u32()?,
                message: r.payload()?,
            },
            tag => return Err(r.wrong("decision", tag)),
        };
        Ok(FailureAnswer { offset, attempts, decision })
    })?;
    Ok(FailureAnswers { partition, group, answers })
}
