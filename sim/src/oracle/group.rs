//! The oracle's model of a group in a partition: the state of each message, as simply as possible.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use sennit_engine::{Delivery, GroupSetting, SessionId};
use sennit_model::{Generation, StartAt, Timestamp};

use super::{
    Violation, attempts::FailedAttempts, replacements::Replacements, retry::PolicyHistory,
};

/// Whether a group has acked a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum AckState {
    /// It has not.
    #[default]
    No,
    /// It did in this turn; 0 when the ack is certainly durable.
    Acked(u64),
    /// It did, and the broker crashed before the ack was certainly durable.
    Unknown,
}

/// The last delivery of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastDelivery {
    generation: Generation,
    attempt: u32,
    /// Its number among all deliveries.
    pub(super) number: u64,
}

/// One message in a group.
#[derive(Clone, Debug, Default)]
pub(super) struct MessageState {
    pub(super) ack: AckState,
    /// The turn in which it became a dead letter or was parked; 0 when that is certainly durable.
    pub(super) dead_lettered: Option<u64>,
    /// Its failed attempts: with too many it becomes a dead letter.
    pub(super) failed: FailedAttempts,
    pub(super) last: Option<LastDelivery>,
    /// Whether a consumer has sent an ack or a dead-letter verdict, whether or not it was answered.
    pub(super) has_final_verdict: bool,
    /// The earliest time of the next delivery, as far as this generation knows.
    pub(super) not_before: Option<Timestamp>,
}

impl MessageState {
    /// Whether this generation has delivered it.
    pub(super) fn was_delivered_in(&self, generation: Generation) -> bool {
        self.last.is_some_and(|last| last.generation == generation)
    }

    pub(super) fn is_last_delivery(&self, number: u64) -> bool {
        self.last.is_some_and(|last| last.number == number)
    }
}

/// A lease on a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lease {
    pub(super) session: SessionId,
    pub(super) subscription: u32,
    /// The number of its delivery among all deliveries.
    number: u64,
    pub(super) attempt: u32,
    /// Whether its consumer may have said that it works on the message.
    pub(super) may_be_started: bool,
    pub(super) deadline: Timestamp,
    /// The time at which it ends because its session was cut off, even if it is extended.
    pub(super) session_deadline: Timestamp,
    /// The number of unanswered settlements that may have ended it.
    pub(super) pending_settlements: u32,
    /// The number of the last settlement that extends it.
    pub(super) extended_by: u64,
}

impl Lease {
    pub(super) fn is_live(&self, now: Timestamp) -> bool {
        self.pending_settlements == 0 && self.end() > now
    }

    /// The time at which it ends if nothing is settled.
    fn end(&self) -> Timestamp {
        self.deadline.min(self.session_deadline)
    }

    pub(super) fn holder(&self) -> (SessionId, u32) {
        (self.session, self.subscription)
    }
}

/// One group.
#[derive(Clone, Debug)]
pub(super) struct GroupModel {
    pub(super) setting: GroupSetting,
    /// The highest and the lowest limit of attempts that the group ever had.
    attempts_max_highest: u32,
    attempts_max_lowest: u32,
    pub(super) policies: PolicyHistory,
    /// The group receives every message from this offset on, except for `holes`.
    pub(super) floor: u64,
    /// Offsets that may have been freed before the group began.
    pub(super) holes: BTreeSet<u64>,
    /// The turn in which it was created; 0 when that is certainly durable.
    pub(super) created: u64,
    pub(super) states: BTreeMap<u64, MessageState>,
    pub(super) leases: BTreeMap<u64, Lease>,
    /// Deliveries that ended without a settlement, by subscription: their numbers and when they ended.
    expired: BTreeMap<(SessionId, u32), Vec<(u64, Timestamp)>>,
    /// Whether only settlements, time and lost connections have ever ended a lease.
    pub(super) keeps_unsettled: bool,
    /// The highest offset whose first delivery came in order.
    highest_first: Option<u64>,
    /// The same, of the messages that are alike to a scheduler.
    highest_first_alike: BTreeMap<usize, u64>,
    /// Whether its messages were ever given by fair key.
    pub(super) ever_fair: bool,
    /// The number of settlements that were sent.
    pub(super) settlement_count: u64,
    /// The last turn with a command that retries its parked messages.
    pub(super) retried: u64,
    /// Messages that later ones with their deduplication values have replaced.
    pub(super) replacements: Replacements,
}

