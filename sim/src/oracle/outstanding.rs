//! The messages that are outstanding at the end: every message that a group has not settled has to be delivered, as
//! itself or as a dead letter.

use std::collections::BTreeMap;

use sennit_engine::DeadLetters;
use sennit_model::{GroupId, PartitionId, Timestamp};

use super::{Oracle, Violation, group::Done};

/// The promise that every message is delivered in the end.
pub const OUTSTANDING: &str = "I3 every unsettled message is delivered in the end";

impl Oracle {
    /// The outstanding messages: `(partition, group, offset)`. A message that expires by `now` is
    /// not outstanding.
    #[must_use]
    pub fn outstanding(&self, now: Timestamp) -> Vec<(PartitionId, GroupId, u64)> {
        let mut outstanding = Vec::new();
        for (&id, partition) in self.partitions.iter().filter(|(_, held)| held.is_open()) {
            for (&group, model) in &partition.groups {
                for offset in model.floor.max(partition.start)..partition.end() {
                    let done =
                        model.states.get(&offset).is_some_and(|state| state.done != Done::No);
                    let entry = partition.entries.get(offset as usize);
                    let expiry = entry.and_then(|entry| entry.expiry);
                    let is_letter = self.dead_letters_by_offset.contains_key(&(id, group, offset));
                    let is_hole =
                        model.holes.contains(&offset) || partition.may_be_compacted(offset, now);
                    // A full disk holds dead letters up.
                    let waits = self.is_full && model.may_have_died(offset);
                    if !done
                        && !is_letter
                        && !waits
                        && !is_hole
                        && expiry.is_none_or(|expiry| expiry > now)
                    {
                        outstanding.push((id, group, offset));
                    }
                }
            }
        }
        outstanding
    }

    /// The outstanding messages that were not reported as unreadable. A damaged dead letter is
    /// reported at its own place, without its source: each such report stands for one message that
    /// may have come there.
    #[must_use]
    pub fn outstanding_unreported(&self, now: Timestamp) -> Vec<(PartitionId, GroupId, u64)> {
        let mut unread: BTreeMap<PartitionId, usize> = BTreeMap::new();
        for (&id, held) in &self.partitions {
            let is_letter = |offset: &&u64| {
                held.entries.get(**offset as usize).is_none()
                    && !held.dead_letters_by_offset.contains_key(*offset)
            };
            unread.insert(id, held.unreadable.iter().filter(is_letter).count());
        }
        let mut outstanding = self.outstanding(now);
        outstanding.retain(|(id, group, offset)| {
            let source = &self.partitions[id];
            if source.unreadable.contains(offset) {
                return false;
            }
            let DeadLetters::To(topic) = source.dead_letters else { return true };
            let was_tried = source.groups[group].states.contains_key(offset);
            let there = unread.get_mut(&PartitionId { topic, index: id.index });
            match there.filter(|left| was_tried && **left > 0) {
                Some(left) => {
                    *left -= 1;
                    false
                }
                None => true,
            }
        });
        outstanding
    }

    /// Checks that no message is outstanding and no request is under way.
    ///
    /// # Errors
    /// The outstanding messages.
    pub fn check_settled(&self, now: Timestamp) -> Result<(), Violation> {
        let outstanding = self.outstanding(now);
        if let Some((id, group, offset)) = outstanding.first() {
            let state = self.partitions[id].groups[group].states.get(offset);
            let held = self.partitions[id].groups[group].held.get(offset);
            return Err(Violation::new(
                OUTSTANDING,
                format!(
                    "{} messages never came out, the first is {offset} of {id} for group {}: \
                     {state:?} {held:?}",
                    outstanding.len(),
                    group.0
                ),
            ));
        }
        for (id, partition) in self.partitions.iter().filter(|(_, held)| held.is_open()) {
            // The group that was made last has read all there is, in one go.
            let last = partition.groups.last_key_value();
            if let Some((group, offset)) =
                last.and_then(|(group, model)| Some((group, partition.resurrected(model)?)))
            {
                let detail = format!("offset {offset} of {id}, group {}", group.0);
                return Err(Violation::new("I9 a deleted key does not come back", detail));
            }
        }
        self.streams_settled()?;
        let pending = (self.sent.len(), self.asked.len(), self.changes.len());
        if pending != (0, 0, 0) {
            return Err(Violation::new(
                "every command is answered",
                format!("(publishes, settlements, changes) without an answer: {pending:?}"),
            ));
        }
        Ok(())
    }
}
