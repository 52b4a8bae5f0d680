//! What has come for a consumer and was not taken yet: deliveries, and the gaps between them. Credit
//! bounds the deliveries; a consumer that does not take anything for longer than its leases loses the
//! oldest, which are not its own any more. Gaps are kept, each once.

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
    untaken::Untaken,
};

#[derive(Default)]
struct State {
    items: VecDeque<Received<DeliveryRun>>,
    runs: usize,
    messages: u64,
    untaken: Untaken,
    /// The gaps that wait: one that is told again, on another connection, waits once.
    gaps: HashSet<Gap>,
    credit_messages: u64,
    credit_bytes: u64,
    /// Of the topic, 0 until the broker has said it.
    partitions: u64,
    faults: VecDeque<Error>,
    ended: bool,
}

/// What has come for one subscription and was not taken yet.
#[derive(Default)]
pub(crate) struct DeliveryQueue {
    state: Mutex<State>,
    changed: Notify,
}

impl DeliveryQueue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A window that is in force now. The largest there was bounds what is kept here: a smaller one
    /// takes nothing back.
    pub(crate) fn set_credit(&self, messages: u32, bytes: u64) {
        let mut state = self.state();
        state.credit_messages = state.credit_messages.max(messages.into());
        state.credit_bytes = state.credit_bytes.max(bytes);
        state.begins();
    }

    /// It begins, and the topic has so many partitions: each gives at least one message, however small its
    /// share of the window is.
    pub(crate) fn set_partitions(&self, partitions: u32) {
        let mut state = self.state();
        state.partitions = partitions.into();
        state.begins();
    }

    /// Whether the broker was told to pause, and is to be told to go on.
    pub(crate) fn goes_on(&self) -> bool {
        self.state().untaken.goes_on()
    }

    /// Adds what has come; whether the broker is to pause. Twice what it sends may be here, because after a
    /// lost connection the old deliveries are good beside the new ones for a while.
    pub(crate) fn push(&self, run: DeliveryRun) -> bool {
        let mut state = self.state();
        state.runs += 1;
        state.messages += u64::from(run.count());
        let pauses = state.untaken.came(run.byte_count() as u64);
        state.items.push_back(Received::Delivered(run));
        let messages_max = 2 * state.credit_messages.max(state.partitions);
        // The last message of each partition may lie across the end of its share.
        let bytes_max = 2 * (state.credit_bytes + state.partitions * MESSAGE_BYTES_MAX as u64);
        while state.runs > 2 && (state.messages > messages_max || state.untaken.bytes() > bytes_max)
        {
            let is_run = |item: &Received<_>| matches!(item, Received::Delivered(_));
            let oldest = state.items.iter().position(is_run).expect("runs are counted");
            state.take(oldest);
        }
        drop(state);
        self.changed.notify_one();
        pauses
    }

    /// Messages do not come.
    pub(crate) fn gap(&self, gap: Gap) {
        let mut state = self.state();
        if state.gaps.insert(gap) {
            state.items.push_back(Received::Gap(gap));
        }
        drop(state);
        self.changed.notify_one();
    }

    /// A delivery could not be read, or the subscription has ended for this reason.
    pub(crate) fn fault(&self, error: Error) {
        self.state().faults.push_back(error);
        self.changed.notify_one();
    }

    /// Nothing more will come.
    pub(crate) fn end(&self) {
        self.state().ended = true;
        self.changed.notify_one();
    }

    /// The next run or gap; `None` once the subscription has ended and all was taken. Only one may
    /// wait.
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
    fn begins(&mut self) {
        self.untaken.begins(self.credit_bytes);
    }

    fn take(&mut self, index: usize) -> Option<Received<DeliveryRun>> {
        let item = self.items.remove(index)?;
        match &item {
            Received::Delivered(run) => {
                self.runs -= 1;
                self.messages -= u64::from(run.count());
                self.untaken.taken(run.byte_count() as u64);
            }
            Received::Gap(gap) => {
                self.gaps.remove(gap);
            }
        }
        Some(item)
    }
}
