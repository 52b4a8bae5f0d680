//! A frame is equal to itself after encoding and decoding; settings survive the conversion to the schema; the frame
//! reader splits a stream where frames were joined.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use proptest::{collection::vec, option, prelude::*};
use sennit_model::{
    Backoff, BatchBuilder, Cost, Dedup, DedupMode, GroupChange, GroupConfig, Header, HeaderKind,
    KeyRule, KeyRules, LiveSettings, Message, MessageFields, Offset, Order, PartitionId,
    ProducerStamp, Retention, RetryDelays, RetryPolicy, StartAt, ThrottleRate, TopicConfig,
    TopicKind, TopicLimit, WhenBehind, WhenFull,
    limits::{
        FRAME_BYTES_MAX, GREETING_BYTES_MAX, LEASE_MAX, PARTITIONS_MAX, REASON_BYTES_MAX,
        RETRY_DELAYS_MAX, WEIGHT_MAX,
    },
};

use super::any_frame::{reply, request};
use crate::*;

/// Cuts `bytes` into frames, fed in pieces of `piece` bytes.
fn cut(bytes: &[u8], piece: usize) -> Vec<(FrameHeader, Bytes)> {
    let mut reader = FrameReader::before_greeting();
    let (mut input, mut frames) = (BytesMut::new(), Vec::new());
    for piece in bytes.chunks(piece) {
        input.extend_from_slice(piece);
        while let Some(frame) = reader.next_frame(&mut input).unwrap() {
            frames.push(frame);
        }
    }
    assert!(input.is_empty());
    frames
}

fn retry_policy() -> impl Strategy<Value = RetryPolicy> {
    let delay = || (1..1_u64 << 40).prop_map(Duration::from_millis);
    let backoff = prop_oneof![
        Just(Backoff::None),
        (delay(), delay())
            .prop_map(|(a, b)| Backoff::Exponential { first: a.min(b), max: a.max(b) }),
        vec(delay(), 1..=RETRY_DELAYS_MAX)
            .prop_map(|delays| Backoff::List(RetryDelays::new(&delays).unwrap())),
    ];
    (backoff, 0..=100_u8, option::of(delay())).prop_map(|(backoff, jitter_percent, age_max)| {
        RetryPolicy { backoff, jitter_percent, age_max }
    })
}

fn message_fields() -> impl Strategy<Value = MessageFields> {
    let name = || "[a-z -]{1,64}".prop_map(|name: String| name.parse().unwrap());
    let names = vec(option::of(name()), 5);
    let cost = prop_oneof![Just(Cost::Message), Just(Cost::Bytes), name().prop_map(Cost::Header)];
    (names, cost).prop_map(|(mut names, cost)| MessageFields {
        fair_key: names.pop().flatten(),
        weight: names.pop().flatten(),
        priority: names.pop().flatten(),
        throttle_keys: names.pop().flatten(),
        delay: names.pop().flatten(),
        cost,
    })
}

fn rate() -> impl Strategy<Value = ThrottleRate> {
    (1..1_u64 << 22, 1..=u32::MAX)
        .prop_map(|(interval_ns, burst)| ThrottleRate { interval_ns, burst })
}

fn key_rules() -> impl Strategy<Value = KeyRules> {
    let rule =
        ("[!-)+-~]{1,247}", option::of(1..=WEIGHT_MAX), option::of(1..99_u32), option::of(rate()));
    let rules = vec((rule, any::<bool>()), 0..4);
    rules.prop_map(|rules| {
        let rules =
            rules.into_iter().map(|((pattern, weight, concurrency, throttle), is_paused)| {
                let pattern = pattern.parse().unwrap();
                KeyRule { pattern, weight, concurrency, throttle, is_paused }
            });
        KeyRules::default().with(&rules.collect::<Vec<_>>())
    })
}

