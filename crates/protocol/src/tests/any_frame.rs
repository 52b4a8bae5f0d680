//! Strategies for any frame of either side.

use std::time::Duration;

use bytes::Bytes;
use proptest::{collection::vec, option, prelude::*};
use sennit_model::{
    Generation, GroupId, Offset, OffsetRange, PartitionId, PartitionIndex, ProducerId,
    ProducerStamp, Timestamp, TopicId, limits::DURATION_MAX,
};

use super::{
    any_access::{access_reply, access_request},
    any_atomic::{publish_atomic, published_atomic},
    any_delayed::{delayed_reply, delayed_request},
    any_explanation::{explanation_reply, explanation_request},
    any_hook::{hook_reply, hook_request},
    any_schedule::{schedule_reply, schedule_request},
    any_settings::{group_config, start, topic_config},
    any_workbench::{workbench_reply, workbench_request},
};
use crate::{
    Confirm, ConfirmHead, ConfirmRun, Deliver, DeliverHead, Durability, Gap, GapReason, Publish,
    PublishAt, PublishHead, PublishNote, PublishedAt, Reply, Request, SetCredit, Settle,
    SettleHead, SettleRun, Settled, Taken, Verdict,
    control::{read_from, *},
};

pub(super) fn text() -> impl Strategy<Value = String> {
    ".{0,12}"
}

pub(super) fn bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..60).prop_map(Bytes::from)
}

fn duration() -> impl Strategy<Value = Duration> {
    (0..=u64::try_from(DURATION_MAX.as_millis()).unwrap()).prop_map(Duration::from_millis)
}

fn partition() -> impl Strategy<Value = PartitionId> {
    any::<(u32, u32)>().prop_map(|(topic, index)| PartitionId {
        topic: TopicId(topic),
        index: PartitionIndex(index),
    })
}

/// A number to which any count can be added.
fn first() -> impl Strategy<Value = u64> {
    0..u64::MAX - u64::from(u32::MAX)
}

fn durability() -> impl Strategy<Value = Durability> {
    prop_oneof![
        Just(Durability::Durable),
        Just(Durability::Speculative),
        Just(Durability::Ephemeral),
        Just(Durability::Memory),
    ]
}

pub(super) fn publish() -> impl Strategy<Value = Publish> {
    (partition(), any::<u64>(), any::<u32>(), first(), any::<u32>(), bytes()).prop_map(
        |(partition, id, epoch, first_sequence, count, batch)| {
            let producer = ProducerStamp { id: ProducerId(id), epoch, first_sequence };
            Publish { head: PublishHead { partition, producer, count }, batch }
        },
    )
}

fn confirm_run() -> impl Strategy<Value = ConfirmRun> {
    (first(), option::of(first()), any::<u32>(), any::<bool>()).prop_map(
        |(first_sequence, offset, count, duplicate)| ConfirmRun {
            first_sequence,
            first_offset: offset.map(Offset),
            count,
            duplicate,
        },
    )
}

fn confirm() -> impl Strategy<Value = Confirm> {
    (partition(), any::<(u64, u64)>(), durability(), vec(confirm_run(), 0..5)).prop_map(
        |(partition, (producer, up_to_sequence), durability, runs)| Confirm {
            head: ConfirmHead {
                partition,
                producer: ProducerId(producer),
                up_to_sequence,
                durability,
            },
            runs: runs.into_iter().collect(),
        },
    )
}

fn deliver() -> impl Strategy<Value = Deliver> {
    (any::<(u32, u32, u64, u32, u32, u32)>(), first(), durability(), bytes()).prop_map(
        |(
            (subscription, partition, ms, attempt, generation, count),
            first,
            durability,
            messages,
        )| {
            let head = DeliverHead {
                subscription,
                partition: PartitionIndex(partition),
                first: Offset(first),
                appended_at: Timestamp(ms),
                attempt,
                generation: Generation(generation),
                count,
                durability,
            };
            Deliver { head, messages }
        },
    )
}

pub(super) fn settle_run() -> impl Strategy<Value = SettleRun> {
    (any::<u32>(), first(), 1..=u32::MAX, 1..=u32::MAX, any::<u32>()).prop_map(
        |(partition, first, count, attempt, generation)| SettleRun {
            partition: PartitionIndex(partition),
            first: Offset(first),
            count,
            attempt,
            generation: Generation(generation),
        },
    )
}

