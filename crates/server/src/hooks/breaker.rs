//! The breaker of a hook: a script that has failed too often, one message after the other, rests for a while. Then one
//! message decides whether it goes on.

use sennit_model::{
    Timestamp,
    limits::{HOOK_FAILURES_MAX, HOOK_REST},
};

/// Whether a script is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BreakerState {
    /// It is run.
    Closed,
    /// It rests until then.
    Open(Timestamp),
    /// It has rested, and the next message decides.
    HalfOpen,
}

/// The breaker of one hook on one core.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Breaker {
    /// Failures since the last message on which it has not failed.
    failures: u32,
    rests_until: Option<Timestamp>,
}

impl Breaker {
    pub(crate) fn state(&self, now: Timestamp) -> BreakerState {
        match self.rests_until {
            None => BreakerState::Closed,
            Some(until) if now < until => BreakerState::Open(until),
            Some(_) => BreakerState::HalfOpen,
        }
    }

    /// The script has decided about a message.
    pub(crate) fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// The script has failed. Says whether it rests from now on, and has not before.
    pub(crate) fn failed(&mut self, now: Timestamp) -> bool {
        self.failures = self.failures.saturating_add(1);
        let begins = self.rests_until.is_none() && self.failures >= HOOK_FAILURES_MAX;
        if begins || self.rests_until.is_some() {
            self.rests_until = Some(now.plus(HOOK_REST));
        }
        begins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_rests_after_failures_and_one_message_decides_whether_it_goes_on() {
        let (mut breaker, start) = (Breaker::default(), Timestamp(1_000_000));
        for _ in 1..HOOK_FAILURES_MAX {
            assert!(!breaker.failed(start));
        }
        breaker.succeeded();
        for _ in 1..HOOK_FAILURES_MAX {
            assert!(!breaker.failed(start), "they are counted from the last success");
        }
        assert_eq!(breaker.state(start), BreakerState::Closed);
        assert!(breaker.failed(start));
        let end = start.plus(HOOK_REST);
        assert_eq!(breaker.state(start), BreakerState::Open(end));
        assert_eq!(breaker.state(end), BreakerState::HalfOpen);
        assert!(!breaker.failed(end), "it rests already");
        assert_eq!(breaker.state(end), BreakerState::Open(end.plus(HOOK_REST)));
        breaker.succeeded();
        assert_eq!(breaker.state(end), BreakerState::Closed);
    }
}