/// A limit, where one may be.
fn limit(may_be: bool, messages: Option<u64>) -> TopicLimit {
    match messages.filter(|_| may_be) {
        None => TopicLimit::default(),
        Some(messages) if messages % 2 == 0 => {
            TopicLimit { messages: Some(messages), bytes: None, when_full: WhenFull::DropOldest }
        }
        bytes => TopicLimit { messages: None, bytes, when_full: WhenFull::Refuse },
    }
}

proptest! {
    #[test]
    fn requests_come_out_as_they_went_in(
        requests in vec((any::<u64>(), request()), 1..5),
        piece in 1..100usize,
    ) {
        let mut bytes = BytesMut::new();
        for (number, request) in &requests {
            request.encode(*number, &mut bytes);
        }
        let frames = cut(&bytes, piece);
        prop_assert_eq!(frames.len(), requests.len());
        for ((header, body), (number, request)) in frames.into_iter().zip(requests) {
            prop_assert_eq!(header.request, number);
            prop_assert_eq!(Request::decode(&header, body), Ok(request));
        }
    }

    #[test]
    fn replies_come_out_as_they_went_in(
        replies in vec((any::<u64>(), reply()), 1..5),
        piece in 1..100usize,
    ) {
        let mut bytes = BytesMut::new();
        for (number, reply) in &replies {
            reply.encode(*number, &mut bytes);
        }
        let frames = cut(&bytes, piece);
        prop_assert_eq!(frames.len(), replies.len());
        for ((header, body), (number, reply)) in frames.into_iter().zip(replies) {
            prop_assert_eq!(header.request, number);
            prop_assert_eq!(Reply::decode(&header, body), Ok(reply));
        }
    }

    #[test]
    fn a_topics_settings_survive_the_way_through_the_schema(
        partitions in 1..=PARTITIONS_MAX,
        until_settled: bool,
        age in option::of(1..1u64 << 40),
        bytes in option::of(1..u64::MAX),
        count in option::of(1..u64::MAX),
        tombstone_age in option::of(1000..1u64 << 40),
        time_to_live in option::of(1..1u64 << 40),
        durability in proptest::sample::select(&Durability::ALL[..]),
        fields in message_fields(),
        is_paused: bool,
        live in (any::<bool>(), proptest::sample::select(&WhenBehind::ALL[..])),
    ) {
        let config = TopicConfig {
            partitions,
            retention: Retention {
                until_settled,
                age: age.map(Duration::from_millis),
                bytes,
                count,
                latest_per_key: tombstone_age
                    .filter(|_| !until_settled && durability != Durability::Memory)
                    .map(Duration::from_millis),
            },
            time_to_live: time_to_live.map(Duration::from_millis),
            durability,
            fields: fields.if_any(),
            is_paused,
            limit: limit(tombstone_age.is_none(), count),
            dedup: until_settled.then(|| Dedup {
                header: "order-id".parse().unwrap(),
                window: Duration::from_secs(60),
                mode: DedupMode::Replace,
            }),
            live: LiveSettings { presence: live.0, when_behind: live.1 },
        };
        let wire = control::TopicConfig::from(&config);
        prop_assert_eq!(TopicConfig::try_from(&wire), Ok(config));
    }

    #[test]
    fn a_groups_settings_and_start_survive_the_way_through_the_schema(
        lease_ms in 100..=u64::try_from(LEASE_MAX.as_millis()).unwrap(),
        attempts_max in 1..u32::MAX,
        retry in retry_policy(),
        scheduling in (any::<bool>(), option::of(rate()), key_rules(), 0..3_u8),
        offset: u64,
    ) {
        let config = GroupConfig {
            lease: Duration::from_millis(lease_ms),
            attempts_max,
            retry,
            is_paused: scheduling.0,
            throttle: scheduling.1,
            key_rules: scheduling.2,
            order: Order::of_number(scheduling.3).unwrap(),
        };
        let wire = control::GroupConfig::from(&config);
        prop_assert_eq!(GroupConfig::try_from(&wire), Ok(config.clone()));
        let removal = KeyRule::new("tenant-*".parse().unwrap());
        let RetryPolicy { backoff, jitter_percent, age_max } = retry;
        let change = GroupChange {
            backoff: Some(backoff),
            jitter_percent: Some(jitter_percent),
            age_max: Some(age_max),
            is_paused: Some(config.is_paused),
            throttle: Some(config.throttle),
            key_rules: config.key_rules.iter().cloned().chain([removal]).collect(),
            ..GroupChange::default()
        };
        prop_assert_eq!(GroupChange::try_from(&control::GroupConfig::from(&change)), Ok(change));
        for start in
            [StartAt::Earliest, StartAt::Latest, StartAt::Offset(Offset(offset))]
        {
            prop_assert_eq!(StartAt::from(&control::StartAt::from(start)), start);
        }
    }
}

