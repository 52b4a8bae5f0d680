//! Strategies for the frames of the workbench.

use bytes::Bytes;
use proptest::{collection::vec, option, prelude::*};

use super::any_frame::text;
use crate::{
    Reply, Request,
    control::{
        CountRow, EditedHeader, Inspect, Inspected, InspectedMessage, MessageEdit,
        MessageSelection, Rework, Reworked, SelectedOffsets,
    },
};

fn bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..9).prop_map(Bytes::from)
}

fn selection() -> impl Strategy<Value = MessageSelection> {
    let offsets = any::<(u64, u64)>().prop_map(|(start, end)| SelectedOffsets { start, end });
    (vec(offsets, 0..3), (text(), text(), text(), option::of(text())), any::<(u64, u64, u64)>())
        .prop_map(|(offsets, (filter, reason, text, fair_key), numbers)| {
            let (since_ms, before_ms, redrive) = numbers;
            MessageSelection {
                offsets,
                filter,
                reason,
                text,
                fair_key,
                since_ms,
                before_ms,
                redrive,
            }
        })
}

fn edit() -> impl Strategy<Value = MessageEdit> {
    let header = (text(), any::<u32>(), bytes()).prop_map(|(name, kind, value)| EditedHeader {
        name,
        kind,
        value,
    });
    (any::<bool>(), bytes(), vec(header, 0..3), vec(text(), 0..3)).prop_map(
        |(replaces_payload, payload, set_headers, remove_headers)| MessageEdit {
            replaces_payload,
            payload,
            set_headers,
            remove_headers,
        },
    )
}

pub fn workbench_request() -> impl Strategy<Value = Request> {
    let inspect = (text(), text(), option::of(selection()), any::<(u32, u64, i32, u32, u32)>());
    let rework = (
        (text(), text(), text()),
        option::of(selection()),
        option::of(edit()),
        any::<(u32, u64, i32, u32, u64, bool)>(),
    );
    prop_oneof![
        inspect.prop_map(|(topic, group, selection, numbers)| {
            let (partition, page_start, verb, matched_max, payload_bytes_max) = numbers;
            Request::Inspect(Inspect {
                topic,
                group,
                partition,
                page_start,
                selection,
                verb,
                matched_max,
                payload_bytes_max,
            })
        }),
        rework.prop_map(|((topic, group, to), selection, edit, numbers)| {
            let (partition, page_start, verb, matched_max, redrive, dry_run) = numbers;
            Request::Rework(Rework {
                topic,
                group,
                partition,
                page_start,
                selection,
                verb,
                matched_max,
                to,
                redrive,
                dry_run,
                edit,
            })
        }),
    ]
}

pub fn workbench_reply() -> impl Strategy<Value = Reply> {
    let message = (any::<(u64, u64, i32, u64, u32, u64)>(), text(), bytes(), bytes(), bytes())
        .prop_map(|(numbers, reason, key, headers, payload)| {
            let (offset, appended_at_ms, state, until_ms, failed, payload_bytes) = numbers;
            InspectedMessage {
                offset,
                appended_at_ms,
                state,
                until_ms,
                failed,
                reason,
                key,
                headers,
                payload,
                payload_bytes,
            }
        });
    let row = (text(), any::<(u64, u64)>()).prop_map(|(name, (count, oldest_ms))| CountRow {
        name,
        count,
        oldest_ms,
    });
    let numbers = any::<(Option<u64>, u64, u64, u64, u64, u64, u32)>();
    prop_oneof![
        (numbers.clone(), vec(message, 0..3), vec(row, 0..3)).prop_map(
            |(numbers, messages, rows)| {
                let (next, examined, matched, leased, damaged, other, partitions) = numbers;
                Reply::Inspected(Inspected {
                    next,
                    examined,
                    matched,
                    leased,
                    damaged,
                    messages,
                    rows,
                    other,
                    partitions,
                })
            }
        ),
        (numbers, any::<u64>()).prop_map(|(numbers, homeless)| {
            let (next, examined, matched, leased, damaged, done, partitions) = numbers;
            Reply::Reworked(Reworked {
                next,
                examined,
                matched,
                done,
                leased,
                damaged,
                homeless,
                partitions,
                refusal: None,
            })
        }),
    ]
}
