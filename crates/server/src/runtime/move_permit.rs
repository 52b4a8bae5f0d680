//! Permits one shard at a time to copy batches into packs. A copy holds as much memory as a segment, and this way
//! it is paid for once. It knows nothing of the batches.

use std::sync::{Mutex, PoisonError};

/// What all move threads share.
#[derive(Debug)]
pub(crate) struct MovePermit {
    taken: Mutex<()>,
    give_back: fn(),
}

impl MovePermit {
    /// `give_back` gives free memory back to the system.
    pub(crate) fn new(give_back: fn()) -> Self {
        Self { taken: Mutex::new(()), give_back }
    }

    /// Waits for the turn, does `copy`, and gives back what that had.
    pub(crate) fn with<T>(&self, copy: impl FnOnce() -> T) -> T {
        let _held = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let copied = copy();
        (self.give_back)();
        copied
    }
}
