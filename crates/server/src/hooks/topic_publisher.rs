//! Publishes for clients that name topics, one message at a time: the right, the place of the topic, its hook, the quota and
//! the room of its shard, in this order. The doors of live connections and of the HTTP API publish through it. It knows no
//! protocol.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::Rc,
};

use foldhash::fast::RandomState;
use sennit_engine::{Command, Publish, Refusal};
use sennit_identity::Verb;
use sennit_model::{
    BatchBuilder, Message, Offset, PartitionId, PartitionIndex, ProducerStamp, TopicName,
};
use tokio::sync::oneshot;

use super::broker_publishes::BrokerPublishes;
use crate::{
    broker::{
        control::ask_control, control_request::ControlRefusal, publish_hook::PublishHook as _,
        stream_request::Located, streams::wait_for_room,
    },
    identity::principal::Principal,
    runtime::{core::CoreHandle, shard_answers::Answer},
};

/// Topics whose place a core remembers for publishers.
const PLACES_MAX: usize = 1 << 16;

/// Where a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// To a channel, which is a topic of one partition. One that is missing is created, in memory, for a principal that may
    /// create it.
    Channel,
    /// To a topic that is there: to this partition, or to that of the message's key; without a key to each in turn.
    Topic(Option<PartitionIndex>),
}

/// A message that is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Published {
    pub(crate) partition: PartitionIndex,
    /// Its offset; of a duplicate that of the message that was there before, unless that is forgotten.
    pub(crate) offset: Option<Offset>,
    /// Whether the topic looks for duplicates, and this was one.
    pub(crate) is_duplicate: bool,
}

/// A message on its way to its shard.
#[derive(Debug)]
pub(crate) struct HandedOver {
    partition: PartitionIndex,
    answer: oneshot::Receiver<Result<Answer, Refusal>>,
}

/// The publisher of a core: a service that it has once somebody publishes so.
#[derive(Debug)]
pub(crate) struct TopicPublisher {
    core: CoreHandle,
    /// Where topics are that were published to. A number is never given to another topic: one that is gone says so.
    places: RefCell<HashMap<TopicName, Located, RandomState>>,
    /// The partition of the next message without a key, among as many as there are.
    turn: Cell<u32>,
}

impl TopicPublisher {
    /// The publisher of this core.
    pub(crate) fn of_core(core: &CoreHandle) -> Rc<Self> {
        core.services.find().unwrap_or_else(|| {
            let (places, turn) = Default::default();
            let publisher = Rc::new(Self { core: core.clone(), places, turn });
            core.services.add(publisher.clone());
            publisher
        })
    }

    /// Publishes a message; returns when it is committed.
    ///
    /// # Errors
    /// It is not appended, unless the refusal says that this is not known.
    pub(crate) async fn publish(
        &self,
        principal: &Principal,
        topic: &TopicName,
        destination: Destination,
        message: &Message,
    ) -> Result<Published, ControlRefusal> {
        let handed = self.hand_over(principal, topic, destination, message).await?;
        match self.committed(topic, handed).await {
            // Its place was remembered: the name may be another topic's by now.
            Err(ControlRefusal::UnknownTopic(_)) => {
                let handed = self.hand_over(principal, topic, destination, message).await?;
                self.committed(topic, handed).await
            }
            outcome => outcome,
        }
    }

    /// Has a message on its way to its shard. Messages that are handed over one after the other keep their order.
    ///
    /// # Errors
    /// It is not appended.
    pub(crate) async fn hand_over(
        &self,
        principal: &Principal,
        topic: &TopicName,
        destination: Destination,
        message: &Message,
    ) -> Result<HandedOver, ControlRefusal> {
        principal.may(Verb::Publish, topic.as_str())?;
        let mut builder = BatchBuilder::new();
        builder.push(message)?;
        let batch = builder.take().ok_or(ControlRefusal::WrongAnswer)?;
        let located = self.place(principal, topic, destination).await?;
        let index = self.partition(topic, located, destination, &message.key)?;
        let batch = BrokerPublishes(self.core.clone()).on_publish(located.topic, 0, batch).await?;
        let partition = PartitionId { topic: located.topic, index };
        let shard = self.core.cores.placement.shard_of(located.home, index);
        let bytes = batch.bytes().len() as u64;
        wait_for_room(&self.core, shard, bytes).await?;
        if self.core.look(|core| core.is_draining()) {
            return Err(ControlRefusal::ShuttingDown);
        }
        principal.take((batch.count().into(), bytes))?;
        // It may have waited, and the right been taken meanwhile.
        principal.may(Verb::Publish, topic.as_str())?;
        let answer = self.core.with(|core| {
            let (origin, answer) = core.answers.ask();
            let producer = ProducerStamp::default();
            core.command(shard, Command::Publish(Publish { origin, partition, producer, batch }));
            answer
        });
        Ok(HandedOver { partition: index, answer })
    }

    /// Waits until a message is committed that was handed over.
    ///
    /// # Errors
    /// It is not appended, unless the refusal says that this is not known.
    pub(crate) async fn committed(
        &self,
        topic: &TopicName,
        handed: HandedOver,
    ) -> Result<Published, ControlRefusal> {
        let HandedOver { partition, answer } = handed;
        match answer.await {
            Ok(Ok(Answer::Published { first: offset, is_duplicate })) => {
                Ok(Published { partition, offset, is_duplicate })
            }
            Ok(Ok(_)) => Err(ControlRefusal::WrongAnswer),
            Ok(Err(Refusal::UnknownTopic)) => {
                self.places.borrow_mut().remove(topic);
                Err(ControlRefusal::UnknownTopic(topic.clone()))
            }
            Ok(Err(refusal)) => Err(ControlRefusal::Engine(refusal)),
            Err(_) => Err(ControlRefusal::ShuttingDown),
        }
    }

    /// Where a topic is.
    async fn place(
        &self,
        principal: &Principal,
        topic: &TopicName,
        destination: Destination,
    ) -> Result<Located, ControlRefusal> {
        let known = self.places.borrow().get(topic).copied();
        if let Some(located) = known {
            return Ok(located);
        }
        let (asker, name) = (principal.clone(), topic.clone());
        let asked = ask_control(&self.core.cores, move |control| async move {
            match destination {
                Destination::Channel => control.find_or_create_live(&asker, &name).await,
                Destination::Topic(_) => control.find_topic(&name).await,
            }
        });
        let located = asked.await?;
        let mut places = self.places.borrow_mut();
        if places.len() >= PLACES_MAX {
            places.clear();
        }
        places.insert(topic.clone(), located);
        Ok(located)
    }

    /// The partition that a message goes to.
    fn partition(
        &self,
        topic: &TopicName,
        located: Located,
        destination: Destination,
        key: &[u8],
    ) -> Result<PartitionIndex, ControlRefusal> {
        let partitions = located.partitions;
        match destination {
            Destination::Channel if partitions > 1 => {
                Err(ControlRefusal::NoChannel { topic: topic.clone(), partitions })
            }
            Destination::Topic(Some(partition)) if partition.0 >= partitions => {
                let topic = topic.clone();
                Err(ControlRefusal::UnknownPartition { topic, partitions, partition })
            }
            Destination::Topic(Some(partition)) => Ok(partition),
            _ if partitions <= 1 => Ok(PartitionIndex(0)),
            _ if !key.is_empty() => Ok(PartitionIndex::of_key(key, partitions)),
            _ => {
                let turn = self.turn.get().wrapping_add(1);
                self.turn.set(turn);
                Ok(PartitionIndex(turn % partitions))
            }
        }
    }
}
