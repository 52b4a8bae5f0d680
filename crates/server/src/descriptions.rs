//! How topics and groups are, as clients are told: what the catalogue knows of them, and what their
//! partitions say. Asks nobody.

use sennit_engine::{CatalogueGroup, PartitionDescription, Topic};
use sennit_model::GroupId;
use sennit_protocol::control;

/// How the partitions of a topic are, by index.
pub(crate) fn partition_descriptions(
    partitions: &[PartitionDescription],
) -> Vec<control::PartitionDescription> {
    let describe =
        |(index, partition): (u32, &PartitionDescription)| control::PartitionDescription {
            index,
            start: partition.start.0,
            end: partition.end.0,
            bytes: partition.bytes,
            oldest_ms: partition.oldest_appended_at.map(|at| at.0),
            dead_bytes: partition.dead_bytes,
            damaged: partition.damaged,
            lost: partition.lost,
        };
    (0..).zip(partitions).map(describe).collect()
}

/// How a group is in all partitions of its topic.
pub(crate) fn group_description(
    topic: &Topic,
    group: &CatalogueGroup,
    partitions: &[PartitionDescription],
) -> control::GroupDescription {
    let mut description = control::GroupDescription {
        name: group.name().to_string(),
        id: group.id.0,
        topic: topic.created.name.to_string(),
        config: Some(group.config().into()),
        ..control::GroupDescription::default()
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
        description.settled_before.push(held.settled_before.0);
        let holding = partition.holding.as_ref().filter(|held| held.groups.contains(&group.id));
        let since = holding.map(|held| held.since.0);
        description.holds_since_ms = description.holds_since_ms.into_iter().chain(since).min();
    }
    description
}

/// The parked messages of a group, by partition and offset.
pub(crate) fn parked_runs(
    group: GroupId,
    partitions: &[PartitionDescription],
) -> impl Iterator<Item = control::ParkedRun> {
    (0..).zip(partitions).flat_map(move |(partition, held)| {
        let parked = held.parked.iter().filter(move |parked| parked.group == group);
        parked.map(move |parked| control::ParkedRun {
            partition,
            first: parked.range.start.0,
            count: parked.range.count(),
            attempts: parked.attempts,
            failed_at_ms: parked.failed_at.0,
            reason: parked.reason.to_string(),
        })
    })
}

/// What a watch is told of a topic.
pub(crate) fn watched_topic(topic: &Topic) -> control::WatchedTopic {
    control::WatchedTopic {
        name: topic.created.name.to_string(),
        id: topic.id().0,
        partitions: topic.config().partitions,
    }
}
