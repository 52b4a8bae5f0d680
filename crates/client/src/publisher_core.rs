//! The state that a publisher shares with the connection task: the partitions' buffers under one short lock, the
//! window, and the outcomes. It knows no socket.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sennit_model::{
    Batch, BatchError, Incarnation, Message, PartitionId, PartitionIndex, ProducerId,
    ProducerStamp, TopicId, TopicName, limits::PARTITIONS_MAX,
};
use sennit_protocol::{
    Confirm as ConfirmFrame, ErrorCode, PublishAt, PublishHead, PublishNote, control,
};
use tokio::{sync::Notify, time::Instant};

use crate::{
    error::Error,
    partition_buffer::{BatchRefusal, Numbering, PartitionBuffer, Resolution},
    pending::{ConfirmedRun, Pending, PendingBatch},
    sequence_ranges::SequenceRange,
    write_buffer::WriteBuffer,
};

/// Called with each run of confirmed messages.
pub(crate) type OnConfirm = Box<dyn FnMut(ConfirmedRun) + Send>;

/// Bytes and messages after which a publisher that never waited yields to other tasks, the
/// connection task among them.
const BYTES_BETWEEN_YIELDS: usize = 64 << 10;
const MESSAGES_BETWEEN_YIELDS: usize = 1024;

/// A publisher's settings.
pub(crate) struct PublisherSettings {
    pub(crate) topic: TopicName,
    pub(crate) create_if_missing: bool,
    pub(crate) idempotent: bool,
    pub(crate) window_messages: usize,
    pub(crate) window_bytes: usize,
    pub(crate) give_up_after: Option<Duration>,
    pub(crate) partition: Option<PartitionIndex>,
}

/// Whether the connection task lists this publisher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListState {
    /// There is nothing to send. The next message lists the publisher.
    Idle,
    /// The publisher is listed.
    Listed,
    /// The publisher is not listed, and its batches may not be sent yet. The event that allows it
    /// lists the publisher again.
    Blocked,
}

/// The batches that remain after frames were taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remaining {
    /// Nothing can be sent now.
    Nothing,
    /// More can be sent now.
    More,
    /// Nothing can be sent before this time, because the broker has no room.
    PausedUntil(Instant),
}

/// The reason why a message cannot be accepted now.
pub(crate) enum Rejected {
    /// The window is full.
    WindowFull,
    /// The publisher has to yield to other tasks first.
    YieldFirst,
    /// The message will never be accepted.
    Failed(Error),
}

/// A message that was accepted.
pub(crate) struct Accepted<T> {
    pub(crate) pending: T,
    /// Whether the connection task has to be woken.
    pub(crate) notify: bool,
}

struct State {
    topic: TopicId,
    incarnation: Incarnation,
    /// The range of a publisher without a producer id.
    sequence_range: Option<SequenceRange>,
    batch_bytes_max: usize,
    partitions: Vec<PartitionBuffer>,
    /// Whether the topic is open on the current connection.
    open: bool,
    list_state: ListState,
    /// The partition for messages without a key.
    sticky: usize,
    /// The partition that is asked first for a batch.
    next_partition: usize,
    unconfirmed_messages: usize,
    unconfirmed_bytes: usize,
    bytes_since_yield: usize,
    messages_since_yield: usize,
    failed: Option<Error>,
    first_error: Option<Error>,
}

/// One publisher, shared with the connection task.
pub(crate) struct PublisherCore {
    pub(crate) number: u64,
    pub(crate) producer: ProducerId,
    pub(crate) settings: PublisherSettings,
    state: Mutex<State>,
    on_confirm: Mutex<Option<OnConfirm>>,
    /// Notified whenever batches were answered.
    pub(crate) progress: Notify,
}

