//! What a publisher and the connection task share: the partitions' buffers under one short lock,
//! the window, and the answers. It knows no socket; frames leave through a closure.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sennit_model::{
    Batch, BatchError, Incarnation, Message, PartitionId, PartitionIndex, ProducerId,
    ProducerStamp, TopicId, TopicName, limits::PARTITIONS_MAX,
};
use sennit_protocol::{Confirm as ConfirmFrame, ErrorCode, PublishAt, PublishHead, control};
use tokio::{sync::Notify, time::Instant};

use crate::{
    error::Error,
    outgoing::Outgoing,
    partition_buffer::{BatchRefusal, Numbering, PartitionBuffer, Resolution},
    pending::{ConfirmedRun, Pending, PendingBatch},
    shares::Share,
};

/// Called with each run of confirmed messages.
pub(crate) type OnConfirm = Box<dyn FnMut(ConfirmedRun) + Send>;

/// Bytes and messages after which a publisher that never had to wait lets others run, the
/// connection among them.
const BYTES_BETWEEN_YIELDS: usize = 64 << 10;
const MESSAGES_BETWEEN_YIELDS: usize = 1024;

/// What a publisher was told.
pub(crate) struct PublisherSettings {
    pub(crate) topic: TopicName,
    pub(crate) create_if_missing: bool,
    pub(crate) idempotent: bool,
    pub(crate) window_messages: usize,
    pub(crate) window_bytes: usize,
    pub(crate) give_up_after: Option<Duration>,
    pub(crate) partition: Option<PartitionIndex>,
}

/// Whether the connection task has this publisher on its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Nothing to send: the next message puts it on the list.
    Idle,
    /// On the list.
    Listed,
    /// Off the list, and what waits may not be sent yet: whatever lets it puts it back.
    Blocked,
}

/// What is left after frames were taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// Nothing that can be sent now.
    Nothing,
    /// More than was asked for.
    More,
    /// Nothing before then: the broker has no room.
    RestsUntil(Instant),
}

/// Why a message cannot be taken now.
pub(crate) enum NotTaken {
    /// The window is full.
    Full,
    /// Many were taken without a pause: others are to run once before the next.
    OthersFirst,
    /// It will not be taken later either.
    Failed(Error),
}

/// What became of a message that was taken.
pub(crate) struct Taken<T> {
    pub(crate) pending: T,
    /// Whether the connection task has to be told.
    pub(crate) tell: bool,
}

struct State {
    topic: TopicId,
    incarnation: Incarnation,
    /// Of the sequences, without a producer id.
    share: Option<Share>,
    batch_bytes_max: usize,
    partitions: Vec<PartitionBuffer>,
    /// Whether the connection there is now knows the topic.
    open: bool,
    standing: Standing,
    /// The partition that messages without a key go to.
    sticky: usize,
    /// The partition that is asked first for a batch.
    turn: usize,
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
    /// Told whenever batches were answered.
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
            share: None,
            batch_bytes_max: 0,
            partitions: Vec::new(),
            open: false,
            standing: Standing::Idle,
            sticky: 0,
            turn: 0,
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

    /// The topic's number and how many partitions it has.
    pub(crate) fn topic(&self) -> (TopicId, u32) {
        let state = self.state();
        (state.topic, u32::try_from(state.partitions.len()).unwrap_or(u32::MAX))
    }

    /// The share of the sequences that it has, if it is one of those that need one.
    pub(crate) fn share(&self) -> Option<Share> {
        self.state().share
    }

    /// It has this share of the sequences. Said before it is opened.
    pub(crate) fn set_share(&self, share: Share) {
        self.state().share = Some(share);
    }

    /// Takes a message of `length` bytes, encoded.
    pub(crate) fn take(
        &self,
        message: &Message,
        length: usize,
    ) -> Result<Taken<Pending>, NotTaken> {
        let mut state = self.state();
        state.admit(1, length, &self.settings)?;
        let at = state.partition_for(&message.key, &self.settings);
        let batch_bytes_max = state.batch_bytes_max;
        let (outcome, index) = state.partitions[at]
            .push(message, length, batch_bytes_max, Instant::now)
            .map_err(|error| NotTaken::Failed(error.into()))?;
        Ok(state.taken(at, (1, length), Pending::new(outcome, index)))
    }

