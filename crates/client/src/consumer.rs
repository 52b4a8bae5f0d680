//! The consumer: delivers a group's messages to a program. It knows no socket.

use std::sync::Arc;

use sennit_model::{
    GroupName, TopicName,
    limits::{CREDIT_BYTES_MAX, CREDIT_MESSAGES_MAX},
};
use sennit_protocol::control;

use crate::{
    connection_handle::{Command, ConnectionHandle},
    delivery::{Delivery, DeliveryRun},
    delivery_queue::DeliveryQueue,
    error::Error,
    gap::{Gap, Received},
};

/// The settings of a consumer. Made by [`crate::Client::consumer`].
#[must_use = "nothing is subscribed before `subscribe` is called"]
pub struct ConsumerBuilder {
    connection: Arc<ConnectionHandle>,
    topic: TopicName,
    subscribe: control::Subscribe,
}

impl ConsumerBuilder {
    pub(crate) fn new(
        connection: Arc<ConnectionHandle>,
        topic: &TopicName,
        group: &GroupName,
    ) -> Self {
        let subscribe = control::Subscribe {
            subscription: 0,
            topic: topic.to_string(),
            group: group.to_string(),
            create_group_if_missing: false,
            credit_messages: 1024,
            credit_bytes: 8 << 20,
        };
        Self { connection, topic: topic.clone(), subscribe }
    }

    /// How many unsettled messages the consumer may hold, 1 to 1,000,000; default 1024. With
    /// several partitions each gets a share, and at least one message.
    pub fn credit_messages(mut self, messages: u32) -> Self {
        self.subscribe.credit_messages = messages.clamp(1, CREDIT_MESSAGES_MAX);
        self
    }

    /// How many bytes of encoded unsettled messages the consumer may hold, at most 256 MiB; default
    /// 8 MiB. The broker sends at least one message of each partition. If the consumer holds 8 MiB
    /// more than this and does not take them, the client pauses it until half of the window is
    /// free.
    pub fn credit_bytes(mut self, bytes: u64) -> Self {
        self.subscribe.credit_bytes = bytes.clamp(1, CREDIT_BYTES_MAX);
        self
    }

    /// Whether to create a missing group, with default settings and at the earliest message.
    pub fn create_group_if_missing(mut self, create: bool) -> Self {
        self.subscribe.create_group_if_missing = create;
        self
    }

    /// Joins the group.
    ///
    /// # Errors
    /// [`Error::Refused`] with `unknown-topic`, `unknown-group` and others, [`Error::Closed`], or
    /// [`Error::Unreachable`] when the client has given up.
    pub async fn subscribe(mut self) -> Result<Consumer, Error> {
        // Subscription numbers wrap after four thousand million; none lives that long.
        let subscription = self.connection.next_number() as u32;
        self.subscribe.subscription = subscription;
        let queue = Arc::new(DeliveryQueue::default());
        queue.set_credit(self.subscribe.credit_messages, self.subscribe.credit_bytes);
        let topic = self.topic;
        // Made first: if this call is cancelled, dropping it ends the subscription.
        let consumer = Consumer {
            connection: self.connection,
            topic,
            subscription,
            queue,
            current: None,
            closed: false,
        };
        let (subscribe, queue) = (self.subscribe, Arc::clone(&consumer.queue));
        consumer.connection.call(|answer| Command::Subscribe { subscribe, queue, answer }).await?;
        Ok(consumer)
    }
}

/// A member of a group. Dropping it ends the subscription, and unsettled messages return to the
/// group at once, without a failed attempt. [`Self::close`] does the same and waits for it.
///
/// A message that a program has taken and not settled counts as a failed attempt when its lease
/// ends or the program crashes. A message that was only prefetched does not. [`Self::next_run`]
/// takes all messages of a run together.
pub struct Consumer {
    connection: Arc<ConnectionHandle>,
    topic: TopicName,
    subscription: u32,
    queue: Arc<DeliveryQueue>,
    current: Option<DeliveryRun>,
    closed: bool,
}

