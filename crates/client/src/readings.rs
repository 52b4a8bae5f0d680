//! The readers of a client: begun on each connection anew, behind what came on the last one. It knows
//! no socket, and time is an argument.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use sennit_model::{Offset, OffsetRange, TopicName};
use sennit_protocol::{
    Deliver, ErrorCode, Features, GapReason, Request, SetCredit, Taken, control,
};
use tokio::time::Instant;

use crate::{
    error::Error,
    gap::{Gap, Received},
    link::Answer,
    read_range::ReadRange,
    read_run::{ReadBatch, ReadRun},
    read_window::window_bytes,
    reader_queue::{Pauses, ReaderQueue},
    subscriptions::check,
    watchings::Watchings,
};

/// How long to wait before beginning again where the broker had no room, unless it says.
const AGAIN_DELAY: Duration = Duration::from_millis(250);

struct Reading {
    /// Without `credit_bytes` where the program has not said: each connection has its own.
    read: control::Read,
    topic: TopicName,
    queue: Arc<ReaderQueue>,
    /// Whoever waits for the first answer.
    answer: Option<Answer<Vec<ReadRange>>>,
    /// What comes next of each partition; empty before the first answer.
    positions: Vec<u64>,
    /// The window in bytes that was asked for last, and when.
    window_bytes: u64,
    asked_at: Option<Instant>,
    /// Whether it has begun on this connection.
    is_begun: bool,
    /// Whether it was to pause when it was asked for.
    began_paused: bool,
    again_at: Option<Instant>,
}

impl Reading {
    fn end(self, error: &Error, tell_why: bool) {
        let fault = (tell_why && self.answer.is_none()).then(|| error.clone());
        if let Some(answer) = self.answer {
            // Whoever asked may have stopped waiting.
            let _ = answer.send(Err(error.clone()));
        }
        self.queue.end(fault);
    }
}

/// The readers of a client, by number.
#[derive(Default)]
pub(crate) struct Readings {
    known: BTreeMap<u32, Reading>,
    /// How many connections were lost so far: what was taken of another is not told on this one.
    epoch: u64,
    is_connected: bool,
    /// What the broker of this connection has granted.
    features: Features,
    /// The shortest round trip of this connection so far. The line's is not longer.
    round_trip: Duration,
    /// Numbered among the readers.
    pub(crate) watches: Watchings,
}

impl Readings {
    /// Adds one that is to begin.
    pub(crate) fn add(
        &mut self,
        read: control::Read,
        queue: Arc<ReaderQueue>,
        answer: Answer<Vec<ReadRange>>,
    ) {
        let topic = read.topic.parse().expect("it was a name when it was given");
        let (positions, answer) = (Vec::new(), Some(answer));
        let number = read.subscription;
        let reading = Reading {
            read,
            topic,
            queue,
            answer,
            positions,
            window_bytes: 0,
            asked_at: None,
            is_begun: false,
            began_paused: false,
            again_at: None,
        };
        self.known.insert(number, reading);
    }

    /// Whether there is one of this number.
    pub(crate) fn knows(&self, number: u32) -> bool {
        self.known.contains_key(&number)
    }

    /// Forgets one that its program has left; whether it was there.
    pub(crate) fn remove(&mut self, number: u32) -> bool {
        self.known.remove(&number).is_some() || self.watches.remove(number)
    }

    pub(crate) fn numbers(&self) -> Vec<u32> {
        self.known.keys().copied().chain(self.watches.numbers()).collect()
    }

