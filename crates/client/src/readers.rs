//! The readers of a client. Each connection starts them anew, behind the messages that came on the last one. It
//! knows no socket, and time is an argument.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use sennit_model::{Offset, OffsetRange, TopicName};
use sennit_protocol::{
    Deliver, ErrorCode, Features, GapReason, Request, SetCredit, Taken, control,
};
use tokio::time::Instant;

use crate::{
    configuration_watches::ConfigurationWatches,
    connection_handle::ReplySender,
    error::Error,
    gap::{Gap, Received},
    read_range::ReadRange,
    read_run::{ReadBatch, ReadRun},
    read_window::window_bytes,
    reader_queue::{PauseScope, ReaderQueue},
    subscriptions::{AGAIN_DELAY, check, error_of},
    watches::Watches,
};

/// Delay before the client starts a reader again that the broker had no room for, unless the broker
/// names one.
const RETRY_DELAY: Duration = Duration::from_millis(250);

struct ReaderState {
    /// Has no `credit_bytes` if the program did not set a window: then each connection has its own.
    read: control::Read,
    topic: TopicName,
    queue: Arc<ReaderQueue>,
    /// Receives the result of the first start.
    answer: Option<ReplySender<Vec<ReadRange>>>,
    /// The next offset of each partition; empty before the first answer.
    positions: Vec<u64>,
    /// The window in bytes of the last request, and its time.
    window_bytes: u64,
    requested_at: Option<Instant>,
    /// Whether the broker of this connection has started it.
    is_started: bool,
    /// Number of interruptions. The client reports messages only between those between which they
    /// came.
    epoch: u64,
    /// Whether the last request asked for a paused reader.
    started_paused: bool,
    retry_at: Option<Instant>,
}

impl ReaderState {
    /// The broker delivers nothing more, until it has started it again.
    fn interrupt(&mut self) {
        self.is_started = false;
        self.epoch += 1;
    }

    fn end(self, error: &Error, report: bool) {
        let fault = (report && self.answer.is_none()).then(|| error.clone());
        if let Some(answer) = self.answer {
            // The caller may have stopped waiting.
            let _ = answer.send(Err(error.clone()));
        }
        self.queue.end(fault);
    }
}

/// The readers of a client, by number.
#[derive(Default)]
pub(crate) struct Readers {
    known: BTreeMap<u32, ReaderState>,
    /// The end of the time in which a lost session may be alive at another node.
    old_session_until: Option<Instant>,
    is_connected: bool,
    /// The features that the broker of this connection has granted.
    features: Features,
    /// The shortest round trip measured on this connection.
    round_trip: Duration,
    /// The watches; they share the readers' numbers.
    pub(crate) watches: Watches,
    /// The watches of the configuration, numbered among them too.
    pub(crate) configuration_watches: ConfigurationWatches,
}

impl Readers {
    /// Adds a reader that has not started.
    pub(crate) fn add(
        &mut self,
        read: control::Read,
        queue: Arc<ReaderQueue>,
        answer: ReplySender<Vec<ReadRange>>,
    ) {
        let topic = read.topic.parse().expect("it was a name when it was given");
        let (positions, answer) = (Vec::new(), Some(answer));
        let number = read.subscription;
        let reading = ReaderState {
            read,
            topic,
            queue,
            answer,
            positions,
            window_bytes: 0,
            requested_at: None,
            is_started: false,
            epoch: 0,
            started_paused: false,
            retry_at: None,
        };
        self.known.insert(number, reading);
    }

    /// Returns whether a reader has this number.
    pub(crate) fn knows(&self, number: u32) -> bool {
        self.known.contains_key(&number)
    }

    /// Removes a reader that its program has dropped. Returns whether there was one.
    pub(crate) fn remove(&mut self, number: u32) -> bool {
        self.known.remove(&number).is_some()
            || self.watches.remove(number)
            || self.configuration_watches.remove(number)
    }

    pub(crate) fn numbers(&self) -> Vec<u32> {
        let watches = self.watches.numbers().chain(self.configuration_watches.numbers());
        self.known.keys().copied().chain(watches).collect()
    }

