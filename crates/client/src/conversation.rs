//! What is being said on a connection: what was asked and not answered, who publishes, who is
//! subscribed, what was settled. Commands and frames in, frames out; it outlives connections, and
//! says again on the next what the last one lost. It knows no socket, and time is an argument.

mod replies;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use sennit_model::ProducerId;
use sennit_protocol::{ErrorCode, Features, Request, SetCredit, control};
use tokio::time::Instant;

use crate::{
    asked::{Asked, Publishing},
    error::Error,
    link::{Command, tell},
    outbox::Outbox,
    outgoing::Outgoing,
    publisher_core::{Left, SharedPublisher},
    readings::{Readings, committer},
    settle_ledger::SettleLedger,
    shares::Shares,
    subscriptions::Subscriptions,
};

/// Bytes that are encoded ahead of the socket.
const OUTGOING_BYTES_MAX: usize = 512 << 10;

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
    /// Of the sequences, among publishers without a producer id.
    shares: Shares,
    listed: Vec<SharedPublisher>,
    subscriptions: Subscriptions,
    readings: Readings,
    settles: SettleLedger,
    /// All frames before the one of this number have arrived.
    arrived: u64,
    wake_at: Option<Instant>,
    /// When the broker, which is leaving, is left.
    leave_at: Option<Instant>,
}

impl Conversation {
    pub(crate) fn new(outbox: Arc<Outbox>) -> Self {
        Self {
            subscriptions: Subscriptions::new(Arc::clone(&outbox)),
            readings: Readings::default(),
            outbox,
            outgoing: Outgoing::default(),
            connected: false,
            frame_bytes_max: 0,
            request: 1, // the greeting's
            asked: BTreeMap::new(),
            publishers: BTreeMap::new(),
            by_producer: HashMap::new(),
            shares: Shares::default(),
            listed: Vec::new(),
            settles: SettleLedger::default(),
            arrived: 0,
            wake_at: None,
            leave_at: None,
        }
    }

    /// A connection is there: everything that a broker has to know is said on it.
    pub(crate) fn connected(
        &mut self,
        frame_bytes_max: usize,
        (features, round_trip): (Features, Duration),
        now: Instant,
    ) {
        self.connected = true;
        self.readings.connected(features, round_trip);
        self.subscriptions.connected(features.started);
        self.settles.connected(features.started);
        self.frame_bytes_max = frame_bytes_max;
        self.outbox.set_frame_bytes_max(frame_bytes_max);
        for (&number, asked) in &self.asked {
            if let Asked::Question { request, .. } = asked
                && !self.readings.keep_back(request)
            {
                self.outgoing.request(request, number);
            }
        }
        let publishers: Vec<_> = self.publishers.keys().copied().collect();
        publishers.into_iter().for_each(|number| self.open(number));
        let subscriptions = self.subscriptions.numbers();
        subscriptions.into_iter().for_each(|number| self.subscribe(number));
        self.readings.numbers().into_iter().for_each(|number| self.read(number, now));
        self.settles.send_again(&mut self.outgoing);
    }