fn verdict() -> impl Strategy<Value = Verdict> {
    prop_oneof![
        Just(Verdict::Ack),
        Just(Verdict::Retry),
        duration().prop_map(Verdict::RetryAfter),
        text().prop_map(|reason| Verdict::DeadLetter { reason }),
        duration().prop_map(Verdict::Extend),
        Just(Verdict::Started),
    ]
}

fn settle() -> impl Strategy<Value = Settle> {
    (any::<(u32, u32, bool)>(), verdict(), vec(settle_run(), 1..5)).prop_map(
        |((topic, group, confirm), verdict, runs)| Settle {
            head: SettleHead { topic: TopicId(topic), group: GroupId(group), verdict, confirm },
            runs: runs.into_iter().collect(),
        },
    )
}

fn settled() -> impl Strategy<Value = Settled> {
    (any::<u64>(), vec(settle_run(), 0..5))
        .prop_map(|(applied, stale)| Settled { applied, stale: stale.into_iter().collect() })
}

fn set_credit() -> impl Strategy<Value = SetCredit> {
    any::<(u32, u32, u64)>().prop_map(|(subscription, messages, bytes)| SetCredit {
        subscription,
        messages,
        bytes,
    })
}

fn taken() -> impl Strategy<Value = Taken> {
    any::<(u32, u32, u32, u64)>().prop_map(|(subscription, partition, messages, bytes)| Taken {
        subscription,
        partition: PartitionIndex(partition),
        messages,
        bytes,
    })
}

fn positions() -> impl Strategy<Value = Vec<ReadPosition>> {
    let position = any::<(u32, u64)>();
    vec(position.prop_map(|(partition, offset)| ReadPosition { partition, offset }), 0..3)
}

fn cursor_request() -> impl Strategy<Value = Request> {
    prop_oneof![
        (text(), text(), positions(), any::<(Option<u32>, bool)>()).prop_map(
            |(topic, name, positions, (subscription, take_over))| {
                let set = SetCursor { topic, name, positions, subscription, take_over };
                Request::SetCursor(set)
            }
        ),
        (text(), text())
            .prop_map(|(topic, name)| Request::DeleteCursor(DeleteCursor { topic, name })),
        text().prop_map(|topic| Request::ListCursors(ListCursors { topic })),
        (text(), positions())
            .prop_map(|(topic, positions)| Request::TrimTopic(TrimTopic { topic, positions })),
    ]
}

fn read() -> impl Strategy<Value = Read> {
    let from = prop_oneof![
        any::<bool>().prop_map(read_from::At::Earliest),
        any::<bool>().prop_map(read_from::At::Latest),
        any::<u64>().prop_map(read_from::At::Offset),
        any::<u64>().prop_map(read_from::At::Back),
        any::<u64>().prop_map(read_from::At::TimeMs),
    ];
    let from = option::of(option::of(from).prop_map(|at| ReadFrom { at }));
    let numbers = any::<(u32, u32, u64, Option<u32>, i32)>();
    let names = (option::of(text()), option::of(text()), any::<bool>());
    (text(), from, positions(), (numbers, names)).prop_map(
        |(topic, from, positions, (numbers, (cursor, filter, take_over)))| {
            let (subscription, credit_messages, credit_bytes, topic_id, when_slow) = numbers;
            Read {
                subscription,
                topic,
                from,
                positions,
                credit_messages,
                credit_bytes,
                topic_id,
                cursor,
                take_over,
                when_slow,
                filter,
            }
        },
    )
}

fn publish_note() -> impl Strategy<Value = PublishNote> {
    any::<(u32, u32, u64, u64, u64, u64)>().prop_map(
        |(topic, index, producer, first_sequence, dropped, replaced)| PublishNote {
            partition: PartitionId { topic: TopicId(topic), index: PartitionIndex(index) },
            producer: ProducerId(producer),
            first_sequence,
            dropped,
            replaced,
        },
    )
}

fn gap() -> impl Strategy<Value = Gap> {
    (any::<(u32, u32)>(), first(), 1..=u64::from(u32::MAX), 1..=u8::MAX).prop_map(
        |((subscription, partition), first, count, reason)| Gap {
            subscription,
            partition: PartitionIndex(partition),
            offsets: OffsetRange::new(Offset(first), count),
            reason: GapReason::of_number(reason).unwrap(),
        },
    )
}

