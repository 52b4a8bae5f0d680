//! What a publisher holds of a message it has sent: one answer for each batch, asked for by as many
//! as there are messages in it. No allocation and no channel for a message of its own.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    task::{Context, Poll, Waker},
};

use sennit_model::{Offset, PartitionIndex};
use sennit_protocol::Durability;

use crate::error::Error;

/// A message is committed as its topic promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirm {
    /// The partition it went to.
    pub partition: PartitionIndex,
    /// Its offset there; `None` for a duplicate so old that the broker has forgotten it.
    pub offset: Option<Offset>,
    /// Whether it had been appended before: this client had sent it again after it lost a
    /// connection.
    pub duplicate: bool,
    /// What the confirm promises.
    pub durability: Durability,
}

/// Messages that were confirmed together: published back to back, lying back to back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfirmedRun {
    /// The partition they went to.
    pub partition: PartitionIndex,
    /// The first one's number among all that this publisher has sent to this partition, from 0:
    /// what [`Pending::sequence`] says of it.
    pub first_sequence: u64,
    /// How many.
    pub count: u32,
    /// The first one's offset, the others follow; `None` as in [`Confirm::offset`].
    pub first_offset: Option<Offset>,
    /// As in [`Confirm::duplicate`].
    pub duplicate: bool,
}

/// The answer to a batch, once it is there.
pub(crate) struct BatchOutcome {
    pub(crate) partition: PartitionIndex,
    /// Of the batch's first message, in the publisher's own count.
    pub(crate) first_sequence: u64,
    answer: OnceLock<Result<Confirm, Error>>,
    waiting: Mutex<Vec<Waker>>,
}

impl BatchOutcome {
    pub(crate) fn new(partition: PartitionIndex, first_sequence: u64) -> Arc<Self> {
        let (answer, waiting) = (OnceLock::new(), Mutex::new(Vec::new()));
        Arc::new(Self { partition, first_sequence, answer, waiting })
    }

    /// Gives the answer of the first message, and wakes whoever waits. A second answer changes
    /// nothing.
    pub(crate) fn resolve(&self, answer: Result<Confirm, Error>) {
        if self.answer.set(answer).is_err() {
            return;
        }
        // After the answer: who finds none registers under this lock, and looks once more.
        let waiting =
            std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        waiting.into_iter().for_each(Waker::wake);
    }

    fn answer_of(&self, index: u32) -> Option<Result<Confirm, Error>> {
        let answer = self.answer.get()?.clone();
        Some(answer.map(|first| Confirm {
            offset: first.offset.map(|offset| offset.plus(u64::from(index))),
            ..first
        }))
    }

    fn poll(
        &self,
        index: u32,
        slot: &mut Option<usize>,
        context: &Context<'_>,
    ) -> Poll<Result<Confirm, Error>> {
        if let Some(answer) = self.answer_of(index) {
            return Poll::Ready(answer);
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = self.answer_of(index) {
            return Poll::Ready(answer);
        }
        match slot.and_then(|slot| waiting.get_mut(slot)) {
            Some(waker) => waker.clone_from(context.waker()),
            None => {
                *slot = Some(waiting.len());
                waiting.push(context.waker().clone());
            }
        }
        Poll::Pending
    }
}

/// A published message on its way to being confirmed. Await it, or drop it: the message is sent
/// either way, and [`crate::Publisher::flush`] waits for those that were dropped too.
pub struct Pending {
    outcome: Arc<BatchOutcome>,
    index: u32,
    slot: Option<usize>,
}

impl Pending {
    pub(crate) fn new(outcome: Arc<BatchOutcome>, index: u32) -> Self {
        Self { outcome, index, slot: None }
    }

    /// The partition the message goes to.
    #[must_use]
    pub fn partition(&self) -> PartitionIndex {
        self.outcome.partition
    }

    /// The message's number among all that this publisher has sent to this partition, from 0.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.outcome.first_sequence + u64::from(self.index)
    }

    /// The answer, if it is there.
    #[must_use]
    pub fn try_get(&self) -> Option<Result<Confirm, Error>> {
        self.outcome.answer_of(self.index)
    }
}

impl Future for Pending {
    type Output = Result<Confirm, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { outcome, index, slot } = &mut *self;
        outcome.poll(*index, slot, context)
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending")
            .field("partition", &self.partition())
            .field("sequence", &self.sequence())
            .field("answer", &self.try_get())
            .finish()
    }
}

/// A published batch on its way to being confirmed. Its output is the confirm of its first message;
/// the others' offsets follow.
#[derive(Debug)]
pub struct PendingBatch {
    first: Pending,
    count: u32,
}

impl PendingBatch {
    pub(crate) fn new(outcome: Arc<BatchOutcome>, count: u32) -> Self {
        Self { first: Pending::new(outcome, 0), count }
    }

    /// The partition the batch goes to.
    #[must_use]
    pub fn partition(&self) -> PartitionIndex {
        self.first.partition()
    }

    /// The number of its first message, as [`Pending::sequence`] counts.
    #[must_use]
    pub fn first_sequence(&self) -> u64 {
        self.first.sequence()
    }

    /// How many messages it has.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }
}

impl Future for PendingBatch {
    type Output = Result<Confirm, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.first).poll(context)
    }
}
