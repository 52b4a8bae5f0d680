//! Commands about groups are decided here: settle, subscribe, trim. A command may be refused; a record that leaves
//! here will be applied.

use std::{ops::Range, time::Duration};

use sennit_model::{
    Generation, GroupId, Offset, OffsetRange, PartitionId, Timestamp,
    limits::{LEASE_MAX, LEASE_MIN, REASON_BYTES_MAX},
};

use crate::{
    command::{Credit, DeliveryRun, Origin, SessionId, Settle, Subscribe, Verdict},
    effect::{Effect, GapReason, Settled},
    engine::{Engine, Journal, Outbox, RUNS_PER_RECORD_MAX, mark_ready},
    group::{Group, range},
    lease::Holder,
    readers::bounded,
    record::{Outcome, Record},
    refusal::Refusal,
    retry::Failure,
    sessions::{Part, Sessions},
    timer::Timer,
};

impl Engine {
    /// Frees the batches that lie before an offset as a whole.
    pub(crate) fn trim(
        &mut self,
        origin: Origin,
        id: PartitionId,
        before: Offset,
        journal: &mut impl Journal,
        out: &mut Outbox,
    ) {
        let Some(partition) = self.partitions.get(&id) else {
            return out.refuse(origin, Refusal::UnknownTopic);
        };
        let before = before.0.min(partition.visible);
        let start = partition.log.find(before).map_or(before, |entry| entry.first);
        let created = start > partition.log.start();
        if created {
            self.commit(&Record::Trimmed { partition: id, start: Offset(start) }, journal);
        }
        out.after_commit.push(Effect::Done { origin, topic: id.topic, group: None, created });
    }

    pub(crate) fn settle(
        &mut self,
        settle: Settle,
        now: Timestamp,
        journal: &mut impl Journal,
        out: &mut Outbox,
    ) {
        let Settle { origin, partition: id, group: group_id, verdict, runs, confirm } = settle;
        let Some(partition) = self.partitions.get_mut(&id) else {
            return out.refuse(origin, Refusal::UnknownTopic);
        };
        let visible = partition.visible;
        let Some(group) = partition.group(group_id) else {
            return out.refuse(origin, Refusal::UnknownGroup);
        };
        group.clear_stuck(origin.session);
        let part = (id, group_id);
        let by = Settler { session: origin.session, part, sessions: &self.sessions };
        let is_ack = verdict == Verdict::Ack;
        let settlement = Settlement::of(group, &runs, by, (self.generation, visible), is_ack);
        let applied = settlement.applied();
        let records = match verdict {
            Verdict::Ack => settlement.acked(part),
            Verdict::Retry | Verdict::RetryAfter(_) => {
                let due = match verdict {
                    Verdict::RetryAfter(delay) => Some(now.plus(delay)),
                    _ => None,
                };
                let failure = Failure { at: now, due, dead: false, reason: RETRIED };
                for record in failure.records(partition, group_id, &settlement.failed()) {
                    self.commit_failure(record, now, journal);
                }
                Vec::new()
            }
            Verdict::DeadLetter { mut reason } => {
                reason.truncate(reason.floor_char_boundary(REASON_BYTES_MAX));
                let failure = Failure { at: now, due: None, dead: true, reason: &reason };
                failure.records(partition, group_id, &settlement.failed())
            }
            Verdict::Extend(span) => {
                let deadline = now.plus(span.clamp(LEASE_MIN, LEASE_MAX));
                for &(start, end, _) in &settlement.valid {
                    group.extend_leases(start, end, deadline, &mut self.wheel);
                }
                Vec::new()
            }
            Verdict::Started => {
                for &(start, end, _) in &settlement.valid {
                    group.start_leases(start, end, &mut self.wheel);
                }
                Vec::new()
            }
        };
        for record in records {
            self.commit(&record, journal);
        }
        let settled = Settled { origin, partition: id, applied, stale: settlement.stale };
        if confirm {
            out.after_commit.push(Effect::Settled(settled));
        } else if !settled.stale.is_empty() {
            out.now.push(Effect::Settled(settled));
        }
    }

    /// The records that ack deliveries, or a refusal if one of the messages cannot be acked.
    pub(crate) fn ack_records(
        &self,
        session: SessionId,
        part: Part,
        runs: &[DeliveryRun],
    ) -> Result<Vec<Record>, Refusal> {
        let partition = self.partitions.get(&part.0).ok_or(Refusal::UnknownTopic)?;
        let group = partition.groups.iter().find(|group| group.id() == part.1);
        let group = group.ok_or(Refusal::UnknownGroup)?;
        let by = Settler { session, part, sessions: &self.sessions };
        let generation_and_visible = (self.generation, partition.visible);
        let settlement = Settlement::of(group, runs, by, generation_and_visible, true);
        let named: u64 = runs.iter().map(|run| u64::from(run.count)).sum();
        let stale = named.saturating_sub(settlement.applied());
        if stale > 0 {
            return Err(Refusal::StaleDelivery { stale, named });
        }
        Ok(settlement.acked(part))
    }