    /// The connection is gone, if there was one: what was asked since the last has not been said.
    pub(crate) fn lost(&mut self) {
        if !std::mem::take(&mut self.connected) {
            return;
        }
        self.leave_at = None;
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
                Asked::Open(_)
                | Asked::Subscribe(_)
                | Asked::Read(_)
                | Asked::Unsubscribe(None) => {}
            }
        }
        self.publishers.values().for_each(|publishing| publishing.core.connection_lost());
        self.subscriptions.connection_lost();
        self.readings.connection_lost();
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
        self.subscriptions.fail(error);
        self.readings.fail(error);
        for asked in std::mem::take(&mut self.asked).into_values() {
            if let Asked::Question { answer, .. } = asked {
                tell(Some(answer), Err(error.clone()));
            }
        }
        self.settles.fail(error);
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
    pub(crate) fn command(&mut self, command: Command, now: Instant) {
        match command {
            Command::Ask { request, again, answer } => {
                let number = self.number();
                if self.connected && !self.readings.keep_back(&request) {
                    self.outgoing.request(&request, number);
                }
                self.asked.insert(number, Asked::Question { request, again, answer });
            }
            Command::OpenPublisher { publisher, answer } => {
                let number = publisher.number;
                match publisher.producer {
                    ProducerId(0) => publisher.set_share(self.shares.give(number)),
                    producer => drop(self.by_producer.insert(producer, number)),
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
                self.subscriptions.add(subscribe, queue, answer);
                self.subscribe(number);
            }
            Command::Read { read, queue, answer } => {
                let number = read.subscription;
                self.readings.add(read, queue, answer);
                self.read(number, now);
            }
            Command::Watch { watch, heard, answer } => {
                let number = watch.subscription;
                self.readings.watches.add(watch, heard, answer);
                self.read(number, now);
            }
            Command::Taken { epoch, taken } => {
                if self.connected && self.readings.is_to_be_told(epoch, &taken) {
                    self.outgoing.request(&Request::Taken(taken), 0);
                }
            }
            Command::SetCredit { subscription, messages, bytes } => {
                let frame = self.subscriptions.set_credit(subscription, messages, bytes);
                self.say_credit(frame);
            }
            Command::GoOn { subscription } => {
                let frame = self.subscriptions.credit(subscription);
                self.say_credit(frame.or_else(|| self.readings.credit(subscription)));
            }
            Command::PoolGoesOn { subscription } => {
                let credits = self.readings.credits_of_pool(subscription);
                credits.into_iter().for_each(|credit| self.say_credit(Some(credit)));
            }
            Command::Unsubscribe { subscription, answer } => {
                let removed =
                    self.subscriptions.remove(subscription) || self.readings.remove(subscription);
                if !removed || !self.connected {
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
        let Some(body) = self.subscriptions.request(subscription) else { return };
        if !self.connected {
            return;
        }
        let number = self.number();
        self.outgoing.request(&Request::Subscribe(body), number);
        self.asked.insert(number, Asked::Subscribe(subscription));
    }

    fn read(&mut self, reader: u32, now: Instant) {
        if let Some(body) = self.readings.request(reader, now) {
            let number = self.number();
            self.outgoing.request(&body, number);
            self.asked.insert(number, Asked::Read(reader));
        } else if self.connected {
            self.say_commits(reader);
        }
    }

    /// Says what a subscription's window is from now on.
    fn say_credit(&mut self, frame: Option<SetCredit>) {
        if let Some(frame) = frame {
            let number = self.number();
            self.outgoing.request(&Request::SetCredit(frame), number);
        }
    }

    /// Says the commits of a reader that were kept back; once it is over, they are refused.
    fn say_commits(&mut self, reader: u32) {
        for (&number, asked) in &self.asked {
            if let Asked::Question { request, .. } = asked
                && committer(request) == Some(reader)
            {
                self.outgoing.request(request, number);
            }
        }
    }

    /// Whether there is something to say that is not in the outbox.
    pub(crate) fn has_held_back(&self) -> bool {
        !self.listed.is_empty() || self.settles.wants_ping()
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
            self.settles.send(number, batch, &mut self.outgoing);
        }
        if self.settles.wants_ping() {
            self.ping();
        }
    }

    /// Asks whether the broker is there, and so whether it has got all that was sent before:
    /// [`Self::has_arrived`] says so once it has answered.
    pub(crate) fn ping(&mut self) -> u64 {
        self.settles.pinged();
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
    ///
    /// # Errors
    /// The broker is leaving, and the time it gave is over.
    pub(crate) fn wake(&mut self, now: Instant) -> Result<(), Error> {
        if self.wake_at.is_none_or(|at| at > now) {
            return Ok(());
        }
        self.wake_at = None;
        if let Some(at) = self.leave_at {
            if at <= now {
                return Err(control::Error::new(ErrorCode::ShuttingDown, "it is leaving").into());
            }
            self.wake_by(at);
        }
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let opens: Vec<_> = self.publishers.iter().map(|(&n, p)| (n, p.open_at)).collect();
        for (number, at) in opens {
            if due(at) {
                self.open(number);
            } else if let Some(at) = at {
                self.wake_by(at);
            }
        }
        for (number, at) in self.subscriptions.due() {
            if at <= now { self.subscribe(number) } else { self.wake_by(at) }
        }
        for (number, at) in self.readings.due() {
            if at <= now { self.read(number, now) } else { self.wake_by(at) }
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
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_change_that_was_never_sent_fails_with_why_there_is_no_connection() {
        let mut conversation = Conversation::new(Arc::default());
        conversation.connected(16_384, <_>::default(), Instant::now());
        let ask = |conversation: &mut Conversation| {
            let (answer, answered) = oneshot::channel();
            let request = Request::DeleteTopic(control::DeleteTopic::default());
            let command = Command::Ask { request, again: false, answer };
            conversation.command(command, Instant::now());
            answered
        };
        let sent = ask(&mut conversation);
        conversation.lost();
        let never_sent = ask(&mut conversation);
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        conversation.finish(&Error::unreachable("127.0.0.1:1", refused));
        assert!(matches!(sent.await.unwrap(), Err(Error::OutcomeUnknown)));
        assert!(matches!(never_sent.await.unwrap(), Err(Error::Unreachable { .. })));
    }
}
