//! The cursor of live reads: the number of a 20-second interval, so that a cached answer of one interval is not
//! used in the next. It knows no streams.

use std::time::Duration;

use sennit_model::Timestamp;

/// How long an interval is.
const INTERVAL: Duration = Duration::from_secs(20);

/// When the first one began, in milliseconds: 2024-10-09T00:00:00Z.
const FIRST: Timestamp = Timestamp(1_728_432_000_000);

/// How far a cursor goes beyond one that is ahead already, at most, in seconds.
const JITTER_SECONDS_MAX: u64 = 3600;

/// The cursor of an answer given at `now` to one who came with the cursor `given`: the interval's
/// number, or if that is no progress, one beyond `given`, by as much as `random` says.
pub(crate) fn next(now: Timestamp, given: Option<u64>, random: u64) -> u64 {
    let interval = now.since(FIRST).as_secs() / INTERVAL.as_secs();
    match given {
        Some(given) if given >= interval => {
            let jitter = (random % JITTER_SECONDS_MAX + 1).div_ceil(INTERVAL.as_secs());
            given.saturating_add(jitter)
        }
        _ => interval,
    }
}

/// The cursor that `text` gives; what is no number is none.
pub(super) fn parse(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(FIRST.0 + 100 * 20_000 + 19_999);

    #[test]
    fn it_is_the_number_of_the_interval() {
        assert_eq!(next(FIRST, None, 0), 0);
        assert_eq!(next(NOW, None, 0), 100);
        assert_eq!(next(NOW.plus(Duration::from_millis(1)), None, 0), 101);
        assert_eq!(next(NOW, Some(99), 7), 100);
    }

    #[test]
    fn it_always_goes_on() {
        for random in [0, 1, 3599, 3600, u64::MAX] {
            for given in [100, 101, 5000] {
                let cursor = next(NOW, Some(given), random);
                assert!(cursor > given && cursor <= given + 180, "{given} {random} {cursor}");
            }
        }
        assert_eq!(next(NOW, Some(u64::MAX), 0), u64::MAX);
    }

    #[test]
    fn what_is_no_number_is_no_cursor() {
        assert_eq!(parse("100"), Some(100));
        for text in ["", "-1", "1a", "+1", "99999999999999999999"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
