//! Commands about messages that their publisher has delayed: list, cancel, reschedule. Before it is due, no group has
//! got such a message, so a change is for all groups.

use std::ops::Range;

use sennit_model::{
    Offset, OffsetRange, PartitionId, Timestamp,
    limits::{DELAYED_CHANGED_MAX, DURATION_MAX},
};

use crate::{
    command::{DelayChange, Origin},
    delays::CANCELLED,
    effect::{DelayedRun, Effect},
    engine::{Engine, Journal, Outbox, RUNS_PER_RECORD_MAX, mark_ready},
    group::{Group, range},
    partition::Partition,
    record::Record,
    refusal::Refusal,
    runs::Runs,
};

impl Engine {
    /// Lists delayed messages by due time and offset, behind `after`; `most` runs at most.
    pub(crate) fn list_delayed(
        &self,
        origin: Origin,
        id: PartitionId,
        after: Option<(Timestamp, Offset)>,
        most: usize,
        out: &mut Outbox,
    ) {
        let Some(view) = self.partitions.peek(&id) else {
            return out.refuse(origin, Refusal::UnknownTopic);
        };
        let runs = view.partition().delayed_page(after, most);
        out.now.push(Effect::Delayed { origin, runs });
    }

    /// Cancels or changes the delays of messages, of all or none.
    pub(crate) fn change_delayed(
        &mut self,
        origin: Origin,
        id: PartitionId,
        (offsets, change): (Vec<Offset>, DelayChange),
        now: Timestamp,
        journal: &mut impl Journal,
        out: &mut Outbox,
    ) {
        let Some(partition) = self.partitions.get(&id) else {
            return out.refuse(origin, Refusal::UnknownTopic);
        };
        let due = match change {
            DelayChange::Cancel => CANCELLED,
            DelayChange::DueAt(due) => due.max(now),
            DelayChange::DueAfter(delay) => now.plus(delay),
        };
        match partition.changed_delays(&offsets, (change, due), now) {
            Err(refusal) => out.refuse(origin, refusal),
            Ok(ranges) => {
                let count = ranges.iter().map(|range| range.count()).sum();
                for ranges in ranges.chunks(RUNS_PER_RECORD_MAX) {
                    let (partition, ranges) = (id, ranges.to_vec());
                    let record = match change {
                        DelayChange::Cancel => Record::DelaysCancelled { partition, ranges },
                        _ => Record::DelaysChanged { partition, due, ranges },
                    };
                    self.commit(&record, journal);
                }
                out.after_commit.push(Effect::DelaysChanged { origin, count });
            }
        }
    }

    pub(crate) fn apply_delays_cancelled(&mut self, id: PartitionId, ranges: &[OffsetRange]) {
        let Some(partition) = self.partitions.get_mut(&id) else { return };
        for range in ranges {
            for Range { start, end } in partition.changeable_parts(*range) {
                // Groups that come later are through with it too.
                partition.delays.insert(start, end, CANCELLED);
                for group in &mut partition.groups {
                    group.settle(start, end, &mut self.wheel);
                }
                partition.free_settled(start, end, &mut self.freed);
            }
        }
        mark_ready(&mut self.ready_list, partition);
    }

    pub(crate) fn apply_delays_changed(
        &mut self,
        id: PartitionId,
        due: Timestamp,
        ranges: &[OffsetRange],
    ) {
        let Some(partition) = self.partitions.get_mut(&id) else { return };
        for range in ranges {
            for Range { start, end } in partition.changeable_parts(*range) {
                partition.delays.insert(start, end, due);
                partition.groups.iter_mut().for_each(|group| group.withdraw(start, end));
            }
        }
        partition.watch_delays(&mut self.wheel);
    }
}

impl Partition {
    /// The parts of a range that are kept and not cancelled. The writer of the record saw them delayed; a replica that
    /// has led with a clock ahead of that one has ended the delays. While a checkpoint is loaded, some of it has not come.
    fn changeable_parts(&self, range: OffsetRange) -> Vec<Range<u64>> {
        let OffsetRange { start: Offset(start), end: Offset(end) } = range;
        let mut parts = Runs::default();
        for entry in self.log.entries_from(start).take_while(|entry| entry.first < end) {
            parts.insert(entry.first.max(start), entry.end().min(end), ());
        }
        for part in self.delays.pieces(start, end).filter(|part| part.due == CANCELLED) {
            parts.remove(part.start, part.end);
        }
        parts.iter().map(|(start, end, ())| start..end).collect()
    }

    fn delayed_page(&self, after: Option<(Timestamp, Offset)>, most: usize) -> Vec<DelayedRun> {
        let after = after.map(|(due, offset)| (due, offset.0));
        let page = self.delays.page(after, most, |part| self.awaited(part, most));
        let run = |run: &crate::delays::Due| DelayedRun {
            range: range(run.start, run.end),
            due: run.due,
        };
        page.iter().map(run).collect()
    }

    /// The parts of a delayed run that some group is going to get: not those that have expired or were replaced.
    fn awaited(&self, Range { start, end }: Range<u64>, most: usize) -> Vec<Range<u64>> {
        let end = end.min(self.visible);
        if self.groups.is_empty() {
            return Some(start..end).filter(|part| !part.is_empty()).into_iter().collect();
        }
        let mut awaited = Runs::default();
        for group in &self.groups {
            for part in group.settled.gaps(start, end) {
                awaited.insert(part.start, part.end, ());
            }
        }
        awaited.iter().take(most).map(|(start, end, ())| start..end).collect()
    }

    /// The messages whose delay may be changed: all of `offsets`, or none.
    fn changed_delays(
        &self,
        offsets: &[Offset],
        (change, due): (DelayChange, Timestamp),
        now: Timestamp,
    ) -> Result<Vec<OffsetRange>, Refusal> {
        if offsets.len() > DELAYED_CHANGED_MAX {
            let value = DELAYED_CHANGED_MAX as u64;
            return Err(Refusal::Limit { limit: "DELAYED_CHANGED_MAX", value });
        }
        if change != DelayChange::Cancel && due > now.plus(DURATION_MAX) {
            let value = DURATION_MAX.as_secs();
            return Err(Refusal::Limit { limit: "DURATION_MAX, in seconds,", value });
        }
        let mut changed = Runs::default();
        for &offset in offsets {
            self.check_delayed(offset, now)?;
            changed.insert(offset.0, offset.0 + 1, ());
        }
        Ok(changed.iter().map(|(start, end, ())| range(start, end)).collect())
    }

    /// Refuses a message that is not delayed.
    fn check_delayed(&self, offset: Offset, now: Timestamp) -> Result<(), Refusal> {
        if offset.0 >= self.visible || self.log.find(offset.0).is_none() {
            return Err(Refusal::UnknownMessage { offset });
        }
        let (start, end) = (offset.0, offset.0 + 1);
        let is_settled = |group: &Group| group.settled.holds(start, end);
        let state = match self.delays.due_of(start) {
            Some(CANCELLED) => "its delay was cancelled",
            _ if !self.groups.is_empty() && self.groups.iter().all(is_settled) => {
                "every group is through with it"
            }
            Some(due) if due > now => return Ok(()),
            _ if self.groups.iter().any(|group| !group.leased_within(start, end).is_empty()) => {
                "a consumer holds it"
            }
            _ => "its delay is over, or it never had one",
        };
        Err(Refusal::NotDelayed { offset, state })
    }
}