impl Consumer {
    /// The next message or gap, in the order in which they came; `None` once the subscription has
    /// ended. For programs that have to know about missing messages:
    ///
    /// ```no_run
    /// # async fn example(mut consumer: sennit_client::Consumer) -> Result<(), sennit_client::Error> {
    /// use sennit_client::Received;
    ///
    /// while let Some(received) = consumer.receive().await {
    ///     match received? {
    ///         Received::Delivered(delivery) => delivery.ack(),
    ///         Received::Gap(gap) => eprintln!("{gap}"),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Each gap comes at least once: again after a reconnect, and when the broker finds it again.
    /// May be cancelled without loss.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub async fn receive(&mut self) -> Option<Result<Received<Delivery>, Error>> {
        loop {
            if let Some(current) = &mut self.current {
                if let Some(delivery) = current.take_first() {
                    return Some(Ok(Received::Delivered(delivery)));
                }
                self.current = None;
            }
            match self.take().await? {
                Ok(Received::Delivered(run)) => self.current = Some(run),
                Ok(Received::Gap(gap)) => return Some(Ok(Received::Gap(gap))),
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// As [`Self::receive`], for all messages of one partition that came together, as in
    /// [`Self::next_run`].
    ///
    /// # Errors
    /// As [`Self::next`].
    pub async fn receive_run(&mut self) -> Option<Result<Received<DeliveryRun>, Error>> {
        let received = match self.current.take() {
            Some(rest) if rest.count() > 0 => Some(Ok(Received::Delivered(rest))),
            _ => self.take().await,
        };
        if let Some(Ok(Received::Delivered(run))) = &received {
            run.take();
        }
        received
    }

    /// The next message; `None` once the subscription has ended. After an error about an unreadable
    /// delivery more messages follow; an error that ends the subscription is followed by `None`.
    /// Gaps are logged as warnings and skipped; [`Self::receive`] returns them. May be cancelled
    /// without loss.
    ///
    /// # Errors
    /// [`Error::Protocol`] for a damaged delivery, [`Error::Refused`] when the topic or group was
    /// deleted, [`Error::Unreachable`] when the client has given up.
    pub async fn next(&mut self) -> Option<Result<Delivery, Error>> {
        loop {
            match self.receive().await? {
                Ok(Received::Delivered(delivery)) => return Some(Ok(delivery)),
                Ok(Received::Gap(gap)) => self.pass_over(gap),
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// The next messages of one partition that came in one frame. After [`Self::next`], the rest of
    /// the current frame. Otherwise as [`Self::next`].
    ///
    /// # Errors
    /// As [`Self::next`].
    pub async fn next_run(&mut self) -> Option<Result<DeliveryRun, Error>> {
        loop {
            match self.receive_run().await? {
                Ok(Received::Delivered(run)) => return Some(Ok(run)),
                Ok(Received::Gap(gap)) => self.pass_over(gap),
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// The next item. Resumes the subscription if that makes enough room.
    async fn take(&self) -> Option<Result<Received<DeliveryRun>, Error>> {
        let taken = self.queue.next().await;
        if self.queue.take_resume() {
            self.connection.send(Command::Resume { subscription: self.subscription });
        }
        taken
    }

    fn pass_over(&self, gap: Gap) {
        tracing::warn!(topic = %self.topic, "{gap}");
    }

    /// Replaces the window of unsettled messages. 0 messages pauses the consumer.
    pub fn set_credit(&self, messages: u32, bytes: u64) {
        let (messages, bytes) = (messages.min(CREDIT_MESSAGES_MAX), bytes.min(CREDIT_BYTES_MAX));
        let subscription = self.subscription;
        self.connection.send(Command::SetCredit { subscription, messages, bytes });
    }

    /// Sends the waiting settlements and leaves the group. Unsettled messages return to the group
    /// at once.
    ///
    /// # Errors
    /// [`Error::Closed`] after the client was closed; otherwise the broker's refusal.
    pub async fn close(mut self) -> Result<(), Error> {
        self.closed = true;
        let subscription = self.subscription;
        self.connection
            .call(|answer| Command::Unsubscribe { subscription, answer: Some(answer) })
            .await
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        if !self.closed {
            let subscription = self.subscription;
            self.connection.send(Command::Unsubscribe { subscription, answer: None });
        }
    }
}
