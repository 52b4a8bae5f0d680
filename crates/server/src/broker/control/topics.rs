//! Requests about topics: their names and settings change in the catalogue, and their partitions follow.
//! It knows no groups, no streams and no protocol.

use std::sync::atomic::Ordering::Relaxed;

use sennit_engine::{
    CatalogueCommand, PartitionCommand, PartitionDescription, Placed, Refusal, Topic,
};
use sennit_identity::{OverQuota, QuotaRetry, Verb};
use sennit_model::{Offset, PartitionIndex, TopicConfig, TopicId, TopicKind, TopicName};

use super::{
    Changed, Control,
    descriptions::{topic_description, watched_topic},
    incarnation,
};
use crate::identity::principal::Principal;
use crate::{
    broker::{
        control_request::{
            ControlAnswer, ControlRefusal, ListTopics, ListedTopic, TopicOpened, TopicPage,
            TopicPlace,
        },
        live_changes,
        name_change::NameChange,
    },
    runtime::shard_answers::Answer,
};

/// Most topics in a page of a listing.
const PAGE_TOPICS_MAX: usize = 1000;

impl Control {
    pub(super) async fn create_topic(
        &self,
        name: TopicName,
        config: TopicConfig,
        beside: Option<TopicName>,
    ) -> Result<Changed, ControlRefusal> {
        let _changes = self.changes.of(name.as_str()).await;
        let placed = beside.map(|beside| self.placed_beside(&name, beside)).transpose()?;
        self.new_topic(name, config, placed).await
    }

    /// Has a topic be there, with these settings if it was not.
    pub(super) async fn find_or_create_topic(
        &self,
        name: TopicName,
        config: TopicConfig,
    ) -> Result<Changed, ControlRefusal> {
        let _changes = self.changes.of(name.as_str()).await;
        match self.topic_named(&name) {
            Ok(held) => {
                if self.peers.is_some() {
                    self.open_partitions(held.id()).await?;
                }
                Ok(Changed { topic: held.id(), group: None, created: false })
            }
            Err(_) => self.new_topic(name, config, None).await,
        }
    }

    /// Where a new topic lies so that its partitions are on the shards of those of another.
    fn placed_beside(&self, name: &TopicName, beside: TopicName) -> Result<Placed, ControlRefusal> {
        let placement = &self.core.cores.placement;
        let shard_of = |topic: &Topic| placement.shard_of(topic.created.home, PartitionIndex(0));
        let shard = shard_of(&self.topic_named(&beside)?);
        match self.topic_named(name) {
            Ok(held) if shard_of(&held) != shard => {
                Err(ControlRefusal::TopicsApart { topic: name.clone(), beside })
            }
            _ => Ok(Placed { shard: shard.0, shards: placement.shards() as u32 }),
        }
    }

    async fn new_topic(
        &self,
        name: TopicName,
        config: TopicConfig,
        placed: Option<Placed>,
    ) -> Result<Changed, ControlRefusal> {
        let incarnation = incarnation()?;
        let command =
            CatalogueCommand::CreateTopic { name, config, incarnation, placed, is_stream: false };
        let changed = self.change_catalogue(command).await?;
        // One that is found may be what a leader has left that was deposed before it had opened the partitions.
        if changed.created || self.peers.is_some() {
            self.open_partitions(changed.topic).await?;
        }
        if changed.created {
            self.announce(changed.topic, Offset(0));
        }
        Ok(changed)
    }

    /// Tells the watches, and the subscriptions to streams, that a topic is there and may be read; what
    /// lies behind `from` is new.
    pub(crate) fn announce(&self, topic: TopicId, from: Offset) {
        if self.peers.is_some() {
            self.reported.borrow_mut().insert((topic, true));
        }
        self.announce_here(topic, from);
    }

    pub(super) fn announce_here(&self, topic: TopicId, from: Offset) {
        let topic = self.core.look(|core| core.catalogue().topic(topic).cloned());
        // It may be deleted again by now.
        let Some(topic) = topic else { return };
        self.watches.borrow_mut().appeared(&watched_topic(&topic));
        if topic.config().partitions == 1 {
            for listener in self.listeners.iter() {
                listener.clone().appeared(&topic.created.name, topic.id(), from);
            }
        }
    }

    pub(super) async fn alter_topic(
        &self,
        name: &TopicName,
        config: TopicConfig,
    ) -> Result<Changed, ControlRefusal> {
        let _changes = self.changes.of(name.as_str()).await;
        let held = self.topic_named(name)?;
        let (topic, live) = (held.id(), config.live);
        self.change_catalogue(CatalogueCommand::AlterTopic { topic, config }).await?;
        if held.config().live != live {
            live_changes::tell(&self.core.cores, topic, live);
        }
        self.core.cores.topic_changes.fetch_add(1, Relaxed);
        self.open_partitions(topic).await?;
        Ok(Changed { topic, group: None, created: false })
    }

    pub(super) async fn delete_topic(&self, name: &TopicName) -> Result<Changed, ControlRefusal> {
        let _changes = self.changes.of(name.as_str()).await;
        let topic = self.topic_named(name)?;
        self.remove_whole(&topic).await?;
        Ok(Changed { topic: topic.id(), group: None, created: false })
    }

