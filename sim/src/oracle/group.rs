//! The oracle's model of a group in a partition: the state of each message, as simply as possible.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use sennit_engine::{Delivery, DeliveryRun, GroupSetting, SessionId, Settle, Verdict};
use sennit_model::{Generation, StartAt, Timestamp, limits};

use super::{Violation, attempts::Failed, retry::Policies};

/// How far a group is through with a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Done {
    /// Not at all.
    #[default]
    No,
    /// It was acked in this turn; 0 when that is durable for sure.
    Acked(u64),
    /// It was acked, and a crash came before that was durable.
    Unknown,
}

/// One message in a group.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) done: Done,
    /// It was given to the dead letters, or parked among them, in this turn; 0 when that is durable for
    /// sure.
    pub(super) dying: Option<u64>,
    /// The attempts that failed: with too many it is dead.
    failed: Failed,
    /// The generation and attempt of the last delivery, and its number among all deliveries.
    last: Option<(Generation, u32, u64)>,
    /// Somebody has said that the group is through with it, and the answer may be on its way.
    is_asked: bool,
    /// Not to be delivered before, as far as this generation knows.
    not_before: Option<Timestamp>,
}

/// A message that somebody holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) session: SessionId,
    pub(super) subscription: u32,
    /// Its number among all deliveries.
    number: u64,
    attempt: u32,
    /// Whether its holder may have said that it works on it.
    may_be_started: bool,
    ends: Timestamp,
    /// When it ends whatever is said, because its session was cut off.
    cut_off: Timestamp,
    /// Settlements that are on their way and may have ended it.
    doubts: u32,
    /// The last settlement that was to extend it.
    extended_by: u64,
}

impl Held {
    fn is_live(&self, now: Timestamp) -> bool {
        self.doubts == 0 && self.end() > now
    }

    /// When it ends without a word.
    fn end(&self) -> Timestamp {
        self.ends.min(self.cut_off)
    }

    fn holder(&self) -> (SessionId, u32) {
        (self.session, self.subscription)
    }
}

/// One group.
#[derive(Clone, Debug)]
pub(super) struct GroupModel {
    pub(super) setting: GroupSetting,
    attempts_max: u32,
    attempts_least: u32,
    policies: Policies,
    /// It has to get everything from here on.
    pub(super) floor: u64,
    /// But for these: they may have been freed before it began.
    pub(super) holes: BTreeSet<u64>,
    /// The turn in which it was made; 0 when that is durable for sure.
    pub(super) made: u64,
    pub(super) states: BTreeMap<u64, State>,
    pub(super) held: BTreeMap<u64, Held>,
    /// Deliveries that ended without a word, by subscription: their numbers and when.
    ended: BTreeMap<(SessionId, u32), Vec<(u64, Timestamp)>>,
    /// Whether nothing but settlements, time and lost connections has ever ended a lease.
    pub(super) is_clear: bool,
    /// The highest offset whose first delivery came in its turn.
    highest_first: Option<u64>,
    /// How many settlements were asked for.
    asked_count: u64,
    /// The last turn in which its parked messages were asked for.
    retried: u64,
}

/// A settlement that was asked for, with what must become of it.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) settle: Settle,
    pub(super) turn: u64,
    /// Its number among the group's.
    number: u64,
    at: Timestamp,
    /// How many deliveries there had been.
    delivery: u64,
    must_apply: Vec<(u64, DeliveryRun)>,
    must_be_stale: Vec<(u64, DeliveryRun)>,
    doubted: Vec<(u64, u64)>,
    /// Messages that are not tried again if they fail now.
    too_old: BTreeSet<u64>,
}

/// What the group is told of a delivered message.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeliveredMessage {
    pub(super) offset: u64,
    /// The number of this delivery among all.
    pub(super) number: u64,
    /// Whether its publisher delayed it.
    pub(super) is_delayed: bool,
    /// Whether what fails here for good is parked here.
    pub(super) parks: bool,
}

