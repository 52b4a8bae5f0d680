//! The subscriptions of a client's consumers. Each connection makes them anew, and deliver frames feed them. It
//! knows no socket, and time is an argument.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use sennit_model::{Batch, GroupId, PartitionIndex, TopicId, TopicName};
use sennit_protocol::{DecodeError, Deliver, ErrorCode, Kind, SetCredit, control};
use tokio::time::Instant;

use crate::{
    connection_handle::ReplySender,
    delivery::{DeliveredBatch, DeliveryRun},
    delivery_queue::DeliveryQueue,
    error::Error,
    gap::Gap,
    outbox::Outbox,
    unsettled::{BatchProgress, Unsettled},
};

/// Delay before the client subscribes again where the broker had no room, unless the broker names
/// one.
const RETRY_DELAY: Duration = Duration::from_millis(250);

/// Delay before the client subscribes again where the leader has changed.
pub(crate) const AGAIN_DELAY: Duration = Duration::from_millis(20);

/// Deliveries that may come before the answer to their subscription.
const EARLY_FRAMES_MAX: usize = 1024;

struct Subscription {
    subscribe: control::Subscribe,
    topic_name: TopicName,
    queue: Arc<DeliveryQueue>,
    /// Receives the result of the first request.
    answer: Option<ReplySender<()>>,
    ids: Option<(TopicId, GroupId)>,
    /// Whether the window has changed since the request.
    has_new_credit: bool,
    early: Vec<Deliver>,
    /// The messages of this connection that the program works on.
    unsettled: HashMap<PartitionIndex, Arc<Unsettled>>,
    retry_at: Option<Instant>,
}

impl Subscription {
    fn credit(&self) -> SetCredit {
        let control::Subscribe { subscription, credit_messages, credit_bytes, .. } = self.subscribe;
        SetCredit { subscription, messages: credit_messages, bytes: credit_bytes }
    }

    /// The broker delivers nothing more of it, until it is made again.
    fn interrupt(&mut self) {
        self.ids = None;
        self.early.clear();
        self.unsettled.clear();
    }

    fn end(self, error: &Error, report: bool) {
        if report && self.answer.is_none() {
            self.queue.fault(error.clone());
        }
        if let Some(answer) = self.answer {
            // The caller may have stopped waiting.
            let _ = answer.send(Err(error.clone()));
        }
        self.queue.end();
    }
}

/// The subscriptions of a client, by number.
pub(crate) struct Subscriptions {
    outbox: Arc<Outbox>,
    /// Whether the broker of this connection supports the feature `started`.
    supports_started: bool,
    known: BTreeMap<u32, Subscription>,
}

impl Subscriptions {
    pub(crate) fn new(outbox: Arc<Outbox>) -> Self {
        Self { outbox, supports_started: false, known: BTreeMap::new() }
    }

    /// Notes a new connection, and whether its broker supports the feature `started`.
    pub(crate) fn connected(&mut self, supports_started: bool) {
        self.supports_started = supports_started;
    }

    /// Adds a subscription that has not been made.
    pub(crate) fn add(
        &mut self,
        subscribe: control::Subscribe,
        queue: Arc<DeliveryQueue>,
        answer: ReplySender<()>,
    ) {
        let number = subscribe.subscription;
        let topic_name = subscribe.topic.parse().expect("it was a name when it was given");
        let subscription = Subscription {
            subscribe,
            topic_name,
            queue,
            answer: Some(answer),
            ids: None,
            has_new_credit: false,
            early: Vec::new(),
            unsettled: HashMap::new(),
            retry_at: None,
        };
        self.known.insert(number, subscription);
    }

    /// Removes a subscription that its program has dropped. Returns whether there was one.
    pub(crate) fn remove(&mut self, number: u32) -> bool {
        self.known.remove(&number).is_some()
    }

    pub(crate) fn numbers(&self) -> Vec<u32> {
        self.known.keys().copied().collect()
    }

    /// The request that makes a subscription.
    pub(crate) fn request(&mut self, number: u32) -> Option<control::Subscribe> {
        let known = self.known.get_mut(&number)?;
        known.retry_at = None;
        known.has_new_credit = false;
        Some(known.subscribe.clone())
    }

    /// Changes a window, now and for later connections. Returns a credit frame, if the broker has
    /// made the subscription.
    pub(crate) fn set_credit(
        &mut self,
        number: u32,
        messages: u32,
        bytes: u64,
    ) -> Option<SetCredit> {
        let known = self.known.get_mut(&number)?;
        known.subscribe.credit_messages = messages;
        known.subscribe.credit_bytes = bytes;
        known.queue.set_credit(messages, bytes);
        known.has_new_credit = known.ids.is_none();
        known.ids.map(|_| known.credit())
    }

