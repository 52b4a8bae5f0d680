//! The state of the client's side of the protocol: open requests, publishers, subscriptions and settlements. It
//! turns commands and frames into frames. It outlives connections, and repeats on the next one what the last one
//! lost. It knows no socket, and time is an argument.

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
    connection_handle::{Command, ReplySender, respond},
    error::Error,
    leaderless::Leaderless,
    outbox::Outbox,
    pending_request::{PendingCall, PendingRequest, PublisherEntry},
    publisher_core::{Remaining, SharedPublisher},
    readers::{Readers, committing_reader},
    sent_settlements::SentSettlements,
    sequence_ranges::SequenceRanges,
    subscriptions::Subscriptions,
    write_buffer::WriteBuffer,
};

/// Bytes that are encoded ahead of the socket.
const OUTGOING_BYTES_MAX: usize = 512 << 10;

/// The state of the client's side of the protocol.
pub(crate) struct Conversation {
    outbox: Arc<Outbox>,
    pub(crate) write_buffer: WriteBuffer,
    connected: bool,
    frame_bytes_max: usize,
    /// The last request number, over all connections.
    request: u64,
    pending_requests: BTreeMap<u64, PendingRequest>,
    publishers: BTreeMap<u64, PublisherEntry>,
    by_producer: HashMap<ProducerId, u64>,
    /// The ranges of publishers without a producer id.
    sequence_ranges: SequenceRanges,
    listed: Vec<SharedPublisher>,
    subscriptions: Subscriptions,
    readers: Readers,
    settles: SentSettlements,
    /// The broker has received all frames before the one with this number.
    arrived: u64,
    leaderless: Leaderless,
    /// Whether there is another node to go to.
    may_leave: bool,
    wake_at: Option<Instant>,
    /// The time at which the client leaves a broker that shuts down.
    leave_at: Option<Instant>,
}

impl Conversation {
    pub(crate) fn new(outbox: Arc<Outbox>) -> Self {
        Self {
            subscriptions: Subscriptions::new(Arc::clone(&outbox)),
            readers: Readers::default(),
            outbox,
            write_buffer: WriteBuffer::default(),
            connected: false,
            frame_bytes_max: 0,
            request: 1, // the greeting's
            pending_requests: BTreeMap::new(),
            publishers: BTreeMap::new(),
            by_producer: HashMap::new(),
            sequence_ranges: SequenceRanges::default(),
            listed: Vec::new(),
            settles: SentSettlements::default(),
            arrived: 0,
            leaderless: Leaderless::default(),
            may_leave: false,
            wake_at: None,
            leave_at: None,
        }
    }

    /// Says whether there is another node to go to.
    pub(crate) fn set_may_leave(&mut self, may_leave: bool) {
        self.may_leave = may_leave;
    }

    /// Notes that the session that the client has lost may be alive until then, at another node: its readers may hold
    /// their cursors there.
    pub(crate) fn old_session_lives_until(&mut self, at: Instant) {
        self.readers.old_session_lives_until(at);
    }

    /// Starts a new connection: encodes everything that the broker has to know.
    pub(crate) fn connected(
        &mut self,
        frame_bytes_max: usize,
        features: Features,
        round_trip: Duration,
        now: Instant,
    ) {
        self.connected = true;
        self.readers.connected(features, round_trip);
        self.subscriptions.connected(features.started);
        self.settles.connected(features.started);
        self.frame_bytes_max = frame_bytes_max;
        self.outbox.set_frame_bytes_max(frame_bytes_max);
        let publishers: Vec<_> = self.publishers.keys().copied().collect();
        publishers.into_iter().for_each(|number| self.open(number));
        let subscriptions = self.subscriptions.numbers();
        subscriptions.into_iter().for_each(|number| self.subscribe(number));
        self.readers.numbers().into_iter().for_each(|number| self.read(number, now));
        // Behind the topics that they may need.
        for (&number, pending) in &mut self.pending_requests {
            if let PendingRequest::Call(call) = pending {
                call.again_at = None;
                if !self.readers.holds_back(&call.request) {
                    self.write_buffer.request(&call.request, number);
                }
            }
        }
        self.settles.send_again(&mut self.write_buffer);
    }

    /// Handles a lost connection. Requests that were made without a connection have not been sent.
    pub(crate) fn lost(&mut self) {
        if !std::mem::take(&mut self.connected) {
            return;
        }
        self.leave_at = None;
        self.write_buffer.clear();
        self.listed.clear();
        self.outbox.take_publishers(&mut self.listed);
        self.listed.clear();
        for (number, pending_requests) in std::mem::take(&mut self.pending_requests) {
            match pending_requests {
                PendingRequest::Call(call) if call.resend || call.again_at.is_some() => {
                    self.pending_requests.insert(number, PendingRequest::Call(call));
                }
                PendingRequest::Call(call) => drop(call.answer.send(Err(Error::OutcomeUnknown))),
                // The subscription went with the connection.
                PendingRequest::Unsubscribe(Some(answer)) => drop(answer.send(Ok(()))),
                PendingRequest::OpenPublisher(_)
                | PendingRequest::Subscribe(_)
                | PendingRequest::Read(_)
                | PendingRequest::Unsubscribe(None) => {}
            }
        }
        self.publishers.values().for_each(|entry| entry.core.connection_lost());
        self.subscriptions.connection_lost();
        self.readers.connection_lost();
        self.leaderless.connection_lost();
    }

