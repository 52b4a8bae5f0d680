//! The time for the shards. It follows the wall clock forward, and never goes back while the broker runs: if it
//! went back by an hour, no lease would end and no delay would be over for that hour. It knows no timers.

use std::{
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use sennit_model::Timestamp;
use sennit_replica::Moment;

static CLOCK: LazyLock<(Instant, Clock)> = LazyLock::new(|| (Instant::now(), Clock::new()));

/// The broker's time.
pub(crate) fn now() -> Timestamp {
    let (begin, clock) = &*CLOCK;
    // The wall is read first: whatever holds the thread up in between makes it seem behind, and not
    // ahead for good.
    let wall = wall();
    clock.now(wall, begin.elapsed())
}

/// The broker's time, and that of a clock which only goes forward.
pub(crate) fn moment() -> Moment {
    let monotonic_ns = u64::try_from(CLOCK.0.elapsed().as_nanos()).unwrap_or(u64::MAX);
    Moment { time: now(), monotonic_ns }
}

/// The wall clock, for what others hold against their own: the time since 1970.
pub(crate) fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A clock that goes on as steadily as the machine's own, and is put forward by the wall clock.
struct Clock {
    /// How far the wall clock was ahead of the steady one at most, in nanoseconds.
    ahead: AtomicU64,
}

impl Clock {
    fn new() -> Self {
        Self { ahead: AtomicU64::new(0) }
    }

    /// The time, where the wall clock says `wall` and the steady one `steady`.
    fn now(&self, wall: Duration, steady: Duration) -> Timestamp {
        let ahead = wall.saturating_sub(steady);
        let ahead = u64::try_from(ahead.as_nanos()).unwrap_or(u64::MAX);
        // As a rule it was as far ahead before, and no core has to tell the others.
        let most = match self.ahead.load(Ordering::Relaxed) {
            most if most >= ahead => most,
            _ => self.ahead.fetch_max(ahead, Ordering::Relaxed).max(ahead),
        };
        let time = steady.saturating_add(Duration::from_nanos(most));
        Timestamp(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a clock says, step by step, with the wall's time and the steady one in seconds.
    fn shown(steps: &[(u64, u64)]) -> Vec<u64> {
        let clock = Clock::new();
        let seconds = Duration::from_secs;
        let shown = steps.iter().map(|&(wall, steady)| clock.now(seconds(wall), seconds(steady)));
        shown.map(|time| time.0 / 1_000).collect()
    }

    #[test]
    fn time_goes_on_when_the_wall_clock_is_set_back() {
        assert_eq!(
            shown(&[(5_000, 0), (5_010, 10), (1_420, 20), (1_430, 30)]),
            [5_000, 5_010, 5_020, 5_030]
        );
    }

    #[test]
    fn time_follows_a_wall_clock_that_is_put_forward_and_stays_there() {
        assert_eq!(
            shown(&[(5_000, 0), (9_000, 10), (5_020, 20), (8_990, 30), (9_100, 40)]),
            [5_000, 9_000, 9_010, 9_020, 9_100]
        );
    }

    #[test]
    fn a_wall_clock_from_before_1970_is_one_that_says_nothing() {
        assert_eq!(shown(&[(0, 0), (0, 10), (5_000, 20)]), [0, 10, 5_000]);
    }
}