    /// Tells the listener that a topic is gone.
    pub(crate) fn listener_gone(&self, topic: &Topic) {
        for listener in self.listeners.iter() {
            listener.clone().gone(&topic.created.name, topic.id());
        }
    }

    /// Deletes a topic, whatever may need it.
    pub(crate) async fn remove_topic(&self, topic: &Topic) -> Result<(), ControlRefusal> {
        self.change_catalogue(CatalogueCommand::DeleteTopic { topic: topic.id() }).await?;
        if self.peers.is_some() {
            self.reported.borrow_mut().insert((topic.id(), false));
        }
        self.watches.borrow_mut().gone(&watched_topic(topic));
        self.listener_gone(topic);
        match self.tell_partitions(topic, &PartitionCommand::Drop).await {
            // A start, which has just found that the catalogue does not know it, was first.
            Err(ControlRefusal::Engine(Refusal::UnknownTopic)) => {}
            dropped => drop(dropped?),
        }
        if topic.created.home != topic.id() {
            // Its source has nowhere to send its dead letters now.
            self.open_partitions(topic.created.home).await?;
        }
        Ok(())
    }

    pub(super) async fn open_topic(
        &self,
        principal: &Principal,
        name: TopicName,
        create_if_missing: bool,
    ) -> Result<ControlAnswer, ControlRefusal> {
        self.wait_for_changes(&name).await;
        let topic = match self.topic_named(&name) {
            Err(_) if create_if_missing => {
                principal.may(Verb::Create, name.as_str())?;
                self.check_topics_quota(principal, &name)?;
                let config = TopicConfig::of_kind(TopicKind::Queue);
                self.change(NameChange::FindOrCreateTopic { name: name.clone(), config }).await?;
                self.topic_named(&name)?
            }
            found => found?,
        };
        let incarnation = topic.created.incarnation;
        Ok(ControlAnswer::TopicOpened(TopicOpened { place: place_of(&topic), incarnation }))
    }

    /// Waits for a change of a topic that is under way: between its commit and the end of it the catalogue has
    /// what partitions do not know yet.
    pub(super) async fn wait_for_changes(&self, topic: &TopicName) {
        drop(self.changes.of(topic.as_str()).await);
    }

    /// Refuses a new topic where the principal's tenant has as many as its quota allows.
    pub(crate) fn check_topics_quota(
        &self,
        principal: &Principal,
        name: &TopicName,
    ) -> Result<(), ControlRefusal> {
        let quota = principal.meter().and_then(|meter| meter.quotas().topics);
        let (Some(limit), Some(tenant)) = (quota, principal.tenant()) else { return Ok(()) };
        let count = self.look_up(|catalogue| {
            if catalogue.topic_named(name).is_some() {
                // It is found, or refused for its settings.
                return 0;
            }
            let of = |separator: char| {
                let prefix = format!("{tenant}{separator}");
                let behind = catalogue.topics_after_name(&prefix);
                let own =
                    behind.take_while(|topic| topic.created.name.as_str().starts_with(&prefix));
                own.take(usize::try_from(limit).unwrap_or(usize::MAX)).count() as u64
            };
            of('.') + of('/')
        })?;
        match count >= limit && count > 0 || limit == 0 {
            true => {
                let retry = QuotaRetry::WhenFreed;
                Err(OverQuota { quota: "topics", limit, stored: None, retry }.into())
            }
            false => Ok(()),
        }
    }

    /// Lists the topics that the principal may know.
    pub(super) fn list_topics(
        &self,
        principal: &Principal,
        list: &ListTopics,
    ) -> Result<ControlAnswer, ControlRefusal> {
        let count = list.topics_max.unwrap_or(PAGE_TOPICS_MAX).min(PAGE_TOPICS_MAX);
        self.look_up(|catalogue| {
            let known = catalogue.topics_after_name(&list.after);
            let mut named = known
                .filter(|topic| principal.may(Verb::Describe, topic.created.name.as_str()).is_ok());
            let topics = named.by_ref().take(count).map(|topic| ListedTopic {
                name: topic.created.name.clone(),
                id: topic.id(),
                config: topic.config().clone(),
            });
            let topics: Vec<_> = topics.collect();
            let last = topics.last().map(|topic| topic.name.clone());
            let next_after = named.next().and(last);
            ControlAnswer::Topics(TopicPage { topics, next_after })
        })
    }

    pub(super) async fn describe_topic(
        &self,
        name: &TopicName,
    ) -> Result<ControlAnswer, ControlRefusal> {
        let topic = self.topic_named(name)?;
        let partitions = self.describe_partitions(&topic).await?;
        Ok(ControlAnswer::Topic(topic_description(&topic, partitions)))
    }

    /// Asks every partition of a topic for its description.
    pub(super) async fn describe_partitions(
        &self,
        topic: &Topic,
    ) -> Result<Vec<PartitionDescription>, ControlRefusal> {
        let answers = self.tell_partitions(topic, &PartitionCommand::Describe).await?;
        let described = answers.into_iter().map(|answer| match answer {
            Answer::Described(description) => Ok(description),
            _ => Err(ControlRefusal::WrongAnswer),
        });
        described.collect()
    }
}

/// Where the partitions of a topic are.
pub(super) fn place_of(topic: &Topic) -> TopicPlace {
    TopicPlace {
        topic: topic.id(),
        home: topic.created.home,
        partitions: topic.config().partitions,
    }
}
