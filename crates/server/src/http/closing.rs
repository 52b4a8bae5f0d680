//! The closing of a thread's connections: those at rest end at once, those with requests under way when these are
//! answered. It knows no connections.

use std::cell::Cell;

use tokio::sync::Notify;

/// Whether connections are to end.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    has_begun: Cell<bool>,
    notify: Notify,
}

impl Closing {
    /// From now on they are to end.
    pub(crate) fn begin(&self) {
        self.has_begun.set(true);
        self.notify.notify_waiters();
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun.get()
    }

    /// Waits until they are to end.
    pub(crate) async fn begun(&self) {
        // Nobody else runs between the look and the wait: they are of one thread.
        if !self.has_begun.get() {
            self.notify.notified().await;
        }
    }
}
