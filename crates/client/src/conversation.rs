//! What is being said on a connection: what was asked and not answered, who publishes, who is
//! subscribed, what was settled. Commands and frames in, frames out; it outlives connections, and
//! says again on the next what the last one lost. It knows no socket, and time is an argument.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use sennit_model::{Batch, GroupId, ProducerId, TopicId, TopicName};
use sennit_protocol::{
    Confirm, DecodeError, Deliver, ErrorCode, FrameHeader, Kind, Reply, Request, SetCredit, control,
};
use tokio::time::Instant;

use crate::{
    delivery::{DeliveredBatch, DeliveryRun},
    delivery_queue::DeliveryQueue,
    error::Error,
    link::{Answer, Command},
    outbox::Outbox,
    outgoing::Outgoing,
    partition_buffer::BatchRefusal,
    publisher_core::{Left, SharedPublisher, publisher_of_sequence},
    settle_queue::SettleBatch,
};

/// Bytes that are encoded ahead of the socket.
const OUTGOING_BYTES_MAX: usize = 512 << 10;

/// Settle frames after which a ping asks whether the broker has got them.
const SETTLES_BETWEEN_PINGS: usize = 32;

/// How long to wait before a topic is opened or subscribed to again that the broker had no room
/// for, unless it says.
const AGAIN_DELAY: Duration = Duration::from_millis(250);

/// Deliveries that may come before their subscription's answer.
const EARLY_FRAMES_MAX: usize = 1024;

enum Asked {
    Question { request: Request, again: bool, answer: Answer<Reply> },
    Open(u64),
    Subscribe(u32),
    Unsubscribe(Option<Answer<()>>),
}

struct Publishing {
    core: SharedPublisher,
    /// Whoever waits for the first opening.
    answer: Option<Answer<()>>,
    /// Its last handle is gone.
    dropped: bool,
    open_at: Option<Instant>,
}

struct Subscription {
    subscribe: control::Subscribe,
    topic_name: TopicName,
    queue: Arc<DeliveryQueue>,
    answer: Option<Answer<()>>,
    ids: Option<(TopicId, GroupId)>,
    early: Vec<Deliver>,
    subscribe_at: Option<Instant>,
}

/// What is being said.
pub(crate) struct Conversation {
    outbox: Arc<Outbox>,
    pub(crate) outgoing: Outgoing,
    connected: bool,
    frame_bytes_max: usize,
    /// The last request number given out, on whatever connection.
    request: u64,
    asked: BTreeMap<u64, Asked>,
    publishers: BTreeMap<u64, Publishing>,
    by_producer: HashMap<ProducerId, u64>,
    listed: Vec<SharedPublisher>,
    subscriptions: BTreeMap<u32, Subscription>,
    /// Settle frames sent and not known to have arrived, by request number.
    settled: BTreeMap<u64, SettleBatch>,
    settles_since_ping: usize,
    /// All frames before the one of this number have arrived.
    arrived: u64,
    wake_at: Option<Instant>,
}

impl Conversation {
    pub(crate) fn new(outbox: Arc<Outbox>) -> Self {
        Self {
            outbox,
            outgoing: Outgoing::default(),
            connected: false,
            frame_bytes_max: 0,
            request: 1, // the greeting's
            asked: BTreeMap::new(),
            publishers: BTreeMap::new(),
            by_producer: HashMap::new(),
            listed: Vec::new(),
            subscriptions: BTreeMap::new(),
            settled: BTreeMap::new(),
            settles_since_ping: 0,
            arrived: 0,
            wake_at: None,
        }
    }

