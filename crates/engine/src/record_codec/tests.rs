//! Every record comes back as it was written, and has one form.

use std::time::Duration;

use crate::command::{DeadLetters, GroupSetting};
use proptest::prelude::*;
use sennit_model::{
    Backoff, BatchBuilder, Dedup, DedupMode, Durability, GroupConfig, LiveSettings, Message,
    OffsetRange, PartitionId, ProducerId, ProducerStamp, Retention, RetryDelays, RetryPolicy,
    StartAt, TopicConfig, TopicLimit, WhenBehind, WhenFull,
};

use super::*;
use crate::{
    latest::Tombstones,
    record::{CompactedBatch, KeptPart, KeptRun, SupersededBatch},
    stream_codec,
};

fn body(record: &Record) -> (Bytes, usize) {
    let mut head = Vec::new();
    record.encode_head(&mut head);
    let head_len = head.len();
    head.extend(record.batch().iter().flat_map(|batch| batch.bytes().iter()));
    (head.into(), head_len)
}

fn examples() -> Vec<Record> {
    let partition = PartitionId { topic: TopicId(7), index: sennit_model::PartitionIndex(2) };
    let config = TopicConfig {
        partitions: 3,
        retention: Retention {
            until_settled: true,
            age: Some(Duration::from_secs(60)),
            bytes: Some(1 << 30),
            count: Some(1000),
            latest_per_key: None,
        },
        time_to_live: Some(Duration::from_millis(1500)),
        durability: Durability::Speculative,
        fields: None,
        is_paused: false,
        limit: TopicLimit::default(),
        dedup: None,
        live: LiveSettings::default(),
    };
    let live = LiveSettings { presence: true, when_behind: WhenBehind::Disconnect };
    let window = Duration::from_secs(60);
    let header = "order-id".parse().unwrap();
    let dedup = Some(Dedup { header, window, mode: DedupMode::Replace });
    let limit = TopicLimit { messages: Some(9), bytes: None, when_full: WhenFull::DropOldest };
    let setting = GroupSetting {
        id: GroupId(4),
        config: GroupConfig::default(),
        start: StartAt::Offset(Offset(9)),
    };
    let (first, max) = (Duration::from_secs(1), Duration::from_secs(300));
    let backoff = Backoff::Exponential { first, max };
    let retry = RetryPolicy { backoff, jitter_percent: 20, age_max: Some(max) };
    let config_with_policy = GroupConfig { retry, ..GroupConfig::default() };
    let with_policy = GroupSetting { config: config_with_policy, ..setting };
    let mut builder = BatchBuilder::new();
    builder.push(&Message::new("hello")).unwrap();
    let batch = builder.take().unwrap();
    let range = OffsetRange::new(Offset(5), 3);
    vec![
        Record::TopicCreated(TopicCreated {
            topic: TopicId(7),
            name: "orders".parse().unwrap(),
            incarnation: Incarnation(99),
            settings: Arc::new(TopicSettings { config: config.clone(), is_stream: false }),
            home: TopicId(7),
        }),
        Record::TopicAltered { topic: TopicId(7), config: config.clone() },
        Record::TopicAltered { topic: TopicId(7), config: TopicConfig { limit, ..config.clone() } },
        Record::TopicAltered { topic: TopicId(7), config: TopicConfig { live, ..config.clone() } },
        Record::TopicDeleted { topic: TopicId(7) },
        Record::GroupCreated {
            topic: TopicId(7),
            name: "billing".parse().unwrap(),
            setting: setting.clone(),
        },
        Record::GroupAltered { topic: TopicId(7), setting: setting.clone() },
        Record::GroupAltered { topic: TopicId(7), setting: with_policy },
        Record::GroupDeleted { topic: TopicId(7), group: GroupId(4) },
        Record::PartitionOpened {
            partition,
            config: TopicConfig::of_kind(sennit_model::TopicKind::Stream),
            dead_letters: DeadLetters::To(TopicId(8)),
            groups: vec![setting],
        },
        Record::PartitionDropped { partition },
        Record::Deduplicated {
            partition,
            producer: ProducerStamp { id: ProducerId(3), epoch: 1, first_sequence: 12 },
            count: 2,
            first: Offset(7),
        },
        Record::TopicAltered { topic: TopicId(7), config: TopicConfig { dedup, ..config } },
        Record::Appended {
            partition,
            first: Offset(1 << 40),
            appended_at: Timestamp(77),
            producer: ProducerStamp { id: ProducerId(3), epoch: 1, first_sequence: 12 },
            batch: batch.clone(),
            note: None,
        },
        Record::Settled {
            partition,
            group: GroupId(4),
            outcome: Outcome::Expired,
            ranges: vec![range],
        },
        Record::Failed {
            partition,
            group: GroupId(4),
            failed_at: Timestamp(5),
            due: Timestamp(6),
            dead: true,
            reason: "no such customer".into(),
            runs: vec![(range, 2)],
        },
        Record::Unparked { partition, group: GroupId(4), ranges: vec![range] },
        Record::Buried {
            source: partition,
            group: GroupId(4),
            offset: Offset(5),
            target: partition,
            first: Offset(0),
            appended_at: Timestamp(8),
            batch: batch.clone(),
        },
        Record::Requeued {
            source: partition,
            group: GroupId(4),
            ranges: vec![OffsetRange::new(Offset(5), u64::from(batch.count()))],
            target: partition,
            first: Offset(0),
            appended_at: Timestamp(8),
            batch: batch.clone(),
        },
        Record::Settled {
            partition,
            group: GroupId(4),
            outcome: Outcome::Cancelled,
            ranges: vec![range],
        },
        Record::Kept { partition, first: Offset(3), appended_at: Timestamp(8), batch },
        Record::DelaysCancelled { partition, ranges: vec![range] },
        Record::DelaysChanged { partition, due: Timestamp(9), ranges: vec![range] },
        Record::Trimmed { partition, start: Offset(6) },
        Record::Moved {
            partition,
            moves: vec![(Offset(4), Place { position: 1 << 63 | 7, bytes: 99 })],
        },
        Record::Lost { partition, range },
        Record::CursorSet { partition, name: "audit".parse().unwrap(), offset: Offset(6) },
        Record::CursorDeleted { partition, name: "audit".parse().unwrap() },
        Record::Reserved { partition, end: Offset(1 << 40) },
        Record::Superseded {
            partition,
            batches: vec![
                SupersededBatch {
                    first: Offset(3),
                    count: 9,
                    bytes: 1_000,
                    kept: vec![
                        KeptRun { first: Offset(3), count: 2, begin: 0, bytes: 99 },
                        KeptRun { first: Offset(11), count: 1, begin: 960, bytes: 40 },
                    ],
                },
                SupersededBatch { first: Offset(13), count: 1, bytes: 70, kept: Vec::new() },
            ],
        },
        Record::Compacted {
            partition,
            batches: vec![
                CompactedBatch {
                    first: Offset(4),
                    count: 9,
                    parts: vec![
                        KeptPart {
                            first: Offset(4),
                            count: 2,
                            place: Place { position: 1 << 63 | 7, bytes: 99 },
                        },
                        KeptPart {
                            first: Offset(12),
                            count: 1,
                            place: Place { position: 1 << 63 | 107, bytes: 9 },
                        },
                    ],
                },
                CompactedBatch { first: Offset(13), count: 1, parts: Vec::new() },
            ],
        },
        Record::Cleaned {
            partition,
            end: Offset(77),
            tombstones: Some(Tombstones { below: Offset(70), at: Timestamp(5) }),
            all_read: true,
        },
        Record::CheckpointBegan { next_topic: 3, next_group: 4 },
        Record::CheckpointEnded { bytes: 5 },
    ]
}

