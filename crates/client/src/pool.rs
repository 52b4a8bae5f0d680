//! What the readers of one pattern hold untaken, all together. Each has a window, and one message of each
//! partition comes whatever its window: of tens of thousands of topics that is more than any memory. So all of
//! them pause before that. It knows no queue.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes that all readers of a pattern may hold untaken before they pause, and that their windows share, unless
/// told.
pub(crate) const POOL_BYTES: u64 = 256 << 20;

/// The least window that a topic's reader begins with, however many there are.
const WINDOW_BYTES_MIN: u64 = 4 << 10;

/// The most, however few there are.
const WINDOW_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, Default)]
struct State {
    bytes: u64,
    is_paused: bool,
}

/// What is here of all readers of a pattern, and was not taken.
#[derive(Debug)]
pub(crate) struct Pool {
    limit: u64,
    state: Mutex<State>,
}

impl Pool {
    /// One of readers that hold so many bytes.
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, state: Mutex::default() }
    }

    /// The window of each of so many readers.
    pub(crate) fn window_bytes(&self, readers: usize) -> u64 {
        let share = self.limit / (readers as u64).max(1);
        share.clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So much has come; whether all readers are to pause now.
    pub(crate) fn came(&self, bytes: u64) -> bool {
        let mut state = self.state();
        state.bytes += bytes;
        state.bytes > self.limit && !std::mem::replace(&mut state.is_paused, true)
    }

    /// So much was taken, or is gone with its reader.
    pub(crate) fn taken(&self, bytes: u64) {
        self.state().bytes -= bytes;
    }

    /// Whether its readers pause.
    pub(crate) fn is_paused(&self) -> bool {
        self.state().is_paused
    }

    /// Whether they paused and are to go on now: half of it is free.
    pub(crate) fn goes_on(&self) -> bool {
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
        assert!(!pool.came(1000) && !pool.is_paused());
        assert!(pool.came(1) && pool.is_paused());
        assert!(!pool.came(500) && !pool.goes_on());
        pool.taken(1000);
        assert!(!pool.goes_on());
        pool.taken(1);
        assert!(pool.goes_on() && !pool.goes_on() && !pool.is_paused());
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