/// A delivered message.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeliveredMessage {
    pub(super) offset: u64,
    /// The number of this delivery among all.
    pub(super) number: u64,
    /// Whether its publisher delayed it.
    pub(super) is_delayed: bool,
    /// Whether the partition parks messages that fail for good.
    pub(super) parks: bool,
    /// A number that messages have in common which are alike to a scheduler.
    pub(super) says: usize,
}

impl GroupModel {
    /// A group that is created in `turn`, while the partition keeps `kept`.
    pub(super) fn new(
        setting: GroupSetting,
        kept: Range<u64>,
        holes: BTreeSet<u64>,
        turn: u64,
    ) -> Self {
        let floor = match setting.start {
            StartAt::Earliest => kept.start,
            StartAt::Latest => kept.end,
            StartAt::Offset(offset) => offset.0.clamp(kept.start, kept.end),
        };
        Self {
            setting,
            attempts_max_highest: 0,
            attempts_max_lowest: u32::MAX,
            policies: PolicyHistory::default(),
            floor,
            holes,
            created: turn,
            states: BTreeMap::new(),
            leases: BTreeMap::new(),
            expired: BTreeMap::new(),
            keeps_unsettled: true,
            highest_first: None,
            highest_first_alike: BTreeMap::new(),
            ever_fair: false,
            settlement_count: 0,
            retried: 0,
            replacements: Replacements::default(),
        }
    }

    pub(super) fn set(&mut self, setting: GroupSetting, turn: u64) {
        self.attempts_max_highest = self.attempts_max_highest.max(setting.config.attempts_max);
        // With an age, one failed attempt may be the last.
        let has_age = setting.config.retry.age_max.is_some();
        let lowest = if has_age { 1 } else { setting.config.attempts_max };
        self.attempts_max_lowest = self.attempts_max_lowest.min(lowest);
        self.policies.set(setting.config.retry, turn);
        self.setting = setting;
    }

    /// Whether the group may not need a message that it did not ack as far as the oracle knows: the group began
    /// later, or the message was acked or became a dead letter without an answer.
    pub(super) fn may_be_settled(&self, offset: u64) -> bool {
        offset < self.floor
            || self.holes.contains(&offset)
            || self.replacements.may_hold(offset)
            || self.may_be_dead_lettered(offset)
            || self
                .states
                .get(&offset)
                .is_some_and(|state| state.ack != AckState::No || state.has_final_verdict)
    }

    /// Whether a message may have failed for good: too often, or by a verdict whose answer a crash prevented.
    pub(super) fn may_be_dead_lettered(&self, offset: u64) -> bool {
        self.states.get(&offset).is_some_and(|state| {
            state.dead_lettered.is_some()
                || state.has_final_verdict
                || self.failed_attempts_max(offset) >= self.attempts_max_lowest
        })
    }

    /// The greatest possible number of failed attempts at a message, with the attempt under way.
    pub(super) fn failed_attempts_max(&self, offset: u64) -> u32 {
        let under_way = self.leases.get(&offset).is_some_and(|lease| self.may_count(lease));
        self.states.get(&offset).map_or(0, |state| state.failed.max() + u32::from(under_way))
    }

    /// The least number of failed attempts after which a message may become a dead letter.
    pub(super) fn failed_attempts_needed(&self, offset: u64) -> u32 {
        let has_final_verdict =
            self.states.get(&offset).is_some_and(|state| state.has_final_verdict);
        if has_final_verdict { 0 } else { self.attempts_max_lowest }
    }