    /// Fails everything that waits with `error`. Consumers get the error, unless the program has
    /// closed the client.
    pub(crate) fn finish(&mut self, error: &Error) {
        self.lost();
        self.outbox.close(error);
        let lost = match error {
            Error::Closed => Error::OutcomeUnknown,
            other => other.clone(),
        };
        for entry in std::mem::take(&mut self.publishers).into_values() {
            entry.core.fail(&lost, error);
            respond(entry.answer, Err(error.clone()));
        }
        self.subscriptions.fail(error);
        self.readers.fail(error);
        for pending_requests in std::mem::take(&mut self.pending_requests).into_values() {
            if let PendingRequest::Call(call) = pending_requests {
                respond(Some(call.answer), Err(error.clone()));
            }
        }
        self.settles.fail(error);
    }

    /// Returns whether all published messages are answered.
    pub(crate) fn is_drained(&self) -> bool {
        self.publishers.values().all(|entry| entry.core.is_drained())
    }

    /// The time of the next timer.
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

    /// Executes a command, except `Close`.
    pub(crate) fn command(&mut self, command: Command, now: Instant) {
        match command {
            Command::Ask { request, resend, answer } => {
                let number = self.number();
                if self.connected && !self.readers.holds_back(&request) {
                    self.write_buffer.request(&request, number);
                }
                let call = PendingCall { request, resend, answer, again_at: None };
                self.pending_requests.insert(number, PendingRequest::Call(call));
            }
            Command::OpenPublisher { publisher, answer } => self.add_publisher(publisher, answer),
            Command::DropPublisher { number } => {
                if let Some(entry) = self.publishers.get_mut(&number) {
                    entry.dropped = true;
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
                self.readers.add(read, queue, answer);
                self.read(number, now);
            }
            Command::Watch { watch, watched, answer } => {
                let number = watch.subscription;
                self.readers.watches.add(watch, watched, answer);
                self.read(number, now);
            }
            Command::WatchConfiguration { watch, events, answer } => {
                let number = watch.subscription;
                self.readers.configuration_watches.add(watch, events, answer);
                self.read(number, now);
            }
            Command::Taken { epoch, taken } => {
                if self.connected && self.readers.is_current(epoch, &taken) {
                    self.write_buffer.request(&Request::Taken(taken), 0);
                }
            }
            Command::SetCredit { subscription, messages, bytes } => {
                let frame = self.subscriptions.set_credit(subscription, messages, bytes);
                self.encode_credit(frame);
            }
            Command::Resume { subscription } => {
                let frame = self.subscriptions.credit(subscription);
                self.encode_credit(frame.or_else(|| self.readers.credit(subscription)));
            }
            Command::ResumePool { subscription } => {
                let credits = self.readers.pool_credits(subscription);
                credits.into_iter().for_each(|credit| self.encode_credit(Some(credit)));
            }
            Command::Unsubscribe { subscription, answer } => self.unsubscribe(subscription, answer),
            Command::Close { .. } => {}
        }
    }

    fn add_publisher(&mut self, core: SharedPublisher, answer: ReplySender<()>) {
        let number = core.number;
        match core.producer {
            ProducerId(0) => core.set_sequence_range(self.sequence_ranges.allocate(number)),
            producer => drop(self.by_producer.insert(producer, number)),
        }
        let entry = PublisherEntry { core, answer: Some(answer), dropped: false, open_at: None };
        self.publishers.insert(number, entry);
        self.open(number);
    }

    fn unsubscribe(&mut self, subscription: u32, answer: Option<ReplySender<()>>) {
        let removed = self.subscriptions.remove(subscription) || self.readers.remove(subscription);
        if !removed || !self.connected {
            return respond(answer, Ok(()));
        }
        // The settlements of its deliveries go first.
        self.encode_settlements();
        self.encode_unsubscribe(subscription, answer);
    }

    /// Has the broker end a watch that the client has forgotten.
    fn end_watch(&mut self, watch: u32) {
        self.encode_unsubscribe(watch, None);
    }

    fn encode_unsubscribe(&mut self, subscription: u32, answer: Option<ReplySender<()>>) {
        let number = self.number();
        let body = control::Unsubscribe { subscription };
        self.write_buffer.request(&Request::Unsubscribe(body), number);
        self.pending_requests.insert(number, PendingRequest::Unsubscribe(answer));
    }

    fn open(&mut self, publisher: u64) {
        let Some(entry) = self.publishers.get_mut(&publisher) else { return };
        entry.open_at = None;
        if !self.connected {
            return;
        }
        let settings = &entry.core.settings;
        let body = control::OpenTopic {
            name: settings.topic.to_string(),
            create_if_missing: settings.create_if_missing,
        };
        let number = self.number();
        self.write_buffer.request(&Request::OpenTopic(body), number);
        self.pending_requests.insert(number, PendingRequest::OpenPublisher(publisher));
    }

    fn subscribe(&mut self, subscription: u32) {
        let Some(body) = self.subscriptions.request(subscription) else { return };
        if !self.connected {
            return;
        }
        let number = self.number();
        self.write_buffer.request(&Request::Subscribe(body), number);
        self.pending_requests.insert(number, PendingRequest::Subscribe(subscription));
    }

    fn read(&mut self, reader: u32, now: Instant) {
        if let Some(body) = self.readers.request(reader, now) {
            let number = self.number();
            self.write_buffer.request(&body, number);
            self.pending_requests.insert(number, PendingRequest::Read(reader));
        } else if self.connected {
            self.encode_commits(reader);
        }
    }

    /// Encodes a new window.
    fn encode_credit(&mut self, frame: Option<SetCredit>) {
        if let Some(frame) = frame {
            let number = self.number();
            self.write_buffer.request(&Request::SetCredit(frame), number);
        }
    }

    /// Encodes the commits of a reader that were held back. If the reader has ended, the broker
    /// refuses them.
    fn encode_commits(&mut self, reader: u32) {
        for (&number, pending_requests) in &self.pending_requests {
            if let PendingRequest::Call(PendingCall { request, again_at: None, .. }) =
                pending_requests
                && committing_reader(request) == Some(reader)
            {
                self.write_buffer.request(request, number);
            }
        }
    }

    /// Returns whether there are frames to encode that are not in the outbox.
    pub(crate) fn has_unencoded(&self) -> bool {
        !self.listed.is_empty() || self.settles.wants_ping()
    }

    /// Encodes waiting frames, settlements first, up to the limit.
    pub(crate) fn fill(&mut self, now: Instant) {
        self.encode_settlements();
        self.outbox.take_publishers(&mut self.listed);
        if self.listed.is_empty() {
            return;
        }
        let mut unfinished = Vec::new();
        for publisher in std::mem::take(&mut self.listed) {
            let Self { request, write_buffer, .. } = self;
            match publisher.encode_batches(now, request, write_buffer, OUTGOING_BYTES_MAX) {
                Remaining::Nothing => {}
                Remaining::More => unfinished.push(publisher),
                Remaining::PausedUntil(until) => self.wake_by(until),
            }
        }
        self.listed = unfinished;
    }

    fn encode_settlements(&mut self) {
        for batch in self.outbox.take_settles() {
            let number = self.number();
            self.settles.send(number, batch, &mut self.write_buffer);
        }
        if self.settles.wants_ping() {
            self.ping();
        }
    }

    /// Encodes a ping. [`Self::has_arrived`] returns true once the broker has answered it, and so
    /// has received all earlier frames.
    pub(crate) fn ping(&mut self) -> u64 {
        self.settles.pinged();
        let number = self.number();
        self.write_buffer.request(&Request::Ping, number);
        number
    }

    /// Returns whether the broker has answered this ping, on any connection.
    pub(crate) fn has_arrived(&self, ping: u64) -> bool {
        self.arrived >= ping
    }

    /// Encodes the goodbye.
    pub(crate) fn leave(&mut self) {
        self.write_buffer.request(&Request::Goodbye, 0);
    }

    /// Sends calls again that were refused, and whose time has come.
    fn repeat_calls(&mut self, now: Instant) {
        let mut next: Option<Instant> = None;
        for (&number, pending) in &mut self.pending_requests {
            let PendingRequest::Call(call) = pending else { continue };
            let Some(at) = call.again_at else { continue };
            if at > now {
                next = Some(next.map_or(at, |before| before.min(at)));
                continue;
            }
            call.again_at = None;
            if !self.readers.holds_back(&call.request) {
                self.write_buffer.request(&call.request, number);
            }
        }
        next.into_iter().for_each(|at| self.wake_by(at));
    }

    /// Runs the timers that are due.
    ///
    /// # Errors
    /// The broker shuts down, and its grace period is over.
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
        self.repeat_calls(now);
        for batch in self.settles.due(now) {
            let number = self.number();
            self.settles.send(number, batch, &mut self.write_buffer);
        }
        self.settles.again_at().into_iter().for_each(|at| self.wake_by(at));
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
        for (number, at) in self.readers.due() {
            if at <= now { self.read(number, now) } else { self.wake_by(at) }
        }
        let paused: Vec<_> = self
            .publishers
            .values()
            .filter_map(|entry| Some((entry.core.paused_until()?, &entry.core)))
            .map(|(until, core)| (until, Arc::clone(core)))
            .collect();
        for (until, core) in paused {
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
        conversation.connected(16_384, <_>::default(), <_>::default(), Instant::now());
        let ask = |conversation: &mut Conversation| {
            let (answer, answered) = oneshot::channel();
            let request = Request::DeleteTopic(control::DeleteTopic::default());
            let command = Command::Ask { request, resend: false, answer };
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
