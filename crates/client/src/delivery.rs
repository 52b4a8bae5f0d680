//! Deliveries, and the verdicts with which a program settles them. A delivery is identified by topic, partition,
//! group, offset, attempt and generation, and not by its connection: it can be settled on a later one. It knows no
//! socket.

use std::{fmt, ops::Range, sync::Arc, time::Duration};

use bytes::Bytes;
use sennit_model::{
    Batch, Generation, GroupId, Headers, MessageView, Messages, Offset, PartitionIndex, Timestamp,
    TopicId, TopicName,
};
use sennit_protocol::{DeliverHead, Durability, SettleRun, Verdict};
use tokio::sync::oneshot;

use crate::{error::Error, outbox::Outbox, settle_queue::Settled, unsettled::BatchProgress};

/// The messages of one deliver frame.
pub(crate) struct DeliveredBatch {
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) topic_name: TopicName,
    pub(crate) topic: TopicId,
    pub(crate) group: GroupId,
    pub(crate) head: DeliverHead,
    pub(crate) batch: Batch,
    /// The program's progress; `None` if the broker does not support the feature `started`.
    pub(crate) progress: Option<BatchProgress>,
}

impl DeliveredBatch {
    /// Notes that the program takes `count` messages from the index `from`. The broker is told,
    /// unless it is one message and all before it are settled: the broker assumes work on that one
    /// by itself.
    fn take(&self, from: u32, count: u32) {
        if self.progress.as_ref().is_some_and(|progress| progress.take(count)) {
            self.settle(Verdict::Started, from, count, None);
        }
    }

    fn settle(&self, verdict: Verdict, from: u32, count: u32, waiter: Option<Waiter>) {
        if count > 0 {
            if let Some(progress) = &self.progress
                && !matches!(verdict, Verdict::Extend(_) | Verdict::Started)
            {
                progress.settle(from, count);
            }
            let run = self.run(from, count);
            self.outbox.settle(self.topic, self.group, verdict, run, waiter);
        }
    }

    fn run(&self, from: u32, count: u32) -> SettleRun {
        SettleRun {
            partition: self.head.partition,
            first: self.head.first.plus(u64::from(from)),
            count,
            attempt: self.head.attempt,
            generation: self.head.generation,
        }
    }

    async fn settle_confirmed(
        &self,
        verdict: Verdict,
        from: u32,
        count: u32,
    ) -> Result<Settled, Error> {
        if count == 0 {
            return Ok(Settled::default());
        }
        let (waiter, answer) = oneshot::channel();
        self.settle(verdict, from, count, Some(waiter));
        answer.await.unwrap_or(Err(Error::Closed))
    }

    fn name(&self, f: &mut fmt::DebugStruct<'_, '_>, from: u32) {
        f.field("topic", &self.topic_name.as_str())
            .field("partition", &self.head.partition.0)
            .field("offset", &self.head.first.plus(u64::from(from)).0)
            .field("attempt", &self.head.attempt);
    }
}

type Waiter = oneshot::Sender<Result<Settled, Error>>;

