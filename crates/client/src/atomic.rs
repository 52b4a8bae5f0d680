//! Atomic steps: messages for several topics and acks of deliveries, all of which the broker does, or none. A step
//! that was cut off is sent again with its stamps, so that it is done once. It knows no socket.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use sennit_model::{
    BatchBuilder, GroupId, Message, Offset, PartitionId, PartitionIndex, ProducerStamp, TopicId,
    TopicName,
};
use sennit_protocol::{
    AtomicAck, Durability, ErrorCode, Publish, PublishAtomic, Reply, Request, SettleRun, control,
};

use tokio::time::sleep;

use crate::{
    atomic_steps::{AtomicSteps, OpenedTopic, OpenedTopics, StepProducer},
    client::Client,
    connection_handle::ConnectionHandle,
    delivery::{Delivery, DeliveryRun},
    error::Error,
};

/// Delay before a step that was cut off is sent again.
const RETRY_DELAY: Duration = Duration::from_millis(250);

/// Messages of a step for one topic.
struct Wanted {
    topic: TopicName,
    partition: Option<PartitionIndex>,
    messages: Vec<Message>,
}

/// A step: messages that are published and deliveries that are acked, all of it or nothing. Made by
/// [`Client::atomic`].
///
/// The topics must lie on one shard of the broker, as they do where one was created beside the other
/// ([`Client::create_topic_beside`]) and in dead-letter topics and their sources. With several partitions the
/// partitions of one index lie together, so a message without a key goes to the partition of the first delivery
/// that the step acks.
#[must_use = "nothing is done before `commit` is called"]
pub struct Atomic {
    connection: Arc<ConnectionHandle>,
    steps: Arc<AtomicSteps>,
    wanted: Vec<Wanted>,
    acked: Vec<DeliveryRun>,
}

/// A committed batch of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AtomicConfirm {
    /// The topic.
    pub topic: TopicName,
    /// The partition.
    pub partition: PartitionIndex,
    /// The offset of the first message; `None` for a duplicate that the broker no longer remembers. The others
    /// follow, unless the topic looks for duplicates.
    pub first_offset: Option<Offset>,
    /// The number of messages.
    pub count: u32,
    /// Whether the first message had been published before.
    pub duplicate: bool,
    /// The durability that the confirm promises.
    pub durability: Durability,
    /// How many of the partition's oldest messages were dropped, because the topic was full.
    pub dropped: u64,
}

impl Client {
    /// Begins a step that publishes messages and acks deliveries, all of it or nothing.
    pub fn atomic(&self) -> Atomic {
        Atomic {
            connection: Arc::clone(&self.connection),
            steps: Arc::clone(&self.steps),
            wanted: Vec::new(),
            acked: Vec::new(),
        }
    }
}

impl Atomic {
    /// Adds messages for a topic. Messages with a key go to the partition of the key.
    pub fn publish(
        mut self,
        topic: &TopicName,
        messages: impl IntoIterator<Item = Message>,
    ) -> Self {
        let messages = messages.into_iter().collect();
        self.wanted.push(Wanted { topic: topic.clone(), partition: None, messages });
        self
    }

    /// Adds messages for one partition of a topic.
    pub fn publish_to(
        mut self,
        topic: &TopicName,
        partition: PartitionIndex,
        messages: impl IntoIterator<Item = Message>,
    ) -> Self {
        let (topic, partition) = (topic.clone(), Some(partition));
        let messages = messages.into_iter().collect();
        self.wanted.push(Wanted { topic, partition, messages });
        self
    }

    /// Adds the ack of a delivery.
    pub fn ack(mut self, delivery: &Delivery) -> Self {
        self.acked.push(delivery.to_run());
        self
    }

    /// Adds the ack of all messages of a run.
    pub fn ack_run(mut self, run: &DeliveryRun) -> Self {
        self.acked.push(run.clone());
        self
    }