    /// Whether a delivery may be a failed attempt if it ends without a settlement. It is not while the same
    /// subscription holds an older lease, unless the consumer has said that it works on the message.
    fn may_count(&self, lease: &Lease) -> bool {
        let is_older = |(number, end)| number < lease.number && end >= lease.end();
        let others = self.leases.values().filter(|other| other.holder() == lease.holder());
        let others = others
            .filter(|other| other.pending_settlements == 0)
            .map(|other| (other.number, other.end()));
        let expired = self.expired.get(&lease.holder()).into_iter().flatten().copied();
        !self.keeps_unsettled
            || lease.pending_settlements > 0
            || lease.may_be_started
            || !others.chain(expired).any(is_older)
    }

    /// Ends a lease, possibly without a settlement.
    pub(super) fn end_lease(&mut self, offset: u64) -> Option<Lease> {
        let lease = self.leases.remove(&offset)?;
        if self.may_count(&lease) {
            self.states.entry(offset).or_default().failed.add_possible();
        }
        Some(lease)
    }

    /// Ends a lease without a settlement, unless a pending settlement may have ended it.
    fn expire_lease(&mut self, offset: u64) {
        if let Some(lease) = self.end_lease(offset)
            && lease.pending_settlements == 0
        {
            self.expired.entry(lease.holder()).or_default().push((lease.number, lease.end()));
        }
    }

    /// The number of messages that a subscription certainly holds.
    pub(super) fn held_by(&self, session: SessionId, subscription: u32, now: Timestamp) -> u64 {
        let own = |lease: &&Lease| lease.holder() == (session, subscription);
        self.leases.values().filter(own).filter(|lease| lease.is_live(now)).count() as u64
    }

    /// The messages that consumers certainly hold.
    pub(super) fn held(&self, now: Timestamp) -> impl Iterator<Item = u64> {
        let live = self.leases.iter().filter(move |(_, lease)| lease.is_live(now));
        live.map(|(&offset, _)| offset)
    }

    /// Checks the delivery of a message, and leases it.
    pub(super) fn deliver(
        &mut self,
        delivery: &Delivery,
        message: DeliveredMessage,
        now: Timestamp,
    ) -> Result<(), Violation> {
        let DeliveredMessage { offset, number, is_delayed, parks, says } = message;
        let group = self.setting.id.0;
        let place = format!("offset {offset} of {}, group {group}", delivery.partition);
        let wrong = |rule, detail: String| Err(Violation::new(rule, format!("{place}: {detail}")));
        if let Some((rule, detail)) = self.why_not_deliverable(offset, parks, now) {
            return wrong(rule, detail);
        }
        let state = self.states.entry(offset).or_default();
        let last = state.last.filter(|last| last.generation == delivery.generation);
        self.expire_lease(offset);
        let state = self.states.entry(offset).or_default();
        let (least, most) = match last {
            Some(last) => (last.attempt + 1, last.attempt + 1),
            None => (state.failed.min() + 1, state.failed.max() + 1),
        };
        if !(least..=most).contains(&delivery.attempt) {
            let detail = format!("attempt {}, expected {least} to {most}", delivery.attempt);
            return wrong("I5 attempt numbers rise", detail);
        }
        if state.failed.min() >= self.attempts_max_highest {
            return wrong(
                "I5 a message has no more attempts than its group allows",
                format!("{:?} of at most {}", state.failed, self.attempts_max_highest),
            );
        }
        if let Some(due) = state.not_before.filter(|due| now < *due) {
            return wrong(
                "I7 a retry is not delivered before its delay ends",
                format!("its delay ends at {due:?}, it was delivered at {now:?}"),
            );
        }
        if state.last.is_none() && !is_delayed {
            if !self.ever_fair && self.highest_first.is_some_and(|highest| highest > offset) {
                return wrong(
                    "I4 first deliveries follow the order of offsets",
                    format!("offset {:?} was delivered before", self.highest_first),
                );
            }
            let alike = self.highest_first_alike.entry(says).or_default();
            if *alike > offset {
                return wrong(
                    "I4 first deliveries of a fair key follow the order of offsets",
                    format!("offset {alike} was delivered before, and is alike"),
                );
            }
            *alike = offset;
            self.highest_first = Some(offset);
        }
        state.ack = AckState::No;
        state.not_before = None;
        let Delivery { generation, attempt, session, subscription, .. } = *delivery;
        state.last = Some(LastDelivery { generation, attempt, number });
        let lease = Lease {
            session,
            subscription,
            number,
            attempt,
            may_be_started: false,
            deadline: now.plus(self.setting.config.lease),
            session_deadline: Timestamp(u64::MAX),
            pending_settlements: 0,
            extended_by: 0,
        };
        self.leases.insert(offset, lease);
        Ok(())
    }

