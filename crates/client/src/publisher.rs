//! The publisher: takes messages from a program and returns confirms. It knows no socket.

use std::{pin::pin, sync::Arc, time::Duration};

use sennit_model::{
    Batch, BatchBuilder, Message, Offset, PartitionId, PartitionIndex, ProducerId, ProducerStamp,
    TopicName,
};
use sennit_protocol::{Publish, PublishAt, Reply, Request};

use crate::{
    connection_handle::{Command, ConnectionHandle},
    error::Error,
    pending::{ConfirmedRun, Pending, PendingBatch},
    publisher_core::{Accepted, OnConfirm, PublisherCore, PublisherSettings, Rejected},
    reconnect::random,
};

/// The settings of a publisher. Made by [`crate::Client::publisher`].
#[must_use = "nothing is opened before `open` is called"]
pub struct PublisherBuilder {
    connection: Arc<ConnectionHandle>,
    settings: PublisherSettings,
    on_confirm: Option<OnConfirm>,
}

impl PublisherBuilder {
    pub(crate) fn new(connection: Arc<ConnectionHandle>, topic: TopicName) -> Self {
        let settings = PublisherSettings {
            topic,
            create_if_missing: false,
            idempotent: true,
            window_messages: 8192,
            window_bytes: 8 << 20,
            give_up_after: None,
            partition: None,
        };
        Self { connection, settings, on_confirm: None }
    }

    /// How many messages may be unconfirmed before `publish` waits; at least 1, default 8192.
    pub fn window_messages(mut self, messages: usize) -> Self {
        self.settings.window_messages = messages.max(1);
        self
    }

    /// How many bytes of encoded messages may be unconfirmed before `publish` waits; default 8 MiB.
    /// One message is always accepted.
    pub fn window_bytes(mut self, bytes: usize) -> Self {
        self.settings.window_bytes = bytes;
        self
    }

    /// Whether the broker recognises duplicates; default yes. Without it the broker remembers
    /// nothing of this publisher. Messages that were sent and not confirmed when a connection is
    /// lost then fail with [`Error::OutcomeUnknown`]: the program decides whether one may be there
    /// twice or not at all.
    pub fn idempotent(mut self, idempotent: bool) -> Self {
        self.settings.idempotent = idempotent;
        self
    }

    /// Whether to create a missing topic, as a queue of one partition.
    pub fn create_if_missing(mut self, create: bool) -> Self {
        self.settings.create_if_missing = create;
        self
    }

    /// The one partition for all messages. By default, messages with a key go to the partition of
    /// the key, and messages without a key change partition with each batch.
    pub fn partition(mut self, partition: PartitionIndex) -> Self {
        self.settings.partition = Some(partition);
        self
    }

    /// How long after its publication a batch is sent again while the broker refuses it for lack of
    /// room; default no limit. After that the batch fails with the broker's refusal, and later ones
    /// continue. Without a refusal, such as during a lost connection, no batch is given up.
    pub fn give_up_after(mut self, limit: Duration) -> Self {
        self.settings.give_up_after = Some(limit);
        self
    }

    /// A function that is called with each run of confirmed messages. The task that reads the
    /// socket calls it, so it must be quick. For programs that count millions of confirms and do
    /// not await each [`Pending`]. Failed messages are reported by [`Publisher::flush`] only.
    pub fn on_confirm(mut self, call: impl FnMut(ConfirmedRun) + Send + 'static) -> Self {
        self.on_confirm = Some(Box::new(call));
        self
    }

    /// Opens the topic.
    ///
    /// # Errors
    /// [`Error::Refused`] with `unknown-topic` and others, [`Error::UnknownPartition`],
    /// [`Error::Closed`], or [`Error::Unreachable`] when the client has given up.
    pub async fn open(self) -> Result<Publisher, Error> {
        let producer = ProducerId(if self.settings.idempotent { random() } else { 0 });
        let core = Arc::new(PublisherCore::new(
            self.connection.next_number(),
            producer,
            self.settings,
            self.on_confirm,
        ));
        let publisher = Arc::clone(&core);
        self.connection.call(|answer| Command::OpenPublisher { publisher, answer }).await?;
        Ok(Publisher { handle: Arc::new(Handle { core, connection: self.connection }) })
    }
}

struct Handle {
    core: Arc<PublisherCore>,
    connection: Arc<ConnectionHandle>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.connection.send(Command::DropPublisher { number: self.core.number });
    }
}

/// Publishes to one topic. Cheap to clone. Many tasks may use one publisher; the messages of each
/// task keep their order.
///
/// Batching is automatic: a message is sent at once while the socket is idle, and messages gather
/// while a write is under way. At most 64 batches per partition are unconfirmed.
///
/// If the publisher is idempotent, which is the default, a message is sent again until it is
/// confirmed or refused for good, on as many connections and at as many nodes as that takes. The
/// broker appends it once, as long as it remembers this producer: if more than 4096 producers
/// publish to one partition, the broker forgets the one that was silent for longest.
///
/// If a batch is refused for good, its messages fail. Later batches are sent in a new epoch, whose
/// sequences start at 0, so that the missing sequences do not block them.
#[derive(Clone)]
pub struct Publisher {
    handle: Arc<Handle>,
}

