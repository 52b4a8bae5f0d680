//! The oracle's model of a topic's limit. It does not know exactly what a group has settled, so it bounds the number
//! from both sides: a refusal must be possible, and what certainly is not settled must fit. Messages are dropped from
//! the oldest on, so those that lie within the limit of the newest certainly stay.

use sennit_engine::{Publish, PublishNote, Refusal};
use sennit_model::{Timestamp, WhenFull};

use super::{
    Oracle, Violation,
    group::{AckState, GroupModel},
    partition::PartitionModel,
};

/// The promise that a topic's limit holds.
const LIMIT: &str = "I8 a partition holds no more than its limit";

impl PartitionModel {
    /// The number of messages that the group certainly has not settled.
    fn certainly_unsettled(&self, group: &GroupModel, now: Timestamp) -> u64 {
        let from = group.floor.max(self.start).max(self.dropped_before);
        let is_unsettled = |offset: &u64| {
            let is_unread = self.gaps.contains(offset) || self.holes.contains(offset);
            !is_unread && !group.may_be_settled(*offset) && !self.may_be_freed(*offset, now)
        };
        (from..self.entries.len() as u64).filter(is_unsettled).count() as u64
    }

    /// The greatest possible number of messages that the group has not settled.
    fn possibly_unsettled(&self, group: &GroupModel) -> u64 {
        let settled = group.states.values().filter(|state| matches!(state.ack, AckState::Acked(_)));
        self.entries.len() as u64 - settled.count() as u64
    }

    /// Notes that messages may have been dropped for a batch whose last message is the last one.
    fn may_have_dropped(&mut self) {
        let limit = self.config.limit;
        if let (Some(most), WhenFull::DropOldest) = (limit.messages, limit.when_full) {
            let kept_from = (self.entries.len() as u64).saturating_sub(most);
            self.dropped_before = self.dropped_before.max(kept_from);
        }
    }
}

impl Oracle {
    /// Whether a publish may be refused because its partition is full. Returns `false` if it is refused for
    /// another reason.
    pub(super) fn check_full(
        &self,
        publish: &Publish,
        refusal: &Refusal,
    ) -> Result<bool, Violation> {
        let Some(partition) = self.partitions.get(&publish.partition) else { return Ok(false) };
        let (limit, count) = (partition.config.limit, u64::from(publish.batch.count()));
        let is_possible = match refusal {
            Refusal::TopicFull { limit: "limit.messages", value, held } => {
                let most = partition.groups.values().map(|held| partition.possibly_unsettled(held));
                limit.when_full == WhenFull::Refuse
                    && limit.messages == Some(*value)
                    && held + count > *value
                    && *held <= most.max().unwrap_or_default()
            }
            Refusal::Limit { limit: "limit.messages", value } => {
                limit.messages == Some(*value) && count > *value
            }
            _ => return Ok(false),
        };
        match is_possible {
            true => Ok(true),
            false => Err(Violation::new(
                "a publish is refused only if its topic is full",
                format!("{refusal} of {count} messages, {limit:?}"),
            )),
        }
    }

    /// Checks that a batch which was just appended fits into the limit.
    pub(super) fn check_fits(
        &mut self,
        publish: &Publish,
        now: Timestamp,
    ) -> Result<(), Violation> {
        let Some(partition) = self.partitions.get_mut(&publish.partition) else { return Ok(()) };
        let Some(most) = partition.config.limit.messages else { return Ok(()) };
        partition.may_have_dropped();
        for group in partition.groups.values() {
            let held = partition.certainly_unsettled(group, now);
            if held > most {
                let (id, group) = (publish.partition, group.setting.id.0);
                let detail = format!("group {group} of {id} has not settled {held} of {most}");
                return Err(Violation::new(LIMIT, detail));
            }
        }
        Ok(())
    }

    /// Checks what a publisher is told of older messages.
    pub(super) fn check_publish_note(&self, note: &PublishNote) -> Result<(), Violation> {
        let partition = self.partitions.get(&note.partition);
        let drops = partition.is_some_and(|partition| partition.dropped_before > 0);
        if note.dropped > 0 && !drops {
            return Err(Violation::new(
                "a publish drops messages only of a full topic",
                format!("{note:?}"),
            ));
        }
        Ok(())
    }
}
