//! Descriptions of topics and groups: the catalogue's part and the answers of their partitions. It knows no
//! protocol.

use sennit_engine::{CatalogueGroup, PartitionDescription, Topic};
use sennit_model::{GroupId, Order, PartitionIndex};

use super::watches::WatchedTopic;
use crate::broker::control_request::{GroupDescription, ParkedRun, TopicDescription};

/// Describes a topic, of which these are the partitions.
pub(super) fn topic_description(
    topic: &Topic,
    partitions: Vec<PartitionDescription>,
) -> TopicDescription {
    let groups = topic.groups.iter().map(|group| group_description(topic, group, &partitions));
    TopicDescription {
        name: topic.created.name.clone(),
        id: topic.id(),
        incarnation: topic.created.incarnation,
        config: topic.config().clone(),
        groups: groups.collect(),
        partitions,
    }
}

/// Describes a group, of whose topic these are the partitions; without its runs of parked messages.
pub(super) fn group_description(
    topic: &Topic,
    group: &CatalogueGroup,
    partitions: &[PartitionDescription],
) -> GroupDescription {
    let mut description = GroupDescription {
        name: group.name().clone(),
        id: group.id,
        topic: topic.created.name.clone(),
        config: group.config().clone(),
        ready: 0,
        leased: 0,
        delayed: 0,
        dying: 0,
        parked: 0,
        parked_runs: Vec::new(),
        consumers: 0,
        settled_before: Vec::new(),
        active_sessions: Vec::new(),
        holds_since: None,
    };
    for partition in partitions {
        let Some(held) = partition.groups.iter().find(|held| held.group == group.id) else {
            continue;
        };
        description.ready += held.ready;
        description.leased += held.leased;
        description.delayed += held.delayed;
        description.dying += held.dying;
        description.parked += held.parked;
        description.consumers = description.consumers.max(held.consumers);
        description.settled_before.push(held.settled_before);
        if group.config().order == Order::Partition {
            description.active_sessions.push(held.active);
        }
        let holding = partition.holding.as_ref().filter(|held| held.groups.contains(&group.id));
        let since = holding.map(|held| held.since);
        description.holds_since = description.holds_since.into_iter().chain(since).min();
    }
    description
}

/// The parked messages of a group, by partition and offset.
pub(super) fn parked_runs(
    group: GroupId,
    partitions: &[PartitionDescription],
) -> impl Iterator<Item = ParkedRun> {
    (0..).map(PartitionIndex).zip(partitions).flat_map(move |(partition, held)| {
        let parked = held.parked.iter().filter(move |parked| parked.group == group);
        parked.map(move |run| ParkedRun { partition, run: run.clone() })
    })
}

/// What a watch is told of a topic.
pub(super) fn watched_topic(topic: &Topic) -> WatchedTopic {
    WatchedTopic {
        name: topic.created.name.clone(),
        id: topic.id(),
        partitions: topic.config().partitions,
    }
}