    /// What is to be asked to have it begin, or go on; one that this broker cannot serve is over. It begins
    /// with the least window: that lasts for as long as a new connection is slow to begin with.
    pub(crate) fn request(&mut self, number: u32, now: Instant) -> Option<Request> {
        if !self.is_connected {
            return None;
        }
        if let Some(watch) = self.watches.request(number) {
            return Some(watch);
        }
        let known = self.known.get_mut(&number)?;
        known.again_at = None;
        // What a broker does not know it passes over: everything would come, from anywhere.
        let lacks = match &known.read {
            read if read.filter.is_some() && !self.features.filters => Some("filters"),
            read if read.cursor.is_some() && !self.features.cursors => Some("cursors"),
            _ => None,
        };
        if let Some(feature) = lacks {
            let said = format!("this broker has no {feature}");
            let known = self.known.remove(&number)?;
            known.end(&Error::from(control::Error::new(ErrorCode::UnknownKind, said)), true);
            return None;
        }
        known.window_bytes = known.wanted_bytes(Duration::ZERO);
        known.asked_at = Some(now);
        let mut read = control::Read { credit_bytes: known.window_bytes, ..known.read.clone() };
        known.began_paused = known.queue.pool_pauses();
        if known.began_paused {
            read.credit_messages = 0;
        }
        if !known.positions.is_empty() {
            let positions = (0..).zip(&known.positions);
            let position = |(partition, &offset)| control::ReadPosition { partition, offset };
            read.positions = positions.map(position).collect();
        }
        Some(Request::Read(read))
    }

    /// It has begun on this connection. Where the line or the number of partitions is worth more than
    /// the window it began with: the one it is to have.
    pub(crate) fn begun(
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
            let said = format!("it goes on at {firsts:?}, not at {:?}", known.positions);
            if let Some(known) = self.known.remove(&number) {
                known.end(&Error::Unexpected(said), true);
            }
            return None;
        }
        known.is_begun = true;
        known.read.topic_id = Some(subscribed.topic_id);
        // Who takes it over meanwhile keeps it.
        known.read.take_over = false;
        let answered = known.asked_at.take().map(|at| now.saturating_duration_since(at));
        self.round_trip = answered.map_or(self.round_trip, |took| took.min(self.round_trip));
        let bytes = known.wanted_bytes(self.round_trip);
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
        // It was told with what it began with whether it pauses, and may be to go on since.
        let pauses = known.queue.pool_pauses();
        let goes_on = known.began_paused && !pauses;
        ((has_changed || goes_on) && !pauses).then(|| known.credit())
    }

    /// It did not begin. If it had before, and may later, it is asked for again at the time
    /// returned.
    pub(crate) fn refused(&mut self, number: u32, error: &Error, now: Instant) -> Option<Instant> {
        let Some(known) = self.known.get_mut(&number) else {
            return self.watches.refused(number, error, now);
        };
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
        due.chain(self.watches.due()).collect()
    }

    /// The broker has ended it; the time at which it is to be asked for again, if it is.
    pub(crate) fn ended(
        &mut self,
        ended: &control::SubscriptionEnded,
        now: Instant,
    ) -> Option<Instant> {
        if let Some(known) = self.known.remove(&ended.subscription) {
            let code = ErrorCode::of_number(ended.code).unwrap_or(ErrorCode::Internal);
            known.end(&Error::from(control::Error::new(code, ended.reason.clone())), true);
            return None;
        }
        let error = control::Error::new(ErrorCode::Busy, ended.reason.clone());
        self.watches.refused(ended.subscription, &Error::from(error), now)
    }

    /// Hands messages to their reader; what is to be said to whom if that is too much.
    ///
    /// # Errors
    /// What came is not what comes next: the connection is no good, and the next begins behind what
    /// was good.
    pub(crate) fn delivered(&mut self, deliver: Deliver) -> Result<Vec<SetCredit>, Error> {
        let head = deliver.head;
        // It may have been on its way when the subscription ended.
        let Some(known) = self.known.get_mut(&head.subscription) else { return Ok(Vec::new()) };
        let batch = check(deliver)?;
        known.advance(head.partition.0, head.first.0, u64::from(head.count))?;
        let run = ReadRun::new(ReadBatch { topic: known.topic.clone(), head, batch });
        let paused = |known: &Reading| SetCredit { messages: 0, ..known.credit() };
        Ok(match known.queue.push((self.epoch, Received::Delivered(run))) {
            Pauses::Nobody => Vec::new(),
            Pauses::This => vec![paused(known)],
            Pauses::Pool => {
                let queue = Arc::clone(&known.queue);
                self.begun_of_pool(&queue).map(paused).collect()
            }
        })
    }

    /// The readers that have begun and share what they hold with this one.
    fn begun_of_pool<'a>(&'a self, queue: &'a ReaderQueue) -> impl Iterator<Item = &'a Reading> {
        let is_one = move |known: &&Reading| known.is_begun && known.queue.is_of_pool_of(queue);
        self.known.values().filter(is_one)
    }

    /// The windows of all readers that share what they hold with this one: they go on.
    pub(crate) fn credits_of_pool(&self, number: u32) -> Vec<SetCredit> {
        let Some(known) = self.known.get(&number) else { return Vec::new() };
        let goes_on = |known: &&Reading| !known.queue.pauses();
        self.begun_of_pool(&known.queue).filter(goes_on).map(Reading::credit).collect()
    }

    /// The window of one that has begun on this connection.
    pub(crate) fn credit(&self, number: u32) -> Option<SetCredit> {
        let known = self.known.get(&number)?;
        (known.is_begun && !known.queue.pool_pauses()).then(|| known.credit())
    }

    /// Tells a reader of messages that do not come.
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
        known.queue.push((self.epoch, Received::Gap(Gap { partition, offsets, reason })));
        Ok(())
    }

    /// Whether a request is a commit of a reader that has not begun on this connection, and is kept
    /// back until it has: only then the reader has its cursor again.
    pub(crate) fn keep_back(&self, request: &Request) -> bool {
        let Some(reader) = committer(request) else { return false };
        self.known.get(&reader).is_some_and(|known| !known.is_begun)
    }

    /// Whether what was taken is to be told: it came on this connection.
    pub(crate) fn is_to_be_told(&self, epoch: u64, taken: &Taken) -> bool {
        let known = self.known.get(&taken.subscription);
        epoch == self.epoch && known.is_some_and(|known| known.is_begun)
    }

    /// A broker is there, has granted these, and has answered the greeting in this time.
    pub(crate) fn connected(&mut self, features: Features, round_trip: Duration) {
        (self.is_connected, self.features, self.round_trip) = (true, features, round_trip);
    }

    /// The connection is gone: none begins on the next before it is asked for.
    pub(crate) fn connection_lost(&mut self) {
        self.epoch += 1;
        self.is_connected = false;
        self.known.values_mut().for_each(|known| known.is_begun = false);
    }

    /// The end. A reader is told why, unless the program itself has closed the client.
    pub(crate) fn fail(&mut self, error: &Error) {
        let tell_why = !matches!(error, Error::Closed);
        std::mem::take(&mut self.known).into_values().for_each(|known| known.end(error, tell_why));
        self.watches.fail(error);
    }
}

