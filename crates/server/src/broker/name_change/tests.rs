//! Changes and answers travel and come back; what nobody sends is refused.

use std::time::Duration;

use bytes::Bytes;
use sennit_engine::{
    Content as StreamContent, Refusal, StreamRefusal, StreamSettings, StreamStatus,
};
use sennit_identity::{OverQuota, QuotaRetry};
use sennit_model::{
    BatchBuilder, ConfigError, Durability, GroupChange, GroupConfig, GroupId, KeyRule, Message,
    Offset, Order, StartAt, ThrottleRate, TopicConfig, TopicId, TopicKind,
    limits::WATCH_TOPICS_MAX,
};

use super::{
    Changed, NameAnswer, NameChange, NameChangeError, NameMessage,
    answer_codec::Outcome,
    message::{AppliedTo, Content},
};
use crate::{
    broker::{
        control_request::{AlterGroup, ControlRefusal, CreateGroup},
        stream_offset::{Identified, IncarnationTag, StreamOffset},
        stream_request::{CreateStream, Created, ForkRequest, Located, StreamFailure},
    },
    runtime::publish_gauge::NoRoom,
};

fn name<N: std::str::FromStr<Err = sennit_model::NameError>>(name: &str) -> N {
    name.parse().expect("it is a name")
}

fn tag(number: u64) -> IncarnationTag {
    IncarnationTag::of_number(number).expect("streams have such tags")
}

fn create_stream(fork: Option<ForkRequest>) -> NameChange {
    let mut batch = BatchBuilder::for_append(64);
    batch.push(&Message::new(Bytes::from_static(b"first"))).expect("it fits");
    NameChange::CreateStream(CreateStream {
        name: name("a/stream"),
        durability: Durability::Memory,
        settings: StreamSettings {
            content_type: "text/plain".into(),
            time_to_live: Some(60),
            group: Some("together".into()),
            ..StreamSettings::of_topic()
        },
        content: batch.take().map(StreamContent::from),
        closes: true,
        fork,
    })
}

fn over_quota(quota: &'static str, retry: QuotaRetry) -> ControlRefusal {
    let stored = (quota == "stored_bytes").then_some(11);
    ControlRefusal::OverQuota(OverQuota { quota, limit: 10, stored, retry })
}

fn changes() -> Vec<NameChange> {
    let config = TopicConfig { partitions: 7, ..TopicConfig::of_kind(TopicKind::Queue) };
    let of_group = GroupConfig { lease: Duration::from_secs(9), ..GroupConfig::default() };
    let rule = KeyRule { weight: Some(3), ..KeyRule::new("tenant-*".parse().expect("a pattern")) };
    let change = GroupChange {
        lease: Some(Duration::from_millis(1500)),
        age_max: Some(None),
        is_paused: Some(true),
        throttle: Some(Some(ThrottleRate::parse("10/s").expect("a rate"))),
        key_rules: vec![rule, KeyRule::new("gone".parse().expect("a pattern"))],
        order: Some(Order::Key),
        ..GroupChange::default()
    };
    let (topic, group) = (name("orders"), name("workers"));
    let fork = ForkRequest {
        source: name("a/source"),
        at: Some(StreamOffset { of: tag(12), at: Offset(34) }),
        token: "0000000000000034_0000000000120000".into(),
        behind: 5,
    };
    vec![
        NameChange::CreateTopic {
            name: name("orders"),
            config: config.clone(),
            beside: Some(name("bills")),
        },
        NameChange::CreateTopic { name: name("orders"), config: config.clone(), beside: None },
        NameChange::FindOrCreateTopic { name: name("orders"), config: config.clone() },
        NameChange::AlterTopic { name: name("orders"), config },
        NameChange::DeleteTopic { name: name("orders") },
        NameChange::CreateGroup(CreateGroup {
            topic: name("orders"),
            group: name("workers"),
            config: of_group,
            start: StartAt::Latest,
        }),
        NameChange::FindOrCreateGroup { topic: name("orders"), group: name("workers") },
        NameChange::AlterGroup(AlterGroup { topic, group, change }),
        NameChange::DeleteGroup { topic: name("orders"), group: name("workers") },
        NameChange::CreateDeadLetterTopic { source: TopicId(8) },
        create_stream(None),
        create_stream(Some(fork)),
        NameChange::DeleteStream { name: name("a/stream") },
        NameChange::EndStream { topic: TopicId(9) },
        NameChange::Settle { name: name("orders") },
    ]
}

