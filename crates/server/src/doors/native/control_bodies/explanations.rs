//! Answers about waiting messages and fair keys as bodies of the native protocol.

use sennit_engine::{KeyDescription, WaitReason};
use sennit_protocol::control::{self, WaitKind};

use crate::broker::control_request::ExplainedPartition;

pub(super) fn explanations(explained: &[ExplainedPartition]) -> control::Explanations {
    let one = |one: &ExplainedPartition| control::Explanation {
        partition: one.partition.0,
        offset: one.explanation.offset.map(|offset| offset.0),
        fair_key: one.explanation.fair_key.clone(),
        reason: Some(reason(&one.explanation.reason)),
    };
    control::Explanations { explanations: explained.iter().map(one).collect() }
}

pub(super) fn fair_key_list(keys: &[KeyDescription]) -> control::FairKeyList {
    let key = |key: &KeyDescription| control::FairKey {
        fair_key: key.fair_key.clone(),
        ready: key.ready,
        in_flight: key.in_flight,
        oldest_ms: key.oldest_appended_at.map(|at| at.0),
        reason: key.reason.as_ref().map(reason),
        session_id: key.session.map(|session| session.0),
        served: key.served.as_ref().map(|served| control::KeyDeliveries {
            delivered: served.delivered,
            overcounted: served.at_most_over,
            first_deliveries: served.first_deliveries,
            waited_ms: u64::try_from(served.waited.as_millis()).unwrap_or(u64::MAX),
        }),
    };
    control::FairKeyList { keys: keys.iter().map(key).collect() }
}

fn reason(reason: &WaitReason) -> control::WaitReason {
    let of = |kind: WaitKind| control::WaitReason { kind: kind.into(), ..<_>::default() };
    match reason {
        WaitReason::NoMessage => of(WaitKind::NoMessage),
        WaitReason::NotCommitted => of(WaitKind::NotCommitted),
        WaitReason::Settled => of(WaitKind::Settled),
        WaitReason::Leased { session, attempt, until } => control::WaitReason {
            session_id: session.0,
            attempt: *attempt,
            until_ms: until.0,
            ..of(WaitKind::Leased)
        },
        WaitReason::Delayed { until } => {
            control::WaitReason { until_ms: until.0, ..of(WaitKind::Delayed) }
        }
        WaitReason::Retrying { until, failed } => {
            control::WaitReason { until_ms: until.0, failed: *failed, ..of(WaitKind::Retrying) }
        }
        WaitReason::Dead { reason } => {
            control::WaitReason { text: reason.clone(), ..of(WaitKind::Dead) }
        }
        WaitReason::Damaged => of(WaitKind::Damaged),
        WaitReason::TopicPaused => of(WaitKind::TopicPaused),
        WaitReason::GroupPaused => of(WaitKind::GroupPaused),
        WaitReason::NoConsumer => of(WaitKind::NoConsumer),
        WaitReason::KeyPaused => of(WaitKind::KeyPaused),
        WaitReason::Concurrency { in_flight, limit } => control::WaitReason {
            in_flight: *in_flight,
            limit: *limit,
            ..of(WaitKind::Concurrency)
        },
        WaitReason::GroupThrottled { until } => {
            control::WaitReason { until_ms: until.0, ..of(WaitKind::GroupThrottled) }
        }
        WaitReason::Throttled { until } => {
            control::WaitReason { until_ms: until.0, ..of(WaitKind::Throttled) }
        }
        WaitReason::BehindFailed { offset, until } => control::WaitReason {
            offset: offset.0,
            until_ms: until.0,
            ..of(WaitKind::BehindFailed)
        },
        WaitReason::HeldBy { session } => {
            control::WaitReason { session_id: session.0, ..of(WaitKind::HeldBy) }
        }
        WaitReason::NoCredit => of(WaitKind::NoCredit),
        WaitReason::Behind { messages, keys } => {
            control::WaitReason { messages: *messages, keys: *keys, ..of(WaitKind::Behind) }
        }
    }
}
