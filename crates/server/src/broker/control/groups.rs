//! Requests about groups: names and settings go to the catalogue, and its partitions follow. What a group
//! does with messages is the engine's. It knows no protocol.

use sennit_engine::{Catalogue, CatalogueCommand, Findings, PartitionCommand, Refusal, Topic};
use sennit_model::{
    GroupConfig, GroupId, GroupName, OffsetRange, PartitionIndex, StartAt, TopicId, TopicName,
    limits::PARKED_SHOWN_MAX,
};

use super::{
    Changed, Control,
    descriptions::{group_description, parked_runs},
    gather, group_named, place_of,
};
use crate::{
    broker::{
        control_request::{
            AlterGroup, ConsumerStart, ControlAnswer, ControlRefusal, CreateGroup, ListedGroup,
            OffsetsOfPartition, RetryParked, Subscribe,
        },
        name_change::NameChange,
    },
    runtime::{
        group_metrics::{Named, NamedGroups},
        index::ShardIndex,
        shard_answers::Answer,
    },
};

impl Control {
    pub(super) async fn create_group(
        &self,
        create: CreateGroup,
    ) -> Result<Changed, ControlRefusal> {
        let CreateGroup { topic, group, config, start } = create;
        let _changes = self.changes.of(topic.as_str()).await;
        let topic = self.topic_named(&topic)?.id();
        let Changed { group, created, .. } = self.new_group(topic, group, config, start).await?;
        Ok(Changed { topic, group, created })
    }

    /// Has a group be there, with default settings and at the earliest message if it was not.
    pub(super) async fn find_or_create_group(
        &self,
        topic: &TopicName,
        name: GroupName,
    ) -> Result<Changed, ControlRefusal> {
        let _changes = self.changes.of(topic.as_str()).await;
        let topic = self.topic_named(topic)?;
        if let Ok(held) = group_named(&topic, &name) {
            return Ok(Changed { topic: topic.id(), group: Some(held.id), created: false });
        }
        self.new_group(topic.id(), name, GroupConfig::default(), StartAt::Earliest).await
    }

    async fn new_group(
        &self,
        topic: TopicId,
        name: GroupName,
        config: GroupConfig,
        start: StartAt,
    ) -> Result<Changed, ControlRefusal> {
        let command = CatalogueCommand::CreateGroup { topic, name, config, start };
        let changed = self.change_catalogue(command).await?;
        // As topics that are found.
        if changed.created || self.peers.is_some() {
            self.open_partitions(topic).await?;
        }
        Ok(changed)
    }

    pub(super) async fn delete_group(
        &self,
        topic: &TopicName,
        group: &GroupName,
    ) -> Result<Changed, ControlRefusal> {
        let _changes = self.changes.of(topic.as_str()).await;
        let topic = self.topic_named(topic)?;
        let group = group_named(&topic, group)?.id;
        let topic = topic.id();
        self.change_catalogue(CatalogueCommand::DeleteGroup { topic, group }).await?;
        self.open_partitions(topic).await?;
        Ok(Changed { topic, group: Some(group), created: false })
    }

    pub(super) async fn alter_group(&self, alter: AlterGroup) -> Result<Changed, ControlRefusal> {
        let _changes = self.changes.of(alter.topic.as_str()).await;
        let topic = self.topic_named(&alter.topic)?;
        let group = group_named(&topic, &alter.group)?;
        let config = alter.change.applied_to(group.config());
        config.check().map_err(Refusal::Config)?;
        let (topic, group) = (topic.id(), group.id);
        self.change_catalogue(CatalogueCommand::AlterGroup { topic, group, config }).await?;
        self.open_partitions(topic).await?;
        Ok(Changed { topic, group: Some(group), created: false })
    }

    pub(super) async fn retry_parked(
        &self,
        retry: RetryParked,
    ) -> Result<ControlAnswer, ControlRefusal> {
        let topic = self.topic_named(&retry.topic)?;
        let group = group_named(&topic, &retry.group)?.id;
        let mut asked = Vec::new();
        if retry.offsets.is_empty() {
            asked = self.ask_partitions(&topic, |_| PartitionCommand::RetryParked(group, None));
        }
        for offsets in &retry.offsets {
            let range = checked_range(&topic, offsets)?;
            asked.extend(self.ask_partitions_that(&topic, |index| {
                (index == offsets.partition)
                    .then_some(PartitionCommand::RetryParked(group, Some(range)))
            }));
        }
        let mut messages = 0;
        for answer in gather(asked).await? {
            let Answer::Unparked(count) = answer else { return Err(ControlRefusal::WrongAnswer) };
            messages += count;
        }
        let (topic, group) = (topic.id(), Some(group));
        Ok(ControlAnswer::Done { topic, group, created: false, messages })
    }

