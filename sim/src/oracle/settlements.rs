//! The oracle's model of settlements: it predicts the messages to which a settlement applies, checks its answer, and
//! applies it to the group.

use std::{collections::BTreeSet, ops::Range, time::Duration};

use sennit_engine::{DeliveryRun, Settle, Verdict};
use sennit_model::{Generation, RetryPolicy, Timestamp, limits};

use super::{
    Oracle, Violation,
    group::{AckState, GroupModel},
    retry::{is_too_old, least_delay},
};

/// The time of a command that settles deliveries.
#[derive(Clone, Copy, Debug)]
pub(super) struct SettleTime {
    pub(super) turn: u64,
    pub(super) now: Timestamp,
    /// The number of deliveries before it.
    pub(super) delivery_count: u64,
    pub(super) generation: Generation,
}

/// A settlement without an answer, and its expected result.
#[derive(Clone, Debug)]
pub(super) struct PendingSettlement {
    pub(super) settle: Settle,
    pub(super) time: SettleTime,
    /// Its number among the group's.
    number: u64,
    must_apply: Vec<(u64, DeliveryRun)>,
    must_be_stale: Vec<(u64, DeliveryRun)>,
    /// The leases that it may end: offsets and numbers of deliveries.
    affected: Vec<(u64, u64)>,
    /// The retry policies that may be in force.
    policies: Vec<RetryPolicy>,
    /// The messages that fail for good if this settlement fails them, because of their age.
    too_old: BTreeSet<u64>,
}

fn offsets_of(run: &DeliveryRun) -> Range<u64> {
    run.first.0..run.first.0 + u64::from(run.count)
}

impl GroupModel {
    /// Notes a settlement, and predicts its result. `keeps_unsettled` says whether the partition keeps every
    /// message until it is settled, so that nothing else ends a lease. No offset from `limit` on was delivered.
    pub(super) fn expect_settlement(
        &mut self,
        settle: &Settle,
        time: SettleTime,
        keeps_unsettled: bool,
        limit: u64,
        appended_at: impl Fn(u64) -> Option<Timestamp>,
    ) -> PendingSettlement {
        self.settlement_count += 1;
        let mut pending = PendingSettlement {
            settle: settle.clone(),
            time,
            number: self.settlement_count,
            must_apply: Vec::new(),
            must_be_stale: Vec::new(),
            affected: Vec::new(),
            policies: self.policies.in_force(),
            too_old: BTreeSet::new(),
        };
        for run in &settle.runs {
            for offset in offsets_of(run) {
                let is_old =
                    |appended_at| is_too_old(&pending.policies, appended_at, pending.time.now);
                if appended_at(offset).is_some_and(is_old) {
                    pending.too_old.insert(offset);
                }
                if offset >= limit {
                    pending.must_be_stale.push((offset, *run));
                } else {
                    self.expect_settled(&mut pending, run, offset, keeps_unsettled);
                }
            }
        }
        pending
    }

    fn expect_settled(
        &mut self,
        pending: &mut PendingSettlement,
        run: &DeliveryRun,
        offset: u64,
        keeps_unsettled: bool,
    ) {
        let Settle { verdict, origin, .. } = &pending.settle;
        let state = self.states.entry(offset).or_default();
        state.has_final_verdict |= matches!(verdict, Verdict::Ack | Verdict::DeadLetter { .. });
        let Some(lease) = self.leases.get_mut(&offset) else { return };
        let is_certain =
            lease.is_live(pending.time.now) && state.ack == AckState::No && keeps_unsettled;
        if lease.attempt != run.attempt || run.generation != pending.time.generation {
            if is_certain {
                pending.must_be_stale.push((offset, *run));
            }
            return;
        }
        // Whether a session may settle for another connected session depends on whether it is a
        // member of the group itself: the oracle accepts both results.
        let is_cut_off = lease.session_deadline != Timestamp(u64::MAX);
        if is_certain && (lease.session == origin.session || is_cut_off) {
            pending.must_apply.push((offset, *run));
        }
        lease.pending_settlements += 1;
        if matches!(verdict, Verdict::Extend(_)) {
            lease.extended_by = pending.number;
        }
        lease.may_be_started |= matches!(verdict, Verdict::Extend(_) | Verdict::Started);
        let number = state.last.map_or(0, |last| last.number);
        pending.affected.push((offset, number));
    }

