//! What becomes of a shard when its standing in its group changes.

use sennit_engine::{Effect, Refusal};
use sennit_journal::Position;
use sennit_model::Timestamp;

use crate::{
    quarantine::Quarantine,
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
    /// If the state is poisoned: another state has to take its place first. If the replica is in quarantine.
    pub fn stand(&mut self, standing: Standing, now: Timestamp) {
        let before = std::mem::replace(&mut self.standing, standing);
        let may = match before {
            Standing::Quarantined => standing == Standing::Quarantined,
            Standing::Poisoned => matches!(standing, Standing::Poisoned | Standing::Quarantined),
            _ => true,
        };
        assert!(may, "a poisoned state stays so until it is thrown away, and quarantine for good");
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
        if !self.is_usable() {
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

    /// The reason why the replica is in quarantine, if it is.
    #[must_use]
    pub fn quarantine(&self) -> Option<Quarantine> {
        self.writer.log.as_ref().and_then(|log| log.quarantine)
    }

    /// The reason why a start puts a replica of a group into quarantine: its lane says that it was in it, or is damaged where
    /// the start has read it.
    pub(crate) fn found_quarantine(&self, damage: Option<Position>) -> Option<Quarantine> {
        let log = self.writer.log.as_ref().filter(|log| !log.replica.is_alone)?;
        log.quarantine.or(damage.map(|position| Quarantine::Damaged { position: position.0 }))
    }

    /// Puts the replica into quarantine, for good: the lane says so once it has written what is appended for that. The state
    /// is of no use any more, and the lane stays as it is: no checkpoint hides what was found, and no segment goes.
    ///
    /// # Panics
    /// If the shard is no replica.
    pub fn enter_quarantine(&mut self, quarantine: Quarantine, now: Timestamp) {
        if self.quarantine().is_none() {
            self.writer.append_quarantine(quarantine);
        }
        self.stand(Standing::Quarantined, now);
    }

    /// Returns whether commands and timers are decided.
    pub(crate) fn decides(&self) -> bool {
        !self.fenced && !self.awaits_group && self.standing.decides()
    }

    /// Returns whether the state is what the group has decided, so that a checkpoint may save it, and its batches
    /// may be moved and freed.
    pub(crate) fn is_usable(&self) -> bool {
        !matches!(self.standing, Standing::Poisoned | Standing::Quarantined)
    }

    /// Returns whether messages are delivered.
    pub(crate) fn delivers(&self) -> bool {
        let may_give = match self.standing {
            Standing::Alone => self.generation_is_written,
            Standing::Leader { may_give, .. } => may_give,
            _ => false,
        };
        may_give && !self.fenced && !self.awaits_group
    }
}
