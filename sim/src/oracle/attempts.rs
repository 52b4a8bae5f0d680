//! The oracle's model of failed attempts: the least and the greatest possible number for a message.

/// Failed attempts at one message in one group.
#[derive(Clone, Debug, Default)]
pub(super) struct FailedAttempts {
    /// The turns of settlements that certainly failed an attempt; 0 when that is durable.
    certain: Vec<u64>,
    /// The greatest possible number.
    max: u32,
}

impl FailedAttempts {
    /// The least possible number.
    pub(super) fn min(&self) -> u32 {
        u32::try_from(self.certain.len()).unwrap_or(u32::MAX)
    }

    /// The greatest possible number.
    pub(super) fn max(&self) -> u32 {
        self.max
    }

    /// Counts an attempt that a settlement of this turn has failed.
    pub(super) fn add_certain(&mut self, turn: u64) {
        self.certain.push(turn);
        self.max += 1;
    }

    /// Counts a lease that ended without a settlement: it may be a failed attempt.
    pub(super) fn add_possible(&mut self) {
        self.max += 1;
    }

    /// Notes a command that retries parked messages: if this message was parked, its failed attempts do not count
    /// any more.
    pub(super) fn reset_min(&mut self) {
        self.certain.clear();
    }

    /// Notes a crash: settlements that are not durable may not have happened.
    pub(super) fn crashed(&mut self, durable_turn: u64) {
        self.certain.retain(|&turn| turn <= durable_turn);
        self.certain.iter_mut().for_each(|turn| *turn = 0);
    }
}
