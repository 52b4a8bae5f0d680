//! The consumer as programs hold it: deliveries come, verdicts go. It knows no socket.

use std::sync::Arc;

use sennit_model::{
    GroupName, TopicName,
    limits::{CREDIT_BYTES_MAX, CREDIT_MESSAGES_MAX},
};
use sennit_protocol::control;

use crate::{
    delivery::{Delivery, DeliveryRun},
    delivery_queue::DeliveryQueue,
    error::Error,
    gap::{Gap, Received},
    link::{Command, Link},
};

/// How a consumer is to be. Made by [`crate::Client::consumer`].
#[must_use = "nothing is subscribed before `subscribe` is called"]
pub struct ConsumerBuilder {
    link: Arc<Link>,
    topic: TopicName,
    subscribe: control::Subscribe,
}

impl ConsumerBuilder {
    pub(crate) fn new(link: Arc<Link>, topic: &TopicName, group: &GroupName) -> Self {
        let subscribe = control::Subscribe {
            subscription: 0,
            topic: topic.to_string(),
            group: group.to_string(),
            create_group_if_missing: false,
            credit_messages: 1024,
            credit_bytes: 8 << 20,
        };
        Self { link, topic: topic.clone(), subscribe }
    }

    /// How many messages may be here unsettled, 1 to 1,000,000; 1024 unless told. With several
    /// partitions each gets its share, and at least one.
    pub fn credit_messages(mut self, messages: u32) -> Self {
        self.subscribe.credit_messages = messages.clamp(1, CREDIT_MESSAGES_MAX);
        self
    }

    /// How many bytes of encoded messages may be here unsettled, at most 256 MiB; 8 MiB unless
    /// told. One message of each partition is always let through; once 8 MiB more than this are here and
    /// were not taken, nothing more is sent for until half of it is free.
    pub fn credit_bytes(mut self, bytes: u64) -> Self {
        self.subscribe.credit_bytes = bytes.clamp(1, CREDIT_BYTES_MAX);
        self
    }

    /// Whether to create the group, with default settings and at the earliest message, if it is not
    /// there.
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
        let subscription = self.link.number() as u32;
        self.subscribe.subscription = subscription;
        let queue = Arc::new(DeliveryQueue::default());
        queue.set_credit(self.subscribe.credit_messages, self.subscribe.credit_bytes);
        let topic = self.topic;
        // Made first: if this call is cancelled, dropping it ends the subscription.
        let consumer =
            Consumer { link: self.link, topic, subscription, queue, current: None, closed: false };
        let (subscribe, queue) = (self.subscribe, Arc::clone(&consumer.queue));
        consumer.link.call(|answer| Command::Subscribe { subscribe, queue, answer }).await?;
        Ok(consumer)
    }
}

/// A member of a group. Dropping it ends the subscription, and what is unsettled returns to the
/// group at once, without a failed attempt; [`Self::close`] does the same and waits for it.
///
/// A message that a program has taken and not settled when its lease ends, or when the program
/// crashes, counts as a failed attempt; one that was only prefetched does not. With [`Self::next_run`] all
/// messages of a run are taken together.
pub struct Consumer {
    link: Arc<Link>,
    topic: TopicName,
    subscription: u32,
    queue: Arc<DeliveryQueue>,
    current: Option<DeliveryRun>,
    closed: bool,
}

impl Consumer {
    /// The next message or gap, in the order in which they came; `None` once the subscription has
    /// ended. For programs to which it matters that messages are missing:
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
    /// A gap is told at least once: again after a reconnect, and when the broker finds it again. May
    /// be cancelled without loss.
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

    /// As [`Self::receive`], but the messages of one partition that came together, as
    /// [`Self::next_run`] gives them.
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

    /// The next message; `None` once the subscription has ended. An error that a delivery could not
    /// be read is not the end; one that says why the subscription ended is followed by `None`.
    /// Gaps are logged as warnings and passed over; [`Self::receive`] tells of them. May be cancelled
    /// without loss.
    ///
    /// # Errors
    /// [`Error::Protocol`] for a damaged delivery, [`Error::Refused`] when topic or group are gone,
    /// [`Error::Unreachable`] when the client has given up.
    pub async fn next(&mut self) -> Option<Result<Delivery, Error>> {
        loop {
            match self.receive().await? {
                Ok(Received::Delivered(delivery)) => return Some(Ok(delivery)),
                Ok(Received::Gap(gap)) => self.pass_over(gap),
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// The next messages of one partition, as many as came together: one frame. After
    /// [`Self::next`], what is left of the frame it walks. Otherwise as [`Self::next`].
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

    /// What has come next; the broker goes on if that makes room.
    async fn take(&self) -> Option<Result<Received<DeliveryRun>, Error>> {
        let taken = self.queue.next().await;
        if self.queue.goes_on() {
            self.link.tell(Command::GoOn { subscription: self.subscription });
        }
        taken
    }

    fn pass_over(&self, gap: Gap) {
        tracing::warn!(topic = %self.topic, "{gap}");
    }

    /// Replaces the window: how much may be here unsettled. 0 messages pauses.
    pub fn set_credit(&self, messages: u32, bytes: u64) {
        let (messages, bytes) = (messages.min(CREDIT_MESSAGES_MAX), bytes.min(CREDIT_BYTES_MAX));
        let subscription = self.subscription;
        self.link.tell(Command::SetCredit { subscription, messages, bytes });
    }

    /// Sends what was said of deliveries and leaves the group; what is unsettled returns to it at
    /// once.
    ///
    /// # Errors
    /// [`Error::Closed`] after the client was closed; otherwise as the broker refuses.
    pub async fn close(mut self) -> Result<(), Error> {
        self.closed = true;
        let subscription = self.subscription;
        self.link.call(|answer| Command::Unsubscribe { subscription, answer: Some(answer) }).await
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        if !self.closed {
            let subscription = self.subscription;
            self.link.tell(Command::Unsubscribe { subscription, answer: None });
        }
    }
}
