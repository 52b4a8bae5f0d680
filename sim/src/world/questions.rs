//! Questions that the shard answers at once, for the oracle: how a partition is, where a reader would begin, which
//! cursors there are.

use super::*;

impl World {
    /// Describes a partition to the oracle.
    ///
    /// # Errors
    /// The broken promise.
    pub fn describe(&mut self, id: PartitionId) -> Result<(), Violation> {
        match self.ask(id, PartitionCommand::Describe) {
            Some(Effect::Described { description, .. }) => {
                self.oracle.check_described(id, &description, self.now)
            }
            _ => Ok(()),
        }
    }

    /// Finds the offset at which a reader would begin, and tells the oracle. `None` if the reader
    /// is refused.
    ///
    /// # Errors
    /// The broken promise.
    pub fn locate(
        &mut self,
        id: PartitionId,
        from: ReadFrom,
        claim: Option<&CursorClaim>,
    ) -> Result<Option<Offset>, Violation> {
        self.describe(id)?;
        let effect = self.ask(id, PartitionCommand::Locate(from, claim.cloned()));
        let answer = match &effect {
            Some(Effect::Located { first, end, .. }) => Ok((*first, *end)),
            Some(Effect::Refused { refusal, .. }) => Err(refusal),
            _ => return Ok(None),
        };
        self.oracle.check_located(id, from, claim, answer)?;
        Ok(answer.ok().map(|(first, _)| first))
    }

    /// Passes the cursors of a partition to the oracle.
    pub(super) fn cursors(&mut self, id: PartitionId) -> Result<(), Violation> {
        match self.ask(id, PartitionCommand::ListCursors) {
            Some(Effect::Cursors { cursors, .. }) => self.oracle.check_cursors(id, &cursors),
            _ => Ok(()),
        }
    }

    /// Sends a request that is answered immediately.
    fn ask(&mut self, id: PartitionId, question: PartitionCommand) -> Option<Effect> {
        if self.is_fenced {
            return None;
        }
        let origin = Origin { session: SessionId(1), request: self.request() };
        self.parts.shard.handle(&mut vec![Command::Partition(origin, id, question)], self.now);
        let effects = self.parts.shard.effects();
        let is_answer = |effect: &Effect| match effect {
            Effect::Described { origin: asked, .. }
            | Effect::Located { origin: asked, .. }
            | Effect::Cursors { origin: asked, .. }
            | Effect::Refused { origin: asked, .. } => *asked == origin,
            _ => false,
        };
        let index = effects.iter().position(is_answer)?;
        Some(effects.remove(index))
    }

    pub(super) fn descriptions(
        &mut self,
        ids: &[PartitionId],
    ) -> Vec<(PartitionId, PartitionDescription)> {
        let mut found = Vec::new();
        for &id in ids {
            if let Some(Effect::Described { description, .. }) =
                self.ask(id, PartitionCommand::Describe)
            {
                found.push((id, description));
            }
        }
        found
    }
}