/// The reader that a request commits for.
pub(crate) fn committer(request: &Request) -> Option<u32> {
    match request {
        Request::SetCursor(body) => body.subscription,
        _ => None,
    }
}

impl Reading {
    /// The window in bytes for a connection: the program's, or what the line and the partitions need.
    fn wanted_bytes(&self, round_trip: Duration) -> u64 {
        match self.read.credit_bytes {
            0 => window_bytes(round_trip, self.positions.len()),
            told => told,
        }
    }

    fn credit(&self) -> SetCredit {
        let control::Read { subscription, credit_messages: messages, .. } = self.read;
        SetCredit { subscription, messages, bytes: self.window_bytes }
    }

    /// What has come of `offsets` is not there any more, and the rest of them does not come.
    fn roll_back(&mut self, partition: u32, offsets: OffsetRange) -> Result<(), Error> {
        let expected = self.positions.get(partition as usize).copied().unwrap_or_default();
        if !(offsets.start.0..=offsets.end.0).contains(&expected) {
            return self.advance(partition, offsets.start.0, offsets.count());
        }
        self.advance(partition, expected, offsets.end.0 - expected)
    }

    /// `count` offsets from `first` have come, or do not come. What a filter has passed over lies
    /// between them and what came before.
    fn advance(&mut self, partition: u32, first: u64, count: u64) -> Result<(), Error> {
        let is_filtered = self.read.filter.is_some();
        let expected = self.positions.get_mut(partition as usize).filter(|_| self.is_begun);
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
