//! Topics that are not durable deliver and confirm messages before the commit, as far as offsets are reserved, and
//! mark them so. A reader receives a rollback for messages that a crash has taken back.

use sennit_model::{
    Durability, Offset, OffsetRange, PartitionId,
    limits::{MEMORY_SHARD_BYTES, RESERVED_OFFSETS},
};

use crate::{
    effect::{Effect, GapReason},
    engine::{Engine, Journal, Outbox, mark_ready},
    group::range,
    record::Record,
    refusal::Refusal,
};

impl Engine {
    /// Keeps a record where the partition's durability has it kept: in the journal as a rule. Returns
    /// its position.
    pub(crate) fn keep(&self, record: &Record, journal: &mut impl Journal) -> u64 {
        if self.memory.of_record(record).is_some() {
            return record.batch().map_or(0, |batch| journal.keep(batch));
        }
        let position = journal.append(record);
        if let Record::Appended { partition, batch, .. }
        | Record::Requeued { target: partition, batch, .. } = record
            && self.reserved.get(*partition).is_some()
        {
            journal.keep_until_committed(position, batch);
        }
        position
    }

    /// Has room for a batch of so many bytes that is kept in memory alone, or says why there is none.
    pub(crate) fn make_room(
        &mut self,
        id: PartitionId,
        bytes: u64,
        journal: &mut impl Journal,
    ) -> Result<(), Refusal> {
        let fits = |of_all: u64| of_all + bytes <= MEMORY_SHARD_BYTES;
        let own = |engine: &Self| engine.partitions.get(&id).map_or(0, |held| held.log.bytes());
        if !fits(self.memory.bytes() - own(self)) {
            return Err(Refusal::memory_shard_bytes());
        }
        while !fits(self.memory.bytes())
            && let Some(oldest) = self.partitions.get(&id).and_then(|held| held.log.oldest())
        {
            let start = Offset(oldest.end());
            self.commit(&Record::Trimmed { partition: id, start }, journal);
        }
        Ok(())
    }

    /// Reserves offsets for `count` messages and more, if few are left; says whether it did.
    pub(crate) fn reserve(
        &mut self,
        id: PartitionId,
        count: u32,
        journal: &mut impl Journal,
    ) -> bool {
        let Some(partition) = self.partitions.get(&id) else { return false };
        let end = partition.log.end() + u64::from(count);
        let is_short = self.reserved.get(id).is_none_or(|held| held.is_short(end));
        if is_short {
            self.append_reservation(id, end + RESERVED_OFFSETS, journal);
        }
        is_short
    }

    fn append_reservation(&mut self, id: PartitionId, end: u64, journal: &mut impl Journal) {
        self.commit(&Record::Reserved { partition: id, end: Offset(end) }, journal);
    }

    /// Offsets below `end` are reserved.
    pub(crate) fn apply_reserved(&mut self, id: PartitionId, end: u64, position: u64) {
        if let Some(partition) = self.partitions.get(&id) {
            self.reserved.set(id, end, position, partition.visible);
        }
    }

    /// Reservations before `position` are committed: what they cover may be delivered.
    pub(crate) fn reservations_committed(&mut self, position: u64) {
        while let Some(id) = self.reserved.next_committed(position) {
            let Some(partition) = self.partitions.get_mut(&id) else { continue };
            let end = partition.log.end();
            if partition.config.durability != Durability::Durable && self.reserved.covers(id, end) {
                partition.show(end);
                mark_ready(&mut self.ready_list, partition);
            }
        }
    }

    /// Whether a batch that was just appended, or had been before, is confirmed before it is committed, and
    /// what it has reached when it is confirmed. If not before, there is something to wait for.
    /// `has_reserved` says whether a reservation was appended with it.
    pub(crate) fn confirms_now(
        &mut self,
        id: PartitionId,
        has_reserved: bool,
        journal: &mut impl Journal,
    ) -> (bool, Durability) {
        let late = (false, Durability::Durable);
        let Some(partition) = self.partitions.get(&id) else { return late };
        let durability = partition.config.durability;
        if matches!(durability, Durability::Durable | Durability::Speculative) {
            return late;
        }
        let end = partition.log.end();
        if partition.visible == end && !self.reserved.is_awaited(id) {
            return (true, durability);
        }
        if !has_reserved {
            // What waits has a record of its own to wait for.
            self.append_reservation(id, end + RESERVED_OFFSETS, journal);
        }
        self.reserved.await_last(id);
        if durability == Durability::Memory { (false, durability) } else { late }
    }

    /// Gives back what is reserved and was not used: nothing is published any more. A stop after
    /// that leaves no hole. What is published all the same reserves anew.
    pub fn give_back_reserved(&mut self, journal: &mut impl Journal) {
        for id in self.reserved.ids() {
            let end = self.partitions.get(&id).map(|partition| partition.log.end());
            if let (Some(end), Some(held)) = (end, self.reserved.get(id))
                && end < held.end
            {
                self.append_reservation(id, end, journal);
            }
        }
    }

    /// Nothing that is not committed will be: a gap goes to each who received some of it.
    pub fn roll_back(&mut self, out: &mut Outbox) {
        for id in self.reserved.ids() {
            let Some(partition) = self.partitions.get(&id) else { continue };
            let durability = partition.config.durability;
            let is_journaled =
                matches!(durability, Durability::Speculative | Durability::Ephemeral);
            let Some(held) = self.reserved.get(id).filter(|_| is_journaled) else { continue };
            let (start, end) = (held.committed(), partition.visible);
            if start >= end {
                continue;
            }
            let tell =
                |holder, until| Effect::gap(holder, id, range(start, until), GapReason::RolledBack);
            for group in &partition.groups {
                let untouched = group.ready.within(start, end).into_iter();
                let untouched: u64 = untouched.map(|(from, to, _)| to - from).sum();
                if untouched < end - start {
                    let members = group.activity().members.iter();
                    out.now.extend(members.map(|member| tell(member.holder, end)));
                }
            }
            let readers = self.readers.of(id).into_iter().flat_map(|held| held.readers.values());
            let saw = readers.filter(|reader| reader.at > start);
            out.now.extend(saw.map(|reader| tell(reader.holder, reader.at)));
        }
    }

    /// What a replay finds lost of a partition at its end: what may have been delivered and is not here.
    /// `most` messages can have been in holes of the journal; `is_sure` says that none of this
    /// partition were.
    pub(crate) fn lost_at_end(
        &self,
        id: PartitionId,
        most: u64,
        is_sure: bool,
    ) -> Option<OffsetRange> {
        let view = self.partitions.peek(&id)?;
        let partition = view.partition();
        let (end, durability) = (partition.log.end(), partition.config.durability);
        let mut to = self.reserved.get(id).map_or(end, |held| held.end.max(end));
        if !is_sure {
            to = to.max(end + most);
        }
        if most > 0 && durability != Durability::Durable {
            to = to.max(end + crate::reserved::reserved_max(most));
        }
        // What was in memory alone is gone from the very first.
        let start = if durability == Durability::Memory { 0 } else { end };
        let is_known = self.lost.of(id).any(|lost| lost.start <= start && to <= lost.end);
        (start < to && !is_known).then(|| range(start, to))
    }
}