fn limits() -> impl Strategy<Value = Limits> {
    any::<(u32, u32, u32, u32)>().prop_map(|(frame, messages, batch, message)| Limits {
        frame_bytes_max: frame,
        batch_messages_max: messages,
        batch_bytes_max: batch,
        message_bytes_max: message,
    })
}

fn hello() -> impl Strategy<Value = Hello> {
    let credentials = (option::of(text()), option::of(text()), option::of(text()));
    let client = (text(), text(), vec(text(), 0..3), any::<u32>());
    (client, credentials, any::<Option<u64>>()).prop_map(
        |(
            (client_name, client_version, features, frame_bytes_max),
            (token, user, password),
            replaces,
        )| Hello {
            client_name,
            client_version,
            features,
            frame_bytes_max,
            token,
            replaces,
            user,
            password,
        },
    )
}

fn hello_ok() -> impl Strategy<Value = HelloOk> {
    (text(), text(), vec(text(), 0..3), option::of(limits()), any::<(u64, u64, u64, u64)>())
        .prop_map(
            |(
                server_name,
                server_version,
                features,
                limits,
                (session_id, grace, now_ms, session_token),
            )| HelloOk {
                server_name,
                server_version,
                features,
                limits,
                session_id,
                reconnect_grace_ms: grace,
                now_ms,
                session_token,
            },
        )
}

fn error() -> impl Strategy<Value = Error> {
    let context = (option::of(text()), any::<(Option<u32>, Option<u32>)>());
    let producer = any::<(Option<u64>, Option<u64>, Option<u32>, Option<u64>)>();
    (any::<(u32, u64, bool, bool)>(), text(), text(), context, producer).prop_map(
        |((code, after, retryable, closes), message, hint, (topic, ids), producer)| Error {
            code,
            message,
            hint,
            retryable,
            retry_after_ms: after,
            closes_connection: closes,
            topic,
            topic_id: ids.0,
            partition: ids.1,
            producer_id: producer.0,
            first_sequence: producer.1,
            count: producer.2,
            expected_sequence: producer.3,
            next_offset: producer.3,
            revision: producer.1,
        },
    )
}

fn parked_run() -> impl Strategy<Value = ParkedRun> {
    (any::<(u32, u64, u64, u32, u64)>(), text()).prop_map(
        |((partition, first, count, attempts, failed_at_ms), reason)| ParkedRun {
            partition,
            first,
            count,
            attempts,
            failed_at_ms,
            reason,
        },
    )
}

fn group_description() -> impl Strategy<Value = GroupDescription> {
    let counts = any::<(u32, u64, u64, u64, u64, u32, u64, Option<u64>)>();
    let lists = (vec(any::<u64>(), 0..4), vec(parked_run(), 0..3), vec(any::<u64>(), 0..4));
    (text(), text(), option::of(group_config()), counts, lists).prop_map(
        |(name, topic, config, counts, (settled_before, parked_runs, active_sessions))| {
            let (id, ready, leased, delayed, dying, consumers, parked, holds_since_ms) = counts;
            GroupDescription {
                name,
                id,
                topic,
                config,
                ready,
                leased,
                delayed,
                dying,
                consumers,
                settled_before,
                parked,
                parked_runs,
                holds_since_ms,
                active_sessions,
            }
        },
    )
}

fn topic_description() -> impl Strategy<Value = TopicDescription> {
    let partition = any::<(u32, u64, u64, u64, Option<u64>, u64, u64, u64)>().prop_map(
        |(index, start, end, bytes, oldest_ms, dead_bytes, damaged, lost)| PartitionDescription {
            index,
            start,
            end,
            bytes,
            oldest_ms,
            dead_bytes,
            damaged,
            lost,
        },
    );
    let lists = (vec(partition, 0..3), vec(group_description(), 0..3));
    (text(), any::<(u32, u64, i32, Option<u64>)>(), option::of(topic_config()), lists).prop_map(
        |(name, (id, incarnation, kind, created_ms), config, (partitions, groups))| {
            TopicDescription { name, id, incarnation, config, kind, created_ms, partitions, groups }
        },
    )
}

