//! Deduplication: which messages of a batch were published before, by the values of a header, and which pending ones
//! a batch replaces. It decides; the records that it returns change the state.

use std::ops::Range;

use hashbrown::HashMap;
use sennit_model::{
    Batch, Dedup, DedupMode, Offset, OffsetRange, PartitionId, ProducerStamp, Timestamp,
    limits::DEDUP_VALUES_MAX,
};

use crate::{
    effect::ConfirmedPart,
    group::{Group, range},
    partition::Partition,
    record::{Outcome, Record},
    refusal::Refusal,
    runs::Runs,
    topic_limit::settled,
};

type Offsets = HashMap<u128, u64, foldhash::fast::FixedState>;

/// What a batch comes to in a topic that looks for duplicates.
#[derive(Debug, Default)]
pub(crate) struct Deduplication {
    /// The records of its messages and of its duplicates, and those that settle what it replaces.
    pub(crate) records: Vec<Record>,
    /// The parts of its confirm.
    pub(crate) parts: Vec<ConfirmedPart>,
    /// The number of messages that are appended, and their bytes.
    pub(crate) count: u32,
    pub(crate) bytes: u64,
    /// The number of messages that it replaces.
    pub(crate) replaced: u64,
}

/// Decides what becomes of each message of a batch.
pub(crate) fn deduplicate(
    partition: &Partition,
    dedup: &Dedup,
    (batch, producer): (&Batch, ProducerStamp),
    now: Timestamp,
) -> Result<Deduplication, Refusal> {
    match dedup.mode {
        DedupMode::Refuse => leave_out(partition, dedup, (batch, producer), now),
        DedupMode::Replace => replace(partition, dedup, (batch, producer), now),
    }
}

/// Refuses a batch with more values than there is room for.
fn check_room(
    partition: &Partition,
    dedup: &Dedup,
    new: usize,
    now: Timestamp,
) -> Result<(), Refusal> {
    let seen = &partition.seen;
    let is_full = seen.count() + new > DEDUP_VALUES_MAX
        && seen.count_at(now, dedup.window) + new > DEDUP_VALUES_MAX;
    if is_full { Err(Refusal::DedupFull) } else { Ok(()) }
}

fn leave_out(
    partition: &Partition,
    dedup: &Dedup,
    (batch, producer): (&Batch, ProducerStamp),
    now: Timestamp,
) -> Result<Deduplication, Refusal> {
    let (mut new, mut next) = (Offsets::default(), partition.log.end());
    // Neighbours that are alike: whether they are duplicates, their offset, and which they are.
    let mut runs: Vec<(bool, u64, Range<u32>)> = Vec::new();
    for (index, message) in (0..).zip(batch.messages()) {
        let hash = dedup.hash_of(&message);
        let before = hash.and_then(|hash| {
            let seen = partition.seen.find(hash, dedup.window, now).map(|offset| offset.0);
            new.get(&hash).copied().or(seen)
        });
        if let (Some(hash), None) = (hash, before) {
            new.insert(hash, next);
        }
        let offset = before.unwrap_or(next);
        next += u64::from(before.is_none());
        match runs.last_mut() {
            Some((duplicate, first, run))
                if *duplicate == before.is_some()
                    && *first + u64::from(run.end - run.start) == offset =>
            {
                run.end += 1;
            }
            _ => runs.push((before.is_some(), offset, index..index + 1)),
        }
    }
    check_room(partition, dedup, new.len(), now)?;
    let mut decided = Deduplication::default();
    for (duplicate, first, run) in runs {
        let (first, count) = (Offset(first), run.end - run.start);
        let first_sequence = producer.first_sequence + u64::from(run.start);
        let producer = ProducerStamp { first_sequence, ..producer };
        decided.parts.push(ConfirmedPart { count, first_offset: first, duplicate });
        if duplicate {
            // A producer without a number has no sequences that go on.
            if producer.id.0 != 0 {
                let partition = partition.id;
                decided.records.push(Record::Deduplicated { partition, producer, count, first });
            }
            continue;
        }
        let part = batch.part(run);
        (decided.count, decided.bytes) =
            (decided.count + count, decided.bytes + part.bytes().len() as u64);
        decided.records.push(appended(partition.id, (first, now), producer, part));
    }
    Ok(decided)
}

fn appended(
    partition: PartitionId,
    (first, appended_at): (Offset, Timestamp),
    producer: ProducerStamp,
    batch: Batch,
) -> Record {
    Record::Appended { partition, first, appended_at, producer, batch, note: None }
}

fn replace(
    partition: &Partition,
    dedup: &Dedup,
    (batch, producer): (&Batch, ProducerStamp),
    now: Timestamp,
) -> Result<Deduplication, Refusal> {
    let first = partition.log.end();
    let (mut new, mut earlier) = (Offsets::default(), Runs::default());
    for (offset, message) in (first..).zip(batch.messages()) {
        let Some(hash) = dedup.hash_of(&message) else { continue };
        let seen = || partition.seen.find(hash, dedup.window, now).map(|offset| offset.0);
        if let Some(before) = new.insert(hash, offset).or_else(seen) {
            earlier.insert(before, before + 1, ());
        }
    }
    check_room(partition, dedup, new.len(), now)?;
    let (count, bytes) = (batch.count(), batch.bytes().len() as u64);
    let first_offset = Offset(first);
    let mut decided = Deduplication {
        parts: vec![ConfirmedPart { count, first_offset, duplicate: false }],
        records: vec![appended(partition.id, (first_offset, now), producer, batch.clone())],
        count,
        bytes,
        replaced: 0,
    };
    let mut replaced = Runs::default();
    for group in &partition.groups {
        let offsets = earlier.iter().flat_map(|(start, end, ())| start..end);
        let mut pending = Runs::default();
        for offset in offsets.filter(|offset| is_pending(group, *offset)) {
            pending.insert(offset, offset + 1, ());
            replaced.insert(offset, offset + 1, ());
        }
        let ranges: Vec<OffsetRange> =
            pending.iter().map(|(start, end, ())| range(start, end)).collect();
        let records = settled(partition, group.id(), Outcome::Replaced, &ranges);
        decided.records.extend(records);
    }
    decided.replaced = replaced.count();
    Ok(decided)
}

/// Whether a group has a message still before it: it is ready, waits or is delayed. One that a consumer holds, that
/// failed for good or cannot be read is left alone.
fn is_pending(group: &Group, offset: u64) -> bool {
    let (start, end) = (offset, offset + 1);
    let activity = group.activity();
    !group.settled.holds(start, end)
        && group.leased_within(start, end).is_empty()
        && !activity.dying.has_any(start, end)
        && !activity.damaged.has_any(start, end)
}
