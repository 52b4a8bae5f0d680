//! The oracle's model of retry policies: the least delay after a failed attempt and the age at which a failure is
//! for good, computed in its own way. A group may have had several policies, and it is not known which one was in
//! force.

use std::time::Duration;

use sennit_model::{Backoff, RetryPolicy, Timestamp};

/// All policies that a group has had.
#[derive(Clone, Debug, Default)]
pub(super) struct Policies(Vec<RetryPolicy>);

impl Policies {
    /// The group may have this one from now on.
    pub(super) fn add(&mut self, policy: RetryPolicy) {
        if !self.0.contains(&policy) {
            self.0.push(policy);
        }
    }

    /// The shortest delay after `least` to `most` failed attempts.
    pub(super) fn least_delay(&self, least: u32, most: u32) -> Duration {
        let failed = least.max(1)..=most.max(1);
        let delays = self.0.iter().flat_map(|policy| {
            failed.clone().map(move |failed| shortened(delay(&policy.backoff, failed), policy))
        });
        delays.min().unwrap_or_default()
    }

    /// Whether a message that was appended then has failed for good when it fails `at` that time.
    pub(super) fn is_too_old(&self, appended_at: Timestamp, at: Timestamp) -> bool {
        let is_over = |policy: &RetryPolicy| {
            policy.age_max.is_some_and(|age| at.since(appended_at) >= age && at >= appended_at)
        };
        !self.0.is_empty() && self.0.iter().all(is_over)
    }
}

/// By doubling step by step.
fn delay(backoff: &Backoff, failed: u32) -> Duration {
    match backoff {
        Backoff::None => Duration::ZERO,
        Backoff::Exponential { first, max } => {
            let mut delay = *first;
            for _ in 1..failed {
                if delay >= *max {
                    break;
                }
                delay += delay;
            }
            delay.min(*max)
        }
        Backoff::List(delays) => delays.iter().take(failed as usize).last().unwrap_or_default(),
    }
}

fn shortened(delay: Duration, policy: &RetryPolicy) -> Duration {
    let rest_percent = u128::from(100 - policy.jitter_percent);
    let ms = (delay.as_millis() * rest_percent).div_ceil(100);
    Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX))
}
