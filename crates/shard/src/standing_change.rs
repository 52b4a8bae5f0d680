//! What becomes of a shard when its standing in its group changes.

use sennit_engine::{Effect, Refusal};
use sennit_model::Timestamp;

use crate::{
    shard::Shard,
    standing::{Standing, generation_of},
};

impl Shard {
    /// The standing.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// Has another standing from `now` on. A leader that does not lead any more forgets what it has in memory
    /// alone: open requests learn that their outcome is unknown, and consumers and readers that they have to ask
    /// again.
    ///
    /// # Panics
    /// If the state is poisoned: another state has to take its place first.
    pub fn stand(&mut self, standing: Standing, now: Timestamp) {
        let before = std::mem::replace(&mut self.standing, standing);
        let is_usable = before != Standing::Poisoned || standing == Standing::Poisoned;
        assert!(is_usable, "a poisoned state stays so until it is thrown away");
        let goes_on = before.leads() && standing.leads() && before.term() == standing.term();
        if before.leads() && !goes_on {
            self.step_down(now);
        }
        if let Standing::Leader { term, .. } = standing
            && !goes_on
            && !self.fenced
        {
            self.engine.lead(generation_of(term), now, &mut self.writer);
        }
        if standing == Standing::Poisoned {
            // None of what it has led to is true of the state that follows.
            self.checkpoints.abandon();
            self.moves.pending.clear();
            self.freed.clear();
        }
        self.finish_turn(now);
    }

    fn step_down(&mut self, now: Timestamp) {
        self.give_up_waiting();
        self.compacting.abandon();
        if !self.fenced {
            self.engine.roll_back(&mut self.outbox);
        }
        self.engine.rest(now, &mut self.outbox);
        self.effects.append(&mut self.outbox.now);
    }

    /// Tells all who wait for a commit that their outcome is unknown.
    pub(crate) fn give_up_waiting(&mut self) {
        let refusal = Refusal::OutcomeUnknown;
        let origins = self.waiting.give_up();
        self.effects
            .extend(origins.map(|origin| Effect::Refused { origin, refusal: refusal.clone() }));
    }

    /// Returns whether commands and timers are decided.
    pub(crate) fn decides(&self) -> bool {
        !self.fenced && self.standing.decides()
    }

    /// Returns whether the state is what the group has decided, so that a checkpoint may save it, and its batches
    /// may be moved and freed.
    pub(crate) fn is_usable(&self) -> bool {
        self.standing != Standing::Poisoned
    }

    /// Returns whether messages are delivered.
    pub(crate) fn delivers(&self) -> bool {
        let may_give = match self.standing {
            Standing::Alone => self.generation_is_written,
            Standing::Leader { may_give, .. } => may_give,
            _ => false,
        };
        may_give && !self.fenced
    }
}
