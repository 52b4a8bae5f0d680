//! Strategies for the frames that explain why messages wait.

use proptest::{collection::vec, option, prelude::*};

use super::any_frame::text;
use crate::{
    Reply, Request,
    control::{
        Explain, Explanation, Explanations, FairKey, FairKeyList, KeyDeliveries, ListFairKeys,
        WaitReason, explain::Subject,
    },
};

pub fn explanation_request() -> impl Strategy<Value = Request> {
    let subject =
        prop_oneof![any::<u64>().prop_map(Subject::Offset), text().prop_map(Subject::FairKey),];
    prop_oneof![
        (text(), text(), any::<Option<u32>>(), option::of(subject)).prop_map(
            |(topic, group, partition, subject)| {
                Request::Explain(Explain { topic, group, partition, subject })
            }
        ),
        (text(), text(), any::<u32>()).prop_map(|(topic, group, most)| {
            Request::ListFairKeys(ListFairKeys { topic, group, most })
        }),
    ]
}

fn reason() -> impl Strategy<Value = WaitReason> {
    let numbers = any::<(i32, u64, u32, u64, u32, u64, u64, u64, u64, u64)>();
    (numbers, text()).prop_map(|(numbers, text)| {
        let (kind, until_ms, attempt, session_id, failed, in_flight, limit, messages, keys, offset) =
            numbers;
        WaitReason {
            kind,
            until_ms,
            attempt,
            session_id,
            failed,
            in_flight,
            limit,
            messages,
            keys,
            text,
            offset,
        }
    })
}

pub fn explanation_reply() -> impl Strategy<Value = Reply> {
    let explanation = (any::<(u32, Option<u64>)>(), text(), option::of(reason())).prop_map(
        |((partition, offset), fair_key, reason)| Explanation {
            partition,
            offset,
            fair_key,
            reason,
        },
    );
    let served = any::<(u64, u64, u64, u64)>().prop_map(
        |(delivered, overcounted, first_deliveries, waited_ms)| KeyDeliveries {
            delivered,
            overcounted,
            first_deliveries,
            waited_ms,
        },
    );
    let numbers = any::<(u64, u64, Option<u64>, Option<u64>)>();
    let key = (text(), numbers, option::of(reason()), option::of(served)).prop_map(
        |(fair_key, (ready, in_flight, oldest_ms, session_id), reason, served)| FairKey {
            fair_key,
            ready,
            in_flight,
            oldest_ms,
            reason,
            session_id,
            served,
        },
    );
    prop_oneof![
        vec(explanation, 0..3)
            .prop_map(|explanations| Reply::Explanations(Explanations { explanations })),
        vec(key, 0..3).prop_map(|keys| Reply::FairKeyList(FairKeyList { keys })),
    ]
}
