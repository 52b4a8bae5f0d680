//! Answers of the control as replies of the native protocol. How long a reply may be on its connection is
//! not looked at here.

use std::time::Duration;

use sennit_engine::PartitionDescription;
use sennit_model::{GroupId, limits::FRAME_BYTES_MAX};
use sennit_protocol::{Reply, control, topic_kind};

use super::{
    delayed::delayed_list,
    explanations::{explanations, fair_key_list},
    workbench::{inspected, reworked},
};
use crate::broker::{
    control::WatchedTopic,
    control_request::{
        ConsumerStart, ControlAnswer, CursorPositions, GroupDescription, ListedGroup, ListedTopic,
        ParkedRun, PartitionOffset, ReaderStart, TopicDescription, TopicOpened, TopicPage,
    },
};

/// The reply that tells a client of an answer. `subscription` is the number that the client has chosen, if
/// it asked for a subscription.
pub(crate) fn reply(answer: &ControlAnswer, subscription: u32) -> Reply {
    match answer {
        ControlAnswer::Done { topic, group, created, messages } => Reply::Done(control::Done {
            created: *created,
            topic_id: topic.0,
            group_id: group.map_or(0, |group| group.0),
            messages: *messages,
        }),
        ControlAnswer::Topics(page) => Reply::TopicList(topic_list(page)),
        ControlAnswer::Topic(topic) => Reply::TopicDescription(topic_description(topic)),
        ControlAnswer::Groups(groups) => {
            let groups = groups.iter().map(group_entry).collect();
            Reply::GroupList(control::GroupList { groups })
        }
        ControlAnswer::Group(group) => Reply::GroupDescription(group_description(group)),
        ControlAnswer::Delayed(page) => Reply::DelayedList(delayed_list(page)),
        ControlAnswer::Explanations(explained) => Reply::Explanations(explanations(explained)),
        ControlAnswer::FairKeys(keys) => Reply::FairKeyList(fair_key_list(keys)),
        ControlAnswer::Inspected(page) => Reply::Inspected(inspected(page)),
        ControlAnswer::Reworked(page) => Reply::Reworked(reworked(page)),
        ControlAnswer::Cursors(cursors) => {
            let cursors = cursors.iter().map(cursor).collect();
            Reply::CursorList(control::CursorList { cursors })
        }
        ControlAnswer::TopicOpened(opened) => Reply::TopicOpened(topic_opened(opened)),
        ControlAnswer::ConsumerStart(start) => Reply::Subscribed(consumer(start, subscription)),
        ControlAnswer::ReaderStart(start) => Reply::Subscribed(reader(start, subscription)),
    }
}

/// What a client is told of a topic that it watches for.
pub(crate) fn watched_topic(topic: &WatchedTopic) -> control::WatchedTopic {
    let WatchedTopic { name, id, partitions } = topic;
    control::WatchedTopic { name: name.to_string(), id: id.0, partitions: *partitions }
}

fn topic_list(page: &TopicPage) -> control::TopicList {
    let entry = |topic: &ListedTopic| control::TopicEntry {
        name: topic.name.to_string(),
        id: topic.id.0,
        config: Some((&topic.config).into()),
    };
    control::TopicList {
        topics: page.topics.iter().map(entry).collect(),
        next_page_token: page.next_after.as_ref().map(ToString::to_string).unwrap_or_default(),
    }
}

fn topic_description(topic: &TopicDescription) -> control::TopicDescription {
    let partitions = (0..).zip(&topic.partitions);
    let partitions = partitions.map(|(index, of)| partition_description(index, of));
    control::TopicDescription {
        name: topic.name.to_string(),
        id: topic.id.0,
        incarnation: topic.incarnation.0,
        config: Some((&topic.config).into()),
        kind: topic_kind(&topic.config).into(),
        created_ms: None,
        partitions: partitions.collect(),
        groups: topic.groups.iter().map(group_in_topic).collect(),
    }
}

fn partition_description(
    index: u32,
    partition: &PartitionDescription,
) -> control::PartitionDescription {
    control::PartitionDescription {
        index,
        start: partition.start.0,
        end: partition.end.0,
        bytes: partition.bytes,
        oldest_ms: partition.oldest_appended_at.map(|at| at.0),
        dead_bytes: partition.dead_bytes,
        damaged: partition.damaged,
        lost: partition.lost,
    }
}

fn group_entry(group: &ListedGroup) -> control::GroupEntry {
    control::GroupEntry {
        name: group.name.to_string(),
        id: group.id.0,
        config: Some(without_key_rules((&group.config).into())),
    }
}

/// A listing of 256 groups, each with as many rules, would not fit a frame.
fn without_key_rules(config: control::GroupConfig) -> control::GroupConfig {
    control::GroupConfig { key_rules: Vec::new(), ..config }
}

fn group_in_topic(group: &GroupDescription) -> control::GroupDescription {
    let description = group_description(group);
    let config = description.config.map(without_key_rules);
    control::GroupDescription { config, ..description }
}

fn group_description(group: &GroupDescription) -> control::GroupDescription {
    control::GroupDescription {
        name: group.name.to_string(),
        id: group.id.0,
        topic: group.topic.to_string(),
        config: Some((&group.config).into()),
        ready: group.ready,
        leased: group.leased,
        delayed: group.delayed,
        dying: group.dying,
        consumers: group.consumers,
        settled_before: group.settled_before.iter().map(|offset| offset.0).collect(),
        parked: group.parked,
        parked_runs: group.parked_runs.iter().map(parked_run).collect(),
        holds_since_ms: group.holds_since.map(|since| since.0),
        active_sessions: group
            .active_sessions
            .iter()
            .map(|session| session.map_or(0, |session| session.0))
            .collect(),
    }
}

fn parked_run(parked: &ParkedRun) -> control::ParkedRun {
    let ParkedRun { partition, run } = parked;
    control::ParkedRun {
        partition: partition.0,
        first: run.range.start.0,
        count: run.range.count(),
        attempts: run.attempts,
        failed_at_ms: run.failed_at.0,
        reason: run.reason.to_string(),
    }
}

fn cursor(cursor: &CursorPositions) -> control::Cursor {
    let position = |at: &PartitionOffset| control::ReadPosition {
        partition: at.partition.0,
        offset: at.offset.0,
    };
    control::Cursor {
        name: cursor.name.to_string(),
        positions: cursor.positions.iter().map(position).collect(),
    }
}

fn topic_opened(opened: &TopicOpened) -> control::TopicOpened {
    control::TopicOpened {
        topic_id: opened.place.topic.0,
        incarnation: opened.incarnation.0,
        partitions: opened.place.partitions,
        limits: Some(control::Limits::new(FRAME_BYTES_MAX)),
    }
}

fn consumer(start: &ConsumerStart, subscription: u32) -> control::Subscribed {
    control::Subscribed {
        subscription,
        topic_id: start.place.topic.0,
        group_id: start.group.0,
        partitions: start.place.partitions,
        lease_ms: millis(start.lease),
        ranges: Vec::new(),
    }
}

fn reader(start: &ReaderStart, subscription: u32) -> control::Subscribed {
    let ranges = start.ranges.iter();
    let ranges = ranges.map(|range| control::ReadRange { first: range.start.0, end: range.end.0 });
    control::Subscribed {
        subscription,
        topic_id: start.place.topic.0,
        group_id: GroupId::NONE.0,
        partitions: start.place.partitions,
        lease_ms: 0,
        ranges: ranges.collect(),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
