//! The queue of a reader: items that have come and were not taken, in order. It holds up to twice the window,
//! because items of a lost connection stay valid. Gaps cost nothing of the window, and adjacent ones are joined.

use std::{
    collections::{HashMap, VecDeque},
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use sennit_model::PartitionIndex;

use crate::{
    error::Error, gap::Received, pool::Pool, read_run::ReadRun, ready_list::ReadyList,
    receive_window::ReceiveWindow,
};

/// The epoch of the connection, and the item that came on it.
pub(crate) type Item = (u64, Received<ReadRun>);

/// A partition's share of the window, or a part of it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Share {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

#[derive(Default)]
struct State {
    items: VecDeque<Item>,
    /// Number of items that were taken.
    taken: u64,
    /// For each partition whose last item is a gap: the number of that item, counted from the first
    /// ever.
    gaps: HashMap<PartitionIndex, u64>,
    fault: Option<Error>,
    ended: bool,
    /// Each partition's share on the newest connection.
    share: Share,
    window: ReceiveWindow,
    /// The task that waits for an item.
    waiting: Option<Waker>,
}

impl State {
    /// Adds an item. Returns whether the client has to pause the reader.
    fn push(&mut self, item: Item) -> bool {
        if let Received::Gap(gap) = &item.1 {
            let next = self.taken + self.items.len() as u64;
            let number = self.gaps.entry(gap.partition).or_insert(next);
            let index = usize::try_from(*number - self.taken).unwrap_or(usize::MAX);
            if let Some((_, Received::Gap(held))) = self.items.get_mut(index)
                && held.reason == gap.reason
                && held.offsets.end == gap.offsets.start
            {
                held.offsets.end = gap.offsets.end;
                return false;
            }
            *number = next;
        } else if let Received::Delivered(run) = &item.1 {
            // A later gap stays behind these messages.
            self.gaps.remove(&run.partition());
        }
        let bytes = byte_count(&item);
        self.items.push_back(item);
        self.window.received(bytes)
    }

    fn pop(&mut self) -> Option<Item> {
        let item = self.items.pop_front()?;
        self.window.consumed(byte_count(&item));
        if let Received::Gap(gap) = &item.1
            && self.gaps.get(&gap.partition) == Some(&self.taken)
        {
            self.gaps.remove(&gap.partition);
        }
        self.taken += 1;
        Some(item)
    }

    /// As [`ReaderQueue::next_now`].
    fn next(&mut self) -> Option<Option<Result<Item, Error>>> {
        if let Some(item) = self.pop() {
            return Some(Some(Ok(item)));
        }
        if let Some(error) = self.fault.take() {
            return Some(Some(Err(error)));
        }
        self.ended.then_some(None)
    }
}

fn byte_count((_, received): &Item) -> u64 {
    match received {
        Received::Delivered(run) => run.byte_count() as u64,
        Received::Gap(_) => 0,
    }
}

/// The items of one reader that were not taken.
#[derive(Default)]
pub(crate) struct ReaderQueue {
    state: Mutex<State>,
    /// The ready list and the number of this queue there, if one task takes from many queues.
    ready_list: Option<(Arc<ReadyList>, u32)>,
    /// The pool that it shares with those queues.
    pool: Option<Arc<Pool>>,
}

/// The readers that have to pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PauseScope {
    /// None.
    Nothing,
    /// This reader.
    Reader,
    /// All readers of its pool.
    Pool,
}

impl Drop for ReaderQueue {
    fn drop(&mut self) {
        if let Some(pool) = &self.pool {
            let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
            pool.consumed(state.window.bytes());
        }
    }
}

impl ReaderQueue {
    /// A queue with a shared pool and ready list.
    pub(crate) fn of_pool(ready_list: Arc<ReadyList>, pool: Arc<Pool>, number: u32) -> Self {
        let (state, ready_list, pool) = (Mutex::default(), Some((ready_list, number)), Some(pool));
        Self { state, ready_list, pool }
    }

    /// Returns whether two queues share a pool.
    pub(crate) fn shares_pool_with(&self, other: &Self) -> bool {
        let pools = self.pool.as_ref().zip(other.pool.as_ref());
        pools.is_some_and(|(own, others)| Arc::ptr_eq(own, others))
    }

    /// Returns whether all readers of its pool are paused.
    pub(crate) fn pool_pauses(&self) -> bool {
        self.pool.as_ref().is_some_and(|pool| pool.is_paused())
    }

    /// Returns whether this reader alone is paused.
    pub(crate) fn pauses(&self) -> bool {
        self.state().window.is_paused()
    }

    /// Returns whether all readers of its pool were paused and have to resume.
    pub(crate) fn pool_resumes(&self) -> bool {
        self.pool.as_ref().is_some_and(|pool| pool.take_resume())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        let waiting = state.waiting.take();
        drop(state);
        if let Some(waiting) = waiting {
            waiting.wake();
        }
        if let Some((ready_list, number)) = &self.ready_list {
            ready_list.notify(*number);
        }
    }