    pub(crate) fn subscribe(&mut self, subscribe: Subscribe, out: &mut Outbox) {
        let Subscribe { origin, subscription, partition: id, group, credit } = subscribe;
        // Topic and group were there when the subscription was accepted.
        let holder = Holder { session: origin.session, subscription };
        let ended = Effect::ended(holder, id);
        let Some(partition) = self.partitions.get_mut(&id) else { return out.now.push(ended) };
        let Some(group) = partition.group(group) else { return out.now.push(ended) };
        group.join(holder, bounded(credit));
        self.sessions.join(origin.session, (id, group.id()));
        out.now.push(Effect::Subscribed { origin, subscription, partition: id });
        let damaged = group.activity().damaged.iter();
        let damaged = damaged.map(|(start, end, _)| (start, end, GapReason::Damaged));
        let lost = self.lost.of(id).map(|lost| (lost.start, lost.end, GapReason::Lost));
        let gap = |(start, end, reason)| Effect::gap(holder, id, range(start, end), reason);
        out.now.extend(damaged.chain(lost).map(gap));
        mark_ready(&mut self.ready_list, partition);
    }

    pub(crate) fn set_credit(
        &mut self,
        session: SessionId,
        subscription: u32,
        (id, group): (PartitionId, GroupId),
        credit: Credit,
    ) {
        let Some(partition) = self.partitions.get_mut(&id) else { return };
        let Some(group) = partition.group(group) else { return };
        let holder = Holder { session, subscription };
        if group.has_member(holder) {
            group.join(holder, bounded(credit));
            mark_ready(&mut self.ready_list, partition);
        }
    }

    /// Ends a subscription on purpose: what it holds is ready again at once, and the attempt does
    /// not count, whatever was said of it.
    pub(crate) fn unsubscribe(
        &mut self,
        session: SessionId,
        subscription: u32,
        (id, group_id): (PartitionId, GroupId),
    ) {
        let Some(partition) = self.partitions.get_mut(&id) else { return };
        let holder = Holder { session, subscription };
        partition.leave(group_id, |held| held == holder, &mut self.wheel);
        mark_ready(&mut self.ready_list, partition);
    }

    /// Ends all subscriptions of a session. What they hold returns after `grace`; with none, the
    /// session left on purpose.
    pub(crate) fn end_session(&mut self, session: SessionId, grace: Duration, now: Timestamp) {
        self.readers.end_session(session);
        let held = self.sessions.parts_of(session);
        if held.is_empty() {
            return;
        }
        for (id, group_id) in held {
            let Some(partition) = self.partitions.get_mut(&id) else { continue };
            if grace.is_zero() {
                partition.leave(group_id, |held| held.session == session, &mut self.wheel);
            } else if let Some(group) = partition.group(group_id) {
                group.cut_off(session);
            }
            mark_ready(&mut self.ready_list, partition);
        }
        if grace.is_zero() {
            self.sessions.end(session);
        } else {
            self.sessions.cut_off(session);
            self.wheel.set(now.plus(grace), Timer::Grace { session });
        }
    }
}

/// The reason of an attempt that its consumer settles as failed without one.
const RETRIED: &str = "retried by the consumer";

/// The runs of a settle, divided by whether it applies to them.
struct Settlement {
    /// It applies to these offsets, in order and each once: `(start, end, failed)`, with the attempts that
    /// failed before.
    valid: Vec<(u64, u64, u32)>,
    stale: Vec<DeliveryRun>,
}

impl Settlement {
    fn of(
        group: &Group,
        runs: &[DeliveryRun],
        by: Settler<'_>,
        generation_and_visible: (Generation, u64),
        is_ack: bool,
    ) -> Self {
        let (mut valid, mut stale) = (Vec::new(), Vec::new());
        for &run in runs {
            let standing = Standing::of(group, run, by, generation_and_visible);
            valid.extend(standing.leased);
            if is_ack {
                valid.extend(standing.returned.iter().map(|part| (part.start, part.end, 0)));
            } else {
                stale.extend(standing.returned.iter().map(|part| part_of(run, part)));
            }
            stale.extend(standing.stale.iter().map(|part| part_of(run, part)));
        }
        take_each_once(&mut valid);
        Self { valid, stale }
    }

    /// The number of messages that it applies to.
    fn applied(&self) -> u64 {
        self.valid.iter().map(|(start, end, _)| end - start).sum()
    }