impl Publisher {
    fn core(&self) -> &Arc<PublisherCore> {
        &self.handle.core
    }

    /// The topic.
    #[must_use]
    pub fn topic(&self) -> &TopicName {
        &self.core().settings.topic
    }

    /// The topic's number of partitions.
    #[must_use]
    pub fn partitions(&self) -> u32 {
        self.core().topic().1
    }

    /// The producer id of this publisher; 0 if it is not idempotent.
    #[must_use]
    pub fn producer_id(&self) -> ProducerId {
        self.core().producer
    }

    /// Publishes a message. Waits only for room in the window; the [`Pending`] waits for the
    /// confirm. Once the call has returned, the message is sent, even if the [`Pending`] is
    /// dropped. If the call is cancelled, it is not.
    ///
    /// # Errors
    /// [`Error::TooLarge`]; [`Error::Fenced`] and others if the publisher has ended.
    pub async fn publish(&self, message: Message) -> Result<Pending, Error> {
        let length = BatchBuilder::encoded_len(&message);
        self.submit(|core| core.take(&message, length)).await
    }

    /// Publishes a batch in one frame to one partition; it is appended as a whole or not at all.
    /// The batch goes to the builder's partition, otherwise to the partition of the first message's
    /// key, otherwise to the next partition in turn.
    ///
    /// # Errors
    /// As [`Self::publish`].
    pub async fn publish_batch(&self, batch: Batch) -> Result<PendingBatch, Error> {
        self.submit(|core| core.take_batch(&batch)).await
    }

    /// Publishes a batch to a partition if the partition's next offset is `expected`, and fails
    /// otherwise. So a program that decides on the basis of earlier messages learns whether another
    /// publisher was faster. Returns once the batch is committed. The call does not use the window
    /// and is not repeated: after [`Error::OutcomeUnknown`] read the partition's end to learn the
    /// outcome.
    ///
    /// # Errors
    /// [`Error::OffsetMismatch`]; [`Error::UnknownPartition`], [`Error::TooLarge`],
    /// [`Error::OutcomeUnknown`], and other refusals of the broker.
    pub async fn publish_at(
        &self,
        partition: PartitionIndex,
        expected: Offset,
        batch: &Batch,
    ) -> Result<(), Error> {
        let (topic, partitions) = self.core().topic();
        if partition.0 >= partitions {
            return Err(Error::UnknownPartition { partition: partition.0, partitions });
        }
        self.core().check_batch(batch)?;
        let partition = PartitionId { topic, index: partition };
        let publish = Publish::new(partition, ProducerStamp::default(), batch);
        let request = Request::PublishAt(PublishAt { expected, publish });
        match self.handle.connection.ask(request, false).await? {
            Reply::PublishedAt(_) => Ok(()),
            other => Err(Error::Unexpected(format!("{} answers no publish", other.kind()))),
        }
    }

    /// Publishes messages in order, as [`Self::publish`] does, and waits until each is confirmed.
    /// Returns their confirms, in the same order.
    ///
    /// # Errors
    /// The first error; other messages may have been confirmed.
    pub async fn publish_all(
        &self,
        messages: impl IntoIterator<Item = Message>,
    ) -> Result<Vec<crate::pending::Confirm>, Error> {
        let mut pending = Vec::new();
        for message in messages {
            pending.push(self.publish(message).await?);
        }
        let mut confirms = Vec::with_capacity(pending.len());
        for pending in pending {
            confirms.push(pending.await?);
        }
        Ok(confirms)
    }

    /// Waits until everything published before this call is answered.
    ///
    /// # Errors
    /// The first error of any message since the last flush.
    pub async fn flush(&self) -> Result<(), Error> {
        let published = self.core().published();
        self.until(|core| core.answered(&published)).await
    }

    /// Repeats `take` until it accepts the message. It does not wait after that, so a cancelled
    /// call has sent nothing.
    async fn submit<T>(
        &self,
        mut take: impl FnMut(&PublisherCore) -> Result<Accepted<T>, Rejected>,
    ) -> Result<T, Error> {
        let mut outcome = take(self.core());
        loop {
            outcome = match outcome {
                Ok(taken) => {
                    if taken.notify {
                        self.handle
                            .connection
                            .outbox
                            .publisher_has_batches(Arc::clone(self.core()));
                    }
                    return Ok(taken.pending);
                }
                Err(Rejected::Failed(error)) => return Err(error),
                Err(Rejected::YieldFirst) => {
                    // Without this a publisher on the connection's own thread fills its whole
                    // window before the first byte is sent.
                    tokio::task::yield_now().await;
                    take(self.core())
                }
                Err(Rejected::WindowFull) => {
                    let ask = |core: &PublisherCore| match take(core) {
                        Err(Rejected::WindowFull) => None,
                        outcome => Some(outcome),
                    };
                    self.until(ask).await
                }
            };
        }
    }

    /// Calls `ask` after each progress, until it returns an answer.
    async fn until<T>(&self, mut ask: impl FnMut(&PublisherCore) -> Option<T>) -> T {
        loop {
            let mut progress = pin!(self.core().progress.notified());
            // Registered before asking: progress in between is not missed.
            progress.as_mut().enable();
            if let Some(answer) = ask(self.core()) {
                return answer;
            }
            progress.await;
        }
    }
}
