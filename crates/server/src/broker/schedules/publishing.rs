//! Publishes the messages of schedules, and asks whether one is settled. It decides nothing.

use std::rc::Rc;

use sennit_engine::{
    Command, ExplainSubject, Origin, PartitionCommand, Publish, Refusal, Topic, WaitReason,
};
use sennit_model::{
    BatchBuilder, GroupName, Offset, PartitionId, PartitionIndex, ProducerId, ProducerStamp,
    ScheduleName, Timestamp, TopicName,
};

use super::{request::ScheduleConfig, state::LastMessage};
use crate::{
    broker::{control_request::ControlRefusal, publish_hook::PublishHook},
    identity::authority::Authority,
    runtime::{clock, core::CoreHandle, index::ShardIndex, shard_answers::Answer},
};

/// What became of a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Published {
    /// Its message is there.
    Now(LastMessage),
    /// It was published in an earlier life of the broker, and later ones since.
    Before,
}

/// The publisher of all schedules, on the first core.
#[derive(Debug)]
pub(super) struct Publishing {
    core: CoreHandle,
    authority: Authority,
    hook: Rc<dyn PublishHook>,
}

/// Who pays for a message, where its topic is a tenant's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Payment {
    /// It is refused as a publish is.
    Before,
    /// It is published all the same, unless the tenant stores too much.
    Afterwards,
}

impl Publishing {
    pub(super) fn new(core: CoreHandle, authority: Authority, hook: Rc<dyn PublishHook>) -> Self {
        Self { core, authority, hook }
    }

    /// The topic of this name.
    ///
    /// # Errors
    /// There is none, or that is not known now.
    pub(super) fn find(&self, name: &TopicName) -> Result<Topic, ControlRefusal> {
        let found = self.core.look(|core| {
            let catalogue = core.whole_catalogue().ok_or(Refusal::NoLeader)?;
            Ok::<_, Refusal>(catalogue.topic_named(name).cloned())
        });
        found?.ok_or_else(|| ControlRefusal::UnknownTopic(name.clone()))
    }

    /// Publishes a tick once, however often it is called for it.
    ///
    /// # Errors
    /// The broker's refusal.
    pub(super) async fn publish_tick(
        &self,
        name: &ScheduleName,
        config: &ScheduleConfig,
        producer: u64,
        tick: Timestamp,
    ) -> Result<Published, ControlRefusal> {
        let stamp = stamp_of(producer, tick);
        match self.publish(name, config, stamp, tick, Payment::Afterwards).await {
            Ok(message) => Ok(Published::Now(message)),
            Err(ControlRefusal::Engine(Refusal::ProducerFenced { .. })) => Ok(Published::Before),
            Err(refusal) => Err(refusal),
        }
    }

    /// Publishes a message that is no tick.
    ///
    /// # Errors
    /// The broker's refusal.
    pub(super) async fn publish_now(
        &self,
        name: &ScheduleName,
        config: &ScheduleConfig,
        now: Timestamp,
    ) -> Result<LastMessage, ControlRefusal> {
        self.publish(name, config, ProducerStamp::default(), now, Payment::Before).await
    }

    async fn publish(
        &self,
        name: &ScheduleName,
        config: &ScheduleConfig,
        producer: ProducerStamp,
        tick: Timestamp,
        payment: Payment,
    ) -> Result<LastMessage, ControlRefusal> {
        let topic = self.find(&config.topic)?;
        // Without a key, all messages of a schedule are in one partition all the same.
        let key = if config.key.is_empty() { name.as_str().as_bytes() } else { &config.key };
        let index = PartitionIndex::of_key(key, topic.config().partitions);
        let mut builder = BatchBuilder::new();
        builder.push(&config.message(name, tick)).expect("it was checked when it was made");
        let batch = builder.take().expect("one message was pushed");
        let batch = self.hook.on_publish(topic.id(), producer.id.0, batch).await?;
        let meter = self.authority.meter_of_topic(config.topic.as_str());
        let size = (1, batch.bytes().len() as u64);
        match (&meter, payment) {
            (None, _) => {}
            (Some(meter), Payment::Before) => meter.take(size, clock::now())?,
            (Some(meter), Payment::Afterwards) => meter.check_stored(size.1, clock::now())?,
        }
        let partition = PartitionId { topic: topic.id(), index };
        let publish = |origin| Command::Publish(Publish { origin, partition, producer, batch });
        let Answer::Published { first, .. } = self.ask(&topic, index, publish).await? else {
            return Err(ControlRefusal::WrongAnswer);
        };
        if let Some(meter) = meter.filter(|_| payment == Payment::Afterwards) {
            meter.charge(size, clock::now());
        }
        // The offset of an old duplicate may be forgotten: then nothing is known to be at work.
        let offset = first.unwrap_or(Offset(0)).0;
        Ok(LastMessage { tick_ms: tick.0, topic: topic.id().0, partition: index.0, offset })
    }

    /// Whether the default group of the topic is done with a message; it is if there is no such group any more.
    ///
    /// # Errors
    /// The broker's refusal.
    pub(super) async fn is_settled(
        &self,
        config: &ScheduleConfig,
        last: &LastMessage,
    ) -> Result<bool, ControlRefusal> {
        let topic = self.find(&config.topic)?;
        let group = topic.group(&GroupName::default_group()).map(|group| group.id);
        let Some(group) = group.filter(|_| topic.id().0 == last.topic) else { return Ok(true) };
        let index = PartitionIndex(last.partition);
        let partition = PartitionId { topic: topic.id(), index };
        let subject = ExplainSubject::Offset(Offset(last.offset));
        let asked = PartitionCommand::Explain(group, subject);
        let asked = |origin| Command::Partition(origin, partition, asked);
        match self.ask(&topic, index, asked).await? {
            Answer::Explained(explanation) => {
                Ok(matches!(explanation.reason, WaitReason::Settled | WaitReason::NoMessage))
            }
            _ => Err(ControlRefusal::WrongAnswer),
        }
    }

    async fn ask(
        &self,
        topic: &Topic,
        index: PartitionIndex,
        command: impl FnOnce(Origin) -> Command,
    ) -> Result<Answer, ControlRefusal> {
        let shard: ShardIndex = self.core.cores.placement.shard_of(topic.created.home, index);
        let answer = self.core.with(|core| {
            let (origin, answer) = core.answers.ask();
            core.command(shard, command(origin));
            core.handle();
            answer
        });
        match answer.await {
            Ok(answer) => answer.map_err(ControlRefusal::Engine),
            Err(_) => Err(ControlRefusal::ShuttingDown),
        }
    }
}

/// The producer of a tick: its epoch is the second of the tick, so that each tick has a sequence of its own, and an
/// earlier one than the last is known to have been published.
fn stamp_of(producer: u64, tick: Timestamp) -> ProducerStamp {
    let epoch = u32::try_from(tick.0 / 1000).unwrap_or(u32::MAX);
    ProducerStamp { id: ProducerId(producer), epoch, first_sequence: 0 }
}
