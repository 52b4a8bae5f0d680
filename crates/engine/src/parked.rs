//! Parked messages: they failed for good in a dead-letter topic, and stay there with the reason until a command
//! retries them. `group` holds their state.

use sennit_model::{GroupId, OffsetRange, PartitionId, limits::PARKED_SHOWN_MAX};

use crate::{
    command::Origin,
    effect::{Effect, ParkedRun},
    engine::{Engine, Journal, Outbox, RUNS_PER_RECORD_MAX},
    group::{Group, range},
    partition::Partition,
    record::Record,
    refusal::Refusal,
};

impl Engine {
    /// Makes parked messages of a group ready again: those of `within`, or all. Does nothing where
    /// nothing is parked.
    pub(crate) fn retry_parked(
        &mut self,
        origin: Origin,
        (id, group_id): (PartitionId, GroupId),
        within: Option<OffsetRange>,
        journal: &mut impl Journal,
        out: &mut Outbox,
    ) {
        let Some(partition) = self.partitions.get_mut(&id) else {
            return out.refuse(origin, Refusal::UnknownTopic);
        };
        let parks = partition.parks();
        let Some(group) = partition.group(group_id) else {
            return out.refuse(origin, Refusal::UnknownGroup);
        };
        let (start, end) = within.map_or((0, u64::MAX), |range| (range.start.0, range.end.0));
        let parked = if parks { group.activity().dying.within(start, end) } else { Vec::new() };
        let ranges: Vec<_> = parked.iter().map(|&(start, end, _)| range(start, end)).collect();
        let count = ranges.iter().map(|range| range.count()).sum();
        for ranges in ranges.chunks(RUNS_PER_RECORD_MAX) {
            let (partition, group, ranges) = (id, group_id, ranges.to_vec());
            self.commit(&Record::Unparked { partition, group, ranges }, journal);
        }
        out.after_commit.push(Effect::Unparked { origin, count });
    }
}

impl Partition {
    /// The parked messages of all its groups, as far as they are shown.
    pub(crate) fn parked_runs(&self) -> Vec<ParkedRun> {
        if !self.parks() {
            return Vec::new();
        }
        let of_group = |group: &Group| {
            let id = group.id();
            let runs = group.activity().dying.iter().take(PARKED_SHOWN_MAX);
            let runs = runs.map(|(start, end, parked)| ParkedRun {
                group: id,
                range: range(start, end),
                attempts: parked.tries.failed,
                failed_at: parked.failed_at,
                reason: parked.reason.clone(),
            });
            runs.collect::<Vec<_>>()
        };
        self.groups.iter().flat_map(of_group).collect()
    }
}
