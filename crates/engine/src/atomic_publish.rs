//! Atomic publishes: batches for several partitions and acks of deliveries, all of which are done or none. All are
//! decided before anything is appended; their records lie in one frame. It knows no sessions and no placement.

use sennit_model::{Durability, PartitionId, Timestamp};

use crate::{
    admission::Refused,
    command::{AtomicAck, Origin, Publish, PublishAtomic},
    dedup::Deduplication,
    effect::{AtomicPart, ConfirmedPart, Effect},
    engine::{Engine, Journal, Outbox},
    producer::Admission,
    publish_rules::{SETTLED_TOGETHER_MAX, decide},
    record::Record,
    refusal::{AtomicItem, Refusal},
    topic_limit::MadeRoom,
};

/// The first part or ack that refuses the whole, and why.
type RefusedItem = (AtomicItem, Refusal);

/// An atomic publish that will be done.
#[derive(Default)]
struct Decided {
    /// The answers to its parts.
    parts: Vec<AtomicPart>,
    /// For each partition that is not durable, the appended messages and bytes.
    unsafe_parts: Vec<(PartitionId, Durability, u32, u64)>,
    /// Settlements that do not fit into the frame, and go before it: messages are dropped early.
    early: Vec<Record>,
    /// What lies in one frame.
    records: Vec<Record>,
    /// Settlements that do not fit into the frame, and go behind it: messages are replaced late.
    late: Vec<Record>,
}

impl Engine {
    pub(crate) fn publish_atomic(
        &mut self,
        step: PublishAtomic,
        now: Timestamp,
        journal: &mut impl Journal,
        out: &mut Outbox,
    ) {
        let PublishAtomic { origin, parts, acks } = step;
        parts.iter().for_each(|part| self.end_if_over(part.partition, now, journal));
        let decided = self.decide_atomic(origin, &parts, &acks, now).and_then(|mut decided| {
            self.prepare_parts(&mut decided, journal)?;
            Ok(decided)
        });
        let decided = match decided {
            Ok(decided) => decided,
            Err((item, why)) => {
                // What it depends on may not be committed yet.
                let refusal = Refusal::Atomic { item, why: Box::new(why) };
                return out.tell(Effect::Refused { origin, refusal }, false);
            }
        };
        let Decided { mut parts, unsafe_parts, early, records, late } = decided;
        for AtomicAck { partition, group, .. } in &acks {
            let partition = self.partitions.get_mut(partition);
            if let Some(group) = partition.and_then(|held| held.group(*group)) {
                group.clear_stuck(origin.session);
            }
        }
        early.iter().for_each(|record| self.commit(record, journal));
        let journaled = records.iter().filter(|record| self.memory.of_record(record).is_none());
        let journaled: Vec<Record> = journaled.cloned().collect();
        if journaled.len() > 1 {
            journal.hold_together(&journaled);
        }
        records.iter().chain(&late).for_each(|record| self.commit(record, journal));
        for (id, durability, ..) in unsafe_parts {
            // All of it is answered when all of it is committed.
            let (_, reached) = self.confirms_now(id, false, journal);
            if durability == Durability::Memory {
                let part = parts.iter_mut().find(|part| part.partition == id);
                part.into_iter().for_each(|part| part.durability = reached);
            }
        }
        out.tell(Effect::PublishedAtomic { origin, parts: parts.into() }, false);
    }