    /// Checks the answer to a settlement: `stale` are the runs that it did not apply to. Returns the number of
    /// messages that it certainly applied to.
    pub(super) fn check_settlement(
        &mut self,
        pending: &PendingSettlement,
        stale: &[DeliveryRun],
    ) -> Result<u64, Violation> {
        let is_stale = |offset: u64, run: &DeliveryRun| {
            stale.iter().any(|part| {
                part.attempt == run.attempt
                    && part.generation == run.generation
                    && offsets_of(part).contains(&offset)
            })
        };
        for (offset, run) in &pending.must_apply {
            if is_stale(*offset, run) {
                return Err(Violation::new(
                    "I3 a settlement of a leased message applies",
                    format!("offset {offset} is leased by {run:?}, and was reported as stale"),
                ));
            }
        }
        for (offset, run) in &pending.must_be_stale {
            if !is_stale(*offset, run) {
                return Err(Violation::new(
                    "I5 a stale settlement does not apply",
                    format!(
                        "offset {offset} is not leased by {run:?}, and was not reported as stale: \
                         {:?} {:?}",
                        self.states.get(offset),
                        self.leases.get(offset)
                    ),
                ));
            }
        }
        for &(offset, number) in &pending.affected {
            if let Some(lease) = self.leases.get_mut(&offset)
                && self.states.get(&offset).is_some_and(|state| state.is_last_delivery(number))
            {
                lease.pending_settlements = lease.pending_settlements.saturating_sub(1);
            }
        }
        for run in &pending.settle.runs {
            for offset in offsets_of(run).filter(|offset| !is_stale(*offset, run)) {
                self.apply_settlement(pending, run, offset)?;
            }
        }
        Ok(pending.must_apply.len() as u64)
    }

    fn apply_settlement(
        &mut self,
        pending: &PendingSettlement,
        run: &DeliveryRun,
        offset: u64,
    ) -> Result<(), Violation> {
        let SettleTime { turn, now, delivery_count, .. } = pending.time;
        let state = self.states.entry(offset).or_default();
        let delivered_since = state.last.is_some_and(|last| last.number > delivery_count);
        if pending.settle.verdict == Verdict::Ack {
            if delivered_since {
                return Err(Violation::new(
                    "I3 a settled message is not delivered again",
                    format!("offset {offset} was delivered after its ack, {run:?}"),
                ));
            }
            if !matches!(state.ack, AckState::Acked(_)) {
                state.ack = AckState::Acked(turn);
            }
            state.dead_lettered = None;
            // Its lease may have ended before, and it may be a dead letter by now.
            self.end_lease(offset);
            return Ok(());
        }
        let was_leased = pending
            .affected
            .iter()
            .any(|&(affected, number)| affected == offset && state.is_last_delivery(number));
        if delivered_since || state.ack != AckState::No || !was_leased {
            return Ok(());
        }
        // A retry command since then may have reset what this settlement has done.
        let is_current = turn > self.retried;
        if !matches!(pending.settle.verdict, Verdict::Extend(_) | Verdict::Started) {
            match is_current {
                true => state.failed.add_certain(turn),
                false => state.failed.add_possible(),
            }
        }
        match &pending.settle.verdict {
            Verdict::Started => {}
            Verdict::Ack => drop(self.leases.remove(&offset)),
            Verdict::Retry | Verdict::RetryAfter(_) => {
                let delay = match &pending.settle.verdict {
                    Verdict::RetryAfter(delay) => *delay,
                    _ => least_delay(&pending.policies, state.failed.min(), state.failed.max()),
                };
                state.not_before = is_current.then(|| now.plus(delay));
                if is_current && pending.too_old.contains(&offset) {
                    state.dead_lettered = Some(turn);
                }
                self.leases.remove(&offset);
            }
            Verdict::DeadLetter { .. } => {
                if is_current {
                    state.dead_lettered = Some(turn);
                }
                self.leases.remove(&offset);
            }
            Verdict::Extend(span) => {
                let span: Duration = (*span).clamp(limits::LEASE_MIN, limits::LEASE_MAX);
                let deadline = now.plus(span);
                // A message that was not certainly leased may be settled already.
                let is_certain = pending.must_apply.iter().any(|(certain, _)| *certain == offset);
                if let Some(lease) = self.leases.get_mut(&offset) {
                    let is_certain = is_certain && lease.extended_by == pending.number;
                    lease.deadline =
                        if is_certain { deadline } else { lease.deadline.min(deadline) };
                }
            }
        }
        Ok(())
    }

    /// Notes a settlement whose answer a crash prevented.
    pub(super) fn settlement_unanswered(&mut self, pending: &PendingSettlement) {
        for offset in pending.settle.runs.iter().flat_map(offsets_of) {
            let state = self.states.entry(offset).or_default();
            if pending.settle.verdict == Verdict::Ack && state.ack == AckState::No {
                state.ack = AckState::Unknown;
            }
        }
    }
}

impl Oracle {
    /// Applies a settlement: `stale` are the runs that it did not apply to, if it is answered in this turn.
    pub(super) fn settle(
        &mut self,
        settle: &Settle,
        stale: &[DeliveryRun],
        now: Timestamp,
    ) -> Result<(), Violation> {
        let Some(partition) = self.partitions.get_mut(&settle.partition) else { return Ok(()) };
        let (keeps_unsettled, limit) = (partition.keeps_unsettled(), partition.limit());
        let Some(group) = partition.groups.get_mut(&settle.group) else { return Ok(()) };
        let Self { turn, generation, deliveries: delivery_count, .. } = *self;
        let time = SettleTime { turn, now, delivery_count, generation };
        let entries = &partition.entries;
        let appended_at = |offset| Some(entries.get(offset as usize)?.appended_at);
        let pending = group.expect_settlement(settle, time, keeps_unsettled, limit, appended_at);
        if settle.confirm {
            self.settlements.insert(settle.origin.request, pending);
            return Ok(());
        }
        group.check_settlement(&pending, stale).map(drop)
    }
}
