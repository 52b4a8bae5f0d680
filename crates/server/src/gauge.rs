//! How many published bytes of a shard wait for their commit. Above the high mark publishers are
//! not read until it has fallen below the low one; nobody else is held up.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::sync::Notify;

/// One shard's account of published bytes.
#[derive(Debug)]
pub(crate) struct IngestGauge {
    bytes: AtomicU64,
    high: u64,
    below: Notify,
}

impl IngestGauge {
    pub(crate) fn new(high: u64) -> Self {
        Self { bytes: AtomicU64::new(0), high, below: Notify::new() }
    }

    /// Bytes that wait now.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Says how many bytes wait now.
    pub(crate) fn set(&self, bytes: u64) {
        let before = self.bytes.swap(bytes, Relaxed);
        let low = self.high / 2;
        if before > low && bytes <= low {
            self.below.notify_waiters();
        }
    }

    /// Waits while too many bytes wait.
    pub(crate) async fn has_room(&self) {
        loop {
            let below = self.below.notified();
            if self.bytes() <= self.high {
                return;
            }
            below.await;
        }
    }
}
