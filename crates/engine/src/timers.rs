//! The effects of time: leases end, retries and delays become due, messages expire or grow too old, sessions are
//! given up.

use std::{collections::BTreeMap, ops::Range};

use sennit_model::{GroupId, Offset, OffsetRange, PartitionId, Timestamp};

use crate::{
    command::SessionId,
    engine::{Engine, Journal, mark_ready},
    folded::Folded,
    group::range,
    log::Entry,
    record::Record,
    retry::Failure,
    streams::Stream,
    timer::{NEVER, Timer},
};

/// Timers that are looked at for each that was set.
const LOOKS_PER_SET: u64 = 2;

/// Blocks of delayed messages of a partition that become ready in one turn: some 65,000 messages, or runs of them.
const DELAY_BLOCKS_PER_TURN: usize = 256;

/// Attempts that failed at one time, gathered so that each group gets one record.
type Failures = BTreeMap<(PartitionId, GroupId), Vec<(OffsetRange, u32)>>;

impl Engine {
    /// Does what is due by `now`.
    pub fn advance(&mut self, now: Timestamp, journal: &mut impl Journal) {
        let now = self.time(now);
        let mut fired = std::mem::take(&mut self.fired);
        self.wheel.advance(now, &mut fired);
        let mut ended = Failures::new();
        let mut given_up = Vec::new();
        for timer in fired.drain(..) {
            match timer {
                Timer::Lease { partition, group, last } => {
                    self.lease_ended((partition, group), last, now, &mut ended);
                }
                Timer::Retry { partition, group, range } => {
                    self.retry_due(partition, group, range, now);
                }
                Timer::Due { partition } => self.delays_over(partition, now),
                Timer::Expiry { partition, range } => {
                    self.expiry_due(partition, range, now, journal);
                }
                Timer::Throttled { partition, group: _ } => self.mark_ready(partition),
                Timer::Age { partition } => self.age_due(partition, now, journal),
                Timer::StreamEnd { partition } => self.stream_end_due(partition, now, journal),
                Timer::Compaction { partition } => self.judge_cleanness(partition, now),
                Timer::Grace { session } => given_up.push(session),
            }
        }
        self.fired = fired;
        self.fail_all(ended, "the lease ended", now, journal);
        let mut cut_off = Failures::new();
        for session in given_up {
            self.grace_over(session, &mut cut_off);
        }
        self.fail_all(cut_off, "the consumer was cut off", now, journal);
    }

    /// Cancels timers that nobody needs any more: what they wait for was settled, freed or dropped first,
    /// and they may be due in days. As two are looked at for each that is set, there are at most about
    /// twice as many as are needed.
    pub(crate) fn sweep_timers(&mut self) {
        let set = self.wheel.set_count();
        let new = set - std::mem::replace(&mut self.timers_set, set);
        for _ in 0..LOOKS_PER_SET * new {
            if let Some((key, due, &timer)) = self.wheel.look()
                && !self.needs(timer, due)
            {
                self.wheel.cancel(key);
            }
        }
    }

    /// Whether something may be to be done when this timer is due. What is folded stays so, and is
    /// unfolded to look only where it has such messages at all.
    fn needs(&self, timer: Timer, due: Timestamp) -> bool {
        match timer {
            Timer::Lease { .. } | Timer::Grace { .. } => true,
            Timer::Retry { partition, group, range } => {
                let Some(view) = self.partitions.peek_if(&partition, |_| false) else {
                    return false;
                };
                let group = view.partition().groups.iter().find(|held| held.id() == group);
                group.is_some_and(|group| {
                    let (start, end) = (range.start.0, range.end.0);
                    let undecided = group.activity().undecided.as_ref();
                    group.activity().waiting.has_any(start, end)
                        || undecided.is_some_and(|held| held.has_any(start, end))
                })
            }
            Timer::Due { partition } => {
                let view = self.partitions.peek_if(&partition, Folded::has_delays);
                view.is_some_and(|view| view.partition().delays.timer_due() == due)
            }
            Timer::Expiry { partition, range } => {
                self.partitions.peek_if(&partition, Folded::has_expiries).is_some_and(|view| {
                    view.partition().expiries.runs().has_any(range.start.0, range.end.0)
                })
            }
            Timer::Throttled { partition, group } => {
                let Some(view) = self.partitions.peek_if(&partition, |_| false) else {
                    return false;
                };
                let group = view.partition().groups.iter().find(|held| held.id() == group);
                group.is_some_and(|group| group.activity().fair.is_some())
            }
            // Of what is folded one is left, as a rule.
            Timer::Age { partition } => {
                let view = self.partitions.peek_if(&partition, |_| false);
                view.map_or(self.partitions.has(&partition), |view| view.partition().age_due == due)
            }
            Timer::StreamEnd { partition } => {
                self.streams.get(partition).is_some_and(|stream| stream.ends_at().is_some())
            }
            Timer::Compaction { partition } => self.latest.watches(partition, due),
        }
    }