#[test]
fn a_record_comes_back_as_it_was_written() {
    for record in examples() {
        let (bytes, head_len) = body(&record);
        assert_eq!(Record::decode(record.kind(), bytes), Ok((record, head_len)));
    }
}

/// Records with every field that may say "none".
fn examples_of_none() -> Vec<Record> {
    let (topic, partition) = (TopicId(7), PartitionId::default());
    let config = TopicConfig::of_kind(sennit_model::TopicKind::Queue);
    let setting = |start| GroupSetting { id: GroupId(4), config: GroupConfig::default(), start };
    let delays = RetryDelays::new(&[Duration::from_secs(1), Duration::from_secs(60)]).unwrap();
    let retry = RetryPolicy { backoff: Backoff::List(delays), ..RetryPolicy::default() };
    let config_with_list = GroupConfig { retry, ..GroupConfig::default() };
    let listed = GroupSetting { config: config_with_list, ..setting(StartAt::Earliest) };
    let opened = |dead_letters| Record::PartitionOpened {
        partition,
        config: config.clone(),
        dead_letters,
        groups: vec![setting(StartAt::Earliest), setting(StartAt::Latest), listed.clone()],
    };
    vec![
        Record::TopicCreated(TopicCreated {
            topic,
            name: "doc".parse().unwrap(),
            incarnation: Incarnation(99),
            settings: Arc::new(TopicSettings { config: config.clone(), is_stream: true }),
            home: topic,
        }),
        opened(DeadLetters::NotYet),
        opened(DeadLetters::Stay),
        Record::Cleaned { partition, end: Offset(77), tombstones: None, all_read: false },
    ]
}

