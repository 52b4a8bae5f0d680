//! The oracle's checks of a restart: durable data exists, other data exists or not, in the order in which it was
//! published.

use sennit_engine::{DeadLetters, PartitionDescription, SessionId};
use sennit_model::{Generation, GroupId, PartitionId, Timestamp};

use super::{
    Oracle, Violation,
    fair::Buckets,
    group::GroupModel,
    partition::{PartitionLife, PartitionModel},
};

impl Oracle {
    /// Notes that the shard has ended, with everything in its memory.
    pub fn crashed(&mut self) {
        self.subscriptions.clear();
        self.publishes.clear();
        self.changes.clear();
        self.streams_crashed();
        self.copies.crashed();
        self.buckets = Buckets::default();
        let durable_turn = self.durable_turn;
        self.readers.crashed(durable_turn);
        for partition in self.partitions.values_mut() {
            partition.unreadable.clear();
            for group in partition.groups.values_mut() {
                group.crashed(durable_turn);
            }
        }
        self.delay_changes.clear();
        for (_, pending) in std::mem::take(&mut self.settlements) {
            let partition = self.partitions.get_mut(&pending.settle.partition);
            let group = partition.and_then(|held| held.groups.get_mut(&pending.settle.group));
            if let Some(group) = group {
                group.settlement_unanswered(&pending);
            }
        }
        self.is_fenced = false;
        self.is_full = false;
    }

    /// The certain end of each partition that certainly exists.
    #[must_use]
    pub fn durable_ends(&self) -> Vec<(PartitionId, u64)> {
        let open = self.partitions.iter().filter(|(_, held)| held.is_open());
        open.map(|(&id, held)| (id, held.durable_end(self.durable_turn).max(held.visible_end)))
            .chain(self.streams.durable_ends(self.durable_turn))
            .collect()
    }

    /// Checks the generation and the partitions of a shard that has started.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn check_recovered(
        &mut self,
        generation: Generation,
        found: &[(PartitionId, PartitionDescription)],
        now: Timestamp,
    ) -> Result<(), Violation> {
        // A generation without deliveries may leave no trace.
        if generation <= self.delivering_generation {
            return Err(Violation::new(
                "I5 generations rise",
                format!("generation {} after {}", generation.0, self.delivering_generation.0),
            ));
        }
        self.generation = generation;
        for (id, _) in found {
            if !self.partitions.contains_key(id) {
                return Err(Violation::new(
                    "I2 nothing exists that was never created",
                    format!("partition {id}"),
                ));
            }
        }
        let (mut kept_batch, mut lost_batch) = (0, u64::MAX);
        let durable_turn = self.durable_turn;
        for (id, partition) in &mut self.partitions {
            let description = found.iter().find(|held| held.0 == *id).map(|held| &held.1);
            check_exists(*id, partition, description.is_some(), durable_turn)?;
            let Some(description) = description else { continue };
            let end = description.end.0;
            let least = partition.durable_end(durable_turn).max(partition.visible_end);
            let most = partition.entries.len() as u64;
            let holds_letters = partition.dead_letters == DeadLetters::Stay;
            if end < least || (!holds_letters && end > most) {
                return Err(Violation::new(
                    "I1 durable messages exist after a restart",
                    format!("{id} ends at {end}, durable were {least}, published {most}"),
                ));
            }
            if !holds_letters {
                lost_batch = partition.entries[end as usize..]
                    .first()
                    .map_or(lost_batch, |entry| lost_batch.min(entry.batch));
                partition.entries.truncate(end as usize);
                if let Some(last) = partition.entries.last() {
                    kept_batch = kept_batch.max(last.batch);
                }
            }
            partition.entries.iter_mut().for_each(|entry| entry.turn = 0);
            partition.visible_end = partition.visible_end.max(end);
            partition.note_restored_start(description.start);
            if !partition.keeps_unsettled() {
                partition.groups.values_mut().for_each(GroupModel::reset_delivery_order);
            }
            partition.check_start(*id, description.start, now)?;
            let groups: Vec<GroupId> = description.groups.iter().map(|held| held.group).collect();
            check_groups(*id, partition, &groups, durable_turn)?;
        }
        if kept_batch >= lost_batch {
            return Err(Violation::new(
                "I1 a crash loses only the newest changes",
                format!("batch {kept_batch} exists, batch {lost_batch} does not"),
            ));
        }
        self.durable_turn = self.turn;
        self.remove_cursors_of_dropped();
        Ok(())
    }

    /// Checks how a running shard describes a partition.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn check_described(
        &mut self,
        id: PartitionId,
        description: &PartitionDescription,
        now: Timestamp,
    ) -> Result<(), Violation> {
        let Some(partition) = self.partitions.get_mut(&id) else { return Ok(()) };
        let end = description.end.0;
        let most = partition.entries.len() as u64;
        let holds_letters = partition.dead_letters == DeadLetters::Stay;
        if !holds_letters && end != most {
            return Err(Violation::new(
                "I4 offsets are dense",
                format!("{id} ends at {end}, {most} messages were published"),
            ));
        }
        partition.check_start(id, description.start, now)?;
        partition.described_end = end;
        Ok(())
    }

    /// Whether a session has a subscription.
    #[must_use]
    pub fn is_subscribed(&self, session: SessionId, subscription: u32) -> bool {
        self.subscriptions.contains_key(&(session, subscription))
    }
}

fn check_exists(
    id: PartitionId,
    partition: &mut PartitionModel,
    exists: bool,
    durable_turn: u64,
) -> Result<(), Violation> {
    let broken = match (partition.existence, exists) {
        (PartitionLife::Open(turn), false) => turn <= durable_turn,
        (PartitionLife::Dropped(turn), true) => turn <= durable_turn,
        _ => false,
    };
    if broken {
        return Err(Violation::new(
            "I7 what was created stays, and what was dropped stays dropped",
            format!("{id} is {:?}, exists: {exists}", partition.existence),
        ));
    }
    partition.existence = if exists { PartitionLife::Open(0) } else { PartitionLife::Dropped(0) };
    Ok(())
}

fn check_groups(
    id: PartitionId,
    partition: &mut PartitionModel,
    groups: &[GroupId],
    durable_turn: u64,
) -> Result<(), Violation> {
    let wrong = |what: &str, group: GroupId| {
        Err(Violation::new("I7 what was created stays, and what was dropped stays dropped", {
            format!("group {} of {id} {what}", group.0)
        }))
    };
    for group in groups {
        match (partition.groups.contains_key(group), partition.deleted_groups.get(group)) {
            (false, None) => return wrong("was never created", *group),
            (false, Some(&turn)) if turn <= durable_turn => {
                return wrong("was deleted and exists", *group);
            }
            _ => {}
        }
    }
    let lost = |(group, model): &(&GroupId, &mut GroupModel)| {
        !groups.contains(group) && model.created <= durable_turn
    };
    if let Some((group, _)) = partition.groups.iter_mut().find(lost) {
        return wrong("was created and does not exist", *group);
    }
    for (group, turn) in &mut partition.deleted_groups {
        *turn = if groups.contains(group) { u64::MAX } else { 0 };
    }
    partition.groups.retain(|group, _| groups.contains(group));
    partition.groups.values_mut().for_each(|group| group.created = 0);
    Ok(())
}