    /// The records that settle them as acked.
    fn acked(&self, (partition, group): Part) -> Vec<Record> {
        let record = |ranges: &[_]| {
            let (outcome, ranges) = (Outcome::Acked, ranges.to_vec());
            Record::Settled { partition, group, outcome, ranges }
        };
        merged(&self.valid).chunks(RUNS_PER_RECORD_MAX).map(record).collect()
    }

    /// The runs, each with one more failed attempt.
    fn failed(&self) -> Vec<(OffsetRange, u32)> {
        let runs = self.valid.iter();
        runs.map(|&(start, end, failed)| (range(start, end), failed.saturating_add(1))).collect()
    }
}

/// What a settled run is to a group, part by part. Parts that are settled already are in none.
#[derive(Default)]
struct Standing {
    /// Held under this very attempt by the session that settles, with the attempts that failed before.
    leased: Vec<(u64, u64, u32)>,
    /// Held under this very attempt until the lease ended, and not delivered since.
    returned: Vec<Range<u64>>,
    /// Delivered again since, returned, or never delivered.
    stale: Vec<Range<u64>>,
}

impl Standing {
    fn of(
        group: &Group,
        run: DeliveryRun,
        by: Settler<'_>,
        (generation, visible): (Generation, u64),
    ) -> Self {
        let mut standing = Self::default();
        let (start, end) = (run.first.0, run.first.0.saturating_add(u64::from(run.count)));
        if end > visible {
            standing.call_stale(start.max(visible), end);
        }
        let current = run.generation == generation;
        for Range { start, end } in group.settled.gaps(start, end.min(visible)) {
            let mut at = start;
            for (from, to, lease) in group.leased_within(start, end) {
                standing.unleased(group, run, current, at, from);
                let fits = current && lease.attempt() == run.attempt;
                if fits && by.speaks_for(group, lease.holder) {
                    standing.leased.push((from, to, lease.tries.failed));
                } else {
                    standing.call_stale(from, to);
                }
                at = to;
            }
            standing.unleased(group, run, current, at, end);
        }
        standing
    }

    /// A part that nobody holds. One of this generation must be the last attempt. One of an earlier
    /// generation counts, though this generation may have delivered the message too and seen it
    /// fail or come back: the session that settles has had it, and nobody has it now.
    fn unleased(&mut self, group: &Group, run: DeliveryRun, current: bool, start: u64, end: u64) {
        if start >= end {
            return;
        }
        if !current && run.generation.0 != 0 {
            self.returned.push(start..end);
            return;
        }
        let mut at = start;
        for (from, to, tries) in group.tries_within(start, end) {
            self.untried(at, from);
            if tries.is_last(run.attempt) {
                self.returned.push(from..to);
            } else {
                self.call_stale(from, to);
            }
            at = to;
        }
        self.untried(at, end);
    }

    /// A part whose publisher's delay is not over: it cannot have been delivered.
    fn untried(&mut self, start: u64, end: u64) {
        if start < end {
            self.call_stale(start, end);
        }
    }

    /// A part that the settle does not apply to. Parts that touch are one in the answer.
    fn call_stale(&mut self, start: u64, end: u64) {
        match self.stale.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => self.stale.push(start..end),
        }
    }
}

/// The session that settles.
#[derive(Clone, Copy)]
struct Settler<'a> {
    session: SessionId,
    /// The group in the partition that it settles for.
    part: Part,
    sessions: &'a Sessions,
}

impl Settler<'_> {
    /// Whether it may speak for `holder`: a session that takes part, or did, speaks for itself. A holder
    /// that has lost its connection settles from whatever session it has now, and a session that takes
    /// no part speaks for others. Which delivery is meant the attempt says.
    fn speaks_for(self, group: &Group, holder: Holder) -> bool {
        holder.session == self.session
            || !self.sessions.is_part(self.session, self.part)
            || !group.has_member(holder)
    }
}

fn part_of(run: DeliveryRun, part: &Range<u64>) -> DeliveryRun {
    let count = u32::try_from(part.end - part.start).unwrap_or(u32::MAX);
    DeliveryRun { first: Offset(part.start), count, ..run }
}

/// Puts the parts in order, and leaves out of each what one before it has: a settle may name a message
/// twice.
fn take_each_once(parts: &mut Vec<(u64, u64, u32)>) {
    parts.sort_unstable();
    let mut taken = 0;
    parts.retain_mut(|(start, end, _)| {
        *start = taken.max(*start);
        taken = taken.max(*end);
        start < end
    });
}

/// Ranges in their order, with neighbours made one.
fn merged(parts: &[(u64, u64, u32)]) -> Vec<OffsetRange> {
    let mut ranges: Vec<OffsetRange> = Vec::new();
    for &(start, end, _) in parts {
        match ranges.last_mut() {
            Some(last) if last.end.0 == start => last.end.0 = end,
            _ => ranges.push(range(start, end)),
        }
    }
    ranges
}
