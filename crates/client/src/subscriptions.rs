//! The subscriptions of a client: made on each connection anew, fed by deliver frames. It knows no
//! socket, and time is an argument.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use sennit_model::{Batch, GroupId, PartitionIndex, TopicId, TopicName};
use sennit_protocol::{DecodeError, Deliver, ErrorCode, Kind, SetCredit, control};
use tokio::time::Instant;

use crate::{
    delivery::{DeliveredBatch, DeliveryRun},
    delivery_queue::DeliveryQueue,
    error::Error,
    gap::Gap,
    link::Answer,
    outbox::Outbox,
    unsettled::{BatchProgress, Unsettled},
};

/// How long to wait before subscribing again where the broker had no room, unless it says.
const AGAIN_DELAY: Duration = Duration::from_millis(250);

/// Deliveries that may come before their subscription's answer.
const EARLY_FRAMES_MAX: usize = 1024;

struct Subscription {
    subscribe: control::Subscribe,
    topic_name: TopicName,
    queue: Arc<DeliveryQueue>,
    /// Whoever waits for the first answer.
    answer: Option<Answer<()>>,
    ids: Option<(TopicId, GroupId)>,
    /// Whether the window is another than the one it was asked for with.
    has_new_credit: bool,
    early: Vec<Deliver>,
    /// What the program works on, of what came on this connection.
    unsettled: HashMap<PartitionIndex, Arc<Unsettled>>,
    again_at: Option<Instant>,
}

impl Subscription {
    fn credit(&self) -> SetCredit {
        let control::Subscribe { subscription, credit_messages, credit_bytes, .. } = self.subscribe;
        SetCredit { subscription, messages: credit_messages, bytes: credit_bytes }
    }

    fn end(self, error: &Error, tell_why: bool) {
        if tell_why && self.answer.is_none() {
            self.queue.fault(error.clone());
        }
        if let Some(answer) = self.answer {
            // Whoever asked may have stopped waiting.
            let _ = answer.send(Err(error.clone()));
        }
        self.queue.end();
    }
}

/// The subscriptions of a client, by number.
pub(crate) struct Subscriptions {
    outbox: Arc<Outbox>,
    /// Whether the broker of this connection is told what programs work on.
    tells_started: bool,
    known: BTreeMap<u32, Subscription>,
}

impl Subscriptions {
    pub(crate) fn new(outbox: Arc<Outbox>) -> Self {
        Self { outbox, tells_started: false, known: BTreeMap::new() }
    }

    /// A connection is there, and its broker may be told what programs work on, or not.
    pub(crate) fn connected(&mut self, tells_started: bool) {
        self.tells_started = tells_started;
    }

