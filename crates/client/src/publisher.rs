//! The publisher as programs hold it: messages in, confirms out. It knows no socket.

use std::{pin::pin, sync::Arc, time::Duration};

use sennit_model::{
    Batch, BatchBuilder, Message, Offset, PartitionId, PartitionIndex, ProducerId, ProducerStamp,
    TopicName,
};
use sennit_protocol::{Publish, PublishAt, Reply, Request};

use crate::{
    error::Error,
    link::{Command, Link},
    pending::{ConfirmedRun, Pending, PendingBatch},
    publisher_core::{NotTaken, OnConfirm, PublisherCore, PublisherSettings, Taken},
    reconnect::random,
};

/// How a publisher is to be. Made by [`crate::Client::publisher`].
#[must_use = "nothing is opened before `open` is called"]
pub struct PublisherBuilder {
    link: Arc<Link>,
    settings: PublisherSettings,
    on_confirm: Option<OnConfirm>,
}

impl PublisherBuilder {
    pub(crate) fn new(link: Arc<Link>, topic: TopicName) -> Self {
        let settings = PublisherSettings {
            topic,
            create_if_missing: false,
            idempotent: true,
            window_messages: 8192,
            window_bytes: 8 << 20,
            give_up_after: None,
            partition: None,
        };
        Self { link, settings, on_confirm: None }
    }

    /// How many messages may be unconfirmed before `publish` waits; at least 1, 8192 unless told.
    pub fn window_messages(mut self, messages: usize) -> Self {
        self.settings.window_messages = messages.max(1);
        self
    }

    /// How many bytes of encoded messages may be unconfirmed before `publish` waits; 8 MiB unless
    /// told. One message is always let through.
    pub fn window_bytes(mut self, bytes: usize) -> Self {
        self.settings.window_bytes = bytes;
        self
    }

    /// Whether the broker recognises what is sent twice; yes unless told. Without it the broker
    /// remembers nothing of this publisher, and a message may be appended twice when a connection
    /// is lost.
    pub fn idempotent(mut self, idempotent: bool) -> Self {
        self.settings.idempotent = idempotent;
        self
    }

    /// Whether to create the topic, as a queue of one partition, if it is not there.
    pub fn create_if_missing(mut self, create: bool) -> Self {
        self.settings.create_if_missing = create;
        self
    }

    /// The one partition that all messages go to. Otherwise a key goes where it always goes, and
    /// messages without a key change partition with each batch.
    pub fn partition(mut self, partition: PartitionIndex) -> Self {
        self.settings.partition = Some(partition);
        self
    }

    /// How long after it was published a batch is sent again that the broker says it has no room
    /// for; for ever unless told. Then it fails with the broker's refusal, and those behind it go
    /// on. Nothing is given up without a refusal: not while the connection is lost, say.
    pub fn give_up_after(mut self, limit: Duration) -> Self {
        self.settings.give_up_after = Some(limit);
        self
    }

    /// Called with each run of confirmed messages, by the task that reads the socket: be quick.
    /// For programs that count millions and await no [`Pending`]. Messages that fail are not told
    /// here, but by [`Publisher::flush`].
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
            self.link.number(),
            producer,
            self.settings,
            self.on_confirm,
        ));
        let publisher = Arc::clone(&core);
        self.link.call(|answer| Command::OpenPublisher { publisher, answer }).await?;
        Ok(Publisher { handle: Arc::new(Handle { core, link: self.link }) })
    }
}

struct Handle {
    core: Arc<PublisherCore>,
    link: Arc<Link>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.link.tell(Command::DropPublisher { number: self.core.number });
    }
}

