//! How many published bytes of a shard wait for their commit, those on their way to it included.
//! Above the high mark publishers are not read until it has fallen below the low one; who does not
//! publish is not held up.

use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use tokio::sync::Notify;

/// One shard's account of published bytes.
#[derive(Debug)]
pub(crate) struct IngestGauge {
    /// Appended, and not committed.
    appended: AtomicU64,
    /// Sent by other cores, and not arrived.
    travelling: AtomicU64,
    high: u64,
    /// Whether somebody waits.
    is_waited_for: AtomicBool,
    below: Notify,
}

impl IngestGauge {
    pub(crate) fn new(high: u64) -> Self {
        Self {
            appended: AtomicU64::new(0),
            travelling: AtomicU64::new(0),
            high,
            is_waited_for: AtomicBool::new(false),
            below: Notify::new(),
        }
    }

    /// Bytes that wait now.
    pub(crate) fn bytes(&self) -> u64 {
        self.appended.load(Relaxed) + self.travelling.load(Relaxed)
    }

    /// Another core has sent so many bytes.
    pub(crate) fn sent(&self, bytes: u64) {
        self.travelling.fetch_add(bytes, Relaxed);
    }

    /// So many bytes have arrived from another core.
    pub(crate) fn arrived(&self, bytes: u64) {
        self.travelling.fetch_sub(bytes, Relaxed);
    }

    /// Says how many bytes are appended and not committed; wakes who waits below the low mark.
    pub(crate) fn set(&self, bytes: u64) {
        self.appended.store(bytes, SeqCst);
        if self.is_waited_for.load(SeqCst) && self.bytes() <= self.high / 2 {
            self.is_waited_for.store(false, Relaxed);
            self.below.notify_waiters();
        }
    }

    /// Waits while too many bytes wait.
    pub(crate) async fn has_room(&self) {
        loop {
            if self.bytes() <= self.high {
                return;
            }
            let below = self.below.notified();
            // Said before the last look: either that look sees the fall, or the fall sees this.
            self.is_waited_for.store(true, SeqCst);
            if self.appended.load(SeqCst) + self.travelling.load(SeqCst) <= self.high {
                return;
            }
            below.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use super::*;

    fn is_ready(future: impl Future<Output = ()>) -> bool {
        pin!(future).poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
    }

    #[test]
    fn bytes_on_their_way_count_like_bytes_that_have_arrived() {
        let gauge = IngestGauge::new(100);
        gauge.set(60);
        assert!(is_ready(gauge.has_room()));
        gauge.sent(50);
        assert!(!is_ready(gauge.has_room()));
        gauge.arrived(50);
        assert!(is_ready(gauge.has_room()));
    }

    #[test]
    fn who_waits_goes_on_below_the_low_mark_and_not_before() {
        let gauge = IngestGauge::new(100);
        gauge.set(101);
        let mut waiting = pin!(gauge.has_room());
        let mut context = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        gauge.set(51);
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        gauge.set(50);
        assert!(waiting.as_mut().poll(&mut context).is_ready());
    }
}
