//! Each answer and the reply that clients have always received for it.

use sennit_model::{
    Durability, GroupConfig, GroupName, Incarnation, KeyRule, KeyRules, Offset, OffsetRange,
    PartitionIndex, Retention, Timestamp, TopicConfig, TopicId, TopicName,
};

use sennit_engine::SessionId;

use super::*;
use crate::broker::control_request::TopicPlace;

const PLACE: TopicPlace = TopicPlace { topic: TopicId(7), home: TopicId(5), partitions: 2 };
const CONFIG: TopicConfig = TopicConfig {
    partitions: 2,
    retention: Retention::FOREVER,
    time_to_live: None,
    durability: Durability::Durable,
    fields: None,
    is_paused: false,
    limit: sennit_model::TopicLimit {
        messages: None,
        bytes: None,
        when_full: sennit_model::WhenFull::Refuse,
    },
    dedup: None,
    live: sennit_model::LiveSettings {
        presence: false,
        when_behind: sennit_model::WhenBehind::Recover,
    },
};

fn orders() -> TopicName {
    "orders".parse().expect("it is a name")
}

fn mail() -> GroupName {
    "mail".parse().expect("it is a name")
}

fn group() -> GroupDescription {
    GroupDescription {
        name: mail(),
        id: GroupId(3),
        topic: orders(),
        config: GroupConfig::default(),
        ready: 1,
        leased: 2,
        delayed: 3,
        dying: 4,
        parked: 5,
        parked_runs: Vec::new(),
        consumers: 6,
        settled_before: vec![Offset(8), Offset(9)],
        active_sessions: vec![None, Some(SessionId(7))],
        holds_since: Some(Timestamp(10)),
    }
}

fn group_reply() -> control::GroupDescription {
    control::GroupDescription {
        name: "mail".into(),
        id: 3,
        topic: "orders".into(),
        config: Some((&GroupConfig::default()).into()),
        ready: 1,
        leased: 2,
        delayed: 3,
        dying: 4,
        consumers: 6,
        settled_before: vec![8, 9],
        parked: 5,
        parked_runs: Vec::new(),
        holds_since_ms: Some(10),
        active_sessions: vec![0, 7],
    }
}

#[test]
fn a_change_says_what_it_was_about_and_0_where_that_is_no_group() {
    let done = |group| {
        let (topic, created, messages) = (TopicId(7), true, 4);
        reply(&ControlAnswer::Done { topic, group, created, messages }, 0)
    };
    let said =
        |group_id| Reply::Done(control::Done { created: true, topic_id: 7, group_id, messages: 4 });
    assert_eq!(done(Some(GroupId(3))), said(3));
    assert_eq!(done(None), said(0));
}

#[test]
fn a_page_names_the_next_one_and_the_last_page_names_none() {
    let page = |next_after| {
        let topics = vec![ListedTopic { name: orders(), id: TopicId(7), config: CONFIG }];
        reply(&ControlAnswer::Topics(TopicPage { topics, next_after }), 0)
    };
    let said = |next_page_token: &str| {
        let config = Some((&CONFIG).into());
        let topics = vec![control::TopicEntry { name: "orders".into(), id: 7, config }];
        let next_page_token = next_page_token.to_owned();
        Reply::TopicList(control::TopicList { topics, next_page_token })
    };
    assert_eq!(page(Some(orders())), said("orders"));
    assert_eq!(page(None), said(""));
}

#[test]
fn a_topic_is_described_with_its_partitions_and_groups() {
    let partition = PartitionDescription {
        start: Offset(1),
        end: Offset(2),
        bytes: 3,
        live_bytes: 4,
        dead_bytes: 5,
        damaged: 6,
        lost: 7,
        oldest_appended_at: Some(Timestamp(8)),
        ..PartitionDescription::default()
    };
    let answer = ControlAnswer::Topic(TopicDescription {
        name: orders(),
        id: TopicId(7),
        incarnation: Incarnation(11),
        config: CONFIG,
        partitions: vec![PartitionDescription::default(), partition],
        groups: vec![group()],
    });
    let partition = control::PartitionDescription {
        index: 1,
        start: 1,
        end: 2,
        bytes: 3,
        oldest_ms: Some(8),
        dead_bytes: 5,
        damaged: 6,
        lost: 7,
    };
    let said = control::TopicDescription {
        name: "orders".into(),
        id: 7,
        incarnation: 11,
        config: Some((&CONFIG).into()),
        kind: control::TopicKind::Stream.into(),
        created_ms: None,
        partitions: vec![control::PartitionDescription::default(), partition],
        groups: vec![group_reply()],
    };
    assert_eq!(reply(&answer, 0), Reply::TopicDescription(said));
}

