//! The queue of a consumer: deliveries that have come and were not taken, and the gaps between them. Credit bounds
//! the deliveries. If the consumer takes nothing for longer than its leases, the oldest deliveries are dropped, as
//! their leases have ended. Each gap is kept once.

use std::{
    collections::{HashSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use sennit_model::limits::MESSAGE_BYTES_MAX;
use tokio::sync::Notify;

use crate::{
    delivery::DeliveryRun,
    error::Error,
    gap::{Gap, Received},
    receive_window::ReceiveWindow,
};

#[derive(Default)]
struct State {
    items: VecDeque<Received<DeliveryRun>>,
    runs: usize,
    messages: u64,
    window: ReceiveWindow,
    /// The gaps that wait. A gap that comes again on another connection waits once.
    gaps: HashSet<Gap>,
    credit_messages: u64,
    credit_bytes: u64,
    /// Of the topic; 0 before the broker's answer.
    partitions: u64,
    faults: VecDeque<Error>,
    ended: bool,
}

/// The deliveries and gaps of one subscription that were not taken.
#[derive(Default)]
pub(crate) struct DeliveryQueue {
    state: Mutex<State>,
    changed: Notify,
}

impl DeliveryQueue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the window. The largest window so far bounds the queue, because a smaller one takes
    /// nothing back.
    pub(crate) fn set_credit(&self, messages: u32, bytes: u64) {
        let mut state = self.state();
        state.credit_messages = state.credit_messages.max(messages.into());
        state.credit_bytes = state.credit_bytes.max(bytes);
        state.restart();
    }

    /// Notes the start of the subscription, and the number of partitions: each delivers at least
    /// one message, whatever its share of the window.
    pub(crate) fn set_partitions(&self, partitions: u32) {
        let mut state = self.state();
        state.partitions = partitions.into();
        state.restart();
    }

    /// Returns whether the client had paused the subscription and has to resume it.
    pub(crate) fn take_resume(&self) -> bool {
        self.state().window.take_resume()
    }

    /// Adds a run. Returns whether the client has to pause the subscription. The queue holds up to
    /// twice the window, because after a lost connection the old deliveries stay valid beside the
    /// new ones for a while.
    pub(crate) fn push(&self, run: DeliveryRun) -> bool {
        let mut state = self.state();
        state.runs += 1;
        state.messages += u64::from(run.count());
        let pauses = state.window.received(run.byte_count() as u64);
        state.items.push_back(Received::Delivered(run));
        let messages_max = 2 * state.credit_messages.max(state.partitions);
        // The last message of each partition may lie across the end of its share.
        let bytes_max = 2 * (state.credit_bytes + state.partitions * MESSAGE_BYTES_MAX as u64);
        while state.runs > 2 && (state.messages > messages_max || state.window.bytes() > bytes_max)
        {
            let is_run = |item: &Received<_>| matches!(item, Received::Delivered(_));
            let oldest = state.items.iter().position(is_run).expect("runs are counted");
            state.take(oldest);
        }
        drop(state);
        self.changed.notify_one();
        pauses
    }

    /// Adds a gap.
    pub(crate) fn gap(&self, gap: Gap) {
        let mut state = self.state();
        if state.gaps.insert(gap) {
            state.items.push_back(Received::Gap(gap));
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Adds an error: a delivery could not be read, or the subscription has ended.
    pub(crate) fn fault(&self, error: Error) {
        self.state().faults.push_back(error);
        self.changed.notify_one();
    }

    /// Ends the queue.
    pub(crate) fn end(&self) {
        self.state().ended = true;
        self.changed.notify_one();
    }

    /// The next run or gap; `None` once the subscription has ended and all items were taken. Only
    /// one task may wait.
    pub(crate) async fn next(&self) -> Option<Result<Received<DeliveryRun>, Error>> {
        loop {
            {
                let mut state = self.state();
                if let Some(item) = state.take(0) {
                    return Some(Ok(item));
                }
                if let Some(error) = state.faults.pop_front() {
                    return Some(Err(error));
                }
                if state.ended {
                    return None;
                }
            }
            self.changed.notified().await;
        }
    }
}

impl State {
    fn restart(&mut self) {
        self.window.restart(self.credit_bytes);
    }

    fn take(&mut self, index: usize) -> Option<Received<DeliveryRun>> {
        let item = self.items.remove(index)?;
        match &item {
            Received::Delivered(run) => {
                self.runs -= 1;
                self.messages -= u64::from(run.count());
                self.window.consumed(run.byte_count() as u64);
            }
            Received::Gap(gap) => {
                self.gaps.remove(gap);
            }
        }
        Some(item)
    }
}
