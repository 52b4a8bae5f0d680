//! The oracle's rules for groups with an order: a key, or the partition, is with one consumer at a time, and a message
//! goes out only when its group needs no earlier one of its key, or when the same consumer has that.

use sennit_engine::{DeadLetters, SessionId};
use sennit_model::{Generation, GroupId, Order, PartitionId, Timestamp};

use super::{
    Oracle, Violation,
    group::{AckState, GroupModel},
    partition::PartitionModel,
};

impl PartitionModel {
    /// The key by which a group schedules a message: with the order *partition* all have the same.
    pub(super) fn scheduling_key(&self, group: &GroupModel, offset: u64) -> &str {
        match group.setting.config.order {
            Order::Partition => "",
            Order::None | Order::Key => &self.says(offset).0.key,
        }
    }

    /// Whether a group certainly needs a message that no consumer has: it is ready, or waits for its next attempt.
    fn is_certainly_pending(
        &self,
        group: &GroupModel,
        offset: u64,
        (generation, now): (Generation, Timestamp),
    ) -> bool {
        let Some(entry) = self.entries.get(offset as usize) else { return false };
        let state = group.states.get(&offset);
        let was_delivered = state.is_some_and(|state| state.was_delivered_in(generation));
        let is_settled = state.is_some_and(|state| state.ack != AckState::No);
        // The oracle does not know when the timer of a delay has fired until the message is delivered, which says nothing
        // after a restart.
        let may_be_delayed = entry.due.is_some() && !was_delivered;
        let may_be_gone = entry.expiry.is_some_and(|expiry| expiry <= now)
            || offset < self.dropped_before
            || self.gaps.contains(&offset)
            || self.unreadable.contains(&offset)
            || group.may_be_settled(offset);
        !is_settled && !may_be_delayed && !may_be_gone && !group.leases.contains_key(&offset)
    }
}

impl Oracle {
    /// Checks that the order of a group allows to give a message to this consumer now.
    pub(super) fn check_order(
        &self,
        (id, group): (PartitionId, GroupId),
        offset: u64,
        consumer: (SessionId, u32),
        now: Timestamp,
    ) -> Result<(), Violation> {
        let Some(partition) = self.partitions.get(&id) else { return Ok(()) };
        let Some(model) = partition.groups.get(&group) else { return Ok(()) };
        // Where age or bytes free messages, leases may end with them.
        let knows_held = model.keeps_unsettled && partition.keeps_unsettled();
        if model.setting.config.order == Order::None || !knows_held || self.is_damaged() {
            return Ok(());
        }
        let key = partition.scheduling_key(model, offset);
        let is_of_key = |other: &u64| partition.scheduling_key(model, *other) == key;
        let wrong = |rule, other: u64, detail: String| {
            let place = format!("offset {offset} of {id}, group {}, key {key:?}", group.0);
            Err(Violation::new(rule, format!("{place}: {other} {detail}")))
        };
        let mut live = model.leases.iter().filter(|(_, lease)| lease.is_live(now));
        if let Some((&other, lease)) = live.find(|(other, lease)| {
            **other != offset && lease.holder() != consumer && is_of_key(other)
        }) {
            return wrong(
                "I4 a key is with one consumer at a time",
                other,
                format!("is with {:?}, it went to {consumer:?}", lease.holder()),
            );
        }
        if partition.dead_letters == DeadLetters::Stay {
            return Ok(());
        }
        let mut earlier = model.floor.max(partition.start)..offset;
        let time = (self.generation, now);
        let is_pending =
            |other: &u64| is_of_key(other) && partition.is_certainly_pending(model, *other, time);
        match earlier.find(is_pending) {
            Some(other) => wrong(
                "I4 a message holds back the later ones of its key",
                other,
                format!("comes first: {:?}", model.states.get(&other)),
            ),
            None => Ok(()),
        }
    }
}