    /// Adds an item. Returns the readers that have to pause.
    pub(crate) fn push(&self, item: Item) -> PauseScope {
        let bytes = byte_count(&item);
        let mut pauses = false;
        // Counted first, because the program may take the item at once.
        let all_pause = self.pool.as_ref().is_some_and(|pool| pool.received(bytes));
        self.change(|state| pauses = state.push(item));
        match (all_pause, pauses) {
            (true, _) => PauseScope::Pool,
            (false, true) => PauseScope::Reader,
            (false, false) => PauseScope::Nothing,
        }
    }

    /// Returns whether the reader was paused and has to resume.
    pub(crate) fn take_resume(&self) -> bool {
        self.state().window.take_resume()
    }

    /// Sets the window of this connection, for this number of partitions.
    pub(crate) fn set_window(&self, messages: u64, bytes: u64, partitions: usize) {
        let partitions = (partitions as u64).max(1);
        let mut state = self.state();
        state.share =
            Share { messages: (messages / partitions).max(1), bytes: (bytes / partitions).max(1) };
        state.window.restart(bytes);
    }

    pub(crate) fn share(&self) -> Share {
        self.state().share
    }

    /// Ends the queue, with the reason if the program does not know it.
    pub(crate) fn end(&self, fault: Option<Error>) {
        self.change(|state| (state.ended, state.fault) = (true, fault));
    }

    /// Returns whether the queue has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.state().ended
    }

    /// The next item without waiting: `None` if there is none yet, `Some(None)` after the end.
    pub(crate) fn next_now(&self) -> Option<Option<Result<Item, Error>>> {
        self.take(&mut self.state())
    }

    fn take(&self, state: &mut State) -> Option<Option<Result<Item, Error>>> {
        let next = state.next();
        if let (Some(pool), Some(Some(Ok(item)))) = (&self.pool, &next) {
            pool.consumed(byte_count(item));
        }
        next
    }

    /// The next item; `None` once the subscription has ended and all items were taken. Only one
    /// task may wait.
    pub(crate) async fn next(&self) -> Option<Result<Item, Error>> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Item, Error>>> {
        let mut state = self.state();
        if let Some(next) = self.take(&mut state) {
            return Poll::Ready(next);
        }
        state.waiting = Some(cx.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use sennit_model::{BatchBuilder, Message, Offset, OffsetRange};
    use sennit_protocol::{DeliverHead, GapReason};

    use super::*;
    use crate::{gap::Gap, read_run::ReadBatch};

    fn gap(partition: u32, offsets: std::ops::Range<u64>) -> Gap {
        let offsets = OffsetRange { start: Offset(offsets.start), end: Offset(offsets.end) };
        Gap { partition: PartitionIndex(partition), offsets, reason: GapReason::Filtered }
    }

    fn consumed(queue: &ReaderQueue) -> Vec<Gap> {
        let next = || match queue.next_now()? {
            Some(Ok((_, Received::Gap(gap)))) => Some(gap),
            _ => None,
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn gaps_that_follow_one_another_wait_as_one() {
        let queue = ReaderQueue::default();
        for n in 0..1000 {
            queue.push((0, Received::Gap(gap(0, 3 * n..3 * n + 3))));
            queue.push((0, Received::Gap(gap(1, n..n + 1))));
        }
        assert_eq!(consumed(&queue), [gap(0, 0..3000), gap(1, 0..1000)]);
        // What was taken is not added to, and what does not follow is one by itself.
        queue.push((0, Received::Gap(gap(0, 3000..3001))));
        queue.push((0, Received::Gap(gap(0, 3005..3006))));
        queue.push((0, Received::Gap(gap(0, 3006..3008))));
        assert_eq!(consumed(&queue), [gap(0, 3000..3001), gap(0, 3005..3008)]);
        assert!(queue.state().gaps.is_empty());
    }

    #[test]
    fn a_gap_behind_a_message_is_not_told_before_it() {
        let queue = ReaderQueue::default();
        let rolled_back = |offsets| Gap { reason: GapReason::RolledBack, ..gap(0, offsets) };
        let mut builder = BatchBuilder::new();
        builder.push(&Message::new("x")).unwrap();
        let head = DeliverHead { first: Offset(2), count: 1, ..DeliverHead::default() };
        let (topic, batch) = ("orders".parse().unwrap(), builder.take().unwrap());
        let run = ReadRun::new(ReadBatch { topic, head, batch });
        // Each time the broker came back without what it had delivered before it was durable.
        queue.push((0, Received::Gap(rolled_back(0..2))));
        queue.push((1, Received::Delivered(run)));
        queue.push((2, Received::Gap(rolled_back(2..3))));
        let next = || queue.next_now().unwrap().unwrap().unwrap().1;
        assert!(matches!(next(), Received::Gap(gap) if gap == rolled_back(0..2)));
        assert!(matches!(next(), Received::Delivered(_)));
        assert!(matches!(next(), Received::Gap(gap) if gap == rolled_back(2..3)));
    }
}
