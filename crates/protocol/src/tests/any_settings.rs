//! Strategies for settings of topics and groups as the schema spells them, wrong ones too.

use proptest::{collection::vec, option, prelude::*};

use super::any_frame::text;
use crate::control::{start_at::At, *};

fn message_fields() -> impl Strategy<Value = MessageFields> {
    let cost = prop_oneof![
        any::<bool>().prop_map(message_fields::Cost::CostInBytes),
        text().prop_map(message_fields::Cost::CostHeader),
    ];
    (text(), text(), text(), text(), text(), option::of(cost)).prop_map(
        |(fair_key, weight, priority, throttle_keys, delay, cost)| MessageFields {
            fair_key,
            weight,
            priority,
            throttle_keys,
            delay,
            cost,
        },
    )
}

fn throttle() -> impl Strategy<Value = Throttle> {
    any::<(u64, u32)>().prop_map(|(interval_ns, burst)| Throttle { interval_ns, burst })
}

fn key_rule() -> impl Strategy<Value = KeyRule> {
    (text(), any::<(Option<u32>, Option<u32>, bool)>(), option::of(throttle())).prop_map(
        |(pattern, (weight, concurrency, paused), throttle)| KeyRule {
            pattern,
            weight,
            concurrency,
            throttle,
            paused,
        },
    )
}

pub(super) fn topic_config() -> impl Strategy<Value = TopicConfig> {
    type Fields = (bool, Option<u64>, Option<u64>, Option<u64>, bool, Option<u64>);
    let retention = any::<Fields>().prop_map(
        |(until_settled, age_ms, bytes, count, latest_per_key, tombstone_age_ms)| Retention {
            until_settled,
            age_ms,
            bytes,
            count,
            latest_per_key,
            tombstone_age_ms,
        },
    );
    let limit = any::<(Option<u64>, Option<u64>, i32)>();
    let limit =
        limit.prop_map(|(messages, bytes, when_full)| TopicLimit { messages, bytes, when_full });
    let dedup = any::<(String, u64, i32)>();
    let dedup = dedup.prop_map(|(header, window_ms, mode)| Dedup { header, window_ms, mode });
    let live = any::<(bool, i32)>();
    let live = live.prop_map(|(presence, when_behind)| LiveSettings { presence, when_behind });
    let bounds = (option::of(limit), option::of(dedup), option::of(live));
    let numbers = any::<(Option<u32>, Option<u64>, i32, bool)>();
    (numbers, option::of(retention), option::of(message_fields()), bounds).prop_map(
        |(numbers, retention, fields, (limit, dedup, live))| {
            let (partitions, time_to_live_ms, durability, paused) = numbers;
            TopicConfig {
                partitions,
                retention,
                time_to_live_ms,
                durability,
                fields,
                paused,
                limit,
                dedup,
                live,
            }
        },
    )
}

pub(super) fn group_config() -> impl Strategy<Value = GroupConfig> {
    let retry =
        (any::<(Option<u64>, Option<u64>, Option<u32>, Option<u64>)>(), vec(any::<u64>(), 0..4));
    let scheduling = (
        any::<Option<bool>>(),
        option::of(throttle()),
        vec(key_rule(), 0..3),
        any::<Option<u32>>(),
    );
    (any::<(Option<u64>, Option<u32>)>(), retry, scheduling).prop_map(
        |((lease_ms, attempts_max), ((first, max, jitter, age), delays), scheduling)| GroupConfig {
            lease_ms,
            attempts_max,
            retry_first_ms: first,
            retry_max_ms: max,
            retry_delays_ms: delays,
            retry_jitter_percent: jitter,
            retry_age_max_ms: age,
            paused: scheduling.0,
            throttle: scheduling.1,
            key_rules: scheduling.2,
            order: scheduling.3,
        },
    )
}

pub(super) fn start() -> impl Strategy<Value = StartAt> {
    let at = prop_oneof![
        any::<bool>().prop_map(At::Earliest),
        any::<bool>().prop_map(At::Latest),
        any::<u64>().prop_map(At::Offset),
    ];
    option::of(at).prop_map(|at| StartAt { at })
}
