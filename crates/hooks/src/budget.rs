//! The budget of one run of a script: instructions, and time on the processor. Functions that go over long texts
//! take from it in proportion. It does not know what runs.

use std::cell::Cell;

use rustix::time::{ClockId, Timespec, clock_gettime};
use sennit_model::limits::{HOOK_INSTRUCTIONS_MAX, HOOK_TIME_MAX};

/// Instructions between two looks at the budget: the longest string of a script, hashed or copied by each of
/// them, must not take much longer than the whole budget of time. A look costs as much as some hundred instructions.
pub(crate) const LOOK_EVERY: u32 = 256;

/// Which part of the budget a script has exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Exceeded {
    /// Too many instructions.
    #[error(
        "HOOK_INSTRUCTIONS_MAX is {HOOK_INSTRUCTIONS_MAX}: the script takes more for one message"
    )]
    Instructions,
    /// Too much time.
    #[error(
        "HOOK_TIME_MAX is {} ms: the script computes longer for one message",
        HOOK_TIME_MAX.as_millis()
    )]
    Time,
}

/// What is left of the budget.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    used: Cell<u64>,
    /// When the run was looked at first, in nanoseconds of the thread; the time of its first few instructions does
    /// not count.
    since: Cell<Option<u64>>,
    exceeded: Cell<Option<Exceeded>>,
}

impl Budget {
    /// Begins a run.
    pub(crate) fn begin(&self) {
        self.used.set(0);
        self.since.set(None);
        self.exceeded.set(None);
    }

    /// What was exceeded in this run, if anything.
    pub(crate) fn exceeded(&self) -> Option<Exceeded> {
        self.exceeded.get()
    }

    #[cfg(test)]
    /// Instructions that the run has used so far, give or take [`LOOK_EVERY`].
    pub(crate) fn used(&self) -> u64 {
        self.used.get()
    }

    /// Takes instructions from the budget.
    pub(crate) fn charge(&self, instructions: u64) -> Result<(), Exceeded> {
        let used = self.used.get().saturating_add(instructions);
        self.used.set(used);
        if used > HOOK_INSTRUCTIONS_MAX {
            return self.exceeds(Exceeded::Instructions);
        }
        Ok(())
    }

    /// The script has executed [`LOOK_EVERY`] instructions.
    pub(crate) fn look(&self) -> Result<(), Exceeded> {
        self.charge(u64::from(LOOK_EVERY))?;
        let now = thread_time_ns();
        let Some(since) = self.since.get() else {
            self.since.set(Some(now));
            return Ok(());
        };
        if u128::from(now.saturating_sub(since)) > HOOK_TIME_MAX.as_nanos() {
            return self.exceeds(Exceeded::Time);
        }
        Ok(())
    }

    fn exceeds(&self, exceeded: Exceeded) -> Result<(), Exceeded> {
        self.exceeded.set(Some(exceeded));
        Err(exceeded)
    }
}

/// How long this thread has computed, in nanoseconds. It stands still while the thread waits for a processor, so that a
/// busy machine ends no script.
pub(crate) fn thread_time_ns() -> u64 {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_ends_when_its_instructions_are_used_and_the_next_begins_anew() {
        let budget = Budget::default();
        budget.begin();
        assert_eq!(budget.charge(HOOK_INSTRUCTIONS_MAX), Ok(()));
        assert_eq!(budget.charge(1), Err(Exceeded::Instructions));
        assert_eq!(budget.exceeded(), Some(Exceeded::Instructions));
        budget.begin();
        assert_eq!((budget.exceeded(), budget.used(), budget.look()), (None, 0, Ok(())));
    }

    #[test]
    fn a_run_ends_when_it_has_computed_too_long() {
        let budget = Budget::default();
        budget.begin();
        let begun = thread_time_ns();
        budget.look().unwrap();
        while u128::from(thread_time_ns() - begun) <= HOOK_TIME_MAX.as_nanos() + 1_000_000 {
            std::hint::spin_loop();
        }
        assert_eq!(budget.look(), Err(Exceeded::Time));
    }
}
