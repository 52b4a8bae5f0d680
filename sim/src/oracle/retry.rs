//! The oracle's model of retry policies: the policies that may be in force, the least delay after a failed attempt,
//! and the age at which a failure is for good. It computes both in its own way.

use std::time::Duration;

use sennit_model::{Backoff, RetryPolicy, Timestamp};

/// The policies of a group.
#[derive(Clone, Debug, Default)]
pub(super) struct PolicyHistory {
    /// The policies of which one was in force after the last crash.
    recovered: Vec<RetryPolicy>,
    /// The changes since then, each with its turn.
    changes: Vec<(u64, RetryPolicy)>,
}

impl PolicyHistory {
    /// The group has this policy from `turn` on.
    pub(super) fn set(&mut self, policy: RetryPolicy, turn: u64) {
        if self.in_force() != [policy] {
            self.changes.push((turn, policy));
        }
    }

    /// The policies that may be in force.
    pub(super) fn in_force(&self) -> Vec<RetryPolicy> {
        match self.changes.last() {
            Some((_, policy)) => vec![*policy],
            None => self.recovered.clone(),
        }
    }

    /// Notes a crash: changes that are not durable may be lost.
    pub(super) fn crashed(&mut self, durable_turn: u64) {
        let is_durable = |(turn, _): &(u64, RetryPolicy)| *turn <= durable_turn;
        if let Some(last_durable) = self.changes.iter().rposition(is_durable) {
            self.recovered.clear();
            self.changes.drain(..last_durable);
        }
        self.recovered.extend(self.changes.drain(..).map(|(_, policy)| policy));
    }
}

/// The shortest delay after `least` to `most` failed attempts under one of these policies.
pub(super) fn least_delay(policies: &[RetryPolicy], least: u32, most: u32) -> Duration {
    let failed = least.max(1)..=most.max(1);
    let delays = policies.iter().flat_map(|policy| {
        failed.clone().map(move |failed| shortened(delay(&policy.backoff, failed), policy))
    });
    delays.min().unwrap_or_default()
}

/// Whether a failure `at` that time is for good under each of these policies, because of the message's age.
pub(super) fn is_too_old(policies: &[RetryPolicy], appended_at: Timestamp, at: Timestamp) -> bool {
    let is_over = |policy: &RetryPolicy| {
        policy.age_max.is_some_and(|age| at.since(appended_at) >= age && at >= appended_at)
    };
    !policies.is_empty() && policies.iter().all(is_over)
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
