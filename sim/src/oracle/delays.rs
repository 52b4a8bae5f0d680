//! The oracle's model of changes of publishers' delays: once the answer is there, a cancelled message is delivered to no
//! group, and a rescheduled one not before its new due time. Until then both may be so.

use std::collections::BTreeMap;

use sennit_engine::{Command, DelayChange, PartitionCommand, Refusal};
use sennit_model::{Offset, PartitionId, Timestamp};

use super::{Oracle, Violation, partition::PartitionModel};

/// A change of delays without an answer.
#[derive(Clone, Debug)]
pub(super) struct PendingChange {
    partition: PartitionId,
    offsets: Vec<u64>,
    /// The new due time; `None` for messages that are cancelled.
    due: Option<Timestamp>,
    turn: u64,
}

/// The changes without an answer, by request.
pub(super) type PendingChanges = BTreeMap<u64, PendingChange>;

/// Whether a refusal says that a message is not delayed: the oracle does not know whether its timer has fired.
pub(super) fn is_no_delay(command: &Command, refusal: &Refusal) -> bool {
    let changes = matches!(command, Command::Partition(_, _, PartitionCommand::ChangeDelayed(..)));
    changes && matches!(refusal, Refusal::NotDelayed { .. } | Refusal::UnknownMessage { .. })
}

impl PartitionModel {
    /// The messages that wait because of their delay, as far as the oracle knows.
    fn delayed(&self, now: Timestamp) -> impl Iterator<Item = u64> {
        let entries = (0..).zip(&self.entries).skip(self.start as usize);
        let waits = move |entry: &super::partition::Entry| {
            !entry.is_cancelled && entry.due.is_some_and(|due| due > now)
        };
        entries.filter(move |(_, entry)| waits(entry)).map(|(offset, _)| offset)
    }
}

impl Oracle {
    /// The messages of a partition that wait because of their delay.
    #[must_use]
    pub fn delayed(&self, id: PartitionId, now: Timestamp) -> Vec<u64> {
        let partition = self.partitions.get(&id).filter(|partition| partition.is_open());
        partition.map(|partition| partition.delayed(now).collect()).unwrap_or_default()
    }

    /// Notes a change that was not refused.
    pub(super) fn change_delays(
        &mut self,
        request: u64,
        id: PartitionId,
        (offsets, change): (&[Offset], &DelayChange),
        now: Timestamp,
    ) {
        let Some(partition) = self.partitions.get_mut(&id) else { return };
        let due = match change {
            DelayChange::Cancel => None,
            DelayChange::DueAt(due) => Some(*due),
            DelayChange::DueAfter(delay) => Some(now.plus(*delay)),
        };
        let offsets: Vec<u64> = offsets.iter().map(|offset| offset.0).collect();
        for &offset in &offsets {
            let Some(entry) = partition.entries.get_mut(offset as usize) else { continue };
            if let Some(due) = due {
                entry.due = entry.due.map(|held| held.min(due));
                continue;
            }
            // Groups may be through with it, and later ones may not receive it.
            partition.holes.insert(offset);
            partition.groups.values_mut().for_each(|group| group.replacements.note(offset, None));
        }
        let pending = PendingChange { partition: id, offsets, due, turn: self.turn };
        self.delay_changes.insert(request, pending);
    }

    /// Checks the answer to a change: it is durable, and certain from now on.
    pub(super) fn check_delays_changed(
        &mut self,
        request: u64,
        count: u64,
    ) -> Result<(), Violation> {
        let Some(change) = self.delay_changes.remove(&request) else { return Ok(()) };
        self.must_be_durable(change.turn, &(request, &change))?;
        if count != change.offsets.len() as u64 {
            let detail = format!("{count} messages by {change:?}");
            return Err(Violation::new(
                "I7 a change of delays is for all messages or none",
                detail,
            ));
        }
        let Some(partition) = self.partitions.get_mut(&change.partition) else { return Ok(()) };
        for offset in change.offsets {
            let others = self.delay_changes.values();
            let is_last = !others
                .filter(|other| other.partition == change.partition)
                .any(|other| other.offsets.contains(&offset));
            let Some(entry) = partition.entries.get_mut(offset as usize) else { continue };
            match change.due {
                None => entry.is_cancelled = true,
                Some(due) if is_last => entry.due = Some(due),
                Some(_) => {}
            }
        }
        Ok(())
    }
}
