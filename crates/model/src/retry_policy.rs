//! The retry policy of a group: how long a message that failed waits for its next attempt, and from which age
//! on it is not tried again. It reads no clock and draws no random numbers.

use std::{fmt, time::Duration};

use crate::{
    config_error::{ConfigError, check_duration},
    limits::{DURATION_MAX, JITTER_PERCENT_MAX, RETRY_DELAY_MIN, RETRY_DELAYS_MAX},
};

/// What a group does with a message that failed, until its attempts are used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RetryPolicy {
    /// The delay of the next attempt. The consumer's `retry after` has precedence.
    pub backoff: Backoff,
    /// The part of the delay by which it is made longer or shorter, so that messages that failed
    /// together are not tried together; 0 to [`JITTER_PERCENT_MAX`].
    pub jitter_percent: u8,
    /// A message that fails at this age or later has failed for good; the age counts from its append.
    pub age_max: Option<Duration>,
}

/// How the delay of the next attempt depends on the number of failed attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Backoff {
    /// There is no delay.
    #[default]
    None,
    /// The delay doubles with each failed attempt.
    Exponential {
        /// The delay after the first failed attempt.
        first: Duration,
        /// The longest delay.
        max: Duration,
    },
    /// Each failed attempt has a delay of its own.
    List(RetryDelays),
}

/// The delays after the first failed attempt, the second and so on, in whole milliseconds; the last one
/// repeats. There is at least one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RetryDelays {
    /// Behind the last delay there are zeros.
    delays_ms: [u64; RETRY_DELAYS_MAX],
    count: u8,
}

/// Jitter has this many steps each way. Delays are few then, so that runs which fail together and have
/// equal delays share a record.
const JITTER_STEPS: u64 = 128;

impl RetryPolicy {
    /// How long a message waits after this many failed attempts, 1 or more. Equal `seed`s give equal
    /// jitter.
    #[must_use]
    pub fn delay(&self, failed_attempts: u32, seed: u64) -> Duration {
        let delay_ms = ms(self.backoff.delay(failed_attempts));
        let spread_ms = delay_ms * u64::from(self.jitter_percent) / 100;
        let step = seed % (2 * JITTER_STEPS + 1);
        Duration::from_millis(delay_ms - spread_ms + spread_ms * step / JITTER_STEPS)
    }

    /// Checks every field.
    ///
    /// # Errors
    /// The first field that is out of bounds.
    pub fn check(&self) -> Result<(), ConfigError> {
        let field = "retry.backoff";
        match &self.backoff {
            Backoff::None => {}
            Backoff::Exponential { first, max } => {
                check_duration(field, Some(*first), RETRY_DELAY_MIN)?;
                check_duration(field, Some(*max), RETRY_DELAY_MIN)?;
                if first > max {
                    let (value, allowed) = (self.backoff.to_string(), "first..max".into());
                    return Err(ConfigError { field, value, allowed });
                }
            }
            Backoff::List(delays) => {
                for delay in delays.iter() {
                    check_duration(field, Some(delay), RETRY_DELAY_MIN)?;
                }
            }
        }
        if self.jitter_percent > JITTER_PERCENT_MAX {
            return Err(ConfigError {
                field: "retry.jitter_percent",
                value: self.jitter_percent.to_string(),
                allowed: format!("0 to {JITTER_PERCENT_MAX}"),
            });
        }
        check_duration("retry.age_max", self.age_max, Duration::from_millis(1))
    }
}

impl Backoff {
    /// The delay after this many failed attempts, 1 or more, without jitter.
    #[must_use]
    pub fn delay(&self, failed_attempts: u32) -> Duration {
        let earlier = failed_attempts.saturating_sub(1);
        match self {
            Self::None => Duration::ZERO,
            Self::Exponential { first, max } => {
                let factor = 1_u64.checked_shl(earlier).unwrap_or(u64::MAX);
                Duration::from_millis(ms(*first).saturating_mul(factor)).min(*max)
            }
            Self::List(delays) => delays.after(earlier as usize),
        }
    }
}

/// As in `1s..300s` and `1s,10s,60s`.
impl fmt::Display for Backoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Exponential { first, max } => write!(f, "{first:?}..{max:?}"),
            Self::List(delays) => {
                let delays: Vec<_> = delays.iter().map(|delay| format!("{delay:?}")).collect();
                f.write_str(&delays.join(","))
            }
        }
    }
}

