//! One partition of one publisher: messages gather into a batch, batches are sent in order, and each stays here
//! until it is answered. It knows no socket and no lock.
//!
//! If the broker refuses a batch of a pipeline, it refuses all later ones as a gap. So after a refusal nothing is
//! sent until all batches on the wire are answered; then a new round starts with the oldest remaining batch. The
//! sequences of a batch that failed for good never come. Once all batches before it are answered, the later ones
//! are sent in a new epoch, whose sequences start at 0.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use sennit_model::{
    Batch, BatchBuilder, BatchError, Message, PartitionIndex,
    limits::{BATCH_MESSAGES_MAX, PRODUCER_BATCHES_REMEMBERED},
};
use sennit_protocol::{Confirm as ConfirmFrame, ConfirmRun, ErrorCode, PublishNote};
use tokio::time::Instant;

use crate::{
    error::Error,
    pending::{BatchOutcome, Confirm},
    reconnect::Backoff,
    sequence_ranges::SequenceRange,
};

/// Bytes that gather in one batch. A larger batch is not cheaper to send, and a smaller one is
/// confirmed and delivered sooner.
const GATHERED_BYTES_MAX: usize = 256 << 10;

const RETRY_DELAY_MIN: Duration = Duration::from_millis(50);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(5);

/// The longest delay before a batch is sent again for which there was no leader: there is one after a second or two.
const LEADER_DELAY_MAX: Duration = Duration::from_millis(250);

/// Rounds that may end with only gap refusals before the client treats them as a protocol error.
const FRUITLESS_ROUNDS_MAX: u32 = 4;

/// How a publisher numbers its batches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbering {
    /// Its range of sequences, if the broker does not check them.
    pub(crate) sequence_range: Option<SequenceRange>,
    /// Time for which a batch is sent again that the broker has no room for.
    pub(crate) give_up_after: Option<Duration>,
}

/// A batch and its answer.
pub(crate) struct Resolution {
    pub(crate) outcome: Arc<BatchOutcome>,
    pub(crate) answer: Result<Confirm, Error>,
    /// As in [`BatchOutcome::set_later`].
    pub(crate) later: Vec<(u32, Confirm)>,
    pub(crate) count: u32,
    pub(crate) bytes: usize,
}

impl Resolution {
    fn new(batch: Unconfirmed, answer: Result<Confirm, Error>) -> Self {
        let (count, bytes) = (batch.batch.count(), batch.batch.bytes().len());
        let later = batch.parts.into_iter().map(|part| (part.from, part.first)).skip(1).collect();
        Self { outcome: batch.outcome, answer, later, count, bytes }
    }
}

/// A batch that goes on the wire.
pub(crate) struct OutgoingBatch {
    pub(crate) epoch: u32,
    pub(crate) first_sequence: u64,
    pub(crate) batch: Batch,
}

/// The refusal of one batch.
pub(crate) struct BatchRefusal {
    pub(crate) request: u64,
    pub(crate) first_sequence: Option<u64>,
    pub(crate) code: Option<ErrorCode>,
    pub(crate) expected_sequence: Option<u64>,
    pub(crate) error: Error,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// To be sent in this round.
    Waiting,
    /// On the wire, under this request number.
    Sent(u64),
    /// Refused in this round; to be sent in the next.
    Refused,
}

struct Unconfirmed {
    position: u64,
    batch: Batch,
    outcome: Arc<BatchOutcome>,
    /// The time at which its first message was published.
    published_at: Instant,
    stage: Stage,
    /// The number of older messages that the broker dropped for it.
    dropped: u64,
    /// The parts that were confirmed, where the broker has left out duplicates between them.
    parts: Vec<ConfirmedPart>,
}

/// A part of a batch that was confirmed, from a message of this number on.
struct ConfirmedPart {
    from: u32,
    count: u32,
    first: Confirm,
}

