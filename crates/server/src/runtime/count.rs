//! A number that one thread writes and any may read, with relaxed stores.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number that one thread writes and any may read.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Relaxed);
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    pub(crate) fn less(&self, fewer: u64) {
        self.0.fetch_sub(fewer, Relaxed);
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
