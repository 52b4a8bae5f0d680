//! The receive window of a subscription: the bytes that have come for all partitions together and that the program
//! has not taken. The broker divides a window among the partitions, and sends at least one message of each. With
//! long messages and many partitions that exceeds the window by gigabytes, so the client pauses the subscription
//! before. It knows no queue.

use sennit_model::limits::MESSAGE_BYTES_MAX;

/// Bytes beyond the window at which the client pauses the subscription: as many as one partition
/// may bring. Frames that are on their way come in addition.
const BEYOND_WINDOW_BYTES_MAX: u64 = MESSAGE_BYTES_MAX as u64;

/// The bytes that have come and were not taken, and their limit.
#[derive(Debug, Default)]
pub(crate) struct ReceiveWindow {
    bytes: u64,
    window_bytes: u64,
    is_paused: bool,
}

impl ReceiveWindow {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns whether the subscription is paused.
    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Sets the window that the broker uses from now on.
    pub(crate) fn restart(&mut self, window_bytes: u64) {
        (self.window_bytes, self.is_paused) = (window_bytes, false);
    }

    /// Counts received bytes. Returns whether the client has to pause the subscription now.
    pub(crate) fn received(&mut self, bytes: u64) -> bool {
        self.bytes += bytes;
        let exceeds = self.bytes > self.window_bytes.saturating_add(BEYOND_WINDOW_BYTES_MAX);
        exceeds && !std::mem::replace(&mut self.is_paused, true)
    }

    /// Counts bytes that the program has taken.
    pub(crate) fn consumed(&mut self, bytes: u64) {
        self.bytes -= bytes;
    }

    /// Returns whether the subscription was paused and has to resume now, because half of the
    /// window is free.
    pub(crate) fn take_resume(&mut self) -> bool {
        self.bytes <= self.window_bytes / 2 && std::mem::take(&mut self.is_paused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_the_window_pauses_once_and_goes_on_once_half_of_it_is_free() {
        let mut window = ReceiveWindow::default();
        window.restart(1000);
        assert!(!window.received(1000 + BEYOND_WINDOW_BYTES_MAX) && !window.take_resume());
        assert!(window.received(1) && !window.received(1));
        window.consumed(BEYOND_WINDOW_BYTES_MAX + 501);
        assert!(!window.take_resume());
        window.consumed(1);
        assert!(window.take_resume() && !window.take_resume());
    }

    #[test]
    fn a_window_that_begins_anew_is_paused_anew() {
        let mut window = ReceiveWindow::default();
        window.restart(1000);
        assert!(window.received(1001 + BEYOND_WINDOW_BYTES_MAX));
        window.restart(1000);
        assert!(window.received(1));
    }
}