impl RetryDelays {
    /// These delays. Parts of a millisecond are cut off.
    ///
    /// # Errors
    /// There are none, or more than [`RETRY_DELAYS_MAX`].
    pub fn new(delays: &[Duration]) -> Result<Self, ConfigError> {
        if !(1..=RETRY_DELAYS_MAX).contains(&delays.len()) {
            return Err(ConfigError {
                field: "retry.backoff",
                value: format!("a list of {}", delays.len()),
                allowed: format!("1 to {RETRY_DELAYS_MAX} delays"),
            });
        }
        let mut delays_ms = [0; RETRY_DELAYS_MAX];
        for (kept, delay) in delays_ms.iter_mut().zip(delays) {
            *kept = ms(*delay);
        }
        Ok(Self { delays_ms, count: delays.len() as u8 })
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = Duration> {
        self.delays_ms[..self.count.into()].iter().map(|&ms| Duration::from_millis(ms))
    }

    fn after(&self, earlier: usize) -> Duration {
        Duration::from_millis(self.delays_ms[earlier.min(usize::from(self.count) - 1)])
    }
}

impl fmt::Debug for RetryDelays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Whole milliseconds; what is longer than the longest delay is as long, so that sums do not overflow.
fn ms(duration: Duration) -> u64 {
    let longest = DURATION_MAX + Duration::from_millis(1);
    u64::try_from(duration.min(longest).as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn list(delays: &[Duration]) -> Backoff {
        Backoff::List(RetryDelays::new(delays).unwrap())
    }

    #[test]
    fn an_exponential_delay_doubles_up_to_its_maximum() {
        let backoff = Backoff::Exponential { first: SECOND, max: 5 * SECOND };
        let seconds = [1, 2, 3, 4, u32::MAX].map(|failed| backoff.delay(failed).as_secs());
        assert_eq!(seconds, [1, 2, 4, 5, 5]);
        let longest = Backoff::Exponential { first: DURATION_MAX, max: DURATION_MAX };
        assert_eq!(longest.delay(64), DURATION_MAX);
    }

    #[test]
    fn the_last_delay_of_a_list_repeats() {
        let backoff = list(&[SECOND, 10 * SECOND]);
        let seconds = [1, 2, 3, u32::MAX].map(|failed| backoff.delay(failed).as_secs());
        assert_eq!(seconds, [1, 10, 10, 10]);
    }

    #[test]
    fn jitter_stays_within_its_part_of_the_delay_and_reaches_both_ends() {
        let backoff = Backoff::Exponential { first: 10 * SECOND, max: 10 * SECOND };
        let policy = RetryPolicy { backoff, jitter_percent: 20, age_max: None };
        let delays: Vec<_> = (0..2 * JITTER_STEPS + 1).map(|seed| policy.delay(1, seed)).collect();
        assert_eq!(delays.iter().min(), Some(&(8 * SECOND)));
        assert_eq!(delays.iter().max(), Some(&(12 * SECOND)));
        assert_eq!(policy.delay(1, JITTER_STEPS), 10 * SECOND);
        let all = RetryPolicy { jitter_percent: 100, ..policy };
        assert_eq!(all.delay(1, 0), Duration::ZERO);
        assert_eq!(all.delay(1, 2 * JITTER_STEPS), 20 * SECOND);
        assert_eq!(RetryPolicy::default().delay(1, 7), Duration::ZERO);
    }

    #[test]
    fn a_field_out_of_bounds_is_named() {
        let refused = |policy: RetryPolicy| policy.check().unwrap_err().to_string();
        let with = |backoff| RetryPolicy { backoff, ..RetryPolicy::default() };
        let (first, max) = (2 * SECOND, SECOND);
        for (policy, text) in [
            (
                with(Backoff::Exponential { first, max }),
                "retry.backoff is 2s..1s, allowed is first..max",
            ),
            (
                with(list(&[SECOND, Duration::ZERO])),
                "retry.backoff is 0ns, allowed is 1ms to 100 years",
            ),
            (
                with(list(&[DURATION_MAX + SECOND])),
                "retry.backoff is 3153600000.001s, allowed is 1ms to 100 years",
            ),
            (
                RetryPolicy { jitter_percent: 101, ..RetryPolicy::default() },
                "retry.jitter_percent is 101, allowed is 0 to 100",
            ),
            (
                RetryPolicy { age_max: Some(Duration::ZERO), ..RetryPolicy::default() },
                "retry.age_max is 0ns, allowed is 1ms to 100 years",
            ),
        ] {
            assert_eq!(refused(policy), text);
        }
        assert!(RetryDelays::new(&[]).is_err() && RetryDelays::new(&[SECOND; 17]).is_err());
        assert_eq!(with(list(&[SECOND; 16])).check(), Ok(()));
    }
}
