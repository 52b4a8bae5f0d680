//! Strategies for the frames about schedules.

use proptest::{collection::vec, option, prelude::*};

use super::any_frame::{bytes, text};
use crate::{
    Reply, Request,
    control::{
        ChangeSchedule, ListSchedules, Schedule, ScheduleChanged, ScheduleConfig, ScheduleHeader,
        ScheduleList, change_schedule::Change,
    },
};

fn config() -> impl Strategy<Value = ScheduleConfig> {
    let header = (text(), any::<u32>(), bytes()).prop_map(|(name, kind, value)| ScheduleHeader {
        name,
        kind,
        value,
    });
    let texts = (text(), text(), text());
    (texts, bytes(), vec(header, 0..3), bytes(), any::<(i32, i32)>()).prop_map(
        |((topic, cron, zone), key, headers, payload, (catch_up, overlap))| ScheduleConfig {
            topic,
            cron,
            zone,
            key,
            headers,
            payload,
            catch_up,
            overlap,
        },
    )
}

pub fn schedule_request() -> impl Strategy<Value = Request> {
    let change = prop_oneof![
        config().prop_map(Change::Create),
        any::<bool>().prop_map(Change::Delete),
        any::<bool>().prop_map(Change::Pause),
        any::<bool>().prop_map(Change::Resume),
        any::<bool>().prop_map(Change::RunNow),
    ];
    prop_oneof![
        (text(), option::of(change)).prop_map(|(name, change)| {
            Request::ChangeSchedule(ChangeSchedule { name, change })
        }),
        (option::of(text()), text(), any::<u32>()).prop_map(|(name, page_token, page_size)| {
            Request::ListSchedules(ListSchedules { name, page_token, page_size })
        }),
    ]
}

fn schedule() -> impl Strategy<Value = Schedule> {
    let numbers = any::<(bool, Option<u64>, Option<u64>, Option<u32>, Option<u64>, u64, u64)>();
    (text(), option::of(config()), numbers, text()).prop_map(|(name, config, numbers, failure)| {
        let (paused, next_ms, last_ms, last_partition, last_offset, published, left_out) = numbers;
        Schedule {
            name,
            config,
            paused,
            next_ms,
            last_ms,
            last_partition,
            last_offset,
            published,
            left_out,
            failure,
        }
    })
}

pub fn schedule_reply() -> impl Strategy<Value = Reply> {
    prop_oneof![
        (vec(schedule(), 0..3), text()).prop_map(|(schedules, next_page_token)| {
            Reply::ScheduleList(ScheduleList { schedules, next_page_token })
        }),
        (option::of(schedule()), any::<bool>()).prop_map(|(schedule, created)| {
            Reply::ScheduleChanged(ScheduleChanged { schedule, created })
        }),
    ]
}