impl Unconfirmed {
    /// Adds a part. Returns the confirm of the first message once all parts are there.
    fn add_part(&mut self, part: ConfirmedPart) -> Option<Confirm> {
        if self.parts.iter().all(|held| held.from != part.from) {
            self.parts.push(part);
            self.parts.sort_by_key(|held| held.from);
        }
        let count: u32 = self.parts.iter().map(|part| part.count).sum();
        let first = self.parts.first().map(|part| part.first);
        first.filter(|_| count >= self.batch.count())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    /// Batches are sent.
    Open,
    /// A batch was refused: nothing is sent until the rest of the round is answered.
    Draining,
    /// The broker has no room: nothing is sent before this time.
    Paused(Instant),
}

/// One partition of one publisher.
pub(crate) struct PartitionBuffer {
    index: PartitionIndex,
    numbering: Numbering,
    epoch: u32,
    /// The position of the message with the first sequence of this epoch.
    epoch_position: u64,
    /// The number of messages published here.
    next_position: u64,
    gathering: BatchBuilder,
    /// The outcome of the gathering batch, and the time of its first message.
    gathering_outcome: Option<(Arc<BatchOutcome>, Instant)>,
    /// Sealed and unanswered batches, oldest first; those that were sent in this round are in
    /// front.
    unconfirmed: VecDeque<Unconfirmed>,
    sent: usize,
    flow: Flow,
    /// A batch from this position failed for good. Later batches belong to the next epoch, earlier
    /// ones to this one.
    epoch_ends_at: Option<u64>,
    /// Observed in this round, for its end.
    broker_forgot: bool,
    retry_after: Option<Duration>,
    /// The longest delay after this round.
    retry_delay_max: Duration,
    fruitless_rounds: u32,
    backoff: Backoff,
}

impl PartitionBuffer {
    pub(crate) fn new(index: PartitionIndex, numbering: Numbering) -> Self {
        Self {
            index,
            numbering,
            epoch: 0,
            epoch_position: 0,
            next_position: 0,
            gathering: BatchBuilder::new(),
            gathering_outcome: None,
            unconfirmed: VecDeque::new(),
            sent: 0,
            flow: Flow::Open,
            epoch_ends_at: None,
            broker_forgot: false,
            retry_after: None,
            retry_delay_max: RETRY_DELAY_MAX,
            fruitless_rounds: 0,
            backoff: Backoff::new(RETRY_DELAY_MIN, RETRY_DELAY_MAX),
        }
    }

    /// The number of messages published here.
    pub(crate) fn published(&self) -> u64 {
        self.next_position
    }

    /// The position of the oldest unanswered message; [`Self::published`] if all are answered.
    pub(crate) fn answered_before(&self) -> u64 {
        self.unconfirmed.front().map_or_else(|| self.gathering_position(), |batch| batch.position)
    }

    /// Returns whether the next message begins a batch.
    pub(crate) fn begins_a_batch(&self) -> bool {
        self.gathering.is_empty() || self.gathering.byte_count() >= GATHERED_BYTES_MAX
    }

    /// Returns whether a batch can be sent now.
    pub(crate) fn has_sendable(&self) -> bool {
        if self.flow != Flow::Open || self.sent >= PRODUCER_BATCHES_REMEMBERED {
            return false;
        }
        let next = match self.unconfirmed.get(self.sent) {
            Some(batch) => batch.position,
            None if self.gathering.is_empty() => return false,
            None => self.gathering_position(),
        };
        self.epoch_ends_at.is_none_or(|end| next < end)
    }

    /// Returns whether any batch is still to be sent.
    pub(crate) fn has_unsent(&self) -> bool {
        self.sent < self.unconfirmed.len() || !self.gathering.is_empty()
    }

    /// The time until which the broker asked for a pause.
    pub(crate) fn paused_until(&self) -> Option<Instant> {
        match self.flow {
            Flow::Paused(until) => Some(until),
            Flow::Open | Flow::Draining => None,
        }
    }