    /// Does the step, and returns once it is committed: what became of each batch, in the order of their partitions.
    /// After a lost connection it is sent again until the broker answers, and done once. If the call is cancelled,
    /// it may have been done or not.
    ///
    /// # Errors
    /// [`Error::Refused`], with nothing done: `topics-apart` if the topics lie on several shards; `stale-delivery` if
    /// a delivery is settled, or was delivered again; `topic-full`, `unknown-topic` and other refusals of one part.
    /// [`Error::TooLarge`] for batches beyond a limit, [`Error::OutcomeUnknown`] after the client was closed or the
    /// topic was deleted meanwhile.
    pub async fn commit(self) -> Result<Vec<AtomicConfirm>, Error> {
        let Self { connection, steps, wanted, acked } = self;
        let mut names: Vec<&TopicName> = wanted.iter().map(|wanted| &wanted.topic).collect();
        names.extend(acked.iter().map(DeliveryRun::topic));
        names.sort_unstable();
        names.dedup();
        let known = steps.known(&names);
        let mut may_reopen = known.is_some();
        let mut opened = match known {
            Some(known) => known,
            None => open(&connection, &steps, &names).await?,
        };
        let mut producer = None;
        let mut sent_before = false;
        loop {
            let held = producer.take().unwrap_or_else(|| steps.take_producer());
            let (parts, topics) = parts_of(&opened, &wanted, &acked, &held)?;
            let step = PublishAtomic { parts, acks: acks_of(&acked) };
            let answer = connection.ask(Request::PublishAtomic(step.clone()), false).await;
            match answer {
                Ok(Reply::PublishedAtomic(body)) => {
                    acked.iter().for_each(DeliveryRun::note_settled);
                    let confirms = confirms_of(&body, &topics);
                    let mut held = held;
                    for part in &step.parts {
                        let head = part.head;
                        let next = head.producer.first_sequence + u64::from(head.count);
                        held.next.insert(head.partition, next);
                    }
                    steps.give_back(held);
                    return Ok(confirms);
                }
                Ok(other) => {
                    let kind = other.kind();
                    return Err(Error::Unexpected(format!("{kind} answers no atomic publish")));
                }
                // The next connection does not know what lies beside what: it learns that by opening.
                Err(error) if is_cut_off(&error) => {
                    sent_before |= matches!(error, Error::OutcomeUnknown);
                    sleep(RETRY_DELAY).await;
                    opened = match open(&connection, &steps, &names).await {
                        Ok(opened) => opened,
                        Err(error) if is_cut_off(&error) => {
                            producer = Some(held);
                            continue;
                        }
                        Err(_) if sent_before => return Err(Error::OutcomeUnknown),
                        Err(error) => return Err(error),
                    };
                    let (again, _) = parts_of(&opened, &wanted, &acked, &held)?;
                    if !again.iter().map(|part| part.head).eq(step.parts.iter().map(|it| it.head)) {
                        // A topic was deleted and created anew: the step may have been done before.
                        return Err(Error::OutcomeUnknown);
                    }
                    producer = Some(held);
                }
                Err(error) if may_reopen && may_be_outdated(&error) => {
                    may_reopen = false;
                    producer = Some(held);
                    opened = open(&connection, &steps, &names).await?;
                }
                // Nothing was done. The broker may have forgotten a producer that was silent for long.
                Err(error) if error.code() == Some(ErrorCode::SequenceGap) && !sent_before => {
                    if held.next.is_empty() {
                        return Err(error);
                    }
                    producer = None;
                }
                Err(error @ Error::Refused { .. }) => {
                    steps.give_back(held);
                    return Err(with_names(error, &topics));
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Whether the connection was lost, or is about to be, before the step was answered, or the leader is.
fn is_cut_off(error: &Error) -> bool {
    error.asks_for_leader() || error.code() == Some(ErrorCode::ShuttingDown)
}

/// Whether the topics may be others than those that were opened, or not be known to this connection.
fn may_be_outdated(error: &Error) -> bool {
    matches!(error.code(), Some(ErrorCode::UnknownTopic | ErrorCode::TopicsApart))
}

/// Names the topics whose numbers the broker's message has.
fn with_names(error: Error, topics: &[(TopicId, TopicName)]) -> Error {
    match error {
        Error::Refused {
            code: code @ ErrorCode::TopicsApart,
            message,
            hint,
            retryable,
            retry_after,
        } => {
            let names = topics.iter().map(|(id, name)| format!("topic {} is {name}", id.0));
            let names = names.collect::<Vec<_>>().join(", ");
            let message = format!("{message}; {names}");
            Error::Refused { code, message, hint, retryable, retry_after }
        }
        other => other,
    }
}

/// Opens the topics on this connection.
async fn open(
    connection: &ConnectionHandle,
    steps: &AtomicSteps,
    names: &[&TopicName],
) -> Result<OpenedTopics, Error> {
    let mut opened = OpenedTopics::new();
    for name in names {
        let body = control::OpenTopic { name: name.to_string(), create_if_missing: false };
        match connection.ask(Request::OpenTopic(body), true).await {
            Ok(Reply::TopicOpened(body)) => {
                let (id, partitions) = (TopicId(body.topic_id), body.partitions.max(1));
                opened.insert((*name).clone(), OpenedTopic { id, partitions });
            }
            Ok(other) => {
                return Err(Error::Unexpected(format!("{} opens no topic", other.kind())));
            }
            Err(error) => {
                steps.forget(name);
                return Err(error);
            }
        }
    }
    steps.remember(&opened);
    Ok(opened)
}

/// The batches of a step, by partition, and the names of its topics.
type StepParts = (Vec<Publish>, Vec<(TopicId, TopicName)>);

fn parts_of(
    opened: &OpenedTopics,
    wanted: &[Wanted],
    acked: &[DeliveryRun],
    producer: &StepProducer,
) -> Result<StepParts, Error> {
    let mut builders: BTreeMap<(u32, u32), BatchBuilder> = BTreeMap::new();
    let mut topics: Vec<(TopicId, TopicName)> =
        acked.iter().map(|run| (run.settle_run().0, run.topic().clone())).collect();
    for Wanted { topic, partition, messages } in wanted {
        let OpenedTopic { id, partitions } = opened[topic];
        topics.push((id, topic.clone()));
        let beside = acked.first().map_or(0, |run| run.partition().0);
        for message in messages {
            let index = match partition {
                Some(partition) => partition.0,
                None if message.key.is_empty() => beside % partitions,
                None => PartitionIndex::of_key(&message.key, partitions).0,
            };
            if index >= partitions {
                return Err(Error::UnknownPartition { partition: index, partitions });
            }
            builders.entry((id.0, index)).or_default().push(message)?;
        }
    }
    topics.sort_unstable();
    topics.dedup();
    let parts = builders.into_iter().filter_map(|((topic, index), mut builder)| {
        let partition = PartitionId { topic: TopicId(topic), index: PartitionIndex(index) };
        let first_sequence = producer.next.get(&partition).copied().unwrap_or(0);
        let stamp = ProducerStamp { id: producer.id, epoch: 0, first_sequence };
        Some(Publish::new(partition, stamp, &builder.take()?))
    });
    Ok((parts.collect(), topics))
}

/// The acks of a step, by topic and group.
fn acks_of(acked: &[DeliveryRun]) -> Vec<AtomicAck> {
    let mut runs: BTreeMap<(TopicId, GroupId), Vec<SettleRun>> = BTreeMap::new();
    for (topic, group, run) in acked.iter().map(DeliveryRun::settle_run) {
        runs.entry((topic, group)).or_default().push(run);
    }
    let ack = |((topic, group), runs): (_, Vec<SettleRun>)| AtomicAck {
        topic,
        group,
        runs: runs.into_iter().collect(),
    };
    runs.into_iter().map(ack).collect()
}

fn confirms_of(
    body: &control::PublishedAtomic,
    topics: &[(TopicId, TopicName)],
) -> Vec<AtomicConfirm> {
    let confirm = |part: &control::AtomicPart| {
        let (_, topic) = topics.iter().find(|(id, _)| id.0 == part.topic_id)?;
        let first = part.runs.first();
        let durability = u8::try_from(part.durability).ok().and_then(Durability::of_number);
        Some(AtomicConfirm {
            topic: topic.clone(),
            partition: PartitionIndex(part.partition),
            first_offset: first.and_then(|run| run.first_offset).map(Offset),
            count: part.runs.iter().map(|run| run.count).sum(),
            duplicate: first.is_some_and(|run| run.duplicate),
            durability: durability.unwrap_or(Durability::Durable),
            dropped: part.dropped,
        })
    };
    body.parts.iter().filter_map(confirm).collect()
}
