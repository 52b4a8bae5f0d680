//! The published bytes of a shard that wait for their commit or are on their way to it. Above the high mark
//! publishers are not read until the gauge has fallen below the low mark; connections that do not publish are not
//! affected.

use std::{
    sync::atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
    time::Duration,
};

use tokio::sync::Notify;

/// Bytes of appends over HTTP that wait for room in one shard.
pub(crate) const APPENDS_WAITING_BYTES_MAX: u64 = 64 << 20;

/// Why somebody who would publish is to come again later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoRoom {
    /// Others who wait hold as much as may wait.
    #[error(
        "APPENDS_WAITING_BYTES_MAX is {APPENDS_WAITING_BYTES_MAX}: the disk is slower than what is appended"
    )]
    TooMany,
    /// The disk takes longer than anybody waits.
    #[error("the disk is slower than what is appended")]
    TooLong,
}

/// Somebody who waits for room, with so many bytes.
struct Waits<'a> {
    gauge: &'a PublishGauge,
    bytes: u64,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.gauge.waiting.fetch_sub(self.bytes, Relaxed);
    }
}

/// One shard's account of published bytes.
#[derive(Debug)]
pub(crate) struct PublishGauge {
    /// Appended, and not committed.
    appended: AtomicU64,
    /// Sent by a core, and not arrived.
    travelling: AtomicU64,
    /// Of those who wait for room.
    waiting: AtomicU64,
    high: AtomicU64,
    /// Whether somebody waits.
    is_waited_for: AtomicBool,
    below: Notify,
}

impl PublishGauge {
    pub(crate) fn new(high: u64) -> Self {
        Self {
            appended: AtomicU64::new(0),
            travelling: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            high: AtomicU64::new(high),
            is_waited_for: AtomicBool::new(false),
            below: Notify::new(),
        }
    }

    fn high(&self) -> u64 {
        self.high.load(Relaxed)
    }

    /// Sets the high mark; who waits looks again.
    pub(crate) fn set_high(&self, high: u64) {
        self.high.store(high, Relaxed);
        self.below.notify_waiters();
    }

    /// Bytes that wait now.
    pub(crate) fn bytes(&self) -> u64 {
        self.appended.load(Relaxed) + self.travelling.load(Relaxed)
    }

    /// So many bytes are on their way, from this core or another.
    pub(crate) fn sent(&self, bytes: u64) {
        self.travelling.fetch_add(bytes, Relaxed);
    }

    /// So many bytes have arrived.
    pub(crate) fn arrived(&self, bytes: u64) {
        self.travelling.fetch_sub(bytes, Relaxed);
    }

    /// Says how many bytes are appended and not committed; wakes who waits below the low mark.
    pub(crate) fn set(&self, bytes: u64) {
        self.appended.store(bytes, SeqCst);
        if self.is_waited_for.load(SeqCst) && self.bytes() <= self.high() / 2 {
            self.is_waited_for.store(false, Relaxed);
            self.below.notify_waiters();
        }
    }

    /// Waits until `bytes` more may be published, for a while.
    ///
    /// # Errors
    /// Nothing has been committed for that long, or others who wait hold too much already.
    pub(crate) async fn room_for(&self, bytes: u64, patience: Duration) -> Result<(), NoRoom> {
        if self.bytes() <= self.high() {
            return Ok(());
        }
        let waits = Waits { gauge: self, bytes };
        let all = self.waiting.fetch_add(bytes, Relaxed) + bytes;
        if all > APPENDS_WAITING_BYTES_MAX {
            return Err(NoRoom::TooMany);
        }
        let room = Box::pin(tokio::time::timeout(patience, self.wait_for_room())).await;
        drop(waits);
        room.map_err(|_| NoRoom::TooLong)
    }

    /// Waits while too many bytes wait.
    pub(crate) async fn wait_for_room(&self) {
        loop {
            if self.bytes() <= self.high() {
                return;
            }
            let below = self.below.notified();
            // Said before the last look: either that look sees the fall, or the fall sees this.
            self.is_waited_for.store(true, SeqCst);
            if self.appended.load(SeqCst) + self.travelling.load(SeqCst) <= self.high() {
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
        let gauge = PublishGauge::new(100);
        gauge.set(60);
        assert!(is_ready(gauge.wait_for_room()));
        gauge.sent(50);
        assert!(!is_ready(gauge.wait_for_room()));
        gauge.arrived(50);
        assert!(is_ready(gauge.wait_for_room()));
    }

    #[test]
    fn who_waits_goes_on_below_the_low_mark_and_not_before() {
        let gauge = PublishGauge::new(100);
        gauge.set(101);
        let mut waiting = pin!(gauge.wait_for_room());
        let mut context = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        gauge.set(51);
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        gauge.set(50);
        assert!(waiting.as_mut().poll(&mut context).is_ready());
    }

    #[test]
    fn who_waits_goes_on_when_the_high_mark_rises() {
        let gauge = PublishGauge::new(100);
        gauge.set(150);
        let mut waiting = pin!(gauge.wait_for_room());
        let mut context = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        gauge.set_high(200);
        assert!(waiting.as_mut().poll(&mut context).is_ready());
        gauge.set_high(100);
        assert!(!is_ready(gauge.wait_for_room()));
    }

    #[tokio::test]
    async fn who_finds_no_room_in_time_is_told_and_holds_nothing_any_more() {
        let gauge = PublishGauge::new(100);
        gauge.set(100);
        assert_eq!(gauge.room_for(7, Duration::ZERO).await, Ok(()));
        gauge.set(101);
        assert_eq!(gauge.room_for(7, Duration::ZERO).await, Err(NoRoom::TooLong));
        assert_eq!(gauge.waiting.load(Relaxed), 0);
    }

    #[tokio::test]
    async fn those_who_wait_hold_no_more_than_may_wait() {
        let gauge = PublishGauge::new(100);
        gauge.set(101);
        let patience = Duration::from_secs(3600);
        let mut first = pin!(gauge.room_for(APPENDS_WAITING_BYTES_MAX, patience));
        let mut context = Context::from_waker(Waker::noop());
        assert!(first.as_mut().poll(&mut context).is_pending());
        assert_eq!(gauge.room_for(1, patience).await, Err(NoRoom::TooMany));
        gauge.set(0);
        assert_eq!(first.await, Ok(()));
        assert_eq!(gauge.waiting.load(Relaxed), 0);
    }
}
