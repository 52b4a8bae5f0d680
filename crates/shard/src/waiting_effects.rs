//! The effects that promise something: each waits until everything is committed that was appended before it.

use std::collections::VecDeque;

use sennit_engine::{Effect, Origin};
use sennit_journal::Position;

/// Effects in order, with the positions for which they wait.
#[derive(Debug, Default)]
pub(crate) struct WaitingEffects {
    /// For each position: the number of effects that wait for its commit.
    counts: VecDeque<(Position, usize)>,
    effects: VecDeque<Effect>,
}

impl WaitingEffects {
    /// Has these effects wait until everything before `end` is committed.
    ///
    /// # Panics
    /// If an earlier effect waits for a later position.
    pub(crate) fn add(&mut self, end: Position, effects: &mut Vec<Effect>) {
        let count = effects.len();
        self.effects.extend(effects.drain(..));
        match self.counts.back_mut() {
            Some((position, waiting)) if *position == end => *waiting += count,
            last => {
                assert!(last.is_none_or(|(position, _)| *position < end), "effects out of order");
                self.counts.push_back((end, count));
            }
        }
    }

    /// Takes the effects that wait for the next position, if that is committed.
    pub(crate) fn next_committed(
        &mut self,
        committed: Position,
    ) -> Option<impl Iterator<Item = Effect>> {
        let (_, count) = self.counts.pop_front_if(|(position, _)| *position <= committed)?;
        Some(self.effects.drain(..count))
    }

    /// Returns whether an effect waits for more than what lies before `position`.
    pub(crate) fn waits_behind(&self, position: Position) -> bool {
        self.counts.back().is_some_and(|(waited_for, _)| *waited_for > position)
    }

    /// Drops all effects; returns the requests that they would have answered.
    pub(crate) fn give_up(&mut self) -> impl Iterator<Item = Origin> {
        self.counts.clear();
        self.effects.drain(..).filter_map(|effect| match effect {
            Effect::Done { origin, .. }
            | Effect::PublishedAt { origin, .. }
            | Effect::PublishedAtomic { origin, .. }
            | Effect::DelaysChanged { origin, .. }
            | Effect::Unparked { origin, .. }
            | Effect::Walked { origin, .. }
            | Effect::Refused { origin, .. }
            | Effect::Stream(origin, _) => Some(origin),
            Effect::Settled(settled) => Some(settled.origin),
            Effect::Confirmed(confirmed) => Some(confirmed.origin),
            _ => None,
        })
    }
}