    pub(super) fn list_groups(&self, topic: &TopicName) -> Result<ControlAnswer, ControlRefusal> {
        let topic = self.topic_named(topic)?;
        let mut groups: Vec<_> = topic.groups.iter().collect();
        groups.sort_unstable_by(|a, b| a.name().cmp(b.name()));
        let groups = groups.into_iter().map(|group| ListedGroup {
            name: group.name().clone(),
            id: group.id,
            config: group.config().clone(),
        });
        Ok(ControlAnswer::Groups(groups.collect()))
    }

    pub(super) async fn describe_group(
        &self,
        topic: &TopicName,
        group: &GroupName,
    ) -> Result<ControlAnswer, ControlRefusal> {
        let topic = self.topic_named(topic)?;
        let group = group_named(&topic, group)?;
        let partitions = self.describe_partitions(&topic).await?;
        let mut description = group_description(&topic, &group, &partitions);
        description.parked_runs =
            parked_runs(group.id, &partitions).take(PARKED_SHOWN_MAX).collect();
        Ok(ControlAnswer::Group(description))
    }

    /// Says what a consumer has to know of its group. Its partitions hear of it from whoever asks.
    pub(super) async fn subscribe(
        &self,
        subscribe: Subscribe,
    ) -> Result<ControlAnswer, ControlRefusal> {
        let Subscribe { topic: name, group: group_name, create_group_if_missing } = subscribe;
        self.wait_for_changes(&name).await;
        let mut topic = self.topic_named(&name)?;
        let mut group = group_named(&topic, &group_name);
        if create_group_if_missing && group.is_err() {
            let named =
                NameChange::FindOrCreateGroup { topic: name.clone(), group: group_name.clone() };
            self.change(named).await?;
            topic = self.topic_named(&name)?;
            group = group_named(&topic, &group_name);
        }
        let group = group?;
        Ok(ControlAnswer::ConsumerStart(ConsumerStart {
            place: place_of(&topic),
            group: group.id,
            lease: group.config().lease,
        }))
    }
}

impl Control {
    /// Says by name, in the metrics of a shard, what a survey has found of its groups.
    pub(crate) fn name_groups(&self, shard: ShardIndex, findings: Findings) {
        let Findings { holding, backlogs, parked: _ } = findings;
        let groups = self.core.look(|core| {
            let catalogue = core.catalogue();
            let holding = holding
                .into_iter()
                .filter_map(|held| named(catalogue, (held.topic, held.group), held.since));
            let backlogs = backlogs
                .into_iter()
                .filter_map(|backlog| named(catalogue, (backlog.topic, backlog.group), backlog));
            NamedGroups { holding: holding.collect(), backlogs: backlogs.collect() }
        });
        self.core.cores.shard_metrics[shard].groups.set(groups);
    }
}

/// What is said of a group with its name; `None` if it is gone.
fn named<T>(
    catalogue: &Catalogue,
    (topic, group): (TopicId, GroupId),
    of_group: T,
) -> Option<Named<T>> {
    let topic = catalogue.topic(topic)?;
    let group = topic.groups.iter().find(|held| held.id == group)?;
    let (topic, group) = (topic.created.name.to_string(), group.name().to_string());
    Some(Named { topic, group, of_group })
}

/// The offsets that a client names, if they are offsets of the topic.
fn checked_range(
    topic: &Topic,
    offsets: &OffsetsOfPartition,
) -> Result<OffsetRange, ControlRefusal> {
    let OffsetsOfPartition { partition, start, end } = *offsets;
    let (topic, partitions) = (&topic.created.name, topic.config().partitions);
    if partition >= PartitionIndex(partitions) {
        let topic = topic.clone();
        return Err(ControlRefusal::UnknownPartition { topic, partitions, partition });
    }
    if start >= end {
        return Err(ControlRefusal::NoOffsets { topic: topic.clone(), start, end });
    }
    Ok(OffsetRange { start, end })
}
