//! Strategies for the frames about delayed messages.

use proptest::{collection::vec, option, prelude::*};

use super::any_frame::text;
use crate::{
    Reply, Request,
    control::{ChangeDelayed, DelayedList, DelayedRun, ListDelayed, change_delayed::Change},
};

pub fn delayed_request() -> impl Strategy<Value = Request> {
    let change = prop_oneof![
        any::<bool>().prop_map(Change::Cancel),
        any::<u64>().prop_map(Change::DueMs),
        any::<u64>().prop_map(Change::DelayMs),
    ];
    prop_oneof![
        (text(), any::<Option<u32>>(), text(), any::<u32>()).prop_map(
            |(topic, partition, page_token, page_size)| {
                Request::ListDelayed(ListDelayed { topic, partition, page_token, page_size })
            }
        ),
        (text(), any::<u32>(), vec(any::<u64>(), 0..4), option::of(change)).prop_map(
            |(topic, partition, offsets, change)| {
                Request::ChangeDelayed(ChangeDelayed { topic, partition, offsets, change })
            }
        ),
    ]
}

pub fn delayed_reply() -> impl Strategy<Value = Reply> {
    let run = any::<(u32, u64, u64, u64)>()
        .prop_map(|(partition, start, end, due_ms)| DelayedRun { partition, start, end, due_ms });
    (vec(run, 0..4), text()).prop_map(|(runs, next_page_token)| {
        Reply::DelayedList(DelayedList { runs, next_page_token })
    })
}
