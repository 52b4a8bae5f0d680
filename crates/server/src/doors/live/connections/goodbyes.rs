//! The broker stops: live connections are told so. Many are told one after the other over a while, since clients that are
//! told together come back together.

use std::time::Duration;

use sennit_centrifuge::DisconnectCode;
use tokio::time::Instant;

use super::LiveConnections;
use crate::doors::live::limits::{GOODBYES_A_SECOND, GOODBYES_MAX};

/// How often some are told.
pub(super) const GOODBYES_EVERY: Duration = Duration::from_millis(10);

/// How far it is with telling them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Goodbyes {
    begun: Instant,
    /// How many there were.
    count: usize,
    /// How many have been told.
    told: usize,
    /// Where it goes on.
    slot: u32,
}

impl Goodbyes {
    fn new(begun: Instant, count: usize) -> Self {
        Self { begun, count, told: 0, slot: 0 }
    }

    /// How many are to be told by now.
    fn due(&self, now: Instant) -> usize {
        let all =
            Duration::from_millis(1000 * self.count as u64 / GOODBYES_A_SECOND).min(GOODBYES_MAX);
        let gone = (now - self.begun + GOODBYES_EVERY).as_micros();
        let due = self.count as u128 * gone / all.as_micros().max(1);
        usize::try_from(due).unwrap_or(usize::MAX)
    }
}

impl LiveConnections {
    /// Tells some connections, or all, that the broker stops; says whether others are told later.
    pub(super) fn say_goodbyes(&mut self, now: Instant) -> bool {
        let are_hurried = self.core.look(|core| core.is_fenced());
        let count = || self.connections.iter().flatten().filter(|held| !held.is_ending()).count();
        let mut goodbyes = self.goodbyes.unwrap_or_else(|| Goodbyes::new(now, count()));
        let mut due = goodbyes.due(now);
        let are_all = are_hurried || due >= goodbyes.count;
        if are_all {
            // Who came meanwhile is told with the rest.
            (due, goodbyes.slot) = (usize::MAX, 0);
        }
        while goodbyes.told < due && (goodbyes.slot as usize) < self.connections.len() {
            let slot = goodbyes.slot;
            goodbyes.slot += 1;
            if let Some(connection) = self.at(slot)
                && !connection.is_ending()
            {
                let id = connection.id;
                connection.end(DisconnectCode::Shutdown);
                self.to_flush.add(id);
                goodbyes.told += 1;
            }
        }
        self.goodbyes = Some(goodbyes);
        !are_all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_told_at_once_and_many_over_a_while_that_has_a_bound() {
        let begun = Instant::now();
        for (count, whole) in [
            (0, Duration::ZERO),
            (10, Duration::ZERO),
            (2_000, Duration::from_secs(1)),
            (100_000, GOODBYES_MAX),
        ] {
            let goodbyes = Goodbyes::new(begun, count);
            assert!(goodbyes.due(begun + whole) >= count, "{count}");
            let half = goodbyes.due(begun + whole / 2);
            assert!(whole.is_zero() || (count / 2..count).contains(&half), "{half} of {count}");
        }
    }
}
