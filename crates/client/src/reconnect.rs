//! Reconnect settings, and random delays within them. It knows no socket.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

/// How a client reconnects after it has lost its connection. The first connection is tried once,
/// whatever these settings are; only nodes of a cluster that cannot tell yet who may do what are asked again, for up to
/// 15 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reconnect {
    /// The shortest delay between two attempts.
    pub delay_min: Duration,
    /// The longest delay between two attempts.
    pub delay_max: Duration,
    /// Number of failed attempts in a row after which the client gives up; `None` for no limit, 0
    /// for no attempt. An attempt tries each address once.
    pub attempts_max: Option<u32>,
    /// Time limit of one attempt at one address, greeting included.
    pub attempt_timeout: Duration,
}

impl Default for Reconnect {
    /// Without limit, 50 ms to 5 s apart, 5 s each.
    fn default() -> Self {
        Self {
            delay_min: Duration::from_millis(50),
            delay_max: Duration::from_secs(5),
            attempts_max: None,
            attempt_timeout: Duration::from_secs(5),
        }
    }
}

impl Reconnect {
    /// Does not reconnect. A lost connection fails everything that waits for it.
    #[must_use]
    pub fn off() -> Self {
        Self { attempts_max: Some(0), ..Self::default() }
    }
}

/// Delays with decorrelated jitter: each is drawn between the shortest and three times the one
/// before, so that clients that fell together do not come back together.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    min: Duration,
    max: Duration,
    last: Duration,
}

impl Backoff {
    pub(crate) fn new(min: Duration, max: Duration) -> Self {
        Self { min, max: max.max(min), last: Duration::ZERO }
    }

    /// The next delay. The first is at most the shortest one.
    pub(crate) fn delay(&mut self) -> Duration {
        let (low, high) = match self.last {
            Duration::ZERO => (Duration::ZERO, self.min),
            last => (self.min, last.saturating_mul(3).min(self.max)),
        };
        let span = high.saturating_sub(low).as_micros();
        let drawn = low + Duration::from_micros((u128::from(random()) % (span + 1)) as u64);
        self.last = drawn.max(self.min);
        drawn
    }

    pub(crate) fn reset(&mut self) {
        self.last = Duration::ZERO;
    }
}

/// 64 random bits, never 0. The standard library seeds its hash maps from the system's randomness,
/// with a new key each time. The numbers must differ everywhere; they need not be secret.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(0_u8).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_within_their_bounds_and_begin_again_after_a_reset() {
        let (min, max) = (Duration::from_millis(50), Duration::from_secs(5));
        let mut backoff = Backoff::new(min, max);
        for _ in 0..100 {
            assert!(backoff.delay() <= min);
            let mut before = min;
            for _ in 0..40 {
                let delay = backoff.delay();
                assert!(delay >= min && delay <= max && delay <= before * 3, "{delay:?}");
                before = delay;
            }
            backoff.reset();
        }
    }

    #[test]
    fn the_longest_delays_that_can_be_asked_for_are_drawn_like_others() {
        let (long, longest) = (Duration::from_micros(u64::MAX), Duration::MAX);
        for (min, max) in
            [(long, longest), (long, 2 * long), (longest / 2, longest), (longest, long)]
        {
            let mut backoff = Backoff::new(min, max);
            assert!(backoff.delay() <= min);
            for _ in 0..100 {
                let delay = backoff.delay();
                assert!(delay >= min && delay <= max.max(min), "{min:?} to {max:?}: {delay:?}");
            }
        }
    }

    #[test]
    fn two_draws_are_not_the_same() {
        assert_ne!(random(), random());
    }
}