/// Publishes to one topic. Cheap to clone, and used by as many tasks as you like; order is kept for
/// the messages of each task.
///
/// Batching is by itself: a message is sent at once when the socket is idle, and while a write is
/// under way those that come gather. At most 64 batches per partition are unconfirmed.
///
/// A message is sent again until it is confirmed or refused for good, over as many connections as
/// it takes. When the publisher is idempotent (it is unless told), the broker appends it once, as
/// long as it remembers this producer: it forgets who was silent longest when more than 4096 publish
/// to one partition.
///
/// When a batch is refused for good, its messages fail. Those behind it are sent in a new epoch,
/// whose sequences start at 0 again, so that the gap it leaves does not hold them up.
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

    /// How many partitions the topic has.
    #[must_use]
    pub fn partitions(&self) -> u32 {
        self.core().topic().1
    }

    /// The number under which the broker knows this publisher; 0 if it is not idempotent.
    #[must_use]
    pub fn producer_id(&self) -> ProducerId {
        self.core().producer
    }

    /// Publishes a message. Waits for room in the window and for nothing else: the confirm is what
    /// the [`Pending`] is for. A message that this call has returned for is sent, whatever becomes
    /// of the [`Pending`]; one whose call was cancelled is not.
    ///
    /// # Errors
    /// [`Error::TooLarge`]; [`Error::Fenced`] and others if the publisher is finished.
    pub async fn publish(&self, message: Message) -> Result<Pending, Error> {
        let length = BatchBuilder::encoded_len(&message);
        self.give(|core| core.take(&message, length)).await
    }

    /// Publishes a batch: one partition, one frame, appended as a whole or not at all. It goes to
    /// the builder's partition, else where the first message's key goes, else to the next in turn.
    ///
    /// # Errors
    /// As [`Self::publish`].
    pub async fn publish_batch(&self, batch: Batch) -> Result<PendingBatch, Error> {
        self.give(|core| core.take_batch(&batch)).await
    }

    /// Publishes a batch to a partition if its next offset is `expected`, and refuses it otherwise:
    /// who decides by what was published so far finds out if somebody else was faster. Returns once
    /// it is committed. It does not pass through the window, and is not sent again: after
    /// [`Error::OutcomeUnknown`] the partition's end says what became of it.
    ///
    /// # Errors
    /// [`Error::OffsetMismatch`]; [`Error::UnknownPartition`], [`Error::TooLarge`],
    /// [`Error::OutcomeUnknown`], and what else the broker refuses.
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
        match self.handle.link.ask(request, false).await? {
            Reply::PublishedAt(_) => Ok(()),
            other => Err(Error::Unexpected(format!("{} answers no publish", other.kind()))),
        }
    }

    /// Publishes messages, in order, as [`Self::publish`] does, and waits until each is confirmed:
    /// their confirms, in the order given.
    ///
    /// # Errors
    /// The first error; others may have been confirmed.
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

    /// Waits until everything published before this call has its answer.
    ///
    /// # Errors
    /// The first error of any message since the last flush.
    pub async fn flush(&self) -> Result<(), Error> {
        let published = self.core().published();
        self.until(|core| core.answered(&published)).await
    }

    /// Asks until it is taken. Nothing is waited for after that: a call that is cancelled has sent
    /// nothing.
    async fn give<T>(
        &self,
        mut take: impl FnMut(&PublisherCore) -> Result<Taken<T>, NotTaken>,
    ) -> Result<T, Error> {
        let mut asked = take(self.core());
        loop {
            asked = match asked {
                Ok(taken) => {
                    if taken.tell {
                        self.handle.link.outbox.publisher_has_batches(Arc::clone(self.core()));
                    }
                    return Ok(taken.pending);
                }
                Err(NotTaken::Failed(error)) => return Err(error),
                Err(NotTaken::OthersFirst) => {
                    // Without this a publisher on the connection's own thread fills its whole
                    // window before the first byte is sent.
                    tokio::task::yield_now().await;
                    take(self.core())
                }
                Err(NotTaken::Full) => {
                    let ask = |core: &PublisherCore| match take(core) {
                        Err(NotTaken::Full) => None,
                        asked => Some(asked),
                    };
                    self.until(ask).await
                }
            };
        }
    }

    /// Asks again after each progress, until there is an answer.
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
