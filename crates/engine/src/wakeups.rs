//! Wakeups: selects the waiters of a partition for a pass. It selects all of them once the visible end has moved,
//! else those that may receive something anyway. Waiters are readers, and reads of streams. It does not know what
//! they receive.

/// The wakeups of one kind of waiters of a partition.
#[derive(Debug, Default)]
pub(crate) struct Wakeups<K> {
    /// The visible end when a pass looked at all waiters last. `None` has the next pass look at all.
    served_to: Option<u64>,
    /// Waiters that the next pass looks at even if the end has not moved. Some may have left.
    awake: Vec<K>,
}

/// The waiters that a pass looks at.
pub(crate) enum Woken<K> {
    All,
    These(Vec<K>),
}

impl<K: Ord> Wakeups<K> {
    /// Wakes a waiter that is new, that has room again, or that waits for a batch to be fetched.
    pub(crate) fn wake(&mut self, waiter: K) {
        self.awake.push(waiter);
    }

    /// Wakes all waiters, though nothing was appended.
    pub(crate) fn wake_all(&mut self) {
        self.served_to = None;
    }

    /// Takes the waiters that a pass looks at, each once. `visible` is the visible end.
    pub(crate) fn take(&mut self, visible: u64) -> Option<Woken<K>> {
        let mut awake = std::mem::take(&mut self.awake);
        if self.served_to.replace(visible) != Some(visible) {
            return Some(Woken::All);
        }
        awake.sort_unstable();
        awake.dedup();
        (!awake.is_empty()).then_some(Woken::These(awake))
    }
}
