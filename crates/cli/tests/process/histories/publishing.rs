//! Publishers of a history: batches of idempotent publishers, of plain ones, and batches that are appended at the offset
//! that the publisher expects.

use std::{collections::VecDeque, rc::Rc};

use sennit_client::{
    Batch, BatchBuilder, Client, Error, Message, Offset, PartitionIndex, PendingBatch, Publisher,
    ReadFrom,
};
use sennit_history::{Answer, MessageName, Published, What};

use super::{
    reading::begin,
    recorder::payload_of,
    workload::{PARTITIONS, World},
};
use crate::torture::Choices;

/// How many batches an idempotent publisher has sent before it waits for the first. A plain one waits for each: of its
/// batches one that is refused for a while, and sent again, comes behind the next.
const UNDER_WAY: usize = 6;

const BATCH_MESSAGES_MAX: u64 = 12;

/// After so many batches at most a publisher ends, and another begins.
const BATCHES_MAX: u64 = 200;

/// The calls of a publisher that is new to the broker.
struct Publishes {
    world: Rc<World>,
    process: u32,
    publisher: u32,
    once: bool,
    next: u64,
}

/// A batch that was sent.
struct Sent {
    begun_ns: u64,
    published: Published,
}

impl Publishes {
    fn begin(world: &Rc<World>, process: u32, once: bool) -> Self {
        Self { world: Rc::clone(world), process, publisher: world.recorder.number(), once, next: 0 }
    }

    /// The next messages, as a batch.
    fn batch(&mut self, choices: &mut Choices) -> (Sent, Batch) {
        let count = 1 + choices.below(BATCH_MESSAGES_MAX);
        let first = MessageName { publisher: self.publisher, number: self.next };
        self.next += count;
        let mut builder = BatchBuilder::new();
        for number in first.number..self.next {
            let mut message = Message::new(payload_of(MessageName { number, ..first }));
            if choices.below(2) == 0 {
                message.key = format!("key {}", choices.below(20)).into();
            }
            builder.push(&message).unwrap();
        }
        let published = Published {
            first,
            count: u32::try_from(count).unwrap(),
            partition: None,
            once: self.once,
            expected: None,
            answer: Answer::Unknown,
        };
        let begun_ns = self.world.recorder.now_ns();
        (Sent { begun_ns, published }, builder.take().expect("a message was pushed"))
    }

    fn ended(&self, sent: Sent, answer: Answer) {
        let what = What::Published(Published { answer, ..sent.published });
        self.world.recorder.add(self.process, sent.begun_ns, what);
    }

    /// Waits for the answer to a batch.
    async fn settle(&self, sent: Sent, pending: PendingBatch) {
        let answer = match pending.await {
            Ok(confirm) => Answer::Confirmed(confirm.offset.map(|offset| offset.0)),
            Err(error) => answer_of(&error),
        };
        self.ended(sent, answer);
    }
}

/// The outcome of a publish, by its error.
fn answer_of(error: &Error) -> Answer {
    match error {
        Error::Refused { .. } => Answer::Refused,
        Error::OffsetMismatch { next } => Answer::NextIs(next.0),
        Error::OutcomeUnknown | Error::Closed | Error::Unreachable { .. } => Answer::Unknown,
        other => panic!("a publish ended with {other}"),
    }
}

/// Publishes batches until no more are wanted; some of the publishers are idempotent.
pub async fn publish(world: Rc<World>, mut choices: Choices) {
    while world.is_publishing() {
        let process = world.recorder.number();
        let client = world.client().await;
        let once = choices.below(3) > 0;
        let partition = match choices.below(2) {
            0 => Some(PartitionIndex(choices.below(PARTITIONS.into()) as u32)),
            _ => None,
        };
        let open = || {
            let builder = client.publisher(&world.topic).idempotent(once);
            match partition {
                Some(partition) => builder.partition(partition).open(),
                None => builder.open(),
            }
        };
        let publisher = world.again("a publisher opens", open).await;
        publish_by(&world, process, once, &publisher, &mut choices).await;
        client.close().await;
    }
}

async fn publish_by(
    world: &Rc<World>,
    process: u32,
    once: bool,
    publisher: &Publisher,
    choices: &mut Choices,
) {
    let mut publishes = Publishes::begin(world, process, once);
    let mut under_way = VecDeque::new();
    for _ in 0..1 + choices.below(BATCHES_MAX) {
        if !world.is_publishing() {
            break;
        }
        world.pace(choices).await;
        let (mut sent, batch) = publishes.batch(choices);
        let pending = publisher.publish_batch(batch).await.expect("the publisher goes on");
        sent.published.partition = Some(pending.partition().0);
        under_way.push_back((sent, pending));
        if !once || under_way.len() > UNDER_WAY {
            let (sent, pending) = under_way.pop_front().expect("some are under way");
            publishes.settle(sent, pending).await;
        }
    }
    for (sent, pending) in under_way {
        publishes.settle(sent, pending).await;
    }
}

/// Appends batches, each at the offset that is expected, until no more are wanted. The others that publish make most
/// of them fail; each failure says where the partition ends.
pub async fn append(world: Rc<World>, mut choices: Choices) {
    while world.is_publishing() {
        let process = world.recorder.number();
        let client = world.client().await;
        let open = || client.publisher(&world.topic).idempotent(false).open();
        let publisher = world.again("a publisher opens", open).await;
        let mut publishes = Publishes::begin(&world, process, true);
        let mut ends = ends_of(&world, process, &client).await;
        for _ in 0..1 + choices.below(BATCHES_MAX) {
            if !world.is_publishing() {
                break;
            }
            world.pace(&mut choices).await;
            let partition = choices.below(PARTITIONS.into()) as usize;
            let (mut sent, batch) = publishes.batch(&mut choices);
            let expected = ends[partition];
            sent.published.partition = Some(u32::try_from(partition).unwrap());
            sent.published.expected = Some(expected);
            let count = u64::from(sent.published.count);
            let index = PartitionIndex(u32::try_from(partition).unwrap());
            let answer = publisher.publish_at(index, Offset(expected), &batch).await;
            let answer = match answer {
                Ok(()) => Answer::Confirmed(Some(expected)),
                Err(error) => answer_of(&error),
            };
            publishes.ended(sent, answer);
            match answer {
                Answer::Confirmed(_) => ends[partition] = expected + count,
                Answer::NextIs(next) => ends[partition] = next,
                Answer::Refused | Answer::Unknown => {
                    ends = ends_of(&world, process, &client).await;
                }
            }
        }
        client.close().await;
    }
}

/// The ends of the partitions, as a reader is told that begins there.
async fn ends_of(world: &Rc<World>, process: u32, client: &Client) -> Vec<u64> {
    let (_, reader) = begin(world, process, client, ReadFrom::Latest, false).await;
    reader.ranges().iter().map(|range| range.end.0).collect()
}