    /// The request that starts or continues a reader. A reader that needs a feature which this
    /// broker lacks ends with an error. The reader begins with the smallest window, because a new
    /// connection is slow at first.
    pub(crate) fn request(&mut self, number: u32, now: Instant) -> Option<Request> {
        if !self.is_connected {
            return None;
        }
        if let Some(watch) = self.watches.request(number) {
            return Some(watch);
        }
        if let Some(watch) = self.configuration_watches.request(number) {
            return Some(watch);
        }
        let known = self.known.get_mut(&number)?;
        known.retry_at = None;
        // A broker ignores fields that it does not know: it would send all messages, from anywhere.
        let lacks = match &known.read {
            read if read.filter.is_some() && !self.features.filters => Some("filters"),
            read if read.cursor.is_some() && !self.features.cursors => Some("cursors"),
            _ => None,
        };
        if let Some(feature) = lacks {
            let message = format!("this broker has no {feature}");
            let known = self.known.remove(&number)?;
            known.end(&Error::from(control::Error::new(ErrorCode::UnknownKind, message)), true);
            return None;
        }
        known.window_bytes = known.window_bytes_for(Duration::ZERO);
        known.requested_at = Some(now);
        let mut read = control::Read { credit_bytes: known.window_bytes, ..known.read.clone() };
        known.started_paused = known.queue.pool_pauses();
        if known.started_paused {
            read.credit_messages = 0;
        }
        if !known.positions.is_empty() {
            let positions = (0..).zip(&known.positions);
            let position = |(partition, &offset)| control::ReadPosition { partition, offset };
            read.positions = positions.map(position).collect();
        }
        Some(Request::Read(read))
    }

    /// Notes that the broker has started a reader. Returns a credit frame if the line or the number
    /// of partitions needs a larger window than the one it began with.
    pub(crate) fn start(
        &mut self,
        subscribed: control::Subscribed,
        now: Instant,
    ) -> Option<SetCredit> {
        let number = subscribed.subscription;
        let known = self.known.get_mut(&number)?;
        let firsts = subscribed.ranges.iter().map(|range| range.first);
        if known.positions.is_empty() {
            known.positions = firsts.collect();
        } else if !firsts.eq(known.positions.iter().copied()) {
            let firsts: Vec<_> = subscribed.ranges.iter().map(|range| range.first).collect();
            let message = format!("it goes on at {firsts:?}, not at {:?}", known.positions);
            if let Some(known) = self.known.remove(&number) {
                known.end(&Error::Unexpected(message), true);
            }
            return None;
        }
        known.is_started = true;
        known.read.topic_id = Some(subscribed.topic_id);
        // If another reader takes the cursor over meanwhile, that one keeps it.
        known.read.take_over = false;
        let answered = known.requested_at.take().map(|at| now.saturating_duration_since(at));
        self.round_trip = answered.map_or(self.round_trip, |took| took.min(self.round_trip));
        let bytes = known.window_bytes_for(self.round_trip);
        let has_changed = std::mem::replace(&mut known.window_bytes, bytes) != bytes;
        let messages = u64::from(known.read.credit_messages);
        known.queue.set_window(messages, bytes, known.positions.len());
        if let Some(answer) = known.answer.take() {
            let range = |range: &control::ReadRange| ReadRange {
                first: Offset(range.first),
                end: Offset(range.end),
            };
            let _ = answer.send(Ok(subscribed.ranges.iter().map(range).collect()));
        }
        // The request said whether the reader starts paused. Since then it may have to resume.
        let pauses = known.queue.pool_pauses();
        let resumes = known.started_paused && !pauses;
        ((has_changed || resumes) && !pauses).then(|| known.credit())
    }

