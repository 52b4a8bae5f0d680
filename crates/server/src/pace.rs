//! How often readers are written to. Where very many small writes would take all of a core's time, a
//! reader waits a moment after each, and the next one carries more. It knows no sockets.

use std::{cell::Cell, time::Duration};

use tokio::time::Instant;

/// How long a reader waits where there are many.
const SPAN: Duration = Duration::from_millis(3);

/// Small writes to readers within [`SPAN`] beyond which they are many.
const WRITES_MAX: u32 = 64;

/// The pace of the writes to a core's readers.
#[derive(Debug)]
pub(crate) struct Pace {
    since: Cell<Instant>,
    writes: Cell<u32>,
    is_crowded: Cell<bool>,
}

impl Default for Pace {
    fn default() -> Self {
        let since = Cell::new(Instant::now());
        Self { since, writes: Cell::default(), is_crowded: Cell::default() }
    }
}

impl Pace {
    /// Something small was written to a reader; says before when nothing more should be.
    pub(crate) fn wrote(&self, now: Instant) -> Option<Instant> {
        self.writes.set(self.writes.get() + 1);
        if now - self.since.get() >= SPAN {
            let is_recent = now - self.since.get() < 2 * SPAN;
            self.is_crowded.set(is_recent && self.writes.get() > WRITES_MAX);
            self.writes.set(0);
            self.since.set(now);
        }
        self.is_crowded.get().then(|| now + SPAN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_wait_between_their_writes_only_where_there_are_many() {
        let pace = Pace::default();
        let begin = pace.since.get();
        let at = |micros: u64| begin + Duration::from_micros(micros);
        let waits = |from: u64, to: u64, step: usize| {
            let writes = (from..to).step_by(step);
            writes.filter(|&write| pace.wrote(at(write)) == Some(at(write) + SPAN)).count()
        };
        assert_eq!(waits(0, 10_000, 100), 0);
        assert!(waits(10_000, 20_000, 20) > 300);
        assert_eq!(waits(30_000, 40_000, 100), 0);
    }
}
