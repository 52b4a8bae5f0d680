//! What has come for a reader and was not taken yet, in order. Its window bounds it: twice over, for
//! what a lost connection has brought stays good.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use crate::{error::Error, gap::Received, read_run::ReadRun};

/// What came, and on which of the client's connections.
pub(crate) type Item = (u64, Received<ReadRun>);

#[derive(Default)]
struct State {
    items: VecDeque<Item>,
    fault: Option<Error>,
    ended: bool,
}

/// What has come for one reader and was not taken yet.
#[derive(Default)]
pub(crate) struct ReaderQueue {
    state: Mutex<State>,
    changed: Notify,
}

impl ReaderQueue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, item: Item) {
        self.state().items.push_back(item);
        self.changed.notify_one();
    }

    /// Nothing more will come, for this reason if there is one that the program does not know.
    pub(crate) fn end(&self, fault: Option<Error>) {
        let mut state = self.state();
        state.ended = true;
        state.fault = fault;
        drop(state);
        self.changed.notify_one();
    }

    /// Whether nothing more will come.
    pub(crate) fn has_ended(&self) -> bool {
        self.state().ended
    }

    /// What comes next; `None` once the subscription has ended and all was taken. Only one may
    /// wait.
    pub(crate) async fn next(&self) -> Option<Result<Item, Error>> {
        loop {
            {
                let mut state = self.state();
                if let Some(item) = state.items.pop_front() {
                    return Some(Ok(item));
                }
                if let Some(error) = state.fault.take() {
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