#[test]
fn what_is_decoded_is_encoded_to_the_same_bytes() {
    let examples = [examples(), examples_of_none(), stream_codec::tests::examples()].concat();
    for record in examples {
        let (kind, (bytes, _)) = (record.kind(), body(&record));
        let check = |bytes: Vec<u8>| {
            let bytes = Bytes::from(bytes);
            if let Ok((read, _)) = Record::decode(kind, bytes.clone()) {
                assert_eq!(body(&read).0, bytes, "{read:?} has two forms");
            }
        };
        for value in 0..=u8::MAX {
            check([&bytes[..], &[value]].concat());
            for at in 0..bytes.len() {
                let mut changed = bytes.to_vec();
                changed[at] = value;
                check(changed);
            }
        }
    }
}

#[test]
fn a_topic_that_says_with_a_byte_that_it_is_no_stream_is_refused() {
    let Some(Record::TopicCreated(native)) = examples().into_iter().next() else {
        panic!("the first example is a topic");
    };
    let (bytes, _) = body(&Record::TopicCreated(native));
    let longer = [&bytes[..], &[0]].concat();
    let refused = RecordError::Field { kind: TOPIC_CREATED, field: "is a stream", value: 0 };
    assert_eq!(Record::decode(TOPIC_CREATED, longer.into()), Err(refused));
}

#[test]
fn a_part_of_a_checkpoint_comes_back_as_it_was_written() {
    let record = Record::CheckpointPart { ends: true, bytes: Bytes::from_static(b"some") };
    let (bytes, head_len) = body(&record);
    assert_eq!(Record::decode(record.kind(), bytes), Ok((record, head_len)));
}

#[test]
fn a_topic_says_whether_it_was_made_as_a_stream_and_an_old_one_says_no() {
    let Some(Record::TopicCreated(native)) = examples().into_iter().next() else {
        panic!("the first example is a topic");
    };
    let settings = Arc::new(TopicSettings { is_stream: true, ..(*native.settings).clone() });
    let stream = Record::TopicCreated(TopicCreated { settings, ..native.clone() });
    let (bytes, head) = body(&stream);
    assert_eq!(Record::decode(stream.kind(), bytes.clone()), Ok((stream.clone(), head)));
    // As it was written before it said so.
    let old = bytes.slice(..bytes.len() - 1);
    let (read, _) = Record::decode(stream.kind(), old).unwrap();
    assert_eq!(read, Record::TopicCreated(native));
}

/// The bytes of a group before retry policies: they are what a group without one has still.
#[test]
fn a_group_without_a_retry_policy_has_the_bytes_of_old_and_one_with_a_policy_adds_it() {
    let start = StartAt::Offset(Offset(9));
    let mut setting = GroupSetting { id: GroupId(4), config: GroupConfig::default(), start };
    let altered = |setting| Record::GroupAltered { topic: TopicId(7), setting };
    let mut old = vec![7, 0, 0, 0]; // topic
    old.extend([4, 0, 0, 0]); // group
    old.extend([0x30, 0x75, 0, 0, 0, 0, 0, 0]); // lease_ms
    old.extend([20, 0, 0, 0]); // attempts_max
    old.extend([3, 9, 0, 0, 0, 0, 0, 0, 0]); // start: at offset 9
    assert_eq!(body(&altered(setting.clone())).0, old);
    let (first, max) = (Duration::from_secs(1), Duration::from_secs(300));
    let backoff = Backoff::Exponential { first, max };
    setting.config.retry = RetryPolicy { backoff, jitter_percent: 20, age_max: None };
    let mut new = old;
    new[20] |= 0x80;
    new.extend([20, 0, 0, 0, 0, 0, 0, 0, 0]); // jitter_percent, age_max_ms
    new.extend([1, 0xe8, 3, 0, 0, 0, 0, 0, 0]); // exponential: first_ms
    new.extend([0xe0, 0x93, 4, 0, 0, 0, 0, 0]); // max_ms
    assert_eq!(body(&altered(setting.clone())).0, new);
    let record = altered(setting);
    assert_eq!(Record::decode(record.kind(), new.into()).unwrap().0, record);
}

#[test]
fn a_record_that_ends_early_or_late_is_refused() {
    for record in examples() {
        let (bytes, _) = body(&record);
        for length in 0..bytes.len() {
            assert!(Record::decode(record.kind(), bytes.slice(..length)).is_err());
        }
        let longer = [&bytes[..], b"x"].concat();
        assert!(Record::decode(record.kind(), longer.into()).is_err());
    }
}

proptest! {
    #[test]
    fn any_bytes_are_decoded_without_panic(
        kind in 0..RECORD_KIND_END,
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let _ = Record::decode(kind, bytes.into());
    }
}
