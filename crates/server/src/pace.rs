//! How often readers are written to. Where very many small writes would take all of a core's time, a
//! reader waits a moment after each, and the next one carries more. It knows no sockets.

use std::{cell::Cell, time::Duration};

use tokio::time::Instant;

/// How long a reader waits where there are many.
const SPAN: Duration = Duration::from_millis(3);

/// How long they have to be many: what has waited for a moment comes all at once, and is no crowd.
const WINDOW: Duration = Duration::from_millis(30);

/// Deliveries to readers in small writes within [`WINDOW`] beyond which they are many: 40,000 a second,
/// and without waiting each is a write as a rule.
const DELIVERIES_MAX: usize = 1280;

/// The pace of the writes to a core's readers.
#[derive(Debug)]
pub(crate) struct Pace {
    since: Cell<Instant>,
    deliveries: Cell<usize>,
    is_crowded: Cell<bool>,
}

impl Default for Pace {
    fn default() -> Self {
        let since = Cell::new(Instant::now());
        Self { since, deliveries: Cell::default(), is_crowded: Cell::default() }
    }
}

impl Pace {
    /// Something small was written to a reader, so many deliveries; says before when nothing more should be.
    pub(crate) fn wrote(&self, deliveries: usize, now: Instant) -> Option<Instant> {
        self.deliveries.set(self.deliveries.get() + deliveries);
        if now - self.since.get() >= WINDOW {
            let is_recent = now - self.since.get() < 2 * WINDOW;
            self.is_crowded.set(is_recent && self.deliveries.get() > DELIVERIES_MAX);
            self.deliveries.set(0);
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
        let waits = |from: u64, to: u64, step: usize, deliveries: usize| {
            let writes = (from..to).step_by(step);
            writes
                .filter(|&write| pace.wrote(deliveries, at(write)) == Some(at(write) + SPAN))
                .count()
        };
        assert_eq!(waits(0, 100_000, 30, 1), 0);
        // A moment in which everything comes that has waited.
        assert_eq!(waits(100_000, 101_000, 2, 1) + waits(101_000, 200_000, 100, 1), 0);
        assert!(waits(200_000, 300_000, 5, 1) > 12_000);
        // Fewer writes of more each are as many readers as before.
        assert_eq!(waits(300_000, 400_000, 15, 3), 6667);
        assert_eq!(waits(500_000, 600_000, 30, 1), 0);
    }
}