impl GroupModel {
    pub(super) fn new(
        setting: GroupSetting,
        (start, end): (u64, u64),
        holes: BTreeSet<u64>,
        turn: u64,
    ) -> Self {
        let floor = match setting.start {
            StartAt::Earliest => start,
            StartAt::Latest => end,
            StartAt::Offset(offset) => offset.0.clamp(start, end),
        };
        Self {
            setting,
            attempts_max: 0,
            attempts_least: u32::MAX,
            policies: Policies::default(),
            floor,
            holes,
            made: turn,
            states: BTreeMap::new(),
            held: BTreeMap::new(),
            ended: BTreeMap::new(),
            is_clear: true,
            highest_first: None,
            asked_count: 0,
            retried: 0,
        }
    }

    pub(super) fn set(&mut self, setting: GroupSetting) {
        self.setting = setting;
        self.attempts_max = self.attempts_max.max(setting.config.attempts_max);
        // With an age, one failed attempt may be the last.
        let ages = setting.config.retry.age_max.is_some();
        let least = if ages { 1 } else { setting.config.attempts_max };
        self.attempts_least = self.attempts_least.min(least);
        self.policies.add(setting.config.retry);
    }

    /// Whether the group may be through with a message that it was not seen to ack: it began
    /// later, the message was acked or buried without word, or its attempts were used up.
    pub(super) fn may_be_through(&self, offset: u64) -> bool {
        offset < self.floor
            || self.holes.contains(&offset)
            || self.may_have_died(offset)
            || self
                .states
                .get(&offset)
                .is_some_and(|state| state.done != Done::No || state.is_asked)
    }

    /// Whether a message may have failed for good: too often, or because somebody said so, though a crash kept
    /// the answer.
    pub(super) fn may_have_died(&self, offset: u64) -> bool {
        self.states.get(&offset).is_some_and(|state| {
            state.dying.is_some()
                || state.is_asked
                || self.may_have_failed(offset) >= self.attempts_least
        })
    }

    /// How many attempts at a message may have failed, with the one under way.
    pub(super) fn may_have_failed(&self, offset: u64) -> u32 {
        let under_way = self.held.get(&offset).is_some_and(|held| self.may_count(held));
        self.states.get(&offset).map_or(0, |state| state.failed.most() + u32::from(under_way))
    }

    /// Whether somebody has said that the group is through with a message.
    pub(super) fn is_asked(&self, offset: u64) -> bool {
        self.states.get(&offset).is_some_and(|state| state.is_asked)
    }

    pub(super) fn attempts_least(&self) -> u32 {
        self.attempts_least
    }

    /// Whether a delivery may be a failed attempt if it ends without a word. It is none while the same
    /// subscription holds an older one, unless its holder has said that it works on it.
    fn may_count(&self, held: &Held) -> bool {
        let is_older = |(number, end)| number < held.number && end >= held.end();
        let others = self.held.values().filter(|other| other.holder() == held.holder());
        let others =
            others.filter(|other| other.doubts == 0).map(|other| (other.number, other.end()));
        let ended = self.ended.get(&held.holder()).into_iter().flatten().copied();
        !self.is_clear
            || held.doubts > 0
            || held.may_be_started
            || !others.chain(ended).any(is_older)
    }

    /// A delivery is over, and may have ended without a word.
    fn take_held(&mut self, offset: u64) -> Option<Held> {
        let held = self.held.remove(&offset)?;
        if self.may_count(&held) {
            self.states.entry(offset).or_default().failed.may_be_more();
        }
        Some(held)
    }

    /// A delivery has ended without a word, if it was not settled in the meantime.
    fn ended(&mut self, offset: u64) {
        if let Some(held) = self.take_held(offset)
            && held.doubts == 0
        {
            self.ended.entry(held.holder()).or_default().push((held.number, held.end()));
        }
    }

    /// Messages a subscription holds for sure.
    pub(super) fn held_by(&self, session: SessionId, subscription: u32, now: Timestamp) -> u64 {
        let own = |held: &&Held| held.session == session && held.subscription == subscription;
        self.held.values().filter(own).filter(|held| held.is_live(now)).count() as u64
    }

