//! Why messages and fair keys wait, as bytes.

use super::{
    decode_error::DecodeError,
    fields::{FieldReader, FieldWriter},
};
use crate::explanation::{Explanation, KeyDeliveries, KeyDescription, WaitReason};

pub(super) fn encode_explanation(explanation: &Explanation, w: &mut FieldWriter<'_>) {
    let Explanation { offset, fair_key, reason } = explanation;
    w.optional_u64(offset.map(|offset| offset.0)).text(fair_key);
    encode(w, reason);
}

pub(super) fn decode_explanation(r: &mut FieldReader) -> Result<Explanation, DecodeError> {
    Ok(Explanation {
        offset: r.optional("has offset", FieldReader::offset)?,
        fair_key: r.text()?,
        reason: decode(r)?,
    })
}

pub(super) fn encode_key(w: &mut FieldWriter<'_>, key: &KeyDescription) {
    let KeyDescription { fair_key, ready, in_flight, oldest_appended_at, reason, session, served } =
        key;
    w.text(fair_key).u64(*ready).u64(*in_flight).optional_time(*oldest_appended_at);
    w.optional(reason.as_ref(), encode);
    w.optional_session(*session);
    w.optional(served.as_ref(), |w, served| {
        let KeyDeliveries { fair_key, delivered, at_most_over, first_deliveries, waited } = served;
        w.text(fair_key).u64(*delivered).u64(*at_most_over).u64(*first_deliveries).span(*waited);
    });
}

pub(super) fn decode_key(r: &mut FieldReader) -> Result<KeyDescription, DecodeError> {
    Ok(KeyDescription {
        fair_key: r.text()?,
        ready: r.u64()?,
        in_flight: r.u64()?,
        oldest_appended_at: r.optional_time("has oldest")?,
        reason: r.optional("has reason", decode)?,
        session: r.optional_session("has session")?,
        served: r.optional("was served", |r| {
            Ok(KeyDeliveries {
                fair_key: r.text()?,
                delivered: r.u64()?,
                at_most_over: r.u64()?,
                first_deliveries: r.u64()?,
                waited: r.span()?,
            })
        })?,
    })
}

fn encode(w: &mut FieldWriter<'_>, reason: &WaitReason) {
    match reason {
        WaitReason::NoMessage => w.u8(0),
        WaitReason::NotCommitted => w.u8(1),
        WaitReason::Settled => w.u8(2),
        WaitReason::Leased { session, attempt, until } => {
            w.u8(3).session(*session).u32(*attempt).u64(until.0)
        }
        WaitReason::Delayed { until } => w.u8(4).u64(until.0),
        WaitReason::Retrying { until, failed } => w.u8(5).u64(until.0).u32(*failed),
        WaitReason::Dead { reason } => w.u8(6).text(reason),
        WaitReason::Damaged => w.u8(7),
        WaitReason::TopicPaused => w.u8(8),
        WaitReason::GroupPaused => w.u8(9),
        WaitReason::NoConsumer => w.u8(10),
        WaitReason::KeyPaused => w.u8(11),
        WaitReason::Concurrency { in_flight, limit } => w.u8(12).u64(*in_flight).u64(*limit),
        WaitReason::GroupThrottled { until } => w.u8(13).u64(until.0),
        WaitReason::Throttled { until } => w.u8(14).u64(until.0),
        WaitReason::BehindFailed { offset, until } => w.u8(15).u64(offset.0).u64(until.0),
        WaitReason::HeldBy { session } => w.u8(16).session(*session),
        WaitReason::NoCredit => w.u8(17),
        WaitReason::Behind { messages, keys } => w.u8(18).u64(*messages).u64(*keys),
    };
}

fn decode(r: &mut FieldReader) -> Result<WaitReason, DecodeError> {
    Ok(match r.u8()? {
        0 => WaitReason::NoMessage,
        1 => WaitReason::NotCommitted,
        2 => WaitReason::Settled,
        3 => WaitReason::Leased { session: r.session()?, attempt: r.u32()?, until: r.time()? },
        4 => WaitReason::Delayed { until: r.time()? },
        5 => WaitReason::Retrying { until: r.time()?, failed: r.u32()? },
        6 => WaitReason::Dead { reason: r.text()? },
        7 => WaitReason::Damaged,
        8 => WaitReason::TopicPaused,
        9 => WaitReason::GroupPaused,
        10 => WaitReason::NoConsumer,
        11 => WaitReason::KeyPaused,
        12 => WaitReason::Concurrency { in_flight: r.u64()?, limit: r.u64()? },
        13 => WaitReason::GroupThrottled { until: r.time()? },
        14 => WaitReason::Throttled { until: r.time()? },
        15 => WaitReason::BehindFailed { offset: r.offset()?, until: r.time()? },
        16 => WaitReason::HeldBy { session: r.session()? },
        17 => WaitReason::NoCredit,
        18 => WaitReason::Behind { messages: r.u64()?, keys: r.u64()? },
        tag => return Err(r.wrong("reason of a wait", tag)),
    })
}