/// The methods that a delivery and a run of deliveries share.
macro_rules! settle_and_describe {
    ($type:ident, $count:expr) => {
        impl $type {
            /// The topic.
            #[must_use]
            pub fn topic(&self) -> &TopicName {
                &self.batch.topic_name
            }

            /// The partition of the topic.
            #[must_use]
            pub fn partition(&self) -> PartitionIndex {
                self.batch.head.partition
            }

            /// The number of this delivery of the message in this group, from 1. It rises with each
            /// delivery. Only failed attempts count towards the group's limit.
            #[must_use]
            pub fn attempt(&self) -> u32 {
                self.batch.head.attempt
            }

            /// The time of its append, by the broker's clock.
            #[must_use]
            pub fn appended_at(&self) -> Timestamp {
                self.batch.head.appended_at
            }

            /// The generation of the shard that delivered it: part of the delivery's identity.
            #[must_use]
            pub fn generation(&self) -> Generation {
                self.batch.head.generation
            }

            /// The durability that it had when it was delivered.
            #[must_use]
            pub fn durability(&self) -> Durability {
                self.batch.head.durability
            }

            /// Acks. Returns at once; the settlement is sent as soon as the socket takes it,
            /// without an answer.
            pub fn ack(&self) {
                self.batch.settle(Verdict::Ack, self.from, $count(self), None);
            }

            /// Acks, and waits until the broker has committed it.
            ///
            /// # Errors
            /// [`Error::Refused`] if the topic or group was deleted, [`Error::Closed`] after the
            /// client was closed, [`Error::Unreachable`] or [`Error::Protocol`] when it has given
            /// up.
            pub async fn ack_confirmed(&self) -> Result<Settled, Error> {
                self.batch.settle_confirmed(Verdict::Ack, self.from, $count(self)).await
            }

            /// Fails the attempt, as [`Self::retry`], and waits until the broker has committed it.
            ///
            /// # Errors
            /// As [`Self::ack_confirmed`].
            pub async fn retry_confirmed(&self) -> Result<Settled, Error> {
                self.batch.settle_confirmed(Verdict::Retry, self.from, $count(self)).await
            }

            /// Fails the attempt. The message is ready again after `delay`, in whole milliseconds.
            /// Waits until the broker has committed it.
            ///
            /// # Errors
            /// As [`Self::ack_confirmed`].
            pub async fn retry_after_confirmed(&self, delay: Duration) -> Result<Settled, Error> {
                let verdict = Verdict::RetryAfter(delay);
                self.batch.settle_confirmed(verdict, self.from, $count(self)).await
            }

            /// Sends the message to the dead-letter topic. Waits until the broker has committed it.
            /// A reason beyond 1024 bytes is cut.
            ///
            /// # Errors
            /// As [`Self::ack_confirmed`].
            pub async fn dead_letter_confirmed(
                &self,
                reason: impl Into<String>,
            ) -> Result<Settled, Error> {
                let verdict = Verdict::DeadLetter { reason: reason.into() };
                self.batch.settle_confirmed(verdict, self.from, $count(self)).await
            }

            /// Fails the attempt. The message is ready again after the delay of the group's retry
            /// policy, or at once if that has none, for any consumer of the group.
            pub fn retry(&self) {
                self.batch.settle(Verdict::Retry, self.from, $count(self), None);
            }

            /// Fails the attempt. The message is ready again after `delay`, in whole milliseconds.
            pub fn retry_after(&self, delay: Duration) {
                self.batch.settle(Verdict::RetryAfter(delay), self.from, $count(self), None);
            }

            /// Sends the message to the dead-letter topic. A reason beyond 1024 bytes is cut.
            pub fn dead_letter(&self, reason: impl Into<String>) {
                let verdict = Verdict::DeadLetter { reason: reason.into() };
                self.batch.settle(verdict, self.from, $count(self), None);
            }

            /// Extends the lease: it ends this long after the broker has received the request.
            pub fn extend(&self, lease: Duration) {
                self.batch.settle(Verdict::Extend(lease), self.from, $count(self), None);
            }
        }
    };
}

/// One message that was delivered to this consumer under a lease. Dropping it settles nothing: when
/// the lease ends, the message goes to another consumer of the group, and the attempt counts as
/// failed, because the program has taken the message. Cheap to clone.
#[derive(Clone)]
pub struct Delivery {
    batch: Arc<DeliveredBatch>,
    /// The index of the first message in the batch; the next fields are the number of messages and
    /// their byte range.
    from: u32,
    bytes: Range<usize>,
}

settle_and_describe!(Delivery, |_: &Delivery| 1);

impl Delivery {
    fn view(&self) -> MessageView<'_> {
        let bytes = &self.batch.batch.bytes()[self.bytes.clone()];
        Messages::of_checked(bytes).next().expect("the range is one message of a checked batch")
    }

    /// The message's offset.
    #[must_use]
    pub fn offset(&self) -> Offset {
        self.batch.head.first.plus(u64::from(self.from))
    }

    /// The key; empty if there is none.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.view().key()
    }

    /// Iterates over the headers. Each item may be an error, because the broker does not check what
    /// publishers send.
    #[must_use]
    pub fn headers(&self) -> Headers<'_> {
        self.view().headers()
    }

    /// The payload. It shares the memory of its frame; copy a small part that you keep for long.
    #[must_use]
    pub fn payload(&self) -> Bytes {
        self.batch.batch.bytes().slice_ref(self.view().payload())
    }

    /// A run of this one message.
    pub(crate) fn to_run(&self) -> DeliveryRun {
        let (batch, bytes) = (Arc::clone(&self.batch), self.bytes.clone());
        DeliveryRun { batch, from: self.from, count: 1, bytes }
    }

    /// The message as it lies in its batch.
    #[must_use]
    pub fn message(&self) -> MessageView<'_> {
        self.view()
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("Delivery");
        self.batch.name(&mut f, self.from);
        f.finish_non_exhaustive()
    }
}