    /// A message is delivered.
    pub(super) fn delivered(
        &mut self,
        delivery: &Delivery,
        given: DeliveredMessage,
        now: Timestamp,
    ) -> Result<(), Violation> {
        let DeliveredMessage { offset, number, is_delayed, parks } = given;
        let state = self.states.entry(offset).or_default();
        let group = self.setting.id.0;
        let wrong = |rule, what: String| {
            let place = format!("offset {offset} of {}, group {group}", delivery.partition);
            Err(Violation::new(rule, format!("{place}: {what}")))
        };
        if let Done::Acked(turn) = state.done {
            return wrong(
                "I3 what is settled is not delivered again",
                format!("it was acked in turn {turn}"),
            );
        }
        if let Some(turn) = state.dying
            && parks
        {
            return wrong(
                "I7 what is parked waits until somebody asks for it",
                format!("it was parked in turn {turn}"),
            );
        }
        if let Some(turn) = state.dying {
            return wrong(
                "I3 what is settled is not delivered again",
                format!("it went to the dead letters in turn {turn}"),
            );
        }
        if let Some(held) = self.held.get(&offset)
            && held.is_live(now)
        {
            return wrong("I5 one lease at a time", format!("it is held: {held:?}, now {now:?}"));
        }
        let last = state.last.filter(|(generation, ..)| *generation == delivery.generation);
        self.ended(offset);
        let state = self.states.entry(offset).or_default();
        let (least, most) = match last {
            Some((_, attempt, _)) => (attempt + 1, attempt + 1),
            None => (state.failed.least() + 1, state.failed.most() + 1),
        };
        if !(least..=most).contains(&delivery.attempt) {
            return wrong(
                "I5 attempts rise",
                format!("attempt {}, not {least} to {most}", delivery.attempt),
            );
        }
        if state.failed.least() >= self.attempts_max {
            return wrong(
                "I5 attempts rise to a limit",
                format!("{:?} of at most {}", state.failed, self.attempts_max),
            );
        }
        if let Some(due) = state.not_before
            && now < due
        {
            return wrong(
                "I7 what waits is not early",
                format!("to be tried at {due:?}, delivered at {now:?}"),
            );
        }
        if state.last.is_none() && !is_delayed {
            if self.highest_first.is_some_and(|highest| highest > offset) {
                return wrong(
                    "I4 first deliveries keep the order",
                    format!("offset {:?} was delivered before", self.highest_first),
                );
            }
            self.highest_first = Some(offset);
        }
        state.done = Done::No;
        state.not_before = None;
        state.last = Some((delivery.generation, delivery.attempt, number));
        let held = Held {
            session: delivery.session,
            subscription: delivery.subscription,
            number,
            attempt: delivery.attempt,
            may_be_started: false,
            ends: now.plus(self.setting.config.lease),
            cut_off: Timestamp(u64::MAX),
            doubts: 0,
            extended_by: 0,
        };
        self.held.insert(offset, held);
        Ok(())
    }

    /// A subscription or a session leaves: at once, or after `grace`.
    pub(super) fn left(
        &mut self,
        of: impl Fn(&Held) -> bool,
        cut_off: Option<Timestamp>,
        now: Timestamp,
    ) {
        let own: Vec<u64> =
            self.held.iter().filter(|(_, held)| of(held)).map(|(&offset, _)| offset).collect();
        for offset in own {
            match cut_off {
                Some(at) => {
                    if let Some(held) = self.held.get_mut(&offset) {
                        held.cut_off = at;
                    }
                }
                // No attempt fails with that.
                None if self.held.get(&offset).is_some_and(|held| held.is_live(now)) => {
                    self.held.remove(&offset);
                }
                None => drop(self.take_held(offset)),
            }
        }
    }