fn catalogue_request() -> impl Strategy<Value = Request> {
    prop_oneof![
        hello().prop_map(Request::Hello),
        Just(Request::Ping),
        Just(Request::Pong),
        Just(Request::Goodbye),
        (text(), option::of(topic_config()), option::of(text())).prop_map(
            |(name, config, beside)| Request::CreateTopic(CreateTopic { name, config, beside })
        ),
        (text(), option::of(topic_config()))
            .prop_map(|(name, config)| Request::AlterTopic(AlterTopic { name, config })),
        text().prop_map(|name| Request::DeleteTopic(DeleteTopic { name })),
        text().prop_map(|name| Request::DescribeTopic(DescribeTopic { name })),
        (text(), any::<u32>()).prop_map(|(page_token, page_size)| {
            Request::ListTopics(ListTopics { page_token, page_size })
        }),
        (text(), text(), option::of(group_config()), option::of(start())).prop_map(
            |(topic, name, config, start)| {
                Request::CreateGroup(CreateGroup { topic, name, config, start })
            }
        ),
    ]
}

fn group_request() -> impl Strategy<Value = Request> {
    let offsets = any::<(u32, u64, u64)>().prop_map(|(partition, start, end)| OffsetsOfPartition {
        partition,
        start,
        end,
    });
    prop_oneof![
        (text(), text(), option::of(group_config())).prop_map(|(topic, name, config)| {
            Request::AlterGroup(AlterGroup { topic, name, config })
        }),
        (text(), text(), vec(offsets, 0..3)).prop_map(|(topic, name, offsets)| {
            Request::RetryParked(RetryParked { topic, name, offsets })
        }),
    ]
}

fn configuration_request() -> impl Strategy<Value = Request> {
    prop_oneof![
        text().prop_map(|key| Request::GetConfiguration(GetConfiguration { key })),
        (text(), bytes(), any::<Option<u64>>()).prop_map(|(key, value, if_revision)| {
            Request::SetConfiguration(SetConfiguration { key, value, if_revision })
        }),
        (text(), any::<Option<u64>>()).prop_map(|(key, if_revision)| {
            Request::DeleteConfiguration(DeleteConfiguration { key, if_revision })
        }),
        (text(), text(), any::<u32>()).prop_map(|(prefix, page_token, page_size)| {
            Request::ListConfiguration(ListConfiguration { prefix, page_token, page_size })
        }),
        (any::<u32>(), text(), any::<Option<u64>>()).prop_map(
            |(subscription, prefix, after_revision)| {
                let watch = WatchConfiguration { subscription, prefix, after_revision };
                Request::WatchConfiguration(watch)
            }
        ),
    ]
}

fn configuration_reply() -> impl Strategy<Value = Reply> {
    let entry = || {
        (text(), any::<u64>(), bytes()).prop_map(|(key, revision, value)| ConfigurationEntry {
            key,
            revision,
            value,
        })
    };
    let change =
        (text(), any::<(u64, bool)>(), bytes()).prop_map(|(key, (revision, deleted), value)| {
            ConfigurationChange { key, revision, deleted, value }
        });
    prop_oneof![
        (option::of(entry()), any::<u64>()).prop_map(|(entry, revision)| {
            Reply::ConfigurationValue(ConfigurationValue { entry, revision })
        }),
        any::<(u64, bool)>().prop_map(|(revision, existed)| {
            Reply::ConfigurationChanged(ConfigurationChanged { revision, existed })
        }),
        (vec(entry(), 0..3), text(), any::<u64>()).prop_map(
            |(entries, next_page_token, revision)| {
                let list = ConfigurationList { entries, next_page_token, revision };
                Reply::ConfigurationList(list)
            }
        ),
        any::<u32>().prop_map(|subscription| {
            Reply::WatchingConfiguration(WatchingConfiguration { subscription })
        }),
        (any::<(u32, u64, bool, bool)>(), vec(change, 0..3)).prop_map(
            |((subscription, revision, reset, more), changes)| {
                let told = ConfigurationChanges { subscription, changes, revision, reset, more };
                Reply::ConfigurationChanges(told)
            }
        ),
    ]
}