    /// Errs unless a frame holds the batch.
    pub(crate) fn check_batch(&self, batch: &Batch) -> Result<(), Error> {
        Ok(self.state().check_length(batch.bytes().len())?)
    }

    /// Takes a whole batch, for one partition.
    pub(crate) fn take_batch(&self, batch: &Batch) -> Result<Taken<PendingBatch>, NotTaken> {
        let (count, length) = (batch.count(), batch.bytes().len());
        let mut state = self.state();
        if state.failed.is_none() {
            state.check_length(length).map_err(|error| NotTaken::Failed(error.into()))?;
        }
        state.admit(count as usize, length, &self.settings)?;
        let key = batch.messages().next().map(|first| first.key()).unwrap_or_default();
        let at = state.partition_for(key, &self.settings);
        let outcome = state.partitions[at].push_batch(batch.clone(), Instant::now());
        Ok(state.taken(at, (count as usize, length), PendingBatch::new(outcome, count)))
    }

    /// The topic is open on the connection there is now.
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
            let numbering =
                Numbering { share: state.share, give_up_after: self.settings.give_up_after };
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
        Ok(state.list_if_off())
    }

    /// Puts batches into `outgoing` until it holds `bytes_max`; `request` is the last request
    /// number that was given out.
    pub(crate) fn depart(
        &self,
        now: Instant,
        request: &mut u64,
        outgoing: &mut Outgoing,
        bytes_max: usize,
    ) -> Left {
        let mut state = self.state();
        let state = &mut *state;
        if !state.open {
            state.standing = Standing::Blocked;
            return Left::Nothing;
        }
        let partitions = state.partitions.len();
        for step in 0..partitions {
            let at = (state.turn + step) % partitions;
            let buffer = &mut state.partitions[at];
            buffer.wake(now);
            while buffer.has_departure() {
                if outgoing.byte_count() >= bytes_max {
                    state.turn = at;
                    state.standing = Standing::Listed;
                    return Left::More;
                }
                *request += 1;
                let Some(departure) = buffer.depart(*request) else { break };
                let head = PublishHead {
                    // A topic has at most 1024 partitions.
                    partition: PartitionId { topic: state.topic, index: PartitionIndex(at as u32) },
                    producer: ProducerStamp {
                        id: self.producer,
                        epoch: departure.epoch,
                        first_sequence: departure.first_sequence,
                    },
                    count: departure.batch.count(),
                };
                outgoing.publish(&head, &departure.batch, *request);
            }
        }
        let blocked = state.partitions.iter().any(PartitionBuffer::has_unsent);
        state.standing = if blocked { Standing::Blocked } else { Standing::Idle };
        let rests = state.partitions.iter().filter_map(PartitionBuffer::rests_until).min();
        rests.map_or(Left::Nothing, Left::RestsUntil)
    }

    /// Takes a confirm frame. Returns whether there is something to send again.
    pub(crate) fn confirmed(&self, frame: &ConfirmFrame, now: Instant) -> bool {
        let mut resolutions = Vec::new();
        let mut state = self.state();
        let share = state.share;
        let Some(buffer) = state.partitions.get_mut(frame.head.partition.index.0 as usize) else {
            return false;
        };
        for run in frame.runs.iter() {
            if share.is_none_or(|share| share == Share::of_sequence(run.first_sequence)) {
                buffer.confirmed(frame, Some(&run), now, &mut resolutions);
            }
        }
        if share.is_none() {
            buffer.confirmed(frame, None, now, &mut resolutions);
        }
        let listed = state.list_if_off();
        self.resolve(state, resolutions);
        listed
    }

    /// Takes a refusal; `None` if it is not about a batch of this publisher, otherwise whether
    /// there is something to send again.
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
        let listed = state.list_if_off();
        self.resolve(state, resolutions);
        Some(listed)
    }

    /// When what was refused in that partition may be sent again, if something rests there.
    pub(crate) fn rests_in(&self, partition: PartitionIndex) -> Option<Instant> {
        self.state().partitions.get(partition.0 as usize)?.rests_until()
    }

    /// When the broker asked to be left alone until, the earliest of all partitions.
    pub(crate) fn rests_until(&self) -> Option<Instant> {
        self.state().partitions.iter().filter_map(PartitionBuffer::rests_until).min()
    }

    /// The connection is gone; what is unanswered waits for the next.
    pub(crate) fn connection_lost(&self) {
        let mut state = self.state();
        state.open = false;
        state.partitions.iter_mut().for_each(PartitionBuffer::connection_lost);
        let unsent = state.partitions.iter().any(PartitionBuffer::has_unsent);
        state.standing = if unsent { Standing::Blocked } else { Standing::Idle };
    }

    /// The publisher is finished: what it holds fails with `error`, and what comes later with
    /// `later`.
    pub(crate) fn fail(&self, error: &Error, later: &Error) {
        let mut resolutions = Vec::new();
        let mut state = self.state();
        state.fail(error, later, &mut resolutions);
        self.resolve(state, resolutions);
    }

    /// Whether nothing waits for an answer.
    pub(crate) fn is_drained(&self) -> bool {
        self.state().unconfirmed_messages == 0
    }

    /// How many messages each partition was given.
    pub(crate) fn published(&self) -> Vec<u64> {
        self.state().partitions.iter().map(PartitionBuffer::published).collect()
    }

    /// Whether all before `published` has its answer, and the first error since the last such
    /// question.
    pub(crate) fn answered(&self, published: &[u64]) -> Option<Result<(), Error>> {
        let mut state = self.state();
        let mut pairs = state.partitions.iter().zip(published);
        if !pairs.all(|(buffer, &published)| buffer.answered_before() >= published) {
            return None;
        }
        Some(state.first_error.take().map_or(Ok(()), Err))
    }

    /// Gives the answers out, without the lock.
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
        for Resolution { outcome, answer, count, .. } in resolutions {
            if let (Some(on_confirm), Ok(confirm)) = (&mut *on_confirm, &answer) {
                on_confirm(ConfirmedRun {
                    partition: outcome.partition,
                    first_sequence: outcome.first_sequence,
                    count,
                    first_offset: confirm.offset,
                    duplicate: confirm.duplicate,
                });
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
            let said = format!("a topic of {partitions} partitions, {PARTITIONS_MAX} are the most");
            return Err(Error::Unexpected(said));
        }
        let partition = settings.partition.unwrap_or_default().0;
        if partition >= partitions {
            return Err(Error::UnknownPartition { partition, partitions });
        }
        Ok(())
    }

    /// Whether it is the publisher's turn, and the window has room; an empty one always has.
    fn admit(
        &mut self,
        messages: usize,
        bytes: usize,
        settings: &PublisherSettings,
    ) -> Result<(), NotTaken> {
        if let Some(error) = &self.failed {
            return Err(NotTaken::Failed(error.clone()));
        }
        if self.messages_since_yield >= MESSAGES_BETWEEN_YIELDS
            || self.bytes_since_yield >= BYTES_BETWEEN_YIELDS
        {
            (self.messages_since_yield, self.bytes_since_yield) = (0, 0);
            return Err(NotTaken::OthersFirst);
        }
        let fits = self.unconfirmed_messages + messages <= settings.window_messages
            && self.unconfirmed_bytes + bytes <= settings.window_bytes;
        if fits || self.unconfirmed_messages == 0 { Ok(()) } else { Err(NotTaken::Full) }
    }

    /// A key goes where it always goes; without one the partition changes with each batch.
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

    /// Counts what partition `at` was given.
    fn taken<T>(&mut self, at: usize, (messages, bytes): (usize, usize), pending: T) -> Taken<T> {
        self.unconfirmed_messages += messages;
        self.unconfirmed_bytes += bytes;
        self.messages_since_yield += messages;
        self.bytes_since_yield += bytes;
        let tell = match self.standing {
            Standing::Idle => true,
            Standing::Listed => false,
            // It may be other partitions that have to wait.
            Standing::Blocked => self.open && self.partitions[at].has_departure(),
        };
        if tell {
            self.standing = Standing::Listed;
        }
        Taken { pending, tell }
    }

    /// Puts it back on the connection task's list if it is off it with something to send: batches
    /// that may go now, or that were refused and go again.
    fn list_if_off(&mut self) -> bool {
        let listed = self.standing != Standing::Listed
            && self.open
            && self.partitions.iter().any(PartitionBuffer::has_departure);
        if listed {
            self.standing = Standing::Listed;
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

/// As the connection task and the publisher hold it.
pub(crate) type SharedPublisher = Arc<PublisherCore>;
