//! Which of many queues have something, for the one who takes from all of them: each once, in the order
//! in which they rang. There are as many as there are queues.

use std::{
    collections::{HashSet, VecDeque},
    sync::{Mutex, PoisonError},
};

use tokio::sync::Notify;

#[derive(Default)]
struct Rung {
    order: VecDeque<u32>,
    waiting: HashSet<u32>,
}

/// Rung by queues that have something.
#[derive(Default)]
pub(crate) struct Bell {
    rung: Mutex<Rung>,
    changed: Notify,
}

impl Bell {
    /// The queue of this number has something, or has ended.
    pub(crate) fn ring(&self, number: u32) {
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        if rung.waiting.insert(number) {
            rung.order.push_back(number);
        }
        drop(rung);
        self.changed.notify_one();
    }

    /// The one that has waited longest.
    pub(crate) fn answer(&self) -> Option<u32> {
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let number = rung.order.pop_front()?;
        rung.waiting.remove(&number);
        Some(number)
    }

    /// Waits until one rings, or has rung since this was called last. Only one may wait.
    pub(crate) async fn rung(&self) {
        self.changed.notified().await;
    }
}
