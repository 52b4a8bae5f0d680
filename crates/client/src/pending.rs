//! The pending confirm of a published message. One outcome serves all messages of a batch, so that a message needs
//! no allocation and no channel of its own.

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

/// The broker's confirm: the message is committed as its topic's durability promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirm {
    /// The message's partition.
    pub partition: PartitionIndex,
    /// The message's offset there; `None` for a duplicate that the broker no longer remembers.
    pub offset: Option<Offset>,
    /// Whether the message had been appended before: this client sent it again after a lost
    /// connection, or the topic looks for duplicates and this is one.
    pub duplicate: bool,
    /// The durability that the confirm promises.
    pub durability: Durability,
    /// How many of the partition's oldest messages were dropped for the batch that this message was
    /// in, because the topic was full; 0 for all but the batch's first message, so that sums are
    /// right.
    pub dropped: u64,
}

/// Messages that were confirmed together: adjacent in the publisher's order and in the partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfirmedRun {
    /// The partition of the messages.
    pub partition: PartitionIndex,
    /// The number of the first message among all that this publisher has sent to this partition,
    /// from 0, as in [`Pending::sequence`].
    pub first_sequence: u64,
    /// The number of messages.
    pub count: u32,
    /// The offset of the first message; the others follow. `None` as in [`Confirm::offset`].
    pub first_offset: Option<Offset>,
    /// As in [`Confirm::duplicate`].
    pub duplicate: bool,
    /// As in [`Confirm::dropped`].
    pub dropped: u64,
}

/// The outcome of a batch, once it is known.
pub(crate) struct BatchOutcome {
    pub(crate) partition: PartitionIndex,
    /// The number of the batch's first message, in the publisher's own count.
    pub(crate) first_sequence: u64,
    answer: OnceLock<Result<Confirm, Error>>,
    /// The confirms of its further parts, each from a message of this number on: the broker has left
    /// out duplicates between them.
    later: OnceLock<Box<[(u32, Confirm)]>>,
    waiting: Mutex<Vec<Waker>>,
}

impl BatchOutcome {
    pub(crate) fn new(partition: PartitionIndex, first_sequence: u64) -> Arc<Self> {
        let (answer, later, waiting) = (OnceLock::new(), OnceLock::new(), Mutex::new(Vec::new()));
        Arc::new(Self { partition, first_sequence, answer, later, waiting })
    }

    /// Sets the answer of the first message, and wakes the tasks that wait. Only the first call has
    /// an effect.
    pub(crate) fn resolve(&self, answer: Result<Confirm, Error>) {
        if self.answer.set(answer).is_err() {
            return;
        }
        // Set first: a task that finds no answer registers under this lock and checks again.
        let waiting =
            std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Sets the confirms of further parts, before the answer.
    pub(crate) fn set_later(&self, later: Vec<(u32, Confirm)>) {
        drop(self.later.set(later.into()));
    }

    fn answer_of(&self, index: u32) -> Option<Result<Confirm, Error>> {
        let answer = self.answer.get()?.clone();
        let mut later = self.later.get().into_iter().flatten().rev();
        if let Some((from, confirm)) = later.find(|(from, _)| *from <= index) {
            let offset = confirm.offset.map(|offset| offset.plus(u64::from(index - from)));
            return Some(answer.map(|_| Confirm { offset, ..*confirm }));
        }
        Some(answer.map(|first| Confirm {
            offset: first.offset.map(|offset| offset.plus(u64::from(index))),
            dropped: if index == 0 { first.dropped } else { 0 },
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

/// A published message whose confirm has not come. Await it, or drop it: the message is sent in
/// both cases, and [`crate::Publisher::flush`] also waits for dropped ones.
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
