//! How far producers may be ahead of the slowest subscriber. A flood without such a bound would measure how much a
//! broker holds, or loses.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Result, ensure};
use tokio::sync::Notify;

use crate::clock::now_ns;

/// The bound, and the counts that it compares.
#[derive(Debug)]
pub struct Lag {
    most: u64,
    published: AtomicU64,
    /// The messages of the slowest subscriber of each thread.
    slowest: Vec<AtomicU64>,
    /// Whether a thread has ended, so that nothing more is received.
    is_over: AtomicBool,
    changed: Notify,
}

impl Lag {
    /// A bound of `most` messages, with `threads` threads of subscribers.
    #[must_use]
    pub fn new(most: Option<u64>, threads: u32) -> Self {
        Self {
            most: most.unwrap_or(u64::MAX),
            published: AtomicU64::new(0),
            slowest: (0..threads).map(|_| AtomicU64::new(0)).collect(),
            is_over: AtomicBool::new(false),
            changed: Notify::new(),
        }
    }

    /// The messages of the slowest subscriber of all.
    #[must_use]
    pub fn slowest(&self) -> u64 {
        let all = self.slowest.iter().map(|received| received.load(Ordering::Acquire));
        all.min().unwrap_or_default()
    }

    /// Notes the messages of the slowest subscriber of a thread.
    pub fn note_slowest(&self, thread: usize, received: u64) {
        if self.slowest[thread].swap(received, Ordering::AcqRel) != received {
            self.changed.notify_waiters();
        }
    }

    /// Notes that subscribers have ended.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// Whether subscribers have ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Waits until `count` more messages may be published. Returns false if that is after `until_ns`.
    ///
    /// # Errors
    /// Subscribers have ended.
    pub async fn allows(&self, count: u64, until_ns: u64) -> Result<bool> {
        let published = self.published.fetch_add(count, Ordering::AcqRel) + count;
        loop {
            let changed = self.changed.notified();
            ensure!(!self.is_over(), "a subscriber has ended");
            if published <= self.slowest().saturating_add(self.most) {
                return Ok(now_ns() < until_ns);
            }
            if now_ns() >= until_ns {
                return Ok(false);
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::{Pin, pin},
        task::{Context, Poll, Waker},
    };

    use super::*;

    /// The outcome, if there is one already.
    fn outcome(future: Pin<&mut impl Future<Output = Result<bool>>>) -> Option<Result<bool>> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        }
    }

    #[test]
    fn producers_wait_for_the_slowest_of_all_subscribers() {
        let lag = Lag::new(Some(100), 2);
        assert!(outcome(pin!(lag.allows(100, u64::MAX))).unwrap().unwrap());
        let mut waits = pin!(lag.allows(10, u64::MAX));
        assert!(outcome(waits.as_mut()).is_none());
        lag.note_slowest(0, 50);
        assert!(outcome(waits.as_mut()).is_none(), "the other thread has received nothing");
        lag.note_slowest(1, 10);
        assert!(outcome(waits).unwrap().unwrap());
        assert!(!outcome(pin!(lag.allows(1000, now_ns()))).unwrap().unwrap(), "the time is over");
        lag.end();
        assert!(outcome(pin!(lag.allows(1, u64::MAX))).unwrap().is_err());
    }
}
