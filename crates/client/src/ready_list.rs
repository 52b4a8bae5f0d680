//! The ready list: numbers of the queues that have items, for one consumer of many queues. Each number is listed
//! once, in the order of notification, so the list never has more entries than there are queues.

use std::{
    collections::{HashSet, VecDeque},
    sync::{Mutex, PoisonError},
};

use tokio::sync::Notify;

#[derive(Default)]
struct Queued {
    order: VecDeque<u32>,
    waiting: HashSet<u32>,
}

/// The numbers of the queues that have items.
#[derive(Default)]
pub(crate) struct ReadyList {
    queued: Mutex<Queued>,
    changed: Notify,
}

impl ReadyList {
    /// Lists a queue that has an item or has ended.
    pub(crate) fn notify(&self, number: u32) {
        let mut queued = self.queued.lock().unwrap_or_else(PoisonError::into_inner);
        if queued.waiting.insert(number) {
            queued.order.push_back(number);
        }
        drop(queued);
        self.changed.notify_one();
    }

    /// Removes the number that was listed first.
    pub(crate) fn pop(&self) -> Option<u32> {
        let mut queued = self.queued.lock().unwrap_or_else(PoisonError::into_inner);
        let number = queued.order.pop_front()?;
        queued.waiting.remove(&number);
        Some(number)
    }

    /// Waits for a notification since the last call. Only one task may wait.
    pub(crate) async fn notified(&self) {
        self.changed.notified().await;
    }
}