    /// Adds one that is to be made.
    pub(crate) fn add(
        &mut self,
        subscribe: control::Subscribe,
        queue: Arc<DeliveryQueue>,
        answer: Answer<()>,
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
            again_at: None,
        };
        self.known.insert(number, subscription);
    }

    /// Forgets one that its program has left; whether it was there.
    pub(crate) fn remove(&mut self, number: u32) -> bool {
        self.known.remove(&number).is_some()
    }

    pub(crate) fn numbers(&self) -> Vec<u32> {
        self.known.keys().copied().collect()
    }

    /// What is to be asked to make it.
    pub(crate) fn request(&mut self, number: u32) -> Option<control::Subscribe> {
        let known = self.known.get_mut(&number)?;
        known.again_at = None;
        known.has_new_credit = false;
        Some(known.subscribe.clone())
    }

    /// Changes a window, now and for later connections. What is to be said of it, if the broker knows
    /// the subscription by now.
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

    /// It is made on this connection. Returns what is to be said of a window that was changed
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

    /// The window of one that is made on this connection.
    pub(crate) fn credit(&self, number: u32) -> Option<SetCredit> {
        let known = self.known.get(&number)?;
        known.ids.map(|_| known.credit())
    }

    /// It was not made. If it was before, and may be later, it is asked for again at the time
    /// returned.
    pub(crate) fn refused(&mut self, number: u32, error: &Error, now: Instant) -> Option<Instant> {
        let known = self.known.get_mut(&number)?;
        if known.answer.is_none() && error.is_retryable() {
            known.again_at = Some(now + AGAIN_DELAY.max(error.retry_after().unwrap_or_default()));
            return known.again_at;
        }
        self.known.remove(&number)?.end(error, true);
        None
    }

    /// Those that are to be asked for again, with the time.
    pub(crate) fn due(&self) -> Vec<(u32, Instant)> {
        let due = self.known.iter().filter_map(|(&number, known)| Some((number, known.again_at?)));
        due.collect()
    }

    /// The broker has ended it.
    pub(crate) fn ended(&mut self, ended: &control::SubscriptionEnded) {
        if let Some(known) = self.known.remove(&ended.subscription) {
            let code = ErrorCode::of_number(ended.code).unwrap_or(ErrorCode::Internal);
            known.end(&Error::from(control::Error::new(code, ended.reason.clone())), true);
        }
    }

    /// Hands messages to their consumer; what is to be said if that is too much.
    pub(crate) fn delivered(&mut self, deliver: Deliver) -> Result<Option<SetCredit>, Error> {
        let head = deliver.head;
        // It may have been on its way when the subscription ended.
        let Some(known) = self.known.get_mut(&head.subscription) else { return Ok(None) };
        let Some((topic, group)) = known.ids else {
            if known.early.len() == EARLY_FRAMES_MAX {
                let said = "deliveries for a subscription that was not answered";
                return Err(Error::Unexpected(said.into()));
            }
            known.early.push(deliver);
            return Ok(None);
        };
        match check(deliver) {
            Ok(batch) => {
                let outbox = Arc::clone(&self.outbox);
                let topic_name = known.topic_name.clone();
                let progress = self.tells_started.then(|| {
                    let unsettled = known.unsettled.entry(head.partition).or_default();
                    BatchProgress::new(Arc::clone(unsettled), head.count)
                });
                let batch =
                    DeliveredBatch { outbox, topic_name, topic, group, head, batch, progress };
                let pauses = known.queue.push(DeliveryRun::new(batch));
                Ok(pauses.then(|| SetCredit { messages: 0, ..known.credit() }))
            }
            // It returns to the group when its lease ends; the connection is good otherwise.
            Err(error) => {
                known.queue.fault(error.into());
                Ok(None)
            }
        }
    }

    /// Tells a consumer of messages that do not come.
    pub(crate) fn gap(&self, gap: &sennit_protocol::Gap) {
        // It may have been on its way when the subscription ended.
        if let Some(known) = self.known.get(&gap.subscription) {
            let sennit_protocol::Gap { partition, offsets, reason, .. } = *gap;
            known.queue.gap(Gap { partition, offsets, reason });
        }
    }

    /// The connection is gone: none is made on the next before it is asked for.
    pub(crate) fn connection_lost(&mut self) {
        for known in self.known.values_mut() {
            known.ids = None;
            known.early.clear();
            known.unsettled.clear();
        }
    }

    /// The end. A consumer is told why, unless the program itself has closed the client.
    pub(crate) fn fail(&mut self, error: &Error) {
        let tell_why = !matches!(error, Error::Closed);
        std::mem::take(&mut self.known).into_values().for_each(|known| known.end(error, tell_why));
    }
}

/// The messages, if they are what was announced.
pub(crate) fn check(deliver: Deliver) -> Result<Batch, DecodeError> {
    let announced = deliver.head.count;
    let batch = Batch::check_delivered(deliver.messages)?;
    let held = batch.count();
    if held != announced {
        return Err(DecodeError::Count { kind: Kind::Deliver, announced, held });
    }
    Ok(batch)
}
