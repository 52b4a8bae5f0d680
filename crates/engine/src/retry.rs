//! Decides what becomes of attempts that failed, by the group's retry policy: records that say when the messages
//! are ready again, or that they are not tried any more. A replay takes that from the records.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, Hasher},
};

use foldhash::quality::FixedState;
use sennit_model::{GroupId, OffsetRange, PartitionId, RetryPolicy, Timestamp};

use crate::{
    engine::RUNS_PER_RECORD_MAX, group::range, log::Log, partition::Partition, record::Record,
};

/// A failed attempt at messages of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure<'a> {
    pub(crate) at: Timestamp,
    /// When the messages are ready again, if the consumer has said it.
    pub(crate) due: Option<Timestamp>,
    /// Whether the consumer has said that they are not to be tried again.
    pub(crate) dead: bool,
    pub(crate) reason: &'a str,
}

/// What becomes of a run: whether it has failed for good because of its age, and when it is due.
type Fate = (bool, Timestamp);

impl Failure<'_> {
    /// The records of these runs, each with the attempts that failed by now.
    pub(crate) fn records(
        self,
        partition: &Partition,
        group: GroupId,
        runs: &[(OffsetRange, u32)],
    ) -> Vec<Record> {
        let held = partition.groups.iter().find(|held| held.id() == group);
        let policy = held.map_or_else(RetryPolicy::default, |held| held.setting().config.retry);
        let mut by_fate: BTreeMap<Fate, Vec<(OffsetRange, u32)>> = BTreeMap::new();
        for &(run, attempts) in runs {
            for (part, is_old) in self.parts_by_age(&policy, &partition.log, run) {
                let fate = if self.dead || is_old {
                    (is_old, self.at)
                } else {
                    (false, self.due(&policy, partition.id, part, attempts))
                };
                by_fate.entry(fate).or_default().push((part, attempts));
            }
        }
        let record = |(is_old, due): Fate, runs: &[_]| Record::Failed {
            partition: partition.id,
            group,
            failed_at: self.at,
            due,
            dead: self.dead || is_old,
            reason: if is_old {
                format!("{}, and the message is too old for another attempt", self.reason)
            } else {
                self.reason.to_owned()
            },
            runs: runs.to_vec(),
        };
        let records = by_fate.iter().flat_map(|(&fate, runs)| {
            runs.chunks(RUNS_PER_RECORD_MAX).map(move |runs| record(fate, runs))
        });
        records.collect()
    }

    /// The parts of a run, and whether they have reached the age at which a failure is for good. What the log
    /// does not keep any more has no age.
    fn parts_by_age(
        &self,
        policy: &RetryPolicy,
        log: &Log,
        run: OffsetRange,
    ) -> Vec<(OffsetRange, bool)> {
        let Some(age_max) = policy.age_max.filter(|_| !self.dead) else {
            return vec![(run, false)];
        };
        let (mut at, end) = (run.start.0, run.end.0);
        let mut parts: Vec<(OffsetRange, bool)> = Vec::new();
        let mut push = |start: u64, end: u64, is_old| match parts.last_mut() {
            _ if start >= end => {}
            Some((last, was_old)) if *was_old == is_old => last.end.0 = end,
            _ => parts.push((range(start, end), is_old)),
        };
        for entry in log.entries_from(at).take_while(|entry| entry.first < end) {
            push(at, entry.first, false);
            let is_old = entry.appended_at.plus(age_max) <= self.at;
            push(at.max(entry.first), entry.end().min(end), is_old);
            at = entry.end().min(end);
        }
        push(at, end, false);
        parts
    }

    fn due(
        &self,
        policy: &RetryPolicy,
        partition: PartitionId,
        run: OffsetRange,
        attempts: u32,
    ) -> Timestamp {
        self.due.unwrap_or_else(|| {
            let mut hasher = FixedState::default().build_hasher();
            hasher.write_u32(partition.topic.0);
            hasher.write_u32(partition.index.0);
            hasher.write_u64(run.start.0);
            hasher.write_u32(attempts);
            self.at.plus(policy.delay(attempts, hasher.finish()))
        })
    }
}
