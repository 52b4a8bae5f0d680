//! The heir of a leader that hands over, while it does not have the whole log or that is not committed.

/// The heir.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heir {
    pub(crate) replica: u64,
    /// Ticks after which the leader leads on.
    pub(crate) ticks_left: usize,
}