    /// A settlement is asked for. `clear` says whether the partition keeps everything until it is
    /// settled, so that nothing else ends a lease.
    pub(super) fn asked(
        &mut self,
        settle: &Settle,
        generation: Generation,
        (turn, now, delivery): (u64, Timestamp, u64),
        (clear, end): (bool, u64),
        appended_at: impl Fn(u64) -> Option<Timestamp>,
    ) -> Asked {
        self.asked_count += 1;
        let mut asked = Asked {
            settle: settle.clone(),
            turn,
            number: self.asked_count,
            at: now,
            delivery,
            must_apply: Vec::new(),
            must_be_stale: Vec::new(),
            doubted: Vec::new(),
            too_old: BTreeSet::new(),
        };
        for run in &settle.runs {
            for offset in run.first.0..run.first.0 + u64::from(run.count) {
                if offset >= end {
                    asked.must_be_stale.push((offset, *run));
                    continue;
                }
                if appended_at(offset).is_some_and(|then| self.policies.is_too_old(then, now)) {
                    asked.too_old.insert(offset);
                }
                let state = self.states.entry(offset).or_default();
                state.is_asked |=
                    matches!(settle.verdict, Verdict::Ack | Verdict::DeadLetter { .. });
                let Some(held) = self.held.get_mut(&offset) else { continue };
                let is_sure = held.is_live(now) && state.done == Done::No && clear;
                if held.attempt != run.attempt || run.generation != generation {
                    if is_sure {
                        asked.must_be_stale.push((offset, *run));
                    }
                    continue;
                }
                // Whether a session may settle for another that is still there depends on whether
                // it takes part itself: either is fine.
                let is_lost = held.cut_off != Timestamp(u64::MAX);
                if is_sure && (held.session == settle.origin.session || is_lost) {
                    asked.must_apply.push((offset, *run));
                }
                held.doubts += 1;
                if matches!(settle.verdict, Verdict::Extend(_)) {
                    held.extended_by = asked.number;
                }
                held.may_be_started |=
                    matches!(settle.verdict, Verdict::Extend(_) | Verdict::Started);
                let number = state.last.map_or(0, |(_, _, number)| number);
                asked.doubted.push((offset, number));
            }
        }
        asked
    }

    /// A settlement is answered: `stale` are the runs it did not apply to.
    pub(super) fn answered(
        &mut self,
        asked: &Asked,
        stale: &[DeliveryRun],
    ) -> Result<u64, Violation> {
        let is_stale = |offset: u64, run: &DeliveryRun| {
            stale.iter().any(|part| {
                part.attempt == run.attempt
                    && part.generation == run.generation
                    && part.first.0 <= offset
                    && offset < part.first.0 + u64::from(part.count)
            })
        };
        for (offset, run) in &asked.must_apply {
            if is_stale(*offset, run) {
                return Err(Violation::new(
                    "I3 a settlement of what is held applies",
                    format!("offset {offset} is held by {run:?}, and was called stale"),
                ));
            }
        }
        for (offset, run) in &asked.must_be_stale {
            if !is_stale(*offset, run) {
                return Err(Violation::new(
                    "I5 a stale settlement does not apply",
                    format!(
                        "offset {offset} is not held by {run:?}, and was not called stale: {:?} {:?}",
                        self.states.get(offset),
                        self.held.get(offset)
                    ),
                ));
            }
        }
        for &(offset, number) in &asked.doubted {
            let is_same = |state: &State| state.last.is_some_and(|last| last.2 == number);
            if let Some(held) = self.held.get_mut(&offset)
                && self.states.get(&offset).is_some_and(is_same)
            {
                held.doubts = held.doubts.saturating_sub(1);
            }
        }
        for run in &asked.settle.runs {
            for offset in run.first.0..run.first.0 + u64::from(run.count) {
                if !is_stale(offset, run) {
                    self.applied(asked, run, offset)?;
                }
            }
        }
        Ok(asked.must_apply.len() as u64)
    }

