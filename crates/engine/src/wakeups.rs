//! Who of those that wait for messages of a partition is to be looked at: all of them once the visible end has
//! moved, else those that may get something all the same. Readers and reads of streams alike. It does not know
//! what they get.

/// Which waiters of a partition are awake.
#[derive(Debug, Default)]
pub(crate) struct Wakeups<K> {
    /// Where the visible end was when all were looked at last; none, and all are to be.
    served_to: Option<u64>,
    /// Those to be looked at though the end is where it was. Some may wait no more.
    awake: Vec<K>,
}

/// The waiters to be looked at.
pub(crate) enum Woken<K> {
    All,
    These(Vec<K>),
}

impl<K: Ord> Wakeups<K> {
    /// Has one be looked at: it is new, has room again, or waits for a batch that is fetched.
    pub(crate) fn wake(&mut self, waiter: K) {
        self.awake.push(waiter);
    }

    /// Has all be looked at, though nothing was appended.
    pub(crate) fn wake_all(&mut self) {
        self.served_to = None;
    }

    /// Takes those that are to be looked at now that the visible end is there, each once.
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