pub fn request() -> impl Strategy<Value = Request> {
    prop_oneof![
        configuration_request(),
        delayed_request(),
        schedule_request(),
        explanation_request(),
        access_request(),
        hook_request(),
        workbench_request(),
        catalogue_request(),
        group_request(),
        (text(), text())
            .prop_map(|(topic, name)| Request::DeleteGroup(DeleteGroup { topic, name })),
        text().prop_map(|topic| Request::ListGroups(ListGroups { topic })),
        (text(), text())
            .prop_map(|(topic, name)| Request::DescribeGroup(DescribeGroup { topic, name })),
        (text(), any::<bool>()).prop_map(|(name, create_if_missing)| {
            Request::OpenTopic(OpenTopic { name, create_if_missing })
        }),
        (text(), text(), any::<(u32, bool, u32, u64)>()).prop_map(
            |(topic, group, (subscription, create, messages, bytes))| {
                Request::Subscribe(Subscribe {
                    subscription,
                    topic,
                    group,
                    create_group_if_missing: create,
                    credit_messages: messages,
                    credit_bytes: bytes,
                })
            }
        ),
        any::<u32>().prop_map(|subscription| Request::Unsubscribe(Unsubscribe { subscription })),
        publish().prop_map(Request::Publish),
        publish_atomic().prop_map(Request::PublishAtomic),
        settle().prop_map(Request::Settle),
        set_credit().prop_map(Request::SetCredit),
        taken().prop_map(Request::Taken),
        (first(), publish()).prop_map(|(expected, publish)| {
            Request::PublishAt(PublishAt { expected: Offset(expected), publish })
        }),
        read().prop_map(Request::Read),
        cursor_request(),
    ]
}

fn listing_reply() -> impl Strategy<Value = Reply> {
    let topic = (text(), any::<u32>(), option::of(topic_config()))
        .prop_map(|(name, id, config)| TopicEntry { name, id, config });
    let group = (text(), any::<u32>(), option::of(group_config()))
        .prop_map(|(name, id, config)| GroupEntry { name, id, config });
    let cursor = (text(), positions()).prop_map(|(name, positions)| Cursor { name, positions });
    prop_oneof![
        vec(cursor, 0..3).prop_map(|cursors| Reply::CursorList(CursorList { cursors })),
        topic_description().prop_map(Reply::TopicDescription),
        (vec(topic, 0..4), text()).prop_map(|(topics, next_page_token)| {
            Reply::TopicList(TopicList { topics, next_page_token })
        }),
        group_description().prop_map(Reply::GroupDescription),
        vec(group, 0..4).prop_map(|groups| Reply::GroupList(GroupList { groups })),
    ]
}

pub fn reply() -> impl Strategy<Value = Reply> {
    prop_oneof![
        configuration_reply(),
        delayed_reply(),
        schedule_reply(),
        explanation_reply(),
        access_reply(),
        hook_reply(),
        workbench_reply(),
        hello_ok().prop_map(Reply::HelloOk),
        error().prop_map(Reply::Error),
        Just(Reply::Ping),
        Just(Reply::Pong),
        (text(), any::<u64>())
            .prop_map(|(reason, grace_ms)| Reply::GoAway(GoAway { reason, grace_ms })),
        any::<(bool, u32, u32, u64)>().prop_map(|(created, topic_id, group_id, messages)| {
            Reply::Done(Done { created, topic_id, group_id, messages })
        }),
        listing_reply(),
        (any::<(u32, u64, u32)>(), option::of(limits())).prop_map(
            |((topic_id, incarnation, partitions), limits)| {
                Reply::TopicOpened(TopicOpened { topic_id, incarnation, partitions, limits })
            }
        ),
        (any::<(u32, u32, u32, u32, u64)>(), vec(any::<(u64, u64)>(), 0..3)).prop_map(
            |((subscription, topic_id, group_id, partitions, lease_ms), ranges)| {
                let ranges = ranges.into_iter().map(|(first, end)| ReadRange { first, end });
                Reply::Subscribed(Subscribed {
                    subscription,
                    topic_id,
                    group_id,
                    partitions,
                    lease_ms,
                    ranges: ranges.collect(),
                })
            }
        ),
        (any::<(u32, u32)>(), text()).prop_map(|((subscription, code), reason)| {
            Reply::SubscriptionEnded(SubscriptionEnded { subscription, code, reason })
        }),
        confirm().prop_map(Reply::Confirm),
        deliver().prop_map(Reply::Deliver),
        settled().prop_map(Reply::Settled),
        gap().prop_map(Reply::Gap),
        publish_note().prop_map(Reply::PublishNote),
        published_atomic().prop_map(Reply::PublishedAtomic),
        (first(), any::<u32>()).prop_map(|(first, count)| {
            Reply::PublishedAt(PublishedAt { first: Offset(first), count })
        }),
    ]
}