    /// Handles a refused start. Returns the time of the next attempt, if it `comes_again`, or if the
    /// reader had started before and may start later.
    pub(crate) fn refused(
        &mut self,
        number: u32,
        error: &Error,
        comes_again: bool,
        now: Instant,
    ) -> Option<Instant> {
        let is_held = error.code() == Some(ErrorCode::CursorHeld)
            && self.old_session_until.is_some_and(|until| now < until);
        let Some(known) = self.known.get_mut(&number) else {
            self.configuration_watches.refused(number, error);
            return self.watches.refused(number, error, now);
        };
        let is_renewed = known.answer.is_none();
        if comes_again || is_renewed && (error.is_retryable() || is_held) {
            known.retry_at = Some(now + RETRY_DELAY.max(error.retry_after().unwrap_or_default()));
            return known.retry_at;
        }
        self.known.remove(&number)?.end(error, true);
        None
    }

    /// The readers and watches that wait for another attempt, with its time.
    pub(crate) fn due(&self) -> Vec<(u32, Instant)> {
        let due = self.known.iter().filter_map(|(&number, known)| Some((number, known.retry_at?)));
        due.chain(self.watches.due()).collect()
    }

    /// Handles a subscription that the broker ended. Returns the time of the next attempt, if there
    /// is one.
    pub(crate) fn ended(
        &mut self,
        ended: &control::SubscriptionEnded,
        now: Instant,
    ) -> Option<Instant> {
        if let Some(known) = self.known.get_mut(&ended.subscription) {
            let error = error_of(ended);
            if error.asks_for_leader() {
                known.interrupt();
                known.retry_at = Some(now + AGAIN_DELAY);
                return known.retry_at;
            }
            self.known.remove(&ended.subscription)?.end(&error, true);
            return None;
        }
        if self.configuration_watches.knows(ended.subscription) {
            self.configuration_watches.refused(ended.subscription, &error_of(ended));
            return None;
        }
        let error = control::Error::new(ErrorCode::Busy, ended.reason.clone());
        self.watches.refused(ended.subscription, &Error::from(error), now)
    }

    /// Passes messages to their reader. Returns the credit frames that pause readers which hold too
    /// much.
    ///
    /// # Errors
    /// The offset is not the next one. The client drops the connection, and the next one continues
    /// behind the last good message.
    pub(crate) fn delivered(&mut self, deliver: Deliver) -> Result<Vec<SetCredit>, Error> {
        let head = deliver.head;
        // The frame may have been on its way when the subscription ended.
        let Some(known) = self.known.get_mut(&head.subscription) else { return Ok(Vec::new()) };
        let batch = check(deliver)?;
        known.advance(head.partition.0, head.first.0, u64::from(head.count))?;
        let run = ReadRun::new(ReadBatch { topic: known.topic.clone(), head, batch });
        let paused = |known: &ReaderState| SetCredit { messages: 0, ..known.credit() };
        Ok(match known.queue.push((known.epoch, Received::Delivered(run))) {
            PauseScope::Nothing => Vec::new(),
            PauseScope::Reader => vec![paused(known)],
            PauseScope::Pool => {
                let queue = Arc::clone(&known.queue);
                self.started_in_pool(&queue).map(paused).collect()
            }
        })
    }

