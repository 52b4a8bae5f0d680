//! The beginning of a live subscription: which topic it is, where that is, and where the subscription begins. It does not
//! deliver anything, and knows no protocol.

use sennit_engine::PartitionCommand;
use sennit_identity::Verb;
use sennit_model::{
    Durability, GroupName, LiveSettings, Offset, PartitionIndex, ReadFrom, Retention, TopicConfig,
    TopicKind, TopicName,
};

use super::{Control, gather};
use crate::{
    broker::{
        control_request::{ConsumerStart, ControlAnswer, ControlRefusal, Subscribe},
        name_change::NameChange,
        reserved_names::is_reserved,
        stream_request::Located,
    },
    identity::principal::Principal,
    runtime::shard_answers::Answer,
};

/// Where a live subscription may begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LiveStart {
    pub(crate) located: Located,
    /// The first offset that is kept.
    pub(crate) kept_from: Offset,
    /// The end of the topic now.
    pub(crate) end: Offset,
    /// How live connections follow it.
    pub(crate) live: LiveSettings,
}

impl Control {
    /// Finds where a live subscription to a topic may begin. A topic that is missing is created, in memory, for one who may
    /// create it.
    pub(crate) async fn begin_live(
        &self,
        principal: &Principal,
        name: &TopicName,
    ) -> Result<LiveStart, ControlRefusal> {
        principal.may(Verb::Subscribe, name.as_str())?;
        self.find_or_create_live(principal, name).await?;
        self.locate_live(principal, name).await
    }

    /// Says what one has to know who takes part in a group by a live connection. The topic, and the group, are created if they are
    /// missing, the topic for one who may create it.
    pub(crate) async fn begin_live_consumer(
        &self,
        principal: &Principal,
        topic: TopicName,
        group: GroupName,
    ) -> Result<ConsumerStart, ControlRefusal> {
        principal.may(Verb::Consume, topic.as_str())?;
        self.find_or_create_live(principal, &topic).await?;
        let subscribe = Subscribe { topic, group, create_group_if_missing: true };
        match self.subscribe(subscribe).await? {
            ControlAnswer::ConsumerStart(start) => Ok(start),
            _ => Err(ControlRefusal::WrongAnswer),
        }
    }

    /// Finds what a topic keeps.
    pub(crate) async fn locate_live(
        &self,
        principal: &Principal,
        name: &TopicName,
    ) -> Result<LiveStart, ControlRefusal> {
        principal.may(Verb::Subscribe, name.as_str())?;
        let unknown = || ControlRefusal::UnknownTopic(name.clone());
        self.know(name, None).await?;
        let located = self.locate(name)?.filter(|_| !is_reserved(name)).ok_or_else(unknown)?;
        let topic = self.topic_named(name)?;
        let locate = PartitionCommand::Locate(ReadFrom::Earliest, None);
        let asked = self.ask_partitions_that(&topic, |index| {
            (index == PartitionIndex(0)).then(|| locate.clone())
        });
        let located_at = gather(asked).await?.pop();
        // It may have been altered meanwhile; who is subscribed is told of a change behind this answer.
        let live = self.topic_named(name)?.config().live;
        match located_at {
            Some(Answer::Located { first: kept_from, end }) => {
                Ok(LiveStart { located, kept_from, end, live })
            }
            _ => Err(ControlRefusal::WrongAnswer),
        }
    }

    /// Finds what these topics keep, all at once. Those that are gone, the broker's own and those of several partitions are left out.
    ///
    /// # Errors
    /// As those of [`Self::look_up`].
    pub(crate) async fn locate_each(
        &self,
        names: Vec<TopicName>,
    ) -> Result<Vec<(TopicName, LiveStart)>, ControlRefusal> {
        let mut asked = Vec::with_capacity(names.len());
        for name in names {
            let Some(located) = self.locate(&name)?.filter(|_| !is_reserved(&name)) else {
                continue;
            };
            if located.partitions > 1 {
                continue;
            }
            let topic = self.topic_named(&name)?;
            let live = topic.config().live;
            let locate = PartitionCommand::Locate(ReadFrom::Earliest, None);
            let answers = self.ask_partitions_that(&topic, |_| Some(locate.clone()));
            asked.push((name, (located, live), answers));
        }
        let mut found = Vec::with_capacity(asked.len());
        for (name, (located, live), answers) in asked {
            // One that is deleted meanwhile does not answer.
            if let Ok(mut answers) = gather(answers).await
                && let Some(Answer::Located { first: kept_from, end }) = answers.pop()
            {
                found.push((name, LiveStart { located, kept_from, end, live }));
            }
        }
        Ok(found)
    }

    /// Where the topic of a name is that is there already.
    pub(crate) async fn find_topic(&self, name: &TopicName) -> Result<Located, ControlRefusal> {
        self.wait_for_changes(name).await;
        self.know(name, None).await?;
        let found = self.locate(name)?.filter(|_| !is_reserved(name));
        found.ok_or_else(|| ControlRefusal::UnknownTopic(name.clone()))
    }

    /// Where the topic of a name is; one that is missing is created, in memory, for one who may create it.
    pub(crate) async fn find_or_create_live(
        &self,
        principal: &Principal,
        name: &TopicName,
    ) -> Result<Located, ControlRefusal> {
        self.wait_for_changes(name).await;
        let unknown = || ControlRefusal::UnknownTopic(name.clone());
        if is_reserved(name) {
            return Err(unknown());
        }
        self.know(name, None).await?;
        if let Some(located) = self.locate(name)? {
            return Ok(located);
        }
        if principal.may(Verb::Create, name.as_str()).is_err() {
            return Err(unknown());
        }
        self.check_topics_quota(principal, name)?;
        let durability = Durability::Memory;
        let live = LiveSettings::OF_CHANNEL;
        let retention = Retention { age: self.channels_keep, ..Retention::FOREVER };
        let of_kind = TopicConfig::of_kind(TopicKind::Stream);
        let config = TopicConfig { durability, live, retention, ..of_kind };
        self.change(NameChange::FindOrCreateTopic { name: name.clone(), config }).await?;
        self.locate(name)?.ok_or_else(unknown)
    }
}
