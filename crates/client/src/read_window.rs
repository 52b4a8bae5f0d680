//! How much may be on its way to a reader whose program has not said: about what its line carries
//! meanwhile. More would lie in the sockets' buffers, out of the processors' caches, and be read from
//! memory once more. It knows no socket.

use std::time::Duration;

/// What a line is taken to carry, in bytes per second: 10 Gbit/s.
const LINE_BYTES_PER_S: u128 = 1_250_000_000;

/// Round trips that the window lasts: one for what is on its way, one for what was taken and not told:
/// a half of the window is told at a time.
const ROUND_TRIPS: u128 = 2;

/// The least, however short the line: four of the longest frames into which a broker joins batches.
const WINDOW_BYTES_MIN: u64 = 512 << 10;

/// The most, however long the line.
const WINDOW_BYTES_MAX: u64 = 8 << 20;

/// The least for each partition, as long as all of them have no more than [`WINDOW_BYTES_MAX`]. One may
/// have all there is to read, and of a few KiB each batch would be a frame by itself.
const SHARE_BYTES_MIN: u64 = 128 << 10;

/// The window in bytes of a reader of so many partitions, over a line whose round trip is no longer
/// than this.
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
