//! How much of what has come for a subscription its program has not taken, of all partitions together. The
//! broker shares a window out among the partitions, and lets one message of each through whatever its
//! share: where they are long and partitions are many that is more than the window, by gigabytes. So
//! the client pauses a subscription before that. It knows no queue.

use sennit_model::limits::MESSAGE_BYTES_MAX;

/// What may be here beyond the window before the broker is told to pause: as much as one partition
/// may bring. What is on its way by then comes too.
const BEYOND_WINDOW_BYTES_MAX: u64 = MESSAGE_BYTES_MAX as u64;

/// What is here and was not taken.
#[derive(Debug, Default)]
pub(crate) struct Untaken {
    bytes: u64,
    window_bytes: u64,
    is_paused: bool,
}

impl Untaken {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether it pauses.
    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// The broker goes by this window from now on.
    pub(crate) fn begins(&mut self, window_bytes: u64) {
        (self.window_bytes, self.is_paused) = (window_bytes, false);
    }

    /// So much has come; whether it is to be paused now.
    pub(crate) fn came(&mut self, bytes: u64) -> bool {
        self.bytes += bytes;
        let is_much = self.bytes > self.window_bytes.saturating_add(BEYOND_WINDOW_BYTES_MAX);
        is_much && !std::mem::replace(&mut self.is_paused, true)
    }

    /// So much was taken.
    pub(crate) fn taken(&mut self, bytes: u64) {
        self.bytes -= bytes;
    }

    /// Whether it was paused and is to go on now: half a window is free.
    pub(crate) fn goes_on(&mut self) -> bool {
        self.bytes <= self.window_bytes / 2 && std::mem::take(&mut self.is_paused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_the_window_pauses_once_and_goes_on_once_half_of_it_is_free() {
        let mut untaken = Untaken::default();
        untaken.begins(1000);
        assert!(!untaken.came(1000 + BEYOND_WINDOW_BYTES_MAX) && !untaken.goes_on());
        assert!(untaken.came(1) && !untaken.came(1));
        untaken.taken(BEYOND_WINDOW_BYTES_MAX + 501);
        assert!(!untaken.goes_on());
        untaken.taken(1);
        assert!(untaken.goes_on() && !untaken.goes_on());
    }

    #[test]
    fn a_window_that_begins_anew_is_paused_anew() {
        let mut untaken = Untaken::default();
        untaken.begins(1000);
        assert!(untaken.came(1001 + BEYOND_WINDOW_BYTES_MAX));
        untaken.begins(1000);
        assert!(untaken.came(1));
    }
}
