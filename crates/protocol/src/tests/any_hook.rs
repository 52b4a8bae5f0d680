//! Strategies for the frames about hooks.

use proptest::{collection::vec, option, prelude::*};

use super::any_frame::text;
use crate::{
    Reply, Request,
    control::{
        DescribeHook, HookChanged, HookCore, HookDescription, HookList, HookSummary, HookVersion,
        ListHooks, SetHook, UseHook,
    },
};

pub fn hook_request() -> impl Strategy<Value = Request> {
    prop_oneof![
        (text(), text(), any::<i32>(), text()).prop_map(|(topic, script, on_error, note)| {
            Request::SetHook(SetHook { topic, script, on_error, note })
        }),
        (text(), any::<u64>())
            .prop_map(|(topic, version)| Request::UseHook(UseHook { topic, version })),
        (text(), any::<u64>())
            .prop_map(|(topic, version)| Request::DescribeHook(DescribeHook { topic, version })),
        (text(), any::<u32>()).prop_map(|(page_token, page_size)| {
            Request::ListHooks(ListHooks { page_token, page_size })
        }),
    ]
}

fn version() -> impl Strategy<Value = HookVersion> {
    (any::<(u64, u64, u64, i32)>(), text()).prop_map(
        |((version, set_at_ms, script_bytes, on_error), note)| HookVersion {
            version,
            set_at_ms,
            script_bytes,
            on_error,
            note,
        },
    )
}

fn core() -> impl Strategy<Value = HookCore> {
    (any::<(u32, i32)>(), any::<(u64, u64, u64, u64, u64, u64)>(), text()).prop_map(
        |((core, state), numbers, last_failure)| {
            let (messages, refused, failures, time_ns, rests_until_ms, attempts) = numbers;
            HookCore {
                core,
                state,
                messages,
                refused,
                failures,
                time_ns,
                last_failure,
                rests_until_ms,
                attempts,
            }
        },
    )
}

pub fn hook_reply() -> impl Strategy<Value = Reply> {
    let summary =
        (text(), option::of(version())).prop_map(|(topic, version)| HookSummary { topic, version });
    let description = (text(), any::<u64>(), text(), vec(version(), 0..3), vec(core(), 0..3))
        .prop_map(|(topic, version, script, versions, cores)| {
            Reply::HookDescription(HookDescription { topic, version, script, versions, cores })
        });
    prop_oneof![
        any::<(u64, u64)>().prop_map(|(version, version_before)| {
            Reply::HookChanged(HookChanged { version, version_before })
        }),
        description,
        (vec(summary, 0..3), text()).prop_map(|(hooks, next_page_token)| {
            Reply::HookList(HookList { hooks, next_page_token })
        }),
    ]
}
