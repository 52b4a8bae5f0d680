//! The TLS of the ports: the settings under which new connections shake hands, which a reload replaces, and how many
//! handshakes may be under way. It knows no connections.

use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use sennit_tls::ServerConfig;
use tokio::sync::Semaphore;

/// Handshakes that are under way at once, of all ports and cores. Further connections wait until one has ended, and
/// not beyond the time that a handshake has.
pub(crate) const HANDSHAKES_MAX: usize = 1024;

/// Seconds in which one event of a kind is logged.
const LOG_EVERY_SECONDS: u64 = 5;

/// What all handshakes of a broker share.
#[derive(Debug)]
pub(crate) struct Handshakes {
    /// Places for those that are under way.
    pub(super) places: Semaphore,
    /// How often failures are logged.
    pub(super) failures: LogRate,
}

impl Handshakes {
    pub(crate) fn new() -> Self {
        Self { places: Semaphore::new(HANDSHAKES_MAX), failures: LogRate::new() }
    }
}

/// Lets one event in a while be logged, which says how many were not.
#[derive(Debug)]
pub(crate) struct LogRate {
    /// The second of the last one that was logged.
    logged_at: AtomicU64,
    unlogged: AtomicU64,
}

impl LogRate {
    pub(crate) const fn new() -> Self {
        Self { logged_at: AtomicU64::new(0), unlogged: AtomicU64::new(0) }
    }

    /// How many were not logged before this one, if it may be logged in this second.
    pub(crate) fn may_log(&self, second: u64) -> Option<u64> {
        let last = self.logged_at.load(Relaxed);
        let is_due = second >= last.saturating_add(LOG_EVERY_SECONDS)
            && self.logged_at.compare_exchange(last, second, Relaxed, Relaxed).is_ok();
        if !is_due {
            self.unlogged.fetch_add(1, Relaxed);
            return None;
        }
        Some(self.unlogged.swap(0, Relaxed))
    }
}

/// The handshake that a connection begins with.
#[derive(Debug)]
pub(crate) struct HandshakeDue {
    pub(super) settings: Arc<ServerConfig>,
    pub(super) handshakes: Arc<Handshakes>,
}

/// The TLS of one port. Lives on the thread that accepts.
#[derive(Debug)]
pub(crate) struct TlsPort {
    due: RefCell<Arc<HandshakeDue>>,
}

impl TlsPort {
    pub(crate) fn new(settings: Arc<ServerConfig>, handshakes: Arc<Handshakes>) -> Self {
        Self { due: RefCell::new(Arc::new(HandshakeDue { settings, handshakes })) }
    }

    /// New connections shake hands under these settings; those that are there keep theirs.
    pub(crate) fn set(&self, settings: Arc<ServerConfig>) {
        let handshakes = self.due.borrow().handshakes.clone();
        self.due.replace(Arc::new(HandshakeDue { settings, handshakes }));
    }

    /// The handshake of a connection that comes now.
    pub(crate) fn due(&self) -> Arc<HandshakeDue> {
        self.due.borrow().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_failures_one_is_logged_in_a_while_and_says_how_many_were_not() {
        let rate = LogRate::new();
        assert_eq!(rate.may_log(100), Some(0));
        for second in 100..105 {
            assert_eq!(rate.may_log(second), None);
        }
        assert_eq!(rate.may_log(105), Some(5));
        assert_eq!(rate.may_log(106), None);
    }
}