    /// The started readers that share a pool with this one.
    fn started_in_pool<'a>(
        &'a self,
        queue: &'a ReaderQueue,
    ) -> impl Iterator<Item = &'a ReaderState> {
        let is_one =
            move |known: &&ReaderState| known.is_started && known.queue.shares_pool_with(queue);
        self.known.values().filter(is_one)
    }

    /// The credit frames with which all readers of a pool resume.
    pub(crate) fn pool_credits(&self, number: u32) -> Vec<SetCredit> {
        let Some(known) = self.known.get(&number) else { return Vec::new() };
        let resumes = |known: &&ReaderState| !known.queue.pauses();
        self.started_in_pool(&known.queue).filter(resumes).map(ReaderState::credit).collect()
    }

    /// The window of a reader that has started on this connection.
    pub(crate) fn credit(&self, number: u32) -> Option<SetCredit> {
        let known = self.known.get(&number)?;
        (known.is_started && !known.queue.pool_pauses()).then(|| known.credit())
    }

    /// Passes a gap to its reader.
    ///
    /// # Errors
    /// As [`Self::delivered`].
    pub(crate) fn gap(&mut self, gap: &sennit_protocol::Gap) -> Result<(), Error> {
        let Some(known) = self.known.get_mut(&gap.subscription) else { return Ok(()) };
        let sennit_protocol::Gap { partition, offsets, reason, .. } = *gap;
        let OffsetRange { start, .. } = offsets;
        match reason {
            GapReason::RolledBack => known.roll_back(partition.0, offsets)?,
            _ => known.advance(partition.0, start.0, offsets.count())?,
        }
        known.queue.push((known.epoch, Received::Gap(Gap { partition, offsets, reason })));
        Ok(())
    }

    /// Returns whether a request is a commit of a reader that has not started on this connection.
    /// It waits for the start, because only then the reader holds its cursor again.
    pub(crate) fn holds_back(&self, request: &Request) -> bool {
        let Some(reader) = committing_reader(request) else { return false };
        self.known.get(&reader).is_some_and(|known| !known.is_started)
    }

    /// Returns whether taken messages came since the last start, so that the broker counts them.
    pub(crate) fn is_current(&self, epoch: u64, taken: &Taken) -> bool {
        let known = self.known.get(&taken.subscription);
        known.is_some_and(|known| known.is_started && known.epoch == epoch)
    }

    /// Notes that the session that the client has lost may be alive until then, at another node: its readers may hold
    /// their cursors there.
    pub(crate) fn old_session_lives_until(&mut self, at: Instant) {
        self.old_session_until = Some(at);
    }

    /// Notes a new connection: the features that its broker has granted, and the round trip of the
    /// greeting.
    pub(crate) fn connected(&mut self, features: Features, round_trip: Duration) {
        (self.is_connected, self.features, self.round_trip) = (true, features, round_trip);
    }

    /// Notes the end of the connection. Each reader waits for its next request.
    pub(crate) fn connection_lost(&mut self) {
        self.is_connected = false;
        self.old_session_until = None;
        self.known.values_mut().for_each(ReaderState::interrupt);
    }

    /// Ends all readers. Each gets the error, unless the program has closed the client.
    pub(crate) fn fail(&mut self, error: &Error) {
        let report = !matches!(error, Error::Closed);
        std::mem::take(&mut self.known).into_values().for_each(|known| known.end(error, report));
        self.watches.fail(error);
        self.configuration_watches.fail(error);
    }
}

/// The reader for which a request commits.
pub(crate) fn committing_reader(request: &Request) -> Option<u32> {
    match request {
        Request::SetCursor(body) => body.subscription,
        _ => None,
    }
}

impl ReaderState {
    /// The window in bytes: the program's, or the default for this line and number of partitions.
    fn window_bytes_for(&self, round_trip: Duration) -> u64 {
        match self.read.credit_bytes {
            0 => window_bytes(round_trip, self.positions.len()),
            bytes => bytes,
        }
    }

    fn credit(&self) -> SetCredit {
        let control::Read { subscription, credit_messages: messages, .. } = self.read;
        SetCredit { subscription, messages, bytes: self.window_bytes }
    }

    /// Skips `offsets`: messages that came are void, and the others do not come.
    fn roll_back(&mut self, partition: u32, offsets: OffsetRange) -> Result<(), Error> {
        let expected = self.positions.get(partition as usize).copied().unwrap_or_default();
        if !(offsets.start.0..=offsets.end.0).contains(&expected) {
            return self.advance(partition, offsets.start.0, offsets.count());
        }
        self.advance(partition, expected, offsets.end.0 - expected)
    }

    /// Moves the position behind `count` offsets from `first`. A filter may have skipped offsets
    /// before them.
    fn advance(&mut self, partition: u32, first: u64, count: u64) -> Result<(), Error> {
        let is_filtered = self.read.filter.is_some();
        let expected = self.positions.get_mut(partition as usize).filter(|_| self.is_started);
        match expected {
            Some(expected) if *expected == first || is_filtered && *expected < first => {
                *expected = first + count;
                Ok(())
            }
            expected => Err(Error::Unexpected(format!(
                "offset {first} of partition {partition} for a reader that is at {expected:?}"
            ))),
        }
    }
}