    /// A connection is there: everything that a broker has to know is said on it.
    pub(crate) fn connected(&mut self, frame_bytes_max: usize) {
        self.connected = true;
        self.frame_bytes_max = frame_bytes_max;
        for (&number, asked) in &self.asked {
            if let Asked::Question { request, .. } = asked {
                self.outgoing.request(request, number);
            }
        }
        let publishers: Vec<_> = self.publishers.keys().copied().collect();
        publishers.into_iter().for_each(|number| self.open(number));
        let subscriptions: Vec<_> = self.subscriptions.keys().copied().collect();
        subscriptions.into_iter().for_each(|number| self.subscribe(number));
        for (number, batch) in std::mem::take(&mut self.settled) {
            // Without a waiter it is said once more and no oftener: it was likely heard.
            if !batch.again || !batch.waiters.is_empty() {
                self.say_settled(number, SettleBatch { again: true, ..batch });
            }
        }
    }

    /// The connection is gone.
    pub(crate) fn lost(&mut self) {
        self.connected = false;
        self.outgoing.clear();
        self.listed.clear();
        self.outbox.take_publishers(&mut self.listed);
        self.listed.clear();
        for (number, asked) in std::mem::take(&mut self.asked) {
            match asked {
                Asked::Question { again: true, .. } => {
                    self.asked.insert(number, asked);
                }
                Asked::Question { answer, .. } => drop(answer.send(Err(Error::OutcomeUnknown))),
                // The subscription went with the connection.
                Asked::Unsubscribe(Some(answer)) => drop(answer.send(Ok(()))),
                Asked::Open(_) | Asked::Subscribe(_) | Asked::Unsubscribe(None) => {}
            }
        }
        self.publishers.values().for_each(|publishing| publishing.core.connection_lost());
        self.subscriptions.values_mut().for_each(|subscription| {
            subscription.ids = None;
            subscription.early.clear();
        });
    }

    /// The end: whatever waits fails with `error`. A consumer is told why, unless the program
    /// itself has closed the client.
    pub(crate) fn finish(&mut self, error: &Error) {
        self.lost();
        self.outbox.close(error);
        let lost = match error {
            Error::Closed => Error::OutcomeUnknown,
            other => other.clone(),
        };
        for publishing in std::mem::take(&mut self.publishers).into_values() {
            publishing.core.fail(&lost, error);
            tell(publishing.answer, Err(error.clone()));
        }
        for subscription in std::mem::take(&mut self.subscriptions).into_values() {
            if !matches!(error, Error::Closed) && subscription.answer.is_none() {
                subscription.queue.fault(error.clone());
            }
            tell(subscription.answer, Err(error.clone()));
            subscription.queue.end();
        }
        for asked in std::mem::take(&mut self.asked).into_values() {
            if let Asked::Question { answer, .. } = asked {
                tell(Some(answer), Err(error.clone()));
            }
        }
        std::mem::take(&mut self.settled).into_values().for_each(|batch| batch.failed(error));
    }

    /// Whether everything published is answered.
    pub(crate) fn is_drained(&self) -> bool {
        self.publishers.values().all(|publishing| publishing.core.is_drained())
    }