    /// Adds a message of `length` encoded bytes. Returns its batch and its index there. Calls `now`
    /// for the first message of a batch.
    pub(crate) fn push(
        &mut self,
        message: &Message,
        length: usize,
        batch_bytes_max: usize,
        now: impl FnOnce() -> Instant,
    ) -> Result<(Arc<BatchOutcome>, u32), BatchError> {
        if length > batch_bytes_max {
            return Err(BatchError::TooLong { length });
        }
        let bytes_max = GATHERED_BYTES_MAX.min(batch_bytes_max);
        if self.gathering.count() as usize == BATCH_MESSAGES_MAX
            || self.gathering.byte_count() + length > bytes_max
        {
            self.seal();
        }
        self.gathering.push(message)?;
        let position = self.next_position;
        self.next_position += 1;
        let (outcome, _) = self
            .gathering_outcome
            .get_or_insert_with(|| (BatchOutcome::new(self.index, position), now()));
        Ok((Arc::clone(outcome), self.gathering.count() - 1))
    }

    /// Adds a whole batch, behind all gathered messages.
    pub(crate) fn push_batch(&mut self, batch: Batch, now: Instant) -> Arc<BatchOutcome> {
        self.seal();
        let outcome = BatchOutcome::new(self.index, self.next_position);
        self.next_position += u64::from(batch.count());
        self.enqueue(batch, Arc::clone(&outcome), now);
        outcome
    }

    fn gathering_position(&self) -> u64 {
        self.next_position - u64::from(self.gathering.count())
    }

    fn seal(&mut self) {
        if let Some(batch) = self.gathering.take()
            && let Some((outcome, published_at)) = self.gathering_outcome.take()
        {
            self.enqueue(batch, outcome, published_at);
        }
    }

    fn enqueue(&mut self, batch: Batch, outcome: Arc<BatchOutcome>, published_at: Instant) {
        let (position, stage) = (outcome.first_sequence, Stage::Waiting);
        let batch = Unconfirmed {
            position,
            batch,
            outcome,
            published_at,
            stage,
            dropped: 0,
            parts: vec![],
        };
        self.unconfirmed.push_back(batch);
    }

    /// The next batch to send, under this request number; `None` if there is none, or none may be
    /// sent now.
    pub(crate) fn next_batch(&mut self, request: u64) -> Option<OutgoingBatch> {
        if !self.has_sendable() {
            return None;
        }
        if self.sent == self.unconfirmed.len() {
            self.seal();
        }
        let first_sequence = self.sequence_of(self.unconfirmed.get(self.sent)?.position);
        let next = self.unconfirmed.get_mut(self.sent)?;
        next.stage = Stage::Sent(request);
        next.parts.clear();
        self.sent += 1;
        Some(OutgoingBatch { epoch: self.epoch, first_sequence, batch: next.batch.clone() })
    }

    /// The sequence on the wire of the message at `position`, in this epoch.
    fn sequence_of(&self, position: u64) -> u64 {
        let count = position - self.epoch_position;
        match self.numbering.sequence_range {
            Some(sequence_range) => {
                sequence_range.first_sequence() + count % SequenceRange::SEQUENCES
            }
            None => count,
        }
    }

    fn remove(&mut self, at: usize, answer: Result<Confirm, Error>, out: &mut Vec<Resolution>) {
        if let Some(batch) = self.unconfirmed.remove(at) {
            self.sent -= usize::from(at < self.sent);
            out.push(Resolution::new(batch, answer));
        }
    }