    /// Decides each part and each ack by the state before the step: none depends on another.
    fn decide_atomic(
        &self,
        origin: Origin,
        parts: &[Publish],
        acks: &[AtomicAck],
        now: Timestamp,
    ) -> Result<Decided, RefusedItem> {
        let mut admitted = Vec::with_capacity(parts.len());
        for (at, part) in parts.iter().enumerate() {
            let refused = |why| (AtomicItem::part(at, part.partition), why);
            if parts[..at].iter().any(|other| other.partition == part.partition) {
                return Err(refused(Refusal::AtomicRepeated));
            }
            let admission = self.admit_publish(part, None, now).map_err(|why| refused(why_of(why)));
            admitted.push(admission?);
        }
        let is_duplicate = |(admission, _): &(Admission, bool)| *admission != Admission::New;
        let duplicates = admitted.iter().filter(|admitted| is_duplicate(admitted)).count();
        if duplicates > 0 && duplicates < parts.len() {
            let at = admitted.iter().position(is_duplicate).unwrap_or_default();
            let item = AtomicItem::part(at, parts[at].partition);
            return Err((item, Refusal::AtomicPartly));
        }
        if duplicates > 0 {
            // Its acks were committed with it.
            let known = parts.iter().zip(admitted);
            let parts = known.map(|(part, (admission, _))| duplicate_of(part, admission)).collect();
            return Ok(Decided { parts, ..Decided::default() });
        }
        let mut decided = Decided::default();
        let (mut early_room, mut late_room) = (SETTLED_TOGETHER_MAX, SETTLED_TOGETHER_MAX);
        for (at, ack) in acks.iter().enumerate() {
            let refused = |why| (AtomicItem::Ack { at, partition: ack.partition }, why);
            let place = |ack: &AtomicAck| (ack.partition, ack.group);
            if acks[..at].iter().any(|other| place(other) == place(ack)) {
                return Err(refused(Refusal::AtomicRepeated));
            }
            let records = self.ack_records(origin.session, place(ack), &ack.runs);
            decided.records.extend(records.map_err(refused)?);
        }
        for (at, part) in parts.iter().enumerate() {
            let refused = |why| (AtomicItem::part(at, part.partition), why);
            let Some(partition) = self.partitions.get(&part.partition) else {
                return Err(refused(Refusal::UnknownTopic));
            };
            let durability = partition.config.durability;
            let (deduplication, made) = decide(partition, part, None, now).map_err(refused)?;
            let Deduplication { records, parts, count, bytes, replaced } = deduplication;
            let MadeRoom { records: dropping, dropped } = made;
            let overflow = dropping.len().saturating_sub(early_room);
            early_room -= dropping.len() - overflow;
            let mut dropping = dropping.into_iter();
            decided.early.extend(dropping.by_ref().take(overflow));
            decided.records.extend(dropping);
            for record in records {
                match record {
                    Record::Settled { .. } if late_room == 0 => decided.late.push(record),
                    Record::Settled { .. } => {
                        late_room -= 1;
                        decided.records.push(record);
                    }
                    record => decided.records.push(record),
                }
            }
            if count > 0 && durability != Durability::Durable {
                decided.unsafe_parts.push((part.partition, durability, count, bytes));
            }
            decided.parts.push(AtomicPart {
                partition: part.partition,
                count: part.batch.count(),
                durability: Durability::Durable,
                runs: parts.into(),
                dropped,
                replaced,
            });
        }
        Ok(decided)
    }

    /// Has room and offsets for the parts that are not durable. The room that was made stays made if another has
    /// none.
    fn prepare_parts(
        &mut self,
        decided: &mut Decided,
        journal: &mut impl Journal,
    ) -> Result<(), RefusedItem> {
        for &(id, durability, count, bytes) in &decided.unsafe_parts {
            self.prepare(id, (count, bytes), durability, journal).map_err(|why| {
                let at = decided.parts.iter().position(|part| part.partition == id);
                (AtomicItem::part(at.unwrap_or_default(), id), why)
            })?;
        }
        Ok(())
    }
}

/// The answer to a batch that was published before.
fn duplicate_of(part: &Publish, admission: Admission) -> AtomicPart {
    let count = part.batch.count();
    let first_offset = match admission {
        Admission::Duplicate(first) => first,
        Admission::New => None,
    };
    let run = |first_offset| ConfirmedPart { count, first_offset, duplicate: true };
    AtomicPart {
        partition: part.partition,
        count,
        durability: Durability::Durable,
        runs: first_offset.map(run).into_iter().collect(),
        dropped: 0,
        replaced: 0,
    }
}

/// The refusal of a part; the answer to the step waits for commits in any case.
fn why_of(refused: Refused) -> Refusal {
    match refused {
        Refused::AtOnce(refusal) | Refused::AfterCommit(refusal) => refusal,
        // A publish has none of these.
        Refused::Stream(_) => Refusal::UnknownTopic,
    }
}
