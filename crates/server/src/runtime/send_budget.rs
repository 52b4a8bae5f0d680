//! The limit on the bytes that wait for all sockets of a core. It knows no connections, and not what the bytes are.

use std::{cell::Cell, rc::Rc};

use sennit_model::limits::{WAITING_CORE_BYTES_LAST, WAITING_CORE_BYTES_MAX};
use tokio::sync::Notify;

/// A limit that was passed counts until so many bytes less wait: who waits for room is not woken for each
/// write.
const SLACK_BYTES: usize = WAITING_CORE_BYTES_MAX / 16;

/// The bytes that wait on all connections of a core.
#[derive(Debug, Default)]
pub(crate) struct SendBudget {
    bytes: Cell<usize>,
    connections: Cell<usize>,
    is_full: Cell<bool>,
    is_closed: Cell<bool>,
    /// Rung when it is not full any more.
    freed: Notify,
    /// Rung when it closes, and when it opens again.
    turned: Notify,
}

impl SendBudget {
    /// Whether more than [`WAITING_CORE_BYTES_MAX`] waits: a connection gets its share, and no more.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.get()
    }

    /// Whether more than [`WAITING_CORE_BYTES_LAST`] waits: no connection is given a delivery.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.get()
    }

    /// How many bytes may wait for each connection while it is full.
    pub(crate) fn share(&self) -> usize {
        WAITING_CORE_BYTES_MAX / self.connections.get().max(1)
    }

    /// Waits until it is not full any more. It is heard from when this is called, not from when it is polled.
    pub(crate) fn is_freed(&self) -> impl Future<Output = ()> {
        self.freed.notified()
    }

    /// Waits until [`Self::is_closed`] changes, in the same way.
    pub(crate) fn turns(&self) -> impl Future<Output = ()> {
        self.turned.notified()
    }

    /// The account of one more connection, for which nothing waits yet.
    pub(crate) fn account(self: &Rc<Self>) -> SendAccount {
        self.connections.set(self.connections.get() + 1);
        SendAccount { room: self.clone(), bytes: Cell::new(0) }
    }

    fn set(&self, bytes: usize) {
        self.bytes.set(bytes);
        let passes =
            |limit: usize, before: bool| bytes > if before { limit - SLACK_BYTES } else { limit };
        let is_full = passes(WAITING_CORE_BYTES_MAX, self.is_full.get());
        if self.is_full.replace(is_full) && !is_full {
            self.freed.notify_waiters();
        }
        let is_closed = passes(WAITING_CORE_BYTES_LAST, self.is_closed.get());
        if self.is_closed.replace(is_closed) != is_closed {
            self.turned.notify_waiters();
        }
    }
}

/// The bytes that wait for one connection; none once this is dropped.
#[derive(Debug)]
pub(crate) struct SendAccount {
    pub(crate) room: Rc<SendBudget>,
    bytes: Cell<usize>,
}

impl SendAccount {
    /// So many wait now.
    pub(crate) fn set(&self, bytes: usize) {
        let before = self.bytes.replace(bytes);
        if before != bytes {
            self.room.set(self.room.bytes.get() - before + bytes);
        }
    }

    /// So many wait.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.get()
    }
}

impl Drop for SendAccount {
    fn drop(&mut self) {
        self.set(0);
        self.room.connections.set(self.room.connections.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_was_passed_counts_until_somewhat_less_waits() {
        let room = Rc::<SendBudget>::default();
        let (one, other) = (room.account(), room.account());
        let states = |bytes: usize| {
            one.set(bytes);
            (room.is_full(), room.is_closed())
        };
        other.set(SLACK_BYTES);
        assert_eq!(states(WAITING_CORE_BYTES_MAX - SLACK_BYTES), (false, false));
        assert_eq!(states(WAITING_CORE_BYTES_MAX - SLACK_BYTES + 1), (true, false));
        assert_eq!(states(WAITING_CORE_BYTES_MAX - 2 * SLACK_BYTES + 1), (true, false));
        assert_eq!(states(WAITING_CORE_BYTES_MAX - 2 * SLACK_BYTES), (false, false));
        assert_eq!(states(WAITING_CORE_BYTES_LAST), (true, true));
        assert_eq!(states(WAITING_CORE_BYTES_LAST - 2 * SLACK_BYTES), (true, false));
        assert_eq!(room.share(), WAITING_CORE_BYTES_MAX / 2);
        drop((one, other));
        assert_eq!((room.bytes.get(), room.connections.get()), (0, 0));
        assert!(!room.is_full());
    }
}
