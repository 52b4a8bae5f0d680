//! The byte limit that all readers of one pattern share. Each reader has a window and receives at least one message
//! of each partition; with tens of thousands of topics that exceeds any memory. So all readers pause at this limit.
//! It knows no queue.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Default for the bytes that all readers of a pattern hold before they pause; their windows are
/// shares of it.
pub(crate) const POOL_BYTES: u64 = 256 << 20;

/// The smallest initial window of a topic's reader, for many readers.
const WINDOW_BYTES_MIN: u64 = 4 << 10;

/// The largest initial window, for few readers.
const WINDOW_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, Default)]
struct State {
    bytes: u64,
    is_paused: bool,
}

/// The bytes that all readers of a pattern have received and their program has not taken.
#[derive(Debug)]
pub(crate) struct Pool {
    limit: u64,
    state: Mutex<State>,
}

impl Pool {
    /// A pool for readers that hold up to `limit` bytes.
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, state: Mutex::default() }
    }

    /// The window of each reader, for this number of readers.
    pub(crate) fn window_bytes(&self, readers: usize) -> u64 {
        let share = self.limit / (readers as u64).max(1);
        share.clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts received bytes. Returns whether all readers have to pause now.
    pub(crate) fn received(&self, bytes: u64) -> bool {
        let mut state = self.state();
        state.bytes += bytes;
        state.bytes > self.limit && !std::mem::replace(&mut state.is_paused, true)
    }

    /// Counts bytes that the program took, or that were dropped with their reader.
    pub(crate) fn consumed(&self, bytes: u64) {
        self.state().bytes -= bytes;
    }

    /// Returns whether the readers are paused.
    pub(crate) fn is_paused(&self) -> bool {
        self.state().is_paused
    }

    /// Returns whether the readers were paused and have to resume now, because half of the pool is
    /// free.
    pub(crate) fn take_resume(&self) -> bool {
        let mut state = self.state();
        state.bytes <= self.limit / 2 && std::mem::take(&mut state.is_paused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_pause_once_and_go_on_once_half_of_it_is_taken() {
        let pool = Pool::new(1000);
        assert!(!pool.received(1000) && !pool.is_paused());
        assert!(pool.received(1) && pool.is_paused());
        assert!(!pool.received(500) && !pool.take_resume());
        pool.consumed(1000);
        assert!(!pool.take_resume());
        pool.consumed(1);
        assert!(pool.take_resume() && !pool.take_resume() && !pool.is_paused());
    }

    #[test]
    fn windows_are_a_share_of_the_pool_within_bounds() {
        let pool = Pool::new(POOL_BYTES);
        for (readers, bytes) in
            [(0, 1 << 20), (256, 1 << 20), (1024, 256 << 10), (65_536, 4 << 10), (1 << 20, 4 << 10)]
        {
            assert_eq!(pool.window_bytes(readers), bytes, "{readers}");
        }
    }
}
