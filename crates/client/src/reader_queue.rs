//! What has come for a reader and was not taken yet, in order. Its window bounds it: twice over, for
//! what a lost connection has brought stays good.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use crate::{bell::Bell, error::Error, gap::Received, read_run::ReadRun};

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
    /// Rung under this number for one who takes from many.
    bell: Option<(Arc<Bell>, u32)>,
}

impl ReaderQueue {
    /// A queue that rings.
    pub(crate) fn ringing(bell: Arc<Bell>, number: u32) -> Self {
        Self { bell: Some((bell, number)), ..Self::default() }
    }

    fn has_changed(&self) {
        self.changed.notify_one();
        if let Some((bell, number)) = &self.bell {
            bell.ring(*number);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, item: Item) {
        self.state().items.push_back(item);
        self.has_changed();
    }

    /// Nothing more will come, for this reason if there is one that the program does not know.
    pub(crate) fn end(&self, fault: Option<Error>) {
        let mut state = self.state();
        state.ended = true;
        state.fault = fault;
        drop(state);
        self.has_changed();
    }

    /// Whether nothing more will come.
    pub(crate) fn has_ended(&self) -> bool {
        self.state().ended
    }

    /// What is here; `None` where nothing is yet, `Some(None)` once nothing will be.
    pub(crate) fn next_now(&self) -> Option<Option<Result<Item, Error>>> {
        let mut state = self.state();
        if let Some(item) = state.items.pop_front() {
            return Some(Some(Ok(item)));
        }
        if let Some(error) = state.fault.take() {
            return Some(Some(Err(error)));
        }
        state.ended.then_some(None)
    }

    /// What comes next; `None` once the subscription has ended and all was taken. Only one may
    /// wait.
    pub(crate) async fn next(&self) -> Option<Result<Item, Error>> {
        loop {
            if let Some(next) = self.next_now() {
                return next;
            }
            self.changed.notified().await;
        }
    }
}