    /// The promise that any delivery of a message breaks now because the message is settled, parked or leased.
    fn why_not_deliverable(
        &self,
        offset: u64,
        parks: bool,
        now: Timestamp,
    ) -> Option<(&'static str, String)> {
        const SETTLED: &str = "I3 a settled message is not delivered again";
        if let Some(turn) = self.replacements.certain(offset) {
            let rule = "I7 a replaced message is not delivered";
            return Some((rule, format!("it was replaced in turn {turn}")));
        }
        let state = self.states.get(&offset)?;
        if let AckState::Acked(turn) = state.ack {
            return Some((SETTLED, format!("it was acked in turn {turn}")));
        }
        if let Some(turn) = state.dead_lettered {
            return Some(match parks {
                true => (
                    "I7 a parked message is delivered only after a retry command",
                    format!("it was parked in turn {turn}"),
                ),
                false => (SETTLED, format!("it became a dead letter in turn {turn}")),
            });
        }
        let lease = self.leases.get(&offset).filter(|lease| lease.is_live(now))?;
        Some(("I5 a message has one lease at a time", format!("{lease:?} is live at {now:?}")))
    }

    /// Ends the leases of a subscription or a session: now, or at `session_deadline`.
    pub(super) fn release_leases(
        &mut self,
        is_own: impl Fn(&Lease) -> bool,
        session_deadline: Option<Timestamp>,
        now: Timestamp,
    ) {
        let own = self.leases.iter().filter(|(_, lease)| is_own(lease));
        let own: Vec<u64> = own.map(|(&offset, _)| offset).collect();
        for offset in own {
            match session_deadline {
                Some(deadline) => {
                    if let Some(lease) = self.leases.get_mut(&offset) {
                        lease.session_deadline = deadline;
                    }
                }
                // No attempt fails with that.
                None if self.leases.get(&offset).is_some_and(|lease| lease.is_live(now)) => {
                    self.leases.remove(&offset);
                }
                None => drop(self.end_lease(offset)),
            }
        }
    }

    /// Notes a command that retries all parked messages.
    pub(super) fn retry_parked(&mut self, turn: u64) {
        self.retried = turn;
        for state in self.states.values_mut() {
            (state.dead_lettered, state.not_before) = (None, None);
            state.failed.reset_min();
        }
    }

    /// Allows first deliveries in any order: messages that were freed exist again after a crash, and their first
    /// delivery may come only now.
    pub(super) fn reset_delivery_order(&mut self) {
        self.highest_first = None;
        self.highest_first_alike.clear();
    }

    /// Notes a crash: all leases end, and changes that are not durable may or may not have happened.
    pub(super) fn crashed(&mut self, durable_turn: u64) {
        let leased: Vec<u64> = self.leases.keys().copied().collect();
        leased.into_iter().for_each(|offset| self.expire_lease(offset));
        self.expired.clear();
        self.policies.crashed(durable_turn);
        self.replacements.crashed(durable_turn);
        for state in self.states.values_mut() {
            match state.ack {
                AckState::Acked(turn) if turn > durable_turn => state.ack = AckState::Unknown,
                AckState::Acked(_) => state.ack = AckState::Acked(0),
                AckState::No | AckState::Unknown => {}
            }
            state.dead_lettered =
                state.dead_lettered.filter(|&turn| turn <= durable_turn).map(|_| 0);
            state.not_before = None;
            state.failed.crashed(durable_turn);
        }
    }
}