#[test]
fn what_a_client_leaves_out_takes_its_default() {
    let topic = control::CreateTopic::default().topic_config().unwrap();
    assert_eq!(topic, TopicConfig::of_kind(TopicKind::Queue));
    let group = control::CreateGroup::default();
    assert_eq!(group.group_config().unwrap(), GroupConfig::default());
    assert_eq!(group.start_at(), StartAt::Earliest);
}

#[test]
fn a_setting_out_of_bounds_is_refused_by_name() {
    let config = control::TopicConfig { partitions: Some(0), ..Default::default() };
    let error = TopicConfig::try_from(&config).unwrap_err();
    assert_eq!(error.field, "partitions");
    assert_eq!(control::Error::from(&error).error_code(), Some(ErrorCode::InvalidConfig));
    let config = control::GroupConfig { lease_ms: Some(1), ..Default::default() };
    assert_eq!(GroupConfig::try_from(&config).unwrap_err().field, "lease");
}

#[test]
fn a_reason_too_long_is_cut_after_a_whole_character() {
    let verdict = Verdict::DeadLetter { reason: "€".repeat(1000) };
    let head = SettleHead { verdict, ..SettleHead::default() };
    let run = SettleRun { count: 1, attempt: 1, ..SettleRun::default() };
    let mut bytes = Vec::new();
    Settle { head, runs: [run].into_iter().collect() }.encode(1, &mut bytes);
    let settle = Settle::decode(Bytes::from(bytes.split_off(FrameHeader::BYTES))).unwrap();
    let Verdict::DeadLetter { reason } = settle.head.verdict else { panic!("another verdict") };
    assert_eq!(reason, "€".repeat(REASON_BYTES_MAX / 3));
}

#[test]
fn a_dead_letter_may_be_delivered_with_more_headers_than_a_publisher_may_send() {
    let full = Header { name: "h".into(), kind: HeaderKind::Binary, value: vec![0; 63_000].into() };
    let added = Header::text("reason", "x".repeat(1000));
    let mut builder = BatchBuilder::for_broker();
    builder.push(&Message { headers: vec![full, added], ..Message::default() }).unwrap();
    let batch = builder.take().unwrap();

    let head = DeliverHead { count: 1, ..DeliverHead::default() };
    let delivered = Deliver { head, messages: batch.bytes().clone() };
    assert_eq!(delivered.check_messages(), Ok(batch.clone()));
    let published = Publish::new(PartitionId::default(), ProducerStamp::default(), &batch);
    assert_eq!(published.check_batch().unwrap_err().code(), ErrorCode::BatchInvalid);
}

#[test]
fn what_a_client_wants_of_frames_is_kept_within_bounds() {
    assert_eq!(negotiated_frame_bytes_max(0), FRAME_BYTES_MAX);
    assert_eq!(negotiated_frame_bytes_max(u32::MAX), FRAME_BYTES_MAX);
    assert_eq!(negotiated_frame_bytes_max(1), GREETING_BYTES_MAX);
    assert_eq!(negotiated_frame_bytes_max(100_000), 100_000);
}