fn outcomes() -> Vec<Outcome> {
    let status = StreamStatus {
        settings: StreamSettings::of_topic().into(),
        start: Offset(3),
        next: Offset(8),
        is_closed: false,
        durability: Durability::Durable,
        is_opened: true,
    };
    let located = Located { topic: TopicId(4), home: TopicId(2), partitions: 1, tag: tag(77) };
    let refusals = [
        Refusal::UnknownTopic.into(),
        Refusal::NoLeader.into(),
        Refusal::Limit { limit: "TOPICS_MAX", value: 9 }.into(),
        ControlRefusal::UnknownTopic(name("orders")),
        ControlRefusal::UnknownGroup { topic: name("orders"), group: name("workers") },
        ControlRefusal::TopicsApart { topic: name("orders"), beside: name("bills") },
        ControlRefusal::Busy(NoRoom::TooLong),
        ControlRefusal::Busy(NoRoom::TooMany),
        ControlRefusal::WrongAnswer,
        ControlRefusal::Reserved,
        ControlRefusal::HookRefused("not today".into()),
        ControlRefusal::HookFailed("it looped".into()),
        over_quota("topics", QuotaRetry::ByHand),
        over_quota("stored_bytes", QuotaRetry::WhenFreed),
        over_quota("stored_bytes", QuotaRetry::OnceMeasured),
        over_quota("messages_per_second", QuotaRetry::After(Duration::from_millis(700))),
    ];
    let failures = [
        StreamFailure::Stream(StreamRefusal::SettingsDiffer { field: "expiry" }),
        StreamFailure::StreamAt(Identified {
            of: tag(5),
            answer: StreamRefusal::BeyondEnd { next: Offset(6) },
        }),
        StreamFailure::OtherStream,
        StreamFailure::SourceUnknown,
        StreamFailure::SourceDeleted,
        StreamFailure::SourceContentType("text/html".into()),
        StreamFailure::BeyondSource(Offset(11)),
        StreamFailure::BeyondAppend(12),
        StreamFailure::Partitioned(3),
    ];
    let changed = |group| Changed { topic: TopicId(1), group, created: group.is_some() };
    let answers = [
        NameAnswer::Changed(changed(None)),
        NameAnswer::Changed(changed(Some(GroupId(2)))),
        NameAnswer::Stream(Created { is_new: true, status, located }),
        NameAnswer::Done,
    ];
    let refusals = refusals.into_iter().map(|refusal| Err(refusal.into()));
    answers.into_iter().map(Ok).chain(failures.into_iter().map(Err)).chain(refusals).collect()
}

fn messages() -> Vec<NameMessage> {
    let applied = AppliedTo { term: 3, index: 900 };
    let changes = changes().into_iter().map(Box::new).map(Content::Change);
    let answers = outcomes().into_iter().map(|outcome| Content::Answer(applied, outcome));
    changes.chain(answers).map(NameMessage).collect()
}

fn bytes_of(content: Content) -> Bytes {
    NameMessage(content).to_bytes().expect("it can travel")
}

#[test]
fn each_change_and_each_answer_comes_as_it_was_sent() {
    for message in messages() {
        let bytes = message.to_bytes().expect("it can travel");
        assert_eq!(NameMessage::decode(bytes), Ok(message));
    }
}

#[test]
fn a_message_that_is_cut_anywhere_is_refused() {
    for message in messages() {
        let whole = message.to_bytes().expect("it can travel");
        for length in 0..whole.len() {
            let decoded = NameMessage::decode(whole.slice(..length));
            assert!(decoded.is_err(), "{length} bytes of {message:?}: {decoded:?}");
        }
    }
}

#[test]
fn what_a_later_version_adds_behind_the_fields_is_skipped() {
    let delete = NameChange::DeleteTopic { name: name("orders") };
    let message = NameMessage(Content::Change(Box::new(delete)));
    let bytes = message.to_bytes().expect("it can travel");
    assert_eq!(NameMessage::decode([&bytes[..], b"more"].concat().into()), Ok(message));
}

#[test]
fn a_change_whose_settings_are_out_of_bounds_is_refused_as_the_leader_would() {
    let config = TopicConfig { partitions: 0, ..TopicConfig::of_kind(TopicKind::Queue) };
    let change = NameChange::AlterTopic { name: name("orders"), config };
    let refused = NameMessage(Content::Change(Box::new(change))).to_bytes();
    assert!(matches!(refused, Err(Refusal::Config(ConfigError { field: "partitions", .. }))));
}

#[test]
fn a_broker_that_stops_leaves_the_outcome_open_and_a_refusal_that_nobody_expects_is_a_wrong_answer()
{
    let told = |refusal: ControlRefusal| {
        let answer = Content::Answer(AppliedTo::default(), Err(refusal.into()));
        match NameMessage::decode(bytes_of(answer)) {
            Ok(NameMessage(Content::Answer(_, Err(StreamFailure::Broker(refusal))))) => *refusal,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(told(ControlRefusal::ShuttingDown), Refusal::OutcomeUnknown.into());
    let pattern = ">".parse().expect("it is a pattern");
    let unexpected = ControlRefusal::TooManyWatched(pattern);
    assert!(unexpected.to_string().contains(&WATCH_TOPICS_MAX.to_string()));
    assert_eq!(told(unexpected), ControlRefusal::WrongAnswer);
}

#[test]
fn kinds_flags_and_names_that_nobody_sends_are_refused() {
    let of = |bytes: &'static [u8]| NameMessage::decode(Bytes::from_static(bytes));
    assert_eq!(of(&[2]), Err(NameChangeError::Kind(2)));
    assert_eq!(of(&[0, 200]), Err(NameChangeError::Kind(200)));
    let field = "has a topic beside it";
    assert_eq!(of(&[0, 1, 7]), Err(NameChangeError::Field { field, value: 7 }));
    assert!(matches!(of(&[0, 4, 0, 0, 0, 0]), Err(NameChangeError::Name(_))));
    assert_eq!(of(&[0, 4, 1, 0, 0, 0, 0xff]), Err(NameChangeError::Text));
    assert_eq!(of(&[0, 4, 255, 255, 255, 255, b'a']), Err(NameChangeError::Short));
}

#[test]
fn settings_in_another_command_than_the_kind_says_are_refused() {
    let topic = NameChange::AlterTopic {
        name: name("orders"),
        config: TopicConfig::of_kind(TopicKind::Queue),
    };
    let command = bytes_of(Content::Change(Box::new(topic))).slice(2..);
    // CreateGroup in the topic `t`.
    let bytes = [&[0, 5, 1, 0, 0, 0, b't'], &command[..]].concat();
    assert_eq!(NameMessage::decode(bytes.into()), Err(NameChangeError::Holds));
}