/// Messages of one partition that came together, in order, each under the same attempt. Dropping it
/// settles nothing. Cheap to clone.
#[derive(Clone)]
pub struct DeliveryRun {
    batch: Arc<DeliveredBatch>,
    /// Which of the batch's messages, and where they lie in it.
    from: u32,
    count: u32,
    bytes: Range<usize>,
}

settle_and_describe!(DeliveryRun, DeliveryRun::count);

impl DeliveryRun {
    pub(crate) fn new(batch: DeliveredBatch) -> Self {
        let (count, bytes) = (batch.head.count, 0..batch.batch.bytes().len());
        Self { batch: Arc::new(batch), from: 0, count, bytes }
    }

    /// The first message's offset; the others follow.
    #[must_use]
    pub fn first_offset(&self) -> Offset {
        self.batch.head.first.plus(u64::from(self.from))
    }

    /// The number of messages, at least 1.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Their encoded size in bytes.
    #[must_use]
    pub fn byte_count(&self) -> usize {
        self.bytes.len()
    }

    /// Iterates over the messages, without copying.
    #[must_use]
    pub fn messages(&self) -> Messages<'_> {
        Messages::of_checked(&self.batch.batch.bytes()[self.bytes.clone()])
    }

    /// Acks the first `count` messages, or all if there are fewer.
    pub fn ack_up_to(&self, count: u32) {
        self.batch.settle(Verdict::Ack, self.from, count.min(self.count()), None);
    }

    /// Reports the start of work, and waits until the broker has noted it: if this program dies
    /// now, the attempt counts as failed. A stale message has gone to another consumer meanwhile.
    /// Does nothing if the broker does not support the feature `started`.
    ///
    /// # Errors
    /// As [`Self::ack_confirmed`].
    pub async fn started_confirmed(&self) -> Result<Settled, Error> {
        if self.batch.progress.is_none() {
            return Ok(Settled { applied: self.count.into(), stale: 0 });
        }
        self.batch.settle_confirmed(Verdict::Started, self.from, self.count).await
    }

    /// Its identity for the broker: topic, group and offsets.
    pub(crate) fn settle_run(&self) -> (TopicId, GroupId, SettleRun) {
        (self.batch.topic, self.batch.group, self.batch.run(self.from, self.count))
    }

    /// Notes that another request has acked it.
    pub(crate) fn note_settled(&self) {
        if let Some(progress) = &self.batch.progress {
            progress.settle(self.from, self.count);
        }
    }

    /// The program takes all of it.
    pub(crate) fn take(&self) {
        self.batch.take(self.from, self.count());
    }

    /// Splits off the first `count` messages, or all if there are fewer, so that they can be
    /// settled separately. Costs a pass over them.
    #[must_use = "the messages that are split off are not settled"]
    pub fn split_to(&mut self, count: u32) -> Self {
        let count = count.min(self.count);
        let bytes = self.bytes.start..self.bytes.start + self.messages().skip_bytes(count);
        let first = Self { batch: Arc::clone(&self.batch), from: self.from, count, bytes };
        self.from += count;
        self.count -= count;
        self.bytes.start = first.bytes.end;
        first
    }

    /// The program takes the first message off; `None` when there is none left.
    pub(crate) fn take_first(&mut self) -> Option<Delivery> {
        let Self { batch, from, bytes, count } = self.split_to(1);
        batch.take(from, count);
        (count > 0).then_some(Delivery { batch, from, bytes })
    }
}

impl fmt::Debug for DeliveryRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("DeliveryRun");
        self.batch.name(&mut f, self.from);
        f.field("count", &self.count()).finish()
    }
}