    fn applied(&mut self, asked: &Asked, run: &DeliveryRun, offset: u64) -> Result<(), Violation> {
        let state = self.states.entry(offset).or_default();
        let delivered_since = state.last.is_some_and(|(_, _, number)| number > asked.delivery);
        if asked.settle.verdict == Verdict::Ack {
            if delivered_since {
                return Err(Violation::new(
                    "I3 what is settled is not delivered again",
                    format!("offset {offset} was delivered after its ack, {run:?}"),
                ));
            }
            if !matches!(state.done, Done::Acked(_)) {
                state.done = Done::Acked(asked.turn);
            }
            state.dying = None;
            // Its lease may have ended before, and it may be among the dead letters by now.
            self.take_held(offset);
            return Ok(());
        }
        let was_held = asked.doubted.iter().any(|&(doubted, number)| {
            doubted == offset && state.last.is_some_and(|last| last.2 == number)
        });
        if delivered_since || state.done != Done::No || !was_held {
            return Ok(());
        }
        if !matches!(asked.settle.verdict, Verdict::Extend(_) | Verdict::Started) {
            if asked.turn > self.retried {
                state.failed.settled(asked.turn);
            } else {
                state.failed.may_be_more();
            }
        }
        match &asked.settle.verdict {
            Verdict::Started => {}
            Verdict::Ack => drop(self.held.remove(&offset)),
            Verdict::Retry | Verdict::RetryAfter(_) => {
                let delay = match &asked.settle.verdict {
                    Verdict::RetryAfter(delay) => *delay,
                    _ => self.policies.least_delay(state.failed.least(), state.failed.most()),
                };
                // It may have been the last attempt, and what that has parked was asked for since.
                let waits = asked.turn > self.retried;
                state.not_before = waits.then(|| asked.at.plus(delay));
                if waits && asked.too_old.contains(&offset) {
                    state.dying = Some(asked.turn);
                }
                self.held.remove(&offset);
            }
            Verdict::DeadLetter { .. } => {
                if asked.turn > self.retried {
                    state.dying = Some(asked.turn);
                }
                self.held.remove(&offset);
            }
            Verdict::Extend(span) => {
                let span: Duration = (*span).clamp(limits::LEASE_MIN, limits::LEASE_MAX);
                let ends = asked.at.plus(span);
                // What was not held for sure may be settled already.
                let is_sure = asked.must_apply.iter().any(|(sure, _)| *sure == offset);
                if let Some(held) = self.held.get_mut(&offset) {
                    let is_sure = is_sure && held.extended_by == asked.number;
                    held.ends = if is_sure { ends } else { held.ends.min(ends) };
                }
            }
        }
        Ok(())
    }

    /// Parked messages are asked for, all of them.
    pub(super) fn retried(&mut self, turn: u64) {
        self.retried = turn;
        for state in self.states.values_mut() {
            (state.dying, state.not_before) = (None, None);
            state.failed.may_be_none();
        }
    }

    /// What was freed is back after a crash, and may be delivered for the first time only now.
    pub(super) fn order_begins_again(&mut self) {
        self.highest_first = None;
    }

    /// A crash: leases are gone, and what was not durable may or may not have happened.
    pub(super) fn crashed(&mut self, durable_turn: u64) {
        let held: Vec<u64> = self.held.keys().copied().collect();
        held.into_iter().for_each(|offset| self.ended(offset));
        self.ended.clear();
        for state in self.states.values_mut() {
            match state.done {
                Done::Acked(turn) if turn > durable_turn => state.done = Done::Unknown,
                Done::Acked(_) => state.done = Done::Acked(0),
                Done::No | Done::Unknown => {}
            }
            state.dying = state.dying.filter(|&turn| turn <= durable_turn).map(|_| 0);
            state.not_before = None;
            state.failed.crashed(durable_turn);
        }
    }

    /// A settlement was asked for and a crash came before the answer.
    pub(super) fn never_answered(&mut self, asked: &Asked) {
        for run in &asked.settle.runs {
            for offset in run.first.0..run.first.0 + u64::from(run.count) {
                let state = self.states.entry(offset).or_default();
                if asked.settle.verdict == Verdict::Ack && state.done == Done::No {
                    state.done = Done::Unknown;
                }
            }
        }
    }
}
