//! The limit of a topic: whether a batch fits into a partition, and which of its oldest messages are dropped for it
//! if it does not. It decides; the records that it returns change the state.

use std::ops::Range;

use sennit_model::{GroupId, Offset, OffsetRange, TopicLimit, WhenFull};

use crate::{
    engine::RUNS_PER_RECORD_MAX,
    group::{Group, range},
    log::Entry,
    partition::Partition,
    record::{Outcome, Record},
    refusal::Refusal,
    runs::Runs,
};

/// What is done so that a batch fits.
#[derive(Debug, Default)]
pub(crate) struct MadeRoom {
    /// They go into the frame of the batch, before it.
    pub(crate) records: Vec<Record>,
    /// The number of messages that they drop.
    pub(crate) dropped: u64,
}

/// Whether so many messages and bytes fit into a partition, and what is dropped so that they do.
pub(crate) fn make_room(
    partition: &Partition,
    (count, bytes): (u32, u64),
) -> Result<MadeRoom, Refusal> {
    let limit = &partition.config.limit;
    let count = u64::from(count);
    let new = [(limit.messages, count, "limit.messages"), (limit.bytes, bytes, "limit.bytes")];
    let held = [held_messages(partition), partition.log.bytes()];
    let mut is_full = None;
    for ((limit, new, name), held) in new.into_iter().zip(held) {
        let Some(value) = limit else { continue };
        if new > value {
            // No room would be enough.
            return Err(Refusal::Limit { limit: name, value });
        }
        if held + new > value {
            is_full.get_or_insert(Refusal::TopicFull { limit: name, value, held });
        }
    }
    match (is_full, limit.when_full) {
        (None, _) => Ok(MadeRoom::default()),
        (Some(refusal), WhenFull::Refuse) => Err(refusal),
        (Some(_), WhenFull::DropOldest) if settles(partition) => {
            Ok(drop_unsettled(partition, limit, (count, bytes)))
        }
        (Some(_), WhenFull::DropOldest) => Ok(drop_batches(partition, limit, (count, bytes))),
    }
}

/// Whether messages are held until their groups have settled them.
fn settles(partition: &Partition) -> bool {
    partition.config.retention.until_settled && !partition.groups.is_empty()
}

fn held_messages(partition: &Partition) -> u64 {
    if settles(partition) {
        partition.groups.iter().map(|group| unsettled(partition, group)).max().unwrap_or_default()
    } else {
        partition.log.end() - partition.log.start()
    }
}

fn unsettled(partition: &Partition, group: &Group) -> u64 {
    partition.log.end().saturating_sub(group.settled.count())
}

/// The end of the oldest batches that have to go so that `new` bytes fit.
fn bytes_end(partition: &Partition, limit: &TopicLimit, new: u64) -> u64 {
    let Some(bytes_max) = limit.bytes else { return 0 };
    let (mut held, mut end) = (partition.log.bytes(), 0);
    let mut oldest = partition.log.entries();
    while held + new > bytes_max
        && let Some(entry) = oldest.next()
    {
        held -= u64::from(entry.place.bytes);
        end = entry.end();
    }
    end
}

fn drop_unsettled(
    partition: &Partition,
    limit: &TopicLimit,
    (count, bytes): (u64, u64),
) -> MadeRoom {
    let bytes_end = bytes_end(partition, limit, bytes);
    let (mut made, mut dropped) = (MadeRoom::default(), Runs::default());
    for group in &partition.groups {
        let held = unsettled(partition, group);
        let excess = limit.messages.map_or(0, |max| (held + count).saturating_sub(max));
        let ranges = oldest_unsettled(group, partition.log.end(), excess, bytes_end);
        for range in &ranges {
            dropped.insert(range.start.0, range.end.0, ());
        }
        made.records.extend(settled(partition, group.id(), Outcome::Dropped, &ranges));
    }
    made.dropped = dropped.count();
    made
}

/// The oldest `excess` messages before `end` that the group has not settled, and all of them before `bytes_end`.
fn oldest_unsettled(group: &Group, end: u64, excess: u64, bytes_end: u64) -> Vec<OffsetRange> {
    let (mut ranges, mut left) = (Vec::new(), excess);
    let mut at = group.settled.floor();
    let behind = std::iter::once(Range { start: end, end });
    for settled in group.settled.above().chain(behind) {
        if at >= bytes_end && left == 0 {
            break;
        }
        let to = settled.start.min((at + left).max(bytes_end)).max(at);
        if at < to {
            ranges.push(range(at, to));
            left = left.saturating_sub(to - at);
        }
        at = settled.end;
    }
    ranges
}

/// The records that settle `ranges` in a group.
pub(crate) fn settled(
    partition: &Partition,
    group: GroupId,
    outcome: Outcome,
    ranges: &[OffsetRange],
) -> Vec<Record> {
    let record = |ranges: &[OffsetRange]| {
        let (partition, ranges) = (partition.id, ranges.to_vec());
        Record::Settled { partition, group, outcome, ranges }
    };
    ranges.chunks(RUNS_PER_RECORD_MAX).map(record).collect()
}

/// Of a log that keeps settled messages too, whole batches go.
fn drop_batches(partition: &Partition, limit: &TopicLimit, (count, bytes): (u64, u64)) -> MadeRoom {
    let bytes_end = bytes_end(partition, limit, bytes);
    let fits = |entry: &&Entry| {
        let held = partition.log.end() - entry.first;
        entry.first >= bytes_end && limit.messages.is_none_or(|max| held + count <= max)
    };
    let start = partition.log.entries().find(fits).map_or(partition.log.end(), |entry| entry.first);
    let dropped = start - partition.log.start();
    let record = Record::Trimmed { partition: partition.id, start: Offset(start) };
    MadeRoom { records: vec![record], dropped }
}
