//! A moment on both clocks of a node.

use sennit_model::Timestamp;

/// A moment. Records and timers know the time of day, which may jump; leases and elections know a clock that only goes
/// forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The time of day.
    pub time: Timestamp,
    /// Nanoseconds on a clock that only goes forward.
    pub monotonic_ns: u64,
}
