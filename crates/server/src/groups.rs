//! What clients ask of groups: names and settings go to the catalogue, and its partitions follow. What a
//! group does with messages is the engine's.
#![expect(clippy::result_large_err, reason = "a failure is rare, and leaves at once as a reply")]

use sennit_engine::{CatalogueCommand, HoldingGroup, PartitionCommand, Topic};
use sennit_model::{
    GroupConfig, GroupName, Offset, OffsetRange, PartitionIndex, StartAt, TopicId,
    limits::PARKED_SHOWN_MAX,
};
use sennit_protocol::{ErrorCode, Reply, control};

use crate::{
    answers::Answer,
    control::{Control, ControlReply, Failure, done, gather, with_topic, wrong_answer},
    descriptions::{group_description, parked_runs},
    metrics::Holding,
};

impl Control {
    pub(crate) async fn create_group(
        &self,
        body: control::CreateGroup,
    ) -> Result<ControlReply, Failure> {
        let name: GroupName = body.name.parse().map_err(|error| Failure::from(&error))?;
        let config = body.group_config().map_err(|error| Failure::from(&error))?;
        let _changes = self.changes.of(&body.topic).await;
        let topic = self.topic_named(&body.topic)?.id();
        let (group, created) = self.new_group(topic, name, config, body.start_at()).await?;
        Ok(done(topic, group, created))
    }

    pub(crate) async fn new_group(
        &self,
        topic: TopicId,
        name: GroupName,
        config: GroupConfig,
        start: StartAt,
    ) -> Result<(u32, bool), Failure> {
        let command = CatalogueCommand::CreateGroup { topic, name, config, start };
        let (_, group, created) = self.change_catalogue(command).await?;
        if created {
            self.open_partitions(topic).await?;
        }
        Ok((group, created))
    }

    pub(crate) async fn delete_group(
        &self,
        body: control::DeleteGroup,
    ) -> Result<ControlReply, Failure> {
        let _changes = self.changes.of(&body.topic).await;
        let topic = self.topic_named(&body.topic)?;
        let group = self.group_named(&topic, &body.name)?.id;
        let topic = topic.id();
        self.change_catalogue(CatalogueCommand::DeleteGroup { topic, group }).await?;
        self.open_partitions(topic).await?;
        Ok(done(topic, group.0, false))
    }

    pub(crate) async fn alter_group(
        &self,
        body: control::AlterGroup,
    ) -> Result<ControlReply, Failure> {
        let _changes = self.changes.of(&body.topic).await;
        let topic = self.topic_named(&body.topic)?;
        let group = self.group_named(&topic, &body.name)?;
        let config = body.over(*group.config()).map_err(|error| Failure::from(&error))?;
        let (topic, group) = (topic.id(), group.id);
        self.change_catalogue(CatalogueCommand::AlterGroup { topic, group, config }).await?;
        self.open_partitions(topic).await?;
        Ok(done(topic, group.0, false))
    }

    pub(crate) async fn retry_parked(
        &self,
        body: control::RetryParked,
    ) -> Result<ControlReply, Failure> {
        let topic = self.topic_named(&body.topic)?;
        let group = self.group_named(&topic, &body.name)?.id;
        let mut asked = Vec::new();
        if body.offsets.is_empty() {
            asked = self.ask_partitions(&topic, |_| PartitionCommand::RetryParked(group, None));
        }
        for offsets in &body.offsets {
            let (partition, range) = range_of(&topic, offsets)?;
            asked.extend(self.ask_partitions_that(&topic, |index| {
                (index == partition).then_some(PartitionCommand::RetryParked(group, Some(range)))
            }));
        }
        let mut messages = 0;
        for answer in gather(asked).await? {
            let Answer::Unparked(count) = answer else { return Err(wrong_answer()) };
            messages += count;
        }
        let done =
            control::Done { created: false, topic_id: topic.id().0, group_id: group.0, messages };
        Ok(ControlReply { reply: Reply::Done(done), home: topic.id() })
    }

    pub(crate) fn list_groups(&self, body: &control::ListGroups) -> Result<ControlReply, Failure> {
        let topic = self.topic_named(&body.topic)?;
        let mut groups: Vec<_> = topic.groups.iter().collect();
        groups.sort_unstable_by(|a, b| a.name().cmp(b.name()));
        let groups = groups.into_iter().map(|group| control::GroupEntry {
            name: group.name().to_string(),
            id: group.id.0,
            config: Some(group.config().into()),
        });
        let list = control::GroupList { groups: groups.collect() };
        Ok(ControlReply { reply: Reply::GroupList(list), home: topic.created.home })
    }

    pub(crate) async fn describe_group(
        &self,
        body: control::DescribeGroup,
    ) -> Result<ControlReply, Failure> {
        let topic = self.topic_named(&body.topic)?;
        let group = self.group_named(&topic, &body.name)?;
        let partitions = self.describe_partitions(&topic).await?;
        let mut description = group_description(&topic, &group, &partitions);
        description.parked_runs =
            parked_runs(group.id, &partitions).take(PARKED_SHOWN_MAX).collect();
        let reply = Reply::GroupDescription(description);
        Ok(ControlReply { reply, home: topic.created.home })
    }
}

impl Control {
    /// Says by name, in the metrics of a shard, which of its groups hold messages that others are through
    /// with.
    pub(crate) fn name_holding(&self, shard: usize, groups: &[HoldingGroup]) {
        let named = self.core.look(|core| {
            let catalogue = core.shard().catalogue();
            let named = groups.iter().filter_map(|held| {
                let topic = catalogue.topic(held.topic)?;
                let group = topic.groups.iter().find(|group| group.id == held.group)?;
                let (topic, group) = (topic.created.name.to_string(), group.name().to_string());
                Some(Holding { topic, group, since: held.since })
            });
            named.collect()
        });
        self.core.cores.metrics[shard].set_holding(named);
    }
}

/// The partition and offsets that a client names.
fn range_of(
    topic: &Topic,
    offsets: &control::OffsetsOfPartition,
) -> Result<(PartitionIndex, OffsetRange), Failure> {
    let control::OffsetsOfPartition { partition, start, end } = *offsets;
    let (name, partitions) = (topic.created.name.as_str(), topic.config().partitions);
    if partition >= partitions {
        let message = format!("topic {name:?} has {partitions} partitions, none is {partition}");
        return Err(with_topic(control::Error::new(ErrorCode::UnknownTopic, message), name));
    }
    if start >= end {
        let message = format!("offsets {start}..{end} are none: the end is behind the start");
        return Err(with_topic(control::Error::new(ErrorCode::InvalidConfig, message), name));
    }
    Ok((PartitionIndex(partition), OffsetRange { start: Offset(start), end: Offset(end) }))
}
