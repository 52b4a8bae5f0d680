//! Deliveries that have come and were not taken yet. Credit bounds it; a consumer that does not
//! take anything for longer than its leases loses the oldest, which are not its own any more.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use crate::{delivery::DeliveryRun, error::Error};

#[derive(Default)]
struct State {
    runs: VecDeque<DeliveryRun>,
    messages: u64,
    bytes: u64,
    credit_messages: u64,
    credit_bytes: u64,
    faults: VecDeque<Error>,
    ended: bool,
}

/// Deliveries of one subscription that were not taken yet.
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
    }

    /// Adds what has come. Twice the credit may be here, because after a lost connection the old
    /// deliveries are good beside the new ones for a while.
    pub(crate) fn push(&self, run: DeliveryRun) {
        let mut state = self.state();
        state.messages += u64::from(run.count());
        state.bytes += run.byte_count() as u64;
        state.runs.push_back(run);
        while state.runs.len() > 2
            && (state.messages > 2 * state.credit_messages || state.bytes > 2 * state.credit_bytes)
        {
            state.pop();
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

    /// The next run; `None` once the subscription has ended and all was taken. Only one may wait.
    pub(crate) async fn next(&self) -> Option<Result<DeliveryRun, Error>> {
        loop {
            {
                let mut state = self.state();
                if let Some(run) = state.pop() {
                    return Some(Ok(run));
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
    fn pop(&mut self) -> Option<DeliveryRun> {
        let run = self.runs.pop_front()?;
        self.messages -= u64::from(run.count());
        self.bytes -= run.byte_count() as u64;
        Some(run)
    }
}