#[test]
fn a_group_is_described_with_its_parked_messages() {
    let run = sennit_engine::ParkedRun {
        group: GroupId(3),
        range: OffsetRange { start: Offset(4), end: Offset(9) },
        attempts: 2,
        failed_at: Timestamp(12),
        reason: "it does not parse".into(),
    };
    let parked_runs = vec![ParkedRun { partition: PartitionIndex(1), run }];
    let answer = ControlAnswer::Group(GroupDescription { parked_runs, ..group() });
    let run = control::ParkedRun {
        partition: 1,
        first: 4,
        count: 5,
        attempts: 2,
        failed_at_ms: 12,
        reason: "it does not parse".into(),
    };
    let said = control::GroupDescription { parked_runs: vec![run], ..group_reply() };
    assert_eq!(reply(&answer, 0), Reply::GroupDescription(said));
}

#[test]
fn a_group_has_its_rules_for_keys_where_it_is_described_alone() {
    let rule = KeyRule { weight: Some(3), ..KeyRule::new("tenant-*".parse().expect("a pattern")) };
    let rules = KeyRules::default().with(&[rule]);
    let config = GroupConfig { is_paused: true, key_rules: rules, ..GroupConfig::default() };
    let said = control::GroupConfig::from(&config);
    let listed = control::GroupConfig { key_rules: Vec::new(), ..said.clone() };
    assert_ne!(said, listed);

    let group = GroupDescription { config: config.clone(), ..group() };
    let Reply::GroupDescription(alone) = reply(&ControlAnswer::Group(group.clone()), 0) else {
        panic!("it is a group");
    };
    assert_eq!(alone.config, Some(said));
    let topic = TopicDescription {
        name: orders(),
        id: TopicId(7),
        incarnation: Incarnation(11),
        config: CONFIG,
        partitions: Vec::new(),
        groups: vec![group],
    };
    let Reply::TopicDescription(topic) = reply(&ControlAnswer::Topic(topic), 0) else {
        panic!("it is a topic");
    };
    assert_eq!(topic.groups[0].config, Some(listed.clone()));
    let entry = ListedGroup { name: mail(), id: GroupId(3), config };
    let Reply::GroupList(list) = reply(&ControlAnswer::Groups(vec![entry]), 0) else {
        panic!("they are groups");
    };
    assert_eq!(list.groups[0].config, Some(listed));
}

#[test]
fn groups_and_cursors_are_listed() {
    let listed = ListedGroup { name: mail(), id: GroupId(3), config: GroupConfig::default() };
    let config = Some((&GroupConfig::default()).into());
    let groups = vec![control::GroupEntry { name: "mail".into(), id: 3, config }];
    let said = Reply::GroupList(control::GroupList { groups });
    assert_eq!(reply(&ControlAnswer::Groups(vec![listed]), 0), said);

    let at = PartitionOffset { partition: PartitionIndex(1), offset: Offset(4) };
    let name = "nightly".parse().expect("it is a name");
    let cursors = vec![CursorPositions { name, positions: vec![at] }];
    let positions = vec![control::ReadPosition { partition: 1, offset: 4 }];
    let said = vec![control::Cursor { name: "nightly".into(), positions }];
    let said = Reply::CursorList(control::CursorList { cursors: said });
    assert_eq!(reply(&ControlAnswer::Cursors(cursors), 0), said);
}

#[test]
fn a_publisher_learns_the_limits_of_the_broker() {
    let opened = TopicOpened { place: PLACE, incarnation: Incarnation(11) };
    let said = control::TopicOpened {
        topic_id: 7,
        incarnation: 11,
        partitions: 2,
        limits: Some(control::Limits::new(FRAME_BYTES_MAX)),
    };
    assert_eq!(reply(&ControlAnswer::TopicOpened(opened), 0), Reply::TopicOpened(said));
}

#[test]
fn a_consumer_learns_its_lease_and_a_reader_where_it_begins() {
    let lease = Duration::from_millis(1500);
    let start = ConsumerStart { place: PLACE, group: GroupId(3), lease };
    let said = control::Subscribed {
        subscription: 9,
        topic_id: 7,
        group_id: 3,
        partitions: 2,
        lease_ms: 1500,
        ranges: Vec::new(),
    };
    assert_eq!(reply(&ControlAnswer::ConsumerStart(start), 9), Reply::Subscribed(said));

    let ranges = vec![OffsetRange { start: Offset(4), end: Offset(6) }];
    let start = ReaderStart { place: PLACE, ranges };
    let said = control::Subscribed {
        subscription: 9,
        topic_id: 7,
        group_id: u32::MAX,
        partitions: 2,
        lease_ms: 0,
        ranges: vec![control::ReadRange { first: 4, end: 6 }],
    };
    assert_eq!(reply(&ControlAnswer::ReaderStart(start), 9), Reply::Subscribed(said));
}
