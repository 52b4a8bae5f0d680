//! The phases of a subscription's work: idle, to be delivered, or claimed by a worker until a deadline. It knows no
//! streams.

use serde::{Deserialize, Serialize};

use super::request::limits::{RETRY_MS_MAX, RETRY_MS_MIN};

/// Who has the work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub(crate) enum Phase {
    /// Nobody, and nobody is to be told: there is nothing to be done.
    Idle,
    /// There was something to be done; somebody is to be told, or was and has not come.
    Woken {
        /// The wake's own name.
        wake: Box<str>,
        /// How often telling has failed.
        attempt: u32,
        /// When it is tried next.
        next_at_ms: u64,
    },
    /// Somebody works, until then.
    Held {
        /// The wake's own name.
        wake: Box<str>,
        /// Who.
        holder: Box<str>,
        /// When the lease ends, unless it is prolonged.
        until_ms: u64,
    },
}

impl Phase {
    /// The wake that is under way.
    pub(crate) fn wake(&self) -> Option<&str> {
        match self {
            Self::Idle => None,
            Self::Woken { wake, .. } | Self::Held { wake, .. } => Some(wake),
        }
    }
}

/// How long after the failed attempt of this number, from 0, the next one comes, in milliseconds:
/// twice as long each time within bounds, and a fifth more or less by `chance`, so that those who failed
/// together do not come again together.
pub(crate) fn retry_after_ms(attempt: u32, chance: u64) -> u64 {
    let base = RETRY_MS_MIN.saturating_mul(1 << attempt.min(20)).min(RETRY_MS_MAX);
    let fifth = base / 5;
    base - fifth + chance % (2 * fifth + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_come_later_and_later_within_bounds() {
        for (attempt, base) in
            [(0, 1_000), (1, 2_000), (5, 32_000), (6, 60_000), (u32::MAX, 60_000)]
        {
            assert_eq!(retry_after_ms(attempt, 0), base * 4 / 5);
            for chance in [1, 77, 12_345, u64::MAX] {
                let after = retry_after_ms(attempt, chance);
                assert!((base * 4 / 5..=base * 6 / 5).contains(&after), "{attempt} {after}");
            }
        }
    }
}
