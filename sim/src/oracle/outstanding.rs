//! The messages that are outstanding at the end: every message that a group has not settled has to be delivered, as
//! itself or as a dead letter.

use std::collections::BTreeMap;

use sennit_engine::DeadLetters;
use sennit_model::{GroupId, PartitionId, Timestamp};

use super::{Oracle, Violation, group::AckState};

/// The promise that every message is delivered in the end.
pub const OUTSTANDING: &str = "I3 every unsettled message is delivered in the end";

impl Oracle {
    /// The outstanding messages: `(partition, group, offset)`. A message that expires by `now` is
    /// not outstanding.
    #[must_use]
    pub fn outstanding(&self, now: Timestamp) -> Vec<(PartitionId, GroupId, u64)> {
        let mut outstanding = Vec::new();
        for (&id, partition) in self.partitions.iter().filter(|(_, partition)| partition.is_open())
        {
            for (&group, model) in &partition.groups {
                for offset in model.floor.max(partition.start)..partition.end() {
                    let is_acked =
                        model.states.get(&offset).is_some_and(|state| state.ack != AckState::No);
                    let entry = partition.entries.get(offset as usize);
                    let expiry = entry.and_then(|entry| entry.expiry);
                    let is_letter = self.dead_letters_by_source.contains_key(&(id, group, offset));
                    let is_hole = model.holes.contains(&offset)
                        || offset < partition.dropped_before
                        || model.replacements.may_hold(offset)
                        || partition.may_be_compacted(offset, now);
                    // A full disk holds dead letters up.
                    let waits = self.is_full && model.may_be_dead_lettered(offset);
                    if !is_acked
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
    /// reported at its own offset, without its source: each such report accounts for one message that
    /// may have become that letter.
    #[must_use]
    pub fn outstanding_unreported(&self, now: Timestamp) -> Vec<(PartitionId, GroupId, u64)> {
        let mut unread_letters: BTreeMap<PartitionId, usize> = BTreeMap::new();
        for (&id, partition) in &self.partitions {
            let is_letter = |offset: &&u64| {
                partition.entries.get(**offset as usize).is_none()
                    && !partition.dead_letters_by_offset.contains_key(*offset)
            };
            unread_letters.insert(id, partition.unreadable.iter().filter(is_letter).count());
        }
        let mut outstanding = self.outstanding(now);
        outstanding.retain(|(id, group, offset)| {
            let source = &self.partitions[id];
            if source.unreadable.contains(offset) {
                return false;
            }
            let DeadLetters::To(topic) = source.dead_letters else { return true };
            let was_delivered = source.groups[group].states.contains_key(offset);
            let unread = unread_letters.get_mut(&PartitionId { topic, index: id.index });
            match unread.filter(|count| was_delivered && **count > 0) {
                Some(count) => {
                    *count -= 1;
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
            let lease = self.partitions[id].groups[group].leases.get(offset);
            return Err(Violation::new(
                OUTSTANDING,
                format!(
                    "{} messages were never delivered, the first is {offset} of {id} for group {}: \
                     {state:?} {lease:?}",
                    outstanding.len(),
                    group.0
                ),
            ));
        }
        for (id, partition) in self.partitions.iter().filter(|(_, partition)| partition.is_open()) {
            // The newest group has read every message, in one pass.
            let last = partition.groups.last_key_value();
            if let Some((group, offset)) =
                last.and_then(|(group, model)| Some((group, partition.resurrected(model)?)))
            {
                let detail = format!("offset {offset} of {id}, group {}", group.0);
                return Err(Violation::new("I9 a deleted key does not come back", detail));
            }
        }
        self.check_streams_answered()?;
        let pending = (self.publishes.len(), self.settlements.len(), self.changes.len());
        if pending != (0, 0, 0) {
            return Err(Violation::new(
                "every command is answered",
                format!("(publishes, settlements, changes) without an answer: {pending:?}"),
            ));
        }
        Ok(())
    }
}