    fn fail_all(
        &mut self,
        failures: Failures,
        reason: &str,
        now: Timestamp,
        journal: &mut impl Journal,
    ) {
        let failure = Failure { at: now, due: None, dead: false, reason };
        for ((partition, group), runs) in failures {
            let Some(partition) = self.partitions.get(&partition) else { continue };
            for record in failure.records(partition, group, &runs) {
                self.commit_failure(record, now, journal);
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
        // The timer stands for the whole run that ends with `last`.
        let Some((&start, lease)) = group.activity().leases.range(..=last.0).next_back() else {
            return;
        };
        if lease.deadline > now || lease.end != last.0 + 1 {
            return;
        }
        let (end, failed) = (lease.end, lease.tries.failed);
        let counts_to = group.worked_on_to(start, true);
        if start < counts_to {
            let run = (range(start, counts_to), failed.saturating_add(1));
            ended.entry((id, group_id)).or_default().push(run);
        }
        partition.take_back(group_id, counts_to..end, &mut self.wheel);
        mark_ready(&mut self.ready_list, partition);
    }

    pub(crate) fn retry_due(
        &mut self,
        id: PartitionId,
        group: GroupId,
        due_range: OffsetRange,
        now: Timestamp,
    ) {
        let Some(partition) = self.partitions.get_mut(&id) else { return };
        let Some(group) = partition.group(group) else { return };
        let (start, end) = (due_range.start.0, due_range.end.0);
        // Nobody has answered in time.
        let over = group.activity().undecided.as_ref().map(|held| held.over(start, end, now));
        for Range { start, end } in over.into_iter().flatten() {
            group.end_questions(start, end);
        }
        for (start, end, held) in group.activity().waiting.within(start, end) {
            if held.due > now {
                continue;
            }
            for Range { start, end } in group.decided(start, end) {
                group.activity_mut().waiting.remove(start, end);
                group.make_ready(start, end, held.tries);
            }
        }
        mark_ready(&mut self.ready_list, partition);
    }

    fn delays_over(&mut self, id: PartitionId, now: Timestamp) {
        let Some(partition) = self.partitions.get_mut(&id) else { return };
        if partition.delays.timer_due() > now {
            // An earlier timer came instead of this one, and set the next.
            return;
        }
        partition.delays.set_timer_due(NEVER);
        partition.end_due_delays(now, DELAY_BLOCKS_PER_TURN, &mut self.wheel);
        mark_ready(&mut self.ready_list, partition);
    }

    fn expiry_due(
        &mut self,
        id: PartitionId,
        over: OffsetRange,
        now: Timestamp,
        journal: &mut impl Journal,
    ) {
        let Some(partition) = self.partitions.get(&id) else { return };
        let parks = partition.parks();
        let parts = partition.expiries.runs().within(over.start.0, over.end.0);
        let mut expired: BTreeMap<GroupId, Vec<OffsetRange>> = BTreeMap::new();
        for group in &partition.groups {
            for &(start, end, expiry) in &parts {
                if expiry > now {
                    continue;
                }
                for Range { start: from, end: to } in group.settled.gaps(start, end) {
                    // What a consumer holds is its own until it settles or the lease ends; what is
                    // dying is on its way already, unless it is parked.
                    let mut at = from;
                    let leased = group.leased_within(from, to);
                    let held = leased.iter().map(|&(start, end, _)| start..end);
                    let dying =
                        if parks { Vec::new() } else { group.activity().dying.within(from, to) };
                    let dying = dying.into_iter().map(|(start, end, _)| start..end);
                    let mut kept: Vec<_> = held.chain(dying).collect();
                    kept.sort_unstable_by_key(|kept| kept.start);
                    for kept in kept.into_iter().chain(std::iter::once(to..to)) {
                        if at < kept.start {
                            expired.entry(group.id()).or_default().push(range(at, kept.start));
                        }
                        at = kept.end;
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
        let Some(partition) = self.partitions.get_mut(&id) else { return };
        if partition.age_due > now {
            // An earlier timer came instead of this one, and set the next.
            return;
        }
        partition.age_due = NEVER;
        let Some(age) = partition.config.retention.age else { return };
        let is_old = |entry: &&Entry| entry.appended_at.plus(age) <= now;
        let old = partition.log.entries().take_while(is_old).last();
        // What is missing behind that was not too old.
        let start = old.map_or(partition.log.start(), Entry::end);
        if start > partition.log.start() {
            self.commit(&Record::Trimmed { partition: id, start: Offset(start) }, journal);
        }
        if let Some(partition) = self.partitions.get_mut(&id) {
            partition.watch_age(&mut self.wheel);
        }
    }

    fn grace_over(&mut self, session: SessionId, cut_off: &mut Failures) {
        for (id, group_id) in self.sessions.grace_over(session) {
            let Some(partition) = self.partitions.get_mut(&id) else { continue };
            let Some(group) = partition.group(group_id) else { continue };
            let (mut counted, mut rest) = (Vec::new(), Vec::new());
            for (start, end, tries) in group.leases_of(|holder| holder.session == session) {
                let counts_to = group.worked_on_to(start, false);
                if start < counts_to {
                    counted.push((range(start, counts_to), tries.failed.saturating_add(1)));
                }
                rest.push(counts_to..end);
            }
            group.forget_departed(session);
            if !counted.is_empty() {
                cut_off.entry((id, group_id)).or_default().extend(counted);
            }
            for rest in rest {
                partition.take_back(group_id, rest, &mut self.wheel);
            }
            mark_ready(&mut self.ready_list, partition);
        }
    }
}