    /// Handles the part of a confirm frame for this publisher: `run`, and, where the broker checks
    /// sequences, everything before `up_to_sequence`.
    pub(crate) fn confirmed(
        &mut self,
        frame: &ConfirmFrame,
        run: Option<&ConfirmRun>,
        now: Instant,
        out: &mut Vec<Resolution>,
    ) {
        let before = out.len();
        let mut at = 0;
        while at < self.sent {
            let batch = &self.unconfirmed[at];
            let first = self.sequence_of(batch.position);
            let end = first + u64::from(batch.batch.count());
            let confirm = match run {
                Some(run) => {
                    let run_end = run.first_sequence + u64::from(run.count);
                    let (from, to) = (first.max(run.first_sequence), end.min(run_end));
                    let offset = |from: u64| {
                        run.first_offset.map(|offset| offset.plus(from - run.first_sequence))
                    };
                    let confirm = |from| Confirm {
                        partition: self.index,
                        offset: offset(from),
                        duplicate: run.duplicate,
                        durability: frame.head.durability,
                        dropped: if from == first { batch.dropped } else { 0 },
                    };
                    if (from, to) == (first, end) {
                        Some(confirm(first))
                    } else if from < to && matches!(batch.stage, Stage::Sent(_)) {
                        let (first_of_part, count) = (confirm(from), (to - from) as u32);
                        let from = (from - first) as u32;
                        let part = ConfirmedPart { from, count, first: first_of_part };
                        self.unconfirmed[at].add_part(part)
                    } else {
                        None
                    }
                }
                // The frame that confirmed it was lost with an earlier connection.
                None => (end <= frame.head.up_to_sequence).then_some(Confirm {
                    partition: self.index,
                    offset: None,
                    duplicate: true,
                    durability: frame.head.durability,
                    dropped: 0,
                }),
            };
            match confirm {
                Some(confirm) if matches!(self.unconfirmed[at].stage, Stage::Sent(_)) => {
                    self.remove(at, Ok(confirm), out);
                }
                // Those behind a run that ends here are not in it, unless sequences begin again.
                None if self.numbering.sequence_range.is_none()
                    && run
                        .is_some_and(|run| first >= run.first_sequence + u64::from(run.count)) =>
                {
                    break;
                }
                _ => at += 1,
            }
        }
        if out.len() > before {
            self.fruitless_rounds = 0;
            self.backoff.reset();
        }
        self.end_round_if_answered(now, out);
    }

    /// Handles what a batch has done to older messages.
    pub(crate) fn noted(&mut self, note: &PublishNote) {
        let at = self.unconfirmed.iter().take(self.sent).position(|batch| {
            matches!(batch.stage, Stage::Sent(_))
                && self.sequence_of(batch.position) == note.first_sequence
        });
        if let Some(batch) = at.and_then(|at| self.unconfirmed.get_mut(at)) {
            batch.dropped = note.dropped;
        }
    }

    /// Handles a refusal. Returns `false` if it is not for a batch that is on the wire here.
    pub(crate) fn refused(
        &mut self,
        refusal: &BatchRefusal,
        now: Instant,
        out: &mut Vec<Resolution>,
    ) -> bool {
        let found = self.unconfirmed.iter().take(self.sent).position(|batch| match batch.stage {
            Stage::Sent(request) if refusal.request != 0 => request == refusal.request,
            Stage::Sent(_) => refusal.first_sequence == Some(self.sequence_of(batch.position)),
            Stage::Waiting | Stage::Refused => false,
        });
        let Some(at) = found else { return false };
        let first = self.sequence_of(self.unconfirmed[at].position);
        match refusal.code {
            Some(ErrorCode::SequenceGap) => {
                let oldest =
                    self.unconfirmed.front().map_or(first, |b| self.sequence_of(b.position));
                // All before the oldest was confirmed: a broker that expects less has forgotten
                // this producer.
                self.broker_forgot |= refusal.expected_sequence.is_some_and(|n| n < oldest);
                self.unconfirmed[at].stage = Stage::Refused;
            }
            // It may have been appended, and nothing would recognise the second one.
            _ if matches!(refusal.error, Error::OutcomeUnknown) && !self.is_idempotent() => {
                self.remove(at, Err(Error::OutcomeUnknown), out);
            }
            _ if refusal.error.is_retryable() && !self.gives_up(at, now) => {
                self.retry_delay_max = match refusal.error.asks_for_leader() {
                    true => LEADER_DELAY_MAX,
                    false => RETRY_DELAY_MAX,
                };
                let delay = refusal.error.retry_after().unwrap_or_default();
                self.retry_after = self.retry_after.max(Some(delay));
                self.unconfirmed[at].stage = Stage::Refused;
            }
            _ => {
                let position = self.unconfirmed[at].position;
                self.epoch_ends_at.get_or_insert(position);
                self.remove(at, Err(refusal.error.clone()), out);
            }
        }
        self.flow = Flow::Draining;
        self.end_round_if_answered(now, out);
        true
    }

