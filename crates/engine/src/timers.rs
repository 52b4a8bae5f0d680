//! What happens when time passes: leases end, retries and delays come due, messages expire or
//! grow too old, sessions are given up.

use std::collections::BTreeMap;

use sennit_model::{GroupId, Offset, OffsetRange, PartitionId, Timestamp};

use crate::{
    command::SessionId,
    engine::{Engine, Journal, RUNS_PER_RECORD_MAX, stir},
    group::range,
    log::Entry,
    record::Record,
    streams::Stream,
    timer::Timer,
};

/// Attempts that failed at one time, gathered so that each group gets one record.
type Failures = BTreeMap<(PartitionId, GroupId), Vec<(OffsetRange, u32)>>;

impl Engine {
    /// Does what is due by `now`.
    pub fn advance(&mut self, now: Timestamp, journal: &mut impl Journal) {
        let mut fired = std::mem::take(&mut self.fired);
        self.wheel.advance(now, &mut fired);
        let mut ended = Failures::new();
        let mut cut_off = Failures::new();
        for timer in fired.drain(..) {
            match timer {
                Timer::Lease { partition, group, last } => {
                    self.lease_ended((partition, group), last, now, &mut ended);
                }
                Timer::Retry { partition, group, range } => {
                    self.retry_due(partition, group, range, now);
                }
                Timer::Due { partition, range } => self.delay_over(partition, range, now),
                Timer::Expiry { partition, range } => {
                    self.expiry_due(partition, range, now, journal);
                }
                Timer::Age { partition } => self.age_due(partition, now, journal),
                Timer::StreamEnd { partition } => self.stream_end_due(partition, now, journal),
                Timer::Compaction { partition } => self.judge_cleanness(partition, now),
                Timer::Grace { session } => self.grace_over(session, &mut cut_off),
            }
        }
        self.fired = fired;
        self.fail_all(ended, "the lease ended", now, journal);
        self.fail_all(cut_off, "the consumer was cut off", now, journal);
    }

    fn fail_all(
        &mut self,
        failures: Failures,
        reason: &str,
        now: Timestamp,
        journal: &mut impl Journal,
    ) {
        for ((partition, group), runs) in failures {
            for runs in runs.chunks(RUNS_PER_RECORD_MAX) {
                let (reason, runs) = (reason.to_owned(), runs.to_vec());
                let (failed_at, due, dead) = (now, now, false);
                let record =
                    Record::Failed { partition, group, failed_at, due, dead, reason, runs };
                self.commit(&record, journal);
            }
        }
    }

    fn lease_ended(
        &mut self,
        (id, group_id): (PartitionId, GroupId),
        last: Offset,
        now: Timestamp,
        ended: &mut Failures,
    ) {
        let Some(partition) = self.partitions.get_mut(&id) else { return };
        let Some(group) = partition.group(group_id) else { return };
        for (start, end, lease) in group.leased_within(last.0, last.0 + 1) {
            if lease.deadline <= now {
                // The timer stands for the whole run that ends with `last`.
                let start = group.leases.range(..=start).next_back().map_or(start, |(&s, _)| s);
                let run = (range(start, end), lease.attempt);
                ended.entry((id, group_id)).or_default().push(run);
            }
        }
    }

    fn retry_due(
        &mut self,
        id: PartitionId,
        group: GroupId,
        due_range: OffsetRange,
        now: Timestamp,
    ) {
        let Some(partition) = self.partitions.get_mut(&id) else { return };
        let Some(group) = partition.group(group) else { return };
        for (start, end, held) in group.waiting.within(due_range.start.0, due_range.end.0) {
            if held.due <= now {
                group.waiting.remove(start, end);
                group.ready.insert(start, end, held.attempts);
            }
        }
        stir(&mut self.stirred, partition);
    }

    fn delay_over(&mut self, id: PartitionId, over: OffsetRange, now: Timestamp) {
        let Some(partition) = self.partitions.get_mut(&id) else { return };
        partition.end_delays(over.start.0, over.end.0, now);
        stir(&mut self.stirred, partition);
    }

    fn expiry_due(
        &mut self,
        id: PartitionId,
        over: OffsetRange,
        now: Timestamp,
        journal: &mut impl Journal,
    ) {
        let Some(partition) = self.partitions.get(&id) else { return };
        let parts = partition.expiries.within(over.start.0, over.end.0);
        let mut expired: BTreeMap<GroupId, Vec<OffsetRange>> = BTreeMap::new();
        for group in &partition.groups {
            for &(start, end, expiry) in &parts {
                if expiry > now {
                    continue;
                }
                for (from, to) in group.settled.gaps(start, end) {
                    // What a consumer holds is its own until it settles or the lease ends; what is
                    // dying is on its way already.
                    let mut at = from;
                    let leased = group.leased_within(from, to);
                    let held = leased.iter().map(|&(a, b, _)| (a, b));
                    let dying = group.dying.within(from, to).into_iter().map(|(a, b, _)| (a, b));
                    let mut kept: Vec<_> = held.chain(dying).collect();
                    kept.sort_unstable();
                    for (kept_from, kept_to) in kept.into_iter().chain([(to, to)]) {
                        if at < kept_from {
                            expired.entry(group.id()).or_default().push(range(at, kept_from));
                        }
                        at = kept_to;
                    }
                }
            }
        }
        for (group, ranges) in expired {
            self.expire(id, group, ranges, journal);
        }
    }

    /// A stream may have been used since its end was set.
    fn stream_end_due(&mut self, id: PartitionId, now: Timestamp, journal: &mut impl Journal) {
        let Some(end) = self.streams.get(id).and_then(Stream::ends_at) else { return };
        if end > now {
            self.wheel.set(end, Timer::StreamEnd { partition: id });
            return;
        }
        self.end_if_over(id, now, journal);
        self.streams.ended.push(id);
        self.wake_reads(id);
    }

    fn age_due(&mut self, id: PartitionId, now: Timestamp, journal: &mut impl Journal) {
        let Some(partition) = self.partitions.get(&id) else { return };
        let Some(age) = partition.config.retention.age else { return };
        let is_old = |entry: &&Entry| entry.appended_at.plus(age) <= now;
        let old = partition.log.entries().take_while(is_old).last();
        // What is missing behind that was not too old.
        let start = old.map_or(partition.log.start(), Entry::end);
        let oldest_kept = partition.log.find_from(start);
        let next = oldest_kept.map(|entry| entry.appended_at.plus(age));
        if start > partition.log.start() {
            self.commit(&Record::Trimmed { partition: id, start: Offset(start) }, journal);
        }
        if let Some(next) = next {
            self.wheel.set(next, Timer::Age { partition: id });
        }
    }

    fn grace_over(&mut self, session: SessionId, cut_off: &mut Failures) {
        for (id, group_id) in self.sessions.remove(&session).unwrap_or_default() {
            let Some(partition) = self.partitions.get_mut(&id) else { continue };
            let Some(group) = partition.group(group_id) else { continue };
            let runs = group.leases_of(|holder| holder.session == session);
            if !runs.is_empty() {
                let runs = runs.into_iter().map(|(start, end, tries)| (range(start, end), tries));
                cut_off.entry((id, group_id)).or_default().extend(runs);
            }
        }
    }
}
