//! The oracle's checks of a restart: durable data exists, other data exists or not, in the order in which it was
//! handed over.

use sennit_engine::{DeadLetters, PartitionDescription, SessionId};
use sennit_model::{Generation, GroupId, PartitionId, Timestamp};

use super::{
    Oracle, Violation,
    group::GroupModel,
    partition::{PartitionLife, PartitionModel},
};

impl Oracle {
    /// The shard is gone, with everything in its memory.
    pub fn crashed(&mut self) {
        self.subscriptions.clear();
        self.sent.clear();
        self.changes.clear();
        self.streams_crashed();
        let durable_turn = self.durable_turn;
        self.readers.crashed(durable_turn);
        for partition in self.partitions.values_mut() {
            partition.unreadable.clear();
            for group in partition.groups.values_mut() {
                group.crashed(durable_turn);
            }
        }
        for (_, asked) in std::mem::take(&mut self.asked) {
            let partition = self.partitions.get_mut(&asked.settle.partition);
            let group = partition.and_then(|held| held.groups.get_mut(&asked.settle.group));
            if let Some(group) = group {
                group.never_answered(&asked);
            }
        }
        self.is_fenced = false;
        self.is_full = false;
    }

    /// How far each partition goes that is there for sure.
    #[must_use]
    pub fn durable_ends(&self) -> Vec<(PartitionId, u64)> {
        let there = self.partitions.iter().filter(|(_, held)| held.is_open());
        there
            .map(|(&id, held)| (id, held.durable_end(self.durable_turn).max(held.seen_end)))
            .chain(self.streams.durable_ends(self.durable_turn))
            .collect()
    }

    /// The shard is back: these are its generation and partitions.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn recovered(
        &mut self,
        generation: Generation,
        found: &[(PartitionId, PartitionDescription)],
        now: Timestamp,
    ) -> Result<(), Violation> {
        // A life in which nothing was delivered may leave no trace.
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
            exists(*id, partition, description.is_some(), durable_turn)?;
            let Some(description) = description else { continue };
            let end = description.end.0;
            let least = partition.durable_end(durable_turn).max(partition.seen_end);
            let most = partition.entries.len() as u64;
            let holds_letters = partition.dead_letters == DeadLetters::Stay;
            if end < least || (!holds_letters && end > most) {
                return Err(Violation::new(
                    "I1 durable messages exist after a restart",
                    format!("{id} ends at {end}, durable was {least}, handed over {most}"),
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
            partition.seen_end = partition.seen_end.max(end);
            partition.goes_back(description.start);
            if !partition.is_clear() {
                partition.groups.values_mut().for_each(GroupModel::order_begins_again);
            }
            partition.kept(*id, description.start, now)?;
            let groups: Vec<GroupId> = description.groups.iter().map(|held| held.group).collect();
            groups_found(*id, partition, &groups, durable_turn)?;
        }
        if kept_batch >= lost_batch {
            return Err(Violation::new(
                "I1 a crash loses only the newest changes",
                format!("batch {kept_batch} is there, batch {lost_batch} is not"),
            ));
        }
        self.durable_turn = self.turn;
        self.cursors_gone();
        Ok(())
    }

    /// What the shard says of a partition while it runs.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn described(
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
                format!("{id} ends at {end}, {most} messages were handed over"),
            ));
        }
        partition.kept(id, description.start, now)?;
        partition.reported_end = end;
        Ok(())
    }

    /// Whether a session has a subscription.
    #[must_use]
    pub fn is_subscribed(&self, session: SessionId, subscription: u32) -> bool {
        self.subscriptions.contains_key(&(session, subscription))
    }
}

fn exists(
    id: PartitionId,
    partition: &mut PartitionModel,
    is_there: bool,
    durable_turn: u64,
) -> Result<(), Violation> {
    let broken = match (partition.existence, is_there) {
        (PartitionLife::Open(turn), false) => turn <= durable_turn,
        (PartitionLife::Dropped(turn), true) => turn <= durable_turn,
        _ => false,
    };
    if broken {
        return Err(Violation::new(
            "I7 what was created stays, and what was dropped stays dropped",
            format!("{id} is {:?}, and there: {is_there}", partition.existence),
        ));
    }
    partition.existence = if is_there { PartitionLife::Open(0) } else { PartitionLife::Dropped(0) };
    Ok(())
}

fn groups_found(
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
        match (partition.groups.contains_key(group), partition.gone.get(group)) {
            (false, None) => return wrong("was never made", *group),
            (false, Some(&turn)) if turn <= durable_turn => {
                return wrong("was dropped and is there", *group);
            }
            _ => {}
        }
    }
    let lost = |(group, model): &(&GroupId, &mut GroupModel)| {
        !groups.contains(group) && model.made <= durable_turn
    };
    if let Some((group, _)) = partition.groups.iter_mut().find(lost) {
        return wrong("is gone", *group);
    }
    for (group, turn) in &mut partition.gone {
        *turn = if groups.contains(group) { u64::MAX } else { 0 };
    }
    partition.groups.retain(|group, _| groups.contains(group));
    partition.groups.values_mut().for_each(|group| group.made = 0);
    Ok(())
}
