//! What the connection task is to send next: publishers that have batches, and settlements. Others
//! put in, only the connection task takes out. It knows no socket.

use std::sync::{Mutex, MutexGuard, PoisonError};

use sennit_model::{GroupId, TopicId};
use sennit_protocol::{SettleRun, Verdict};
use tokio::sync::Notify;

use crate::{
    error::Error,
    publisher_core::SharedPublisher,
    settle_queue::{SettleBatch, SettleQueue, SettleWaiter},
};

/// What the connection task is to send next.
#[derive(Default)]
pub(crate) struct Outbox {
    publishers: Mutex<Vec<SharedPublisher>>,
    settles: Mutex<SettleQueue>,
    filled: Notify,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Outbox {
    /// A publisher has batches to send.
    pub(crate) fn publisher_has_batches(&self, publisher: SharedPublisher) {
        lock(&self.publishers).push(publisher);
        self.filled.notify_one();
    }

    /// A consumer has spoken of deliveries.
    pub(crate) fn settle(
        &self,
        topic: TopicId,
        group: GroupId,
        verdict: Verdict,
        run: SettleRun,
        waiter: Option<SettleWaiter>,
    ) {
        if lock(&self.settles).push(topic, group, verdict, run, waiter) {
            self.filled.notify_one();
        }
    }

    /// Moves the publishers that have put themselves in to `list`.
    pub(crate) fn take_publishers(&self, list: &mut Vec<SharedPublisher>) {
        list.append(&mut lock(&self.publishers));
    }

    /// Takes out the settlements that wait.
    pub(crate) fn take_settles(&self) -> Vec<SettleBatch> {
        let mut settles = lock(&self.settles);
        if settles.is_empty() { Vec::new() } else { settles.take() }
    }

    /// Until something was put in since the last call.
    pub(crate) async fn filled(&self) {
        self.filled.notified().await;
    }

    /// Nothing is sent any more.
    pub(crate) fn close(&self, error: &Error) {
        lock(&self.settles).close(error);
        lock(&self.publishers).clear();
    }
}
