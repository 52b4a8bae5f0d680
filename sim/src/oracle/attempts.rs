//! The oracle's model of failed attempts: the least and the greatest possible number for a message.

/// Failed attempts at one message in one group.
#[derive(Clone, Debug, Default)]
pub(super) struct Failed {
    /// The turns of settlements that failed one for sure; 0 when that is durable.
    sure: Vec<u64>,
    /// The most there may be.
    most: u32,
}

impl Failed {
    /// So many there are at least.
    pub(super) fn least(&self) -> u32 {
        u32::try_from(self.sure.len()).unwrap_or(u32::MAX)
    }

    /// So many there are at most.
    pub(super) fn most(&self) -> u32 {
        self.most
    }

    /// A settlement of this turn has failed one.
    pub(super) fn settled(&mut self, turn: u64) {
        self.sure.push(turn);
        self.most += 1;
    }

    /// A lease ended without a word, and that may be a failed attempt.
    pub(super) fn may_be_more(&mut self) {
        self.most += 1;
    }

    /// Parked messages were asked for: if this was one, no failed attempt counts any more.
    pub(super) fn may_be_none(&mut self) {
        self.sure.clear();
    }

    /// A crash: what was not durable may not have happened.
    pub(super) fn crashed(&mut self, durable_turn: u64) {
        self.sure.retain(|&turn| turn <= durable_turn);
        self.sure.iter_mut().for_each(|turn| *turn = 0);
    }
}