    /// Whether the broker recognises duplicates.
    fn is_idempotent(&self) -> bool {
        self.numbering.sequence_range.is_none()
    }

    fn gives_up(&self, at: usize, now: Instant) -> bool {
        let age = now.duration_since(self.unconfirmed[at].published_at);
        self.numbering.give_up_after.is_some_and(|limit| age >= limit)
    }

    fn end_round_if_answered(&mut self, now: Instant, out: &mut Vec<Resolution>) {
        let on_the_wire = |batch: &Unconfirmed| matches!(batch.stage, Stage::Sent(_));
        let ends = self.flow == Flow::Draining || self.epoch_ends_at.is_some();
        if !ends || self.unconfirmed.iter().take(self.sent).any(on_the_wire) {
            return;
        }
        let only_gaps = self.epoch_ends_at.is_none() && self.retry_after.is_none();
        self.fruitless_rounds = if only_gaps { self.fruitless_rounds + 1 } else { 0 };
        if self.fruitless_rounds > FRUITLESS_ROUNDS_MAX {
            let message = "a gap is refused though the batches begin where it says";
            self.fail_all(&Error::Unexpected(message.into()), out);
            self.broker_forgot = true;
        }
        let delay = self.retry_after.take();
        let rest =
            delay.map(|delay| now + delay.max(self.backoff.delay().min(self.retry_delay_max)));
        self.begin_round();
        self.flow = rest.map_or(Flow::Open, Flow::Paused);
    }

    fn begin_round(&mut self) {
        for batch in self.unconfirmed.iter_mut().take(self.sent) {
            batch.stage = Stage::Waiting;
        }
        self.sent = 0;
        let first_unanswered = self.answered_before();
        let ended = self.epoch_ends_at.is_some_and(|end| first_unanswered >= end);
        if ended {
            self.epoch_ends_at = None;
        }
        if self.is_idempotent() && (ended || self.broker_forgot) {
            self.epoch += 1;
            self.epoch_position = first_unanswered;
        }
        self.broker_forgot = false;
        self.retry_after = None;
        self.flow = Flow::Open;
    }

    /// Ends the pause, if its time has come.
    pub(crate) fn wake(&mut self, now: Instant) {
        if self.paused_until().is_some_and(|until| until <= now) {
            self.flow = Flow::Open;
        }
    }

    /// Handles a lost connection. Unanswered batches are sent again in order and under the same
    /// sequences, so that the broker answers appended ones as duplicates. Of a publisher without a
    /// producer id those that were on the wire fail instead.
    pub(crate) fn connection_lost(&mut self, out: &mut Vec<Resolution>) {
        let on_the_wire = |batch: &Unconfirmed| matches!(batch.stage, Stage::Sent(_));
        while !self.is_idempotent()
            && let Some(at) = self.unconfirmed.iter().take(self.sent).position(on_the_wire)
        {
            self.remove(at, Err(Error::OutcomeUnknown), out);
        }
        self.begin_round();
    }

    /// Fails all batches.
    pub(crate) fn fail_all(&mut self, error: &Error, out: &mut Vec<Resolution>) {
        self.seal();
        self.sent = 0;
        let all = self.unconfirmed.drain(..);
        out.extend(all.map(|batch| Resolution::new(batch, Err(error.clone()))));
    }
}

#[cfg(test)]
mod tests;