impl PublisherCore {
    pub(crate) fn new(
        number: u64,
        producer: ProducerId,
        settings: PublisherSettings,
        on_confirm: Option<OnConfirm>,
    ) -> Self {
        let state = State {
            topic: TopicId(0),
            incarnation: Incarnation(0),
            sequence_range: None,
            batch_bytes_max: 0,
            partitions: Vec::new(),
            open: false,
            list_state: ListState::Idle,
            sticky: 0,
            next_partition: 0,
            unconfirmed_messages: 0,
            unconfirmed_bytes: 0,
            bytes_since_yield: 0,
            messages_since_yield: 0,
            failed: None,
            first_error: None,
        };
        Self {
            number,
            producer,
            settings,
            state: Mutex::new(state),
            on_confirm: Mutex::new(on_confirm),
            progress: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The topic's number and its number of partitions.
    pub(crate) fn topic(&self) -> (TopicId, u32) {
        let state = self.state();
        (state.topic, u32::try_from(state.partitions.len()).unwrap_or(u32::MAX))
    }

    /// The range of a publisher without a producer id.
    pub(crate) fn sequence_range(&self) -> Option<SequenceRange> {
        self.state().sequence_range
    }

    /// Sets the range. Called before the topic is opened.
    pub(crate) fn set_sequence_range(&self, sequence_range: SequenceRange) {
        self.state().sequence_range = Some(sequence_range);
    }

    /// Accepts a message of `length` encoded bytes.
    pub(crate) fn take(
        &self,
        message: &Message,
        length: usize,
    ) -> Result<Accepted<Pending>, Rejected> {
        let mut state = self.state();
        state.admit(1, length, &self.settings)?;
        let at = state.partition_for(&message.key, &self.settings);
        let batch_bytes_max = state.batch_bytes_max;
        let (outcome, index) = state.partitions[at]
            .push(message, length, batch_bytes_max, Instant::now)
            .map_err(|error| Rejected::Failed(error.into()))?;
        Ok(state.taken(at, 1, length, Pending::new(outcome, index)))
    }

    /// Returns an error if no frame can hold the batch.
    pub(crate) fn check_batch(&self, batch: &Batch) -> Result<(), Error> {
        Ok(self.state().check_length(batch.bytes().len())?)
    }

    /// Accepts a whole batch, for one partition.
    pub(crate) fn take_batch(&self, batch: &Batch) -> Result<Accepted<PendingBatch>, Rejected> {
        let (count, length) = (batch.count(), batch.bytes().len());
        let mut state = self.state();
        if state.failed.is_none() {
            state.check_length(length).map_err(|error| Rejected::Failed(error.into()))?;
        }
        state.admit(count as usize, length, &self.settings)?;
        let key = batch.messages().next().map(|first| first.key()).unwrap_or_default();
        let at = state.partition_for(key, &self.settings);
        let outcome = state.partitions[at].push_batch(batch.clone(), Instant::now());
        Ok(state.taken(at, count as usize, length, PendingBatch::new(outcome, count)))
    }

    /// Notes that the topic is open on the current connection.
    pub(crate) fn opened(
        &self,
        opened: &control::TopicOpened,
        frame_bytes_max: usize,
    ) -> Result<bool, Error> {
        let mut state = self.state();
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        let incarnation = Incarnation(opened.incarnation);
        if state.partitions.is_empty() {
            state.check_partitions(opened.partitions, &self.settings)?;
            let numbering = Numbering {
                sequence_range: state.sequence_range,
                give_up_after: self.settings.give_up_after,
            };
            state.topic = TopicId(opened.topic_id);
            state.incarnation = incarnation;
            state.partitions = (0..opened.partitions)
                .map(|index| PartitionBuffer::new(PartitionIndex(index), numbering))
                .collect();
        } else if state.incarnation != incarnation {
            return Err(Error::Refused {
                code: ErrorCode::UnknownTopic,
                message: format!("topic {} was deleted and created anew", self.settings.topic),
                hint: "open another publisher".into(),
                retryable: false,
                retry_after: None,
            });
        }
        let limits = opened.limits.unwrap_or_else(|| control::Limits::new(frame_bytes_max));
        // The longer head of the two that a batch may have.
        state.batch_bytes_max =
            (limits.batch_bytes_max as usize).min(frame_bytes_max - PublishAt::HEAD_BYTES);
        state.open = true;
        Ok(state.list_if_unlisted())
    }

    /// Encodes batches until `write_buffer` holds `bytes_max`. `request` is the last request number
    /// in use.
    pub(crate) fn encode_batches(
        &self,
        now: Instant,
        request: &mut u64,
        write_buffer: &mut WriteBuffer,
        bytes_max: usize,
    ) -> Remaining {
        let mut state = self.state();
        let state = &mut *state;
        if !state.open {
            state.list_state = ListState::Blocked;
            return Remaining::Nothing;
        }
        let partitions = state.partitions.len();
        for step in 0..partitions {
            let at = (state.next_partition + step) % partitions;
            let buffer = &mut state.partitions[at];
            buffer.wake(now);
            while buffer.has_sendable() {
                if write_buffer.byte_count() >= bytes_max {
                    state.next_partition = at;
                    state.list_state = ListState::Listed;
                    return Remaining::More;
                }
                *request += 1;
                let Some(outgoing_batch) = buffer.next_batch(*request) else { break };
                let head = PublishHead {
                    // A topic has at most 1024 partitions.
                    partition: PartitionId { topic: state.topic, index: PartitionIndex(at as u32) },
                    producer: ProducerStamp {
                        id: self.producer,
                        epoch: outgoing_batch.epoch,
                        first_sequence: outgoing_batch.first_sequence,
                    },
                    count: outgoing_batch.batch.count(),
                };
                write_buffer.publish(&head, &outgoing_batch.batch, *request);
            }
        }
        let blocked = state.partitions.iter().any(PartitionBuffer::has_unsent);
        state.list_state = if blocked { ListState::Blocked } else { ListState::Idle };
        let paused_until = state.partitions.iter().filter_map(PartitionBuffer::paused_until).min();
        paused_until.map_or(Remaining::Nothing, Remaining::PausedUntil)
    }

    /// Handles a confirm frame. Returns whether batches have to be sent again.
    pub(crate) fn confirmed(&self, frame: &ConfirmFrame, now: Instant) -> bool {
        let mut resolutions = Vec::new();
        let mut state = self.state();
        let sequence_range = state.sequence_range;
        let Some(buffer) = state.partitions.get_mut(frame.head.partition.index.0 as usize) else {
            return false;
        };
        for run in frame.runs.iter() {
            if sequence_range.is_none_or(|sequence_range| {
                sequence_range == SequenceRange::of_sequence(run.first_sequence)
            }) {
                buffer.confirmed(frame, Some(&run), now, &mut resolutions);
            }
        }
        if sequence_range.is_none() {
            buffer.confirmed(frame, None, now, &mut resolutions);
        }
        let listed = state.list_if_unlisted();
        self.resolve(state, resolutions);
        listed
    }

    /// Handles what a batch has done to older messages; its confirm follows.
    pub(crate) fn noted(&self, note: &PublishNote) {
        let mut state = self.state();
        if let Some(buffer) = state.partitions.get_mut(note.partition.index.0 as usize) {
            buffer.noted(note);
        }
    }

    /// Handles a refusal. Returns `None` if it is not for a batch of this publisher, otherwise
    /// whether batches have to be sent again.
    pub(crate) fn refused(&self, refusal: &BatchRefusal, now: Instant) -> Option<bool> {
        let mut resolutions = Vec::new();
        let mut state = self.state();
        let mine = state
            .partitions
            .iter_mut()
            .any(|buffer| buffer.refused(refusal, now, &mut resolutions));
        if !mine {
            return None;
        }
        if matches!(refusal.code, Some(ErrorCode::ProducerFenced | ErrorCode::UnknownTopic)) {
            state.fail(&refusal.error, &refusal.error, &mut resolutions);
        }
        let listed = state.list_if_unlisted();
        self.resolve(state, resolutions);
        Some(listed)
    }

    /// The time until which this partition is paused, if it is.
    pub(crate) fn paused_until_in(&self, partition: PartitionIndex) -> Option<Instant> {
        self.state().partitions.get(partition.0 as usize)?.paused_until()
    }

    /// The earliest time until which a partition is paused.
    pub(crate) fn paused_until(&self) -> Option<Instant> {
        self.state().partitions.iter().filter_map(PartitionBuffer::paused_until).min()
    }

    /// Handles a lost connection. Unanswered batches wait for the next one, if they may be sent twice.
    pub(crate) fn connection_lost(&self) {
        let mut resolutions = Vec::new();
        let mut state = self.state();
        state.open = false;
        state.partitions.iter_mut().for_each(|buffer| buffer.connection_lost(&mut resolutions));
        let unsent = state.partitions.iter().any(PartitionBuffer::has_unsent);
        state.list_state = if unsent { ListState::Blocked } else { ListState::Idle };
        self.resolve(state, resolutions);
    }

    /// Ends the publisher: its messages fail with `error`, and later calls with `later`.
    pub(crate) fn fail(&self, error: &Error, later: &Error) {
        let mut resolutions = Vec::new();
        let mut state = self.state();
        state.fail(error, later, &mut resolutions);
        self.resolve(state, resolutions);
    }

    /// Returns whether all messages are answered.
    pub(crate) fn is_drained(&self) -> bool {
        self.state().unconfirmed_messages == 0
    }

    /// The number of messages that each partition was given.
    pub(crate) fn published(&self) -> Vec<u64> {
        self.state().partitions.iter().map(PartitionBuffer::published).collect()
    }

    /// Once all messages before `published` are answered: the first error since the last call.
    pub(crate) fn answered(&self, published: &[u64]) -> Option<Result<(), Error>> {
        let mut state = self.state();
        let mut pairs = state.partitions.iter().zip(published);
        if !pairs.all(|(buffer, &published)| buffer.answered_before() >= published) {
            return None;
        }
        Some(state.first_error.take().map_or(Ok(()), Err))
    }

    /// Sets the outcomes, without holding the lock.
    fn resolve(&self, mut state: MutexGuard<'_, State>, resolutions: Vec<Resolution>) {
        for resolution in &resolutions {
            state.unconfirmed_messages -= resolution.count as usize;
            state.unconfirmed_bytes -= resolution.bytes;
            if let Err(error) = &resolution.answer {
                state.first_error.get_or_insert_with(|| error.clone());
            }
        }
        let finished = state.failed.is_some();
        drop(state);
        if resolutions.is_empty() && !finished {
            return;
        }
        let mut on_confirm = self.on_confirm.lock().unwrap_or_else(PoisonError::into_inner);
        for Resolution { outcome, answer, later, count, .. } in resolutions {
            let parts = later.iter().map(|(from, confirm)| (*from, confirm));
            let parts: Vec<_> = answer.iter().map(|first| (0, first)).chain(parts).collect();
            for (at, (from, confirm)) in parts.iter().enumerate() {
                let Some(on_confirm) = &mut *on_confirm else { break };
                let end = parts.get(at + 1).map_or(count, |next| next.0);
                on_confirm(ConfirmedRun {
                    partition: outcome.partition,
                    first_sequence: outcome.first_sequence + u64::from(*from),
                    count: end - from,
                    first_offset: confirm.offset,
                    duplicate: confirm.duplicate,
                    dropped: confirm.dropped,
                });
            }
            if !later.is_empty() {
                outcome.set_later(later);
            }
            outcome.resolve(answer);
        }
        drop(on_confirm);
        self.progress.notify_waiters();
    }
}

impl State {
    fn check_length(&self, length: usize) -> Result<(), BatchError> {
        if length > self.batch_bytes_max { Err(BatchError::TooLong { length }) } else { Ok(()) }
    }

    fn check_partitions(&self, partitions: u32, settings: &PublisherSettings) -> Result<(), Error> {
        if partitions > PARTITIONS_MAX {
            let message =
                format!("a topic of {partitions} partitions, {PARTITIONS_MAX} are the most");
            return Err(Error::Unexpected(message));
        }
        let partition = settings.partition.unwrap_or_default().0;
        if partition >= partitions {
            return Err(Error::UnknownPartition { partition, partitions });
        }
        Ok(())
    }

    /// Checks that the publisher need not yield and that the window has room. An empty window
    /// always has.
    fn admit(
        &mut self,
        messages: usize,
        bytes: usize,
        settings: &PublisherSettings,
    ) -> Result<(), Rejected> {
        if let Some(error) = &self.failed {
            return Err(Rejected::Failed(error.clone()));
        }
        if self.messages_since_yield >= MESSAGES_BETWEEN_YIELDS
            || self.bytes_since_yield >= BYTES_BETWEEN_YIELDS
        {
            (self.messages_since_yield, self.bytes_since_yield) = (0, 0);
            return Err(Rejected::YieldFirst);
        }
        let fits = self.unconfirmed_messages + messages <= settings.window_messages
            && self.unconfirmed_bytes + bytes <= settings.window_bytes;
        if fits || self.unconfirmed_messages == 0 { Ok(()) } else { Err(Rejected::WindowFull) }
    }

    /// Messages with a key go to the partition of the key; others change partition with each batch.
    fn partition_for(&mut self, key: &[u8], settings: &PublisherSettings) -> usize {
        let partitions = self.partitions.len();
        if let Some(partition) = settings.partition {
            return partition.0 as usize;
        }
        if partitions == 1 {
            return 0;
        }
        if !key.is_empty() {
            return PartitionIndex::of_key(key, partitions as u32).0 as usize;
        }
        if self.partitions[self.sticky].begins_a_batch() {
            self.sticky = (self.sticky + 1) % partitions;
        }
        self.sticky
    }

    /// Counts an accepted message of partition `at`.
    fn taken<T>(&mut self, at: usize, messages: usize, bytes: usize, pending: T) -> Accepted<T> {
        self.unconfirmed_messages += messages;
        self.unconfirmed_bytes += bytes;
        self.messages_since_yield += messages;
        self.bytes_since_yield += bytes;
        let notify = match self.list_state {
            ListState::Idle => true,
            ListState::Listed => false,
            // It may be other partitions that have to wait.
            ListState::Blocked => self.open && self.partitions[at].has_sendable(),
        };
        if notify {
            self.list_state = ListState::Listed;
        }
        Accepted { pending, notify }
    }

    /// Lists the publisher again if it is unlisted and has batches to send, new ones or refused
    /// ones.
    fn list_if_unlisted(&mut self) -> bool {
        let listed = self.list_state != ListState::Listed
            && self.open
            && self.partitions.iter().any(PartitionBuffer::has_sendable);
        if listed {
            self.list_state = ListState::Listed;
        }
        listed
    }

    fn fail(&mut self, error: &Error, later: &Error, out: &mut Vec<Resolution>) {
        self.failed.get_or_insert_with(|| later.clone());
        for buffer in &mut self.partitions {
            buffer.fail_all(error, out);
        }
    }
}

/// A publisher that its handles and the connection task share.
pub(crate) type SharedPublisher = Arc<PublisherCore>;