    /// Notes that the broker has made a subscription. Returns a credit frame if the window changed
    /// meanwhile.
    pub(crate) fn subscribed(
        &mut self,
        subscribed: &control::Subscribed,
    ) -> Result<Option<SetCredit>, Error> {
        let Some(known) = self.known.get_mut(&subscribed.subscription) else { return Ok(None) };
        known.ids = Some((TopicId(subscribed.topic_id), GroupId(subscribed.group_id)));
        known.queue.set_partitions(subscribed.partitions);
        if let Some(answer) = known.answer.take() {
            let _ = answer.send(Ok(()));
        }
        let has_new_credit = std::mem::take(&mut known.has_new_credit);
        let mut credit = has_new_credit.then(|| known.credit());
        for deliver in std::mem::take(&mut known.early) {
            credit = self.delivered(deliver)?.or(credit);
        }
        Ok(credit)
    }

    /// The window of a subscription that was made on this connection.
    pub(crate) fn credit(&self, number: u32) -> Option<SetCredit> {
        let known = self.known.get(&number)?;
        known.ids.map(|_| known.credit())
    }

    /// Handles a refused subscription. Returns the time of the next attempt, if `comes_again`, or if
    /// it had been made before and may be made later.
    pub(crate) fn refused(
        &mut self,
        number: u32,
        error: &Error,
        comes_again: bool,
        now: Instant,
    ) -> Option<Instant> {
        let known = self.known.get_mut(&number)?;
        if comes_again || known.answer.is_none() && error.is_retryable() {
            known.retry_at = Some(now + RETRY_DELAY.max(error.retry_after().unwrap_or_default()));
            return known.retry_at;
        }
        self.known.remove(&number)?.end(error, true);
        None
    }

    /// The subscriptions that wait for another attempt, with its time.
    pub(crate) fn due(&self) -> Vec<(u32, Instant)> {
        let due = self.known.iter().filter_map(|(&number, known)| Some((number, known.retry_at?)));
        due.collect()
    }

    /// Handles a subscription that the broker ended. Returns the time at which it is made again, if
    /// only its leader has changed.
    pub(crate) fn ended(
        &mut self,
        ended: &control::SubscriptionEnded,
        now: Instant,
    ) -> Option<Instant> {
        let known = self.known.get_mut(&ended.subscription)?;
        let error = error_of(ended);
        if error.asks_for_leader() {
            known.interrupt();
            known.retry_at = Some(now + AGAIN_DELAY);
            return known.retry_at;
        }
        self.known.remove(&ended.subscription)?.end(&error, true);
        None
    }

    /// Passes messages to their consumer. Returns a credit frame that pauses the consumer, if it
    /// holds too much.
    pub(crate) fn delivered(&mut self, deliver: Deliver) -> Result<Option<SetCredit>, Error> {
        let head = deliver.head;
        // The frame may have been on its way when the subscription ended.
        let Some(known) = self.known.get_mut(&head.subscription) else { return Ok(None) };
        let Some((topic, group)) = known.ids else {
            if known.early.len() == EARLY_FRAMES_MAX {
                let message = "deliveries for a subscription that was not answered";
                return Err(Error::Unexpected(message.into()));
            }
            known.early.push(deliver);
            return Ok(None);
        };
        match check(deliver) {
            Ok(batch) => {
                let outbox = Arc::clone(&self.outbox);
                let topic_name = known.topic_name.clone();
                let progress = self.supports_started.then(|| {
                    let unsettled = known.unsettled.entry(head.partition).or_default();
                    BatchProgress::new(Arc::clone(unsettled), head.count)
                });
                let batch =
                    DeliveredBatch { outbox, topic_name, topic, group, head, batch, progress };
                let pauses = known.queue.push(DeliveryRun::new(batch));
                Ok(pauses.then(|| SetCredit { messages: 0, ..known.credit() }))
            }
            // The message returns to the group when its lease ends. The connection is still usable.
            Err(error) => {
                known.queue.fault(error.into());
                Ok(None)
            }
        }
    }

    /// Passes a gap to its consumer.
    pub(crate) fn gap(&self, gap: &sennit_protocol::Gap) {
        // The frame may have been on its way when the subscription ended.
        if let Some(known) = self.known.get(&gap.subscription) {
            let sennit_protocol::Gap { partition, offsets, reason, .. } = *gap;
            known.queue.gap(Gap { partition, offsets, reason });
        }
    }

    /// Notes the end of the connection. Each subscription waits for its next request.
    pub(crate) fn connection_lost(&mut self) {
        self.known.values_mut().for_each(Subscription::interrupt);
    }

    /// Ends all subscriptions. Each consumer gets the error, unless the program has closed the
    /// client.
    pub(crate) fn fail(&mut self, error: &Error) {
        let report = !matches!(error, Error::Closed);
        std::mem::take(&mut self.known).into_values().for_each(|known| known.end(error, report));
    }
}

/// The reason why the broker ended a subscription.
pub(crate) fn error_of(ended: &control::SubscriptionEnded) -> Error {
    let code = ErrorCode::of_number(ended.code).unwrap_or(ErrorCode::Internal);
    Error::from(control::Error::new(code, ended.reason.clone()))
}

/// The messages, if they match the frame's header.
pub(crate) fn check(deliver: Deliver) -> Result<Batch, DecodeError> {
    let announced = deliver.head.count;
    let batch = Batch::check_delivered(deliver.messages)?;
    let held = batch.count();
    if held != announced {
        return Err(DecodeError::Count { kind: Kind::Deliver, announced, held });
    }
    Ok(batch)
}