    /// When there is something to do without a frame or a command.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        self.wake_at
    }

    fn wake_by(&mut self, at: Instant) {
        self.wake_at = Some(self.wake_at.map_or(at, |before| before.min(at)));
    }

    fn number(&mut self) -> u64 {
        self.request += 1;
        self.request
    }

    /// Does what a program asks. Closing is not for here.
    pub(crate) fn command(&mut self, command: Command) {
        match command {
            Command::Ask { request, again, answer } => {
                let number = self.number();
                if self.connected {
                    self.outgoing.request(&request, number);
                }
                self.asked.insert(number, Asked::Question { request, again, answer });
            }
            Command::OpenPublisher { publisher, answer } => {
                let number = publisher.number;
                if publisher.producer != ProducerId(0) {
                    self.by_producer.insert(publisher.producer, number);
                }
                let publishing = Publishing {
                    core: publisher,
                    answer: Some(answer),
                    dropped: false,
                    open_at: None,
                };
                self.publishers.insert(number, publishing);
                self.open(number);
            }
            Command::DropPublisher { number } => {
                if let Some(publishing) = self.publishers.get_mut(&number) {
                    publishing.dropped = true;
                }
                self.forget_if_drained(number);
            }
            Command::Subscribe { subscribe, queue, answer } => {
                let number = subscribe.subscription;
                let topic_name = subscribe.topic.parse().expect("it was a name when it was given");
                let subscription = Subscription {
                    subscribe,
                    topic_name,
                    queue,
                    answer: Some(answer),
                    ids: None,
                    early: Vec::new(),
                    subscribe_at: None,
                };
                self.subscriptions.insert(number, subscription);
                self.subscribe(number);
            }
            Command::SetCredit { subscription, messages, bytes } => {
                let Some(known) = self.subscriptions.get_mut(&subscription) else { return };
                known.subscribe.credit_messages = messages;
                known.subscribe.credit_bytes = bytes;
                known.queue.set_credit(messages, bytes);
                if self.connected {
                    let frame = SetCredit { subscription, messages, bytes };
                    let number = self.number();
                    self.outgoing.request(&Request::SetCredit(frame), number);
                }
            }
            Command::Unsubscribe { subscription, answer } => {
                let known = self.subscriptions.remove(&subscription);
                if known.is_none() || !self.connected {
                    return tell(answer, Ok(()));
                }
                // What was said of its deliveries goes first.
                self.say_settles();
                let number = self.number();
                let body = control::Unsubscribe { subscription };
                self.outgoing.request(&Request::Unsubscribe(body), number);
                self.asked.insert(number, Asked::Unsubscribe(answer));
            }
            Command::Close { .. } => {}
        }
    }

    fn open(&mut self, publisher: u64) {
        let Some(publishing) = self.publishers.get_mut(&publisher) else { return };
        publishing.open_at = None;
        if !self.connected {
            return;
        }
        let settings = &publishing.core.settings;
        let body = control::OpenTopic {
            name: settings.topic.to_string(),
            create_if_missing: settings.create_if_missing,
        };
        let number = self.number();
        self.outgoing.request(&Request::OpenTopic(body), number);
        self.asked.insert(number, Asked::Open(publisher));
    }

    fn subscribe(&mut self, subscription: u32) {
        let Some(known) = self.subscriptions.get_mut(&subscription) else { return };
        known.subscribe_at = None;
        if !self.connected {
            return;
        }
        let body = known.subscribe.clone();
        let number = self.number();
        self.outgoing.request(&Request::Subscribe(body), number);
        self.asked.insert(number, Asked::Subscribe(subscription));
    }

    /// Encodes what waits, settlements first, until there is enough for the socket.
    pub(crate) fn fill(&mut self, now: Instant) {
        self.say_settles();
        self.outbox.take_publishers(&mut self.listed);
        if self.listed.is_empty() {
            return;
        }
        let mut left_over = Vec::new();
        for publisher in std::mem::take(&mut self.listed) {
            let Self { request, outgoing, .. } = self;
            match publisher.depart(now, request, outgoing, OUTGOING_BYTES_MAX) {
                Left::Nothing => {}
                Left::More => left_over.push(publisher),
                Left::RestsUntil(until) => self.wake_by(until),
            }
        }
        self.listed = left_over;
    }

    fn say_settles(&mut self) {
        for batch in self.outbox.take_settles() {
            let number = self.number();
            self.say_settled(number, batch);
            self.settles_since_ping += 1;
        }
        if self.settles_since_ping >= SETTLES_BETWEEN_PINGS {
            self.ping();
        }
    }

    fn say_settled(&mut self, number: u64, batch: SettleBatch) {
        let SettleBatch { head, runs, .. } = &batch;
        self.outgoing.append(|out| head.encode(runs.iter().copied(), number, out));
        self.settled.insert(number, batch);
    }

    /// Asks whether the broker is there, and so whether it has got all that was sent before:
    /// [`Self::has_arrived`] says so once it has answered.
    pub(crate) fn ping(&mut self) -> u64 {
        self.settles_since_ping = 0;
        let number = self.number();
        self.outgoing.request(&Request::Ping, number);
        number
    }

    /// Whether the ping of this number was answered, on whatever connection.
    pub(crate) fn has_arrived(&self, ping: u64) -> bool {
        self.arrived >= ping
    }

    /// Says goodbye.
    pub(crate) fn leave(&mut self) {
        self.outgoing.request(&Request::Goodbye, 0);
    }

    /// Does what was put off until now.
    pub(crate) fn wake(&mut self, now: Instant) {
        if self.wake_at.is_none_or(|at| at > now) {
            return;
        }
        self.wake_at = None;
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let opens: Vec<_> = self.publishers.iter().map(|(&n, p)| (n, p.open_at)).collect();
        for (number, at) in opens {
            if due(at) {
                self.open(number);
            } else if let Some(at) = at {
                self.wake_by(at);
            }
        }
        let subscribes: Vec<_> =
            self.subscriptions.iter().map(|(&n, s)| (n, s.subscribe_at)).collect();
        for (number, at) in subscribes {
            if due(at) {
                self.subscribe(number);
            } else if let Some(at) = at {
                self.wake_by(at);
            }
        }
        let resting: Vec<_> = self
            .publishers
            .values()
            .filter_map(|publishing| Some((publishing.core.rests_until()?, &publishing.core)))
            .map(|(until, core)| (until, Arc::clone(core)))
            .collect();
        for (until, core) in resting {
            if until <= now {
                self.listed.push(core);
            } else {
                self.wake_by(until);
            }
        }
    }

    /// Takes a frame.
    ///
    /// # Errors
    /// The connection cannot go on.
    pub(crate) fn frame(
        &mut self,
        header: &FrameHeader,
        body: Bytes,
        now: Instant,
    ) -> Result<(), Error> {
        let reply = match Reply::decode(header, body) {
            Ok(reply) => reply,
            // A newer broker's frame.
            Err(DecodeError::UnknownKind { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let number = header.request;
        match reply {
            Reply::Confirm(confirm) => self.confirmed(&confirm, now),
            Reply::Deliver(deliver) => self.delivered(deliver)?,
            Reply::Settled(frame) => {
                if !frame.stale.is_empty() {
                    tracing::debug!(runs = ?frame.stale, "settled too late");
                }
                match self.settled.remove(&number) {
                    Some(batch) if batch.head.confirm => batch.answered(&frame),
                    // The rest of it applied, or is still to be judged.
                    Some(batch) => drop(self.settled.insert(number, batch)),
                    None => {}
                }
            }
            Reply::Error(error) => self.refused(number, error, now)?,
            Reply::Ping => self.outgoing.request(&Request::Pong, number),
            Reply::Pong => {
                self.arrived = self.arrived.max(number);
                self.settled.retain(|&settle, batch| settle > number || batch.head.confirm);
            }
            Reply::GoAway(body) => tracing::info!(reason = body.reason, "the broker is leaving"),
            Reply::SubscriptionEnded(ended) => self.subscription_ended(&ended),
            Reply::HelloOk(_) => {
                return Err(Error::Unexpected("a second answer to the greeting".into()));
            }
            Reply::TopicOpened(_)
            | Reply::Subscribed(_)
            | Reply::Done(_)
            | Reply::TopicDescription(_)
            | Reply::TopicList(_)
            | Reply::GroupDescription(_)
            | Reply::GroupList(_) => self.answered(number, reply, now)?,
        }
        Ok(())
    }

    fn answered(&mut self, number: u64, reply: Reply, now: Instant) -> Result<(), Error> {
        match (self.asked.remove(&number), reply) {
            (Some(Asked::Question { answer, .. }), reply) => tell(Some(answer), Ok(reply)),
            (Some(Asked::Open(publisher)), Reply::TopicOpened(opened)) => {
                let Some(publishing) = self.publishers.get_mut(&publisher) else { return Ok(()) };
                let core = Arc::clone(&publishing.core);
                match core.opened(&opened, self.frame_bytes_max) {
                    Ok(listed) => {
                        self.listed.extend(listed.then_some(core));
                        // Whoever opened it may have stopped waiting, and will never drop it.
                        let answer = publishing.answer.take();
                        let gone = |answer: Answer<()>| answer.send(Ok(())).is_err();
                        publishing.dropped |= answer.is_some_and(gone);
                        self.forget_if_drained(publisher);
                    }
                    Err(error) => self.not_opened(publisher, error, now),
                }
            }
            (Some(Asked::Subscribe(subscription)), Reply::Subscribed(subscribed)) => {
                let Some(known) = self.subscriptions.get_mut(&subscription) else { return Ok(()) };
                known.ids = Some((TopicId(subscribed.topic_id), GroupId(subscribed.group_id)));
                tell(known.answer.take(), Ok(()));
                for deliver in std::mem::take(&mut known.early) {
                    self.delivered(deliver)?;
                }
            }
            (Some(Asked::Unsubscribe(answer)), Reply::Done(_)) => tell(answer, Ok(())),
            // Whoever asked has been told that the connection was lost.
            (None, _) => {}
            (Some(_), reply) => {
                return Err(Error::Unexpected(format!(
                    "{} answers another question",
                    reply.kind()
                )));
            }
        }
        Ok(())
    }

    fn confirmed(&mut self, confirm: &Confirm, now: Instant) {
        if let Some(&number) = self.by_producer.get(&confirm.head.producer) {
            return self.confirmed_to(number, confirm, now);
        }
        let mut last = None;
        for run in confirm.runs.iter() {
            let number = publisher_of_sequence(run.first_sequence);
            if last.replace(number) != Some(number) {
                self.confirmed_to(number, confirm, now);
            }
        }
    }

    fn confirmed_to(&mut self, number: u64, confirm: &Confirm, now: Instant) {
        let Some(publishing) = self.publishers.get(&number) else { return };
        if publishing.core.topic().0 != confirm.head.partition.topic {
            return;
        }
        if publishing.core.confirmed(confirm, now) {
            self.listed.push(Arc::clone(&publishing.core));
        }
        if publishing.dropped {
            self.forget_if_drained(number);
        }
    }

    fn forget_if_drained(&mut self, number: u64) {
        let done = |publishing: &Publishing| publishing.dropped && publishing.core.is_drained();
        if self.publishers.get(&number).is_some_and(done)
            && let Some(publishing) = self.publishers.remove(&number)
        {
            self.by_producer.remove(&publishing.core.producer);
        }
    }

    fn delivered(&mut self, deliver: Deliver) -> Result<(), Error> {
        // It may have been on its way when the subscription ended.
        let Some(known) = self.subscriptions.get_mut(&deliver.head.subscription) else {
            return Ok(());
        };
        let Some((topic, group)) = known.ids else {
            if known.early.len() == EARLY_FRAMES_MAX {
                let said = "deliveries for a subscription that was not answered".into();
                return Err(Error::Unexpected(said));
            }
            known.early.push(deliver);
            return Ok(());
        };
        let head = deliver.head;
        match check(deliver) {
            Ok(batch) => {
                let outbox = Arc::clone(&self.outbox);
                let topic_name = known.topic_name.clone();
                let batch = DeliveredBatch { outbox, topic_name, topic, group, head, batch };
                known.queue.push(DeliveryRun::new(batch));
            }
            // It returns to the group when its lease ends; the connection is good otherwise.
            Err(error) => known.queue.fault(error.into()),
        }
        Ok(())
    }

    fn subscription_ended(&mut self, ended: &control::SubscriptionEnded) {
        let Some(known) = self.subscriptions.remove(&ended.subscription) else { return };
        let code = ErrorCode::of_number(ended.code).unwrap_or(ErrorCode::Internal);
        let error = Error::from(control::Error::new(code, ended.reason.clone()));
        if known.answer.is_none() {
            known.queue.fault(error.clone());
        }
        tell(known.answer, Err(error));
        known.queue.end();
    }

    fn refused(&mut self, number: u64, body: control::Error, now: Instant) -> Result<(), Error> {
        let error = Error::from(body.clone());
        if let Some(asked) = self.asked.remove(&number) {
            match asked {
                Asked::Question { answer, .. } => tell(Some(answer), Err(error.clone())),
                Asked::Open(publisher) => self.not_opened(publisher, error.clone(), now),
                Asked::Subscribe(subscription) => {
                    self.not_subscribed(subscription, error.clone(), now);
                }
                // It had ended already.
                Asked::Unsubscribe(answer) => tell(answer, Ok(())),
            }
        } else if let Some(batch) = self.settled.remove(&number) {
            tracing::debug!(%error, "a settlement was refused");
            batch.failed(&error);
        } else if number != 0 || body.first_sequence.is_some() {
            self.publish_refused(number, &body, &error, now);
        } else if !body.closes_connection {
            tracing::warn!(%error, "the broker reports an error that is no answer");
        }
        if body.closes_connection { Err(error) } else { Ok(()) }
    }

    fn publish_refused(
        &mut self,
        request: u64,
        body: &control::Error,
        error: &Error,
        now: Instant,
    ) {
        let refusal = BatchRefusal {
            request,
            first_sequence: body.first_sequence,
            code: body.error_code(),
            expected_sequence: body.expected_sequence,
            error: error.clone(),
        };
        let producer = body.producer_id.map(ProducerId);
        let found = self.publishers.iter().find_map(|(&number, publishing)| {
            if producer.is_some_and(|producer| producer != publishing.core.producer) {
                return None;
            }
            let listed = publishing.core.refused(&refusal, now)?;
            Some((number, listed, Arc::clone(&publishing.core)))
        });
        let Some((number, listed, core)) = found else {
            tracing::warn!(%error, "the broker reports an error that is no answer");
            return;
        };
        if let Some(until) = core.rests_until() {
            self.wake_by(until);
        }
        self.listed.extend(listed.then_some(core));
        self.forget_if_drained(number);
    }

    fn not_opened(&mut self, publisher: u64, error: Error, now: Instant) {
        let Some(publishing) = self.publishers.get_mut(&publisher) else { return };
        if publishing.answer.is_none() && error.is_retryable() {
            let at = now + AGAIN_DELAY.max(retry_after(&error));
            publishing.open_at = Some(at);
            return self.wake_by(at);
        }
        let publishing = self.publishers.remove(&publisher).expect("it was there above");
        self.by_producer.remove(&publishing.core.producer);
        publishing.core.fail(&error, &error);
        tell(publishing.answer, Err(error));
    }

    fn not_subscribed(&mut self, subscription: u32, error: Error, now: Instant) {
        let Some(known) = self.subscriptions.get_mut(&subscription) else { return };
        if known.answer.is_none() && error.is_retryable() {
            let at = now + AGAIN_DELAY.max(retry_after(&error));
            known.subscribe_at = Some(at);
            return self.wake_by(at);
        }
        let known = self.subscriptions.remove(&subscription).expect("it was there above");
        if known.answer.is_none() {
            known.queue.fault(error.clone());
        }
        tell(known.answer, Err(error));
        known.queue.end();
    }
}

fn check(deliver: Deliver) -> Result<Batch, DecodeError> {
    let announced = deliver.head.count;
    let batch = Batch::check_delivered(deliver.messages)?;
    let held = batch.count();
    if held != announced {
        return Err(DecodeError::Count { kind: Kind::Deliver, announced, held });
    }
    Ok(batch)
}

fn retry_after(error: &Error) -> Duration {
    match error {
        Error::Refused { retry_after: Some(delay), .. } => *delay,
        _ => Duration::ZERO,
    }
}

/// Answers whoever asked, who may have stopped waiting.
fn tell<T>(answer: Option<Answer<T>>, result: Result<T, Error>) {
    if let Some(answer) = answer {
        let _ = answer.send(result);
    }
}
