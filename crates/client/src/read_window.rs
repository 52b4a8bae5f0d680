//! The default window of a reader: about as many bytes as its line carries in two round trips. A larger window
//! would fill the sockets' buffers, fall out of the processor's caches, and cost another read from memory. It knows
//! no socket.

use std::time::Duration;

/// Assumed bandwidth of a line in bytes per second: 10 Gbit/s.
const LINE_BYTES_PER_S: u128 = 1_250_000_000;

/// Round trips that the window covers: one for messages on their way, and one for messages that the
/// program has taken and the client has not reported, as the client reports half a window at a
/// time.
const ROUND_TRIPS: u128 = 2;

/// The smallest window, for a short line: four of the longest frames into which a broker joins
/// batches.
const WINDOW_BYTES_MIN: u64 = 512 << 10;

/// The largest window, for a long line.
const WINDOW_BYTES_MAX: u64 = 8 << 20;

/// The smallest share of a partition, while all shares together are at most [`WINDOW_BYTES_MAX`].
/// One partition may have all messages that there are to read; with a share of a few KiB each batch
/// would need a frame of its own.
const SHARE_BYTES_MIN: u64 = 128 << 10;

/// The window in bytes of a reader with this number of partitions, on a line with at most this
/// round trip.
pub(crate) fn window_bytes(round_trip: Duration, partitions: usize) -> u64 {
    let carried = LINE_BYTES_PER_S * ROUND_TRIPS * round_trip.as_nanos() / 1_000_000_000;
    let shares = (partitions as u64).saturating_mul(SHARE_BYTES_MIN);
    let least = shares.clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX);
    u64::try_from(carried).unwrap_or(WINDOW_BYTES_MAX).clamp(least, WINDOW_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_micros(60);

    #[test]
    fn a_short_line_has_the_least() {
        assert_eq!(window_bytes(Duration::ZERO, 1), 512 << 10);
        assert_eq!(window_bytes(SHORT, 4), 512 << 10);
    }

    #[test]
    fn a_line_has_what_it_carries_in_two_round_trips() {
        assert_eq!(window_bytes(Duration::from_millis(1), 1), 2_500_000);
        assert_eq!(window_bytes(Duration::from_millis(1), 4), 2_500_000);
    }

    #[test]
    fn a_long_line_has_the_most() {
        assert_eq!(window_bytes(Duration::from_millis(4), 1), 8 << 20);
        assert_eq!(window_bytes(Duration::MAX, 1), 8 << 20);
    }

    #[test]
    fn each_of_many_partitions_has_a_share_that_is_worth_a_frame() {
        assert_eq!(window_bytes(SHORT, 16), 2 << 20);
        assert_eq!(window_bytes(SHORT, 64), 8 << 20);
        assert_eq!(window_bytes(SHORT, 1000), 8 << 20);
    }
}
