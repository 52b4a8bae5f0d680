//! A group in one partition: which of its messages are ready, leased, waiting, dying, damaged
//! or settled. In a dead-letter topic the dying ones are parked: they go nowhere.
//! Every visible offset is in exactly one of these states, or delayed by its publisher.

use std::{collections::BTreeMap, sync::Arc};

use sennit_model::{
    GroupConfig, GroupId, GroupName, Offset, OffsetRange, PartitionId, StartAt, Timestamp,
};

use crate::{
    command::{Credit, GroupSetting, SessionId},
    effect::GroupDescription,
    runs::{Runs, SettledSet},
    timer::Timer,
    wheel::{TimerKey, Wheel},
};

/// Who holds a lease: a subscription of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Holder {
    pub(crate) session: SessionId,
    pub(crate) subscription: u32,
}

/// A run of messages that one consumer holds.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    pub(crate) end: u64,
    pub(crate) attempt: u32,
    pub(crate) deadline: Timestamp,
    pub(crate) holder: Holder,
    /// The messages' bytes. When a run is split they are shared out by count, so that the parts
    /// always add up to the whole.
    pub(crate) bytes: u64,
    /// Set for the run's last offset: a run loses its front more often than its back.
    timer: TimerKey,
}

impl Lease {
    /// The bytes of `count` of its messages; its first one is at `start`.
    fn share(&self, start: u64, count: u64) -> u64 {
        let bytes = u128::from(self.bytes) * u128::from(count) / u128::from(self.end - start);
        u64::try_from(bytes).expect("a share is not more than the whole")
    }
}

/// A run of messages that failed and are not ready before their due time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) attempts: u32,
    pub(crate) due: Timestamp,
}

/// A run of messages that failed for good: on their way to the dead-letter topic, or parked where they
/// are in such a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dying {
    pub(crate) attempts: u32,
    pub(crate) failed_at: Timestamp,
    pub(crate) reason: Arc<str>,
}

/// A run of messages that cannot be read, and what they were before that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Damaged {
    /// Ready, with the attempts made at them.
    Ready(u32),
    /// On their way to the dead-letter topic.
    Dying(Dying),
}

impl Damaged {
    pub(crate) fn attempts(&self) -> u32 {
        match self {
            Self::Ready(attempts) => *attempts,
            Self::Dying(dying) => dying.attempts,
        }
    }
}

/// A subscription that takes part.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) holder: Holder,
    pub(crate) credit: Credit,
    pub(crate) held_messages: u64,
    pub(crate) held_bytes: u64,
}

impl Member {
    /// How many more messages it may be given; 0 once either window is full.
    pub(crate) fn room_messages(&self) -> u64 {
        if self.held_bytes >= self.credit.bytes && self.held_messages > 0 {
            return 0;
        }
        u64::from(self.credit.messages).saturating_sub(self.held_messages)
    }
}

/// What partitions share of a group's settings.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) config: GroupConfig,
    pub(crate) start: StartAt,
}

/// What groups share in the catalogue: queues, their default group.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NamedTerms {
    pub(crate) name: GroupName,
    pub(crate) terms: Arc<Terms>,
}

/// A group in one partition.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) partition: PartitionId,
    id: GroupId,
    terms: Arc<Terms>,
    pub(crate) settled: SettledSet,
    /// Ready messages with the attempts made at them. The lowest offset goes first, so what
    /// returns goes to the front.
    pub(crate) ready: Runs<u32>,
    busy: Option<Box<Busy>>,
}

/// What only a group has that somebody takes part in, or where something went wrong. An idle group
/// does without; the fields are reached through [`Group`] as if they were its own.
#[derive(Debug)]
pub(crate) struct Busy {
    pub(crate) waiting: Runs<Waiting>,
    pub(crate) dying: Runs<Dying>,
    /// In memory only: after a restart they are found again by reading.
    pub(crate) damaged: Runs<Damaged>,
    pub(crate) leases: BTreeMap<u64, Lease>,
    leased_count: u64,
    pub(crate) members: Vec<Member>,
    /// The member whose turn it is.
    pub(crate) turn: usize,
    /// `(offset, byte)`: the message at `offset` begins at `byte` of its batch.
    pub(crate) place_hint: Option<(u64, usize)>,
}

impl Busy {
    const fn new() -> Self {
        Self {
            waiting: Runs::new(),
            dying: Runs::new(),
            damaged: Runs::new(),
            leases: BTreeMap::new(),
            leased_count: 0,
            members: Vec::new(),
            turn: 0,
            place_hint: None,
        }
    }

    fn is_idle(&self) -> bool {
        self.members.is_empty()
            && self.leases.is_empty()
            && self.waiting.is_empty()
            && self.dying.is_empty()
            && self.damaged.is_empty()
    }
}

static IDLE: Busy = Busy::new();

impl std::ops::Deref for Group {
    type Target = Busy;

    fn deref(&self) -> &Busy {
        self.busy.as_deref().unwrap_or(&IDLE)
    }
}

impl std::ops::DerefMut for Group {
    fn deref_mut(&mut self) -> &mut Busy {
        self.busy.get_or_insert_with(|| Box::new(Busy::new()))
    }
}

impl Group {
    /// A group that is through with everything below `start`.
    pub(crate) fn new(
        partition: PartitionId,
        (id, terms): (GroupId, Arc<Terms>),
        start: u64,
    ) -> Self {
        let settled = SettledSet::below(start);
        Self { partition, id, terms, settled, ready: Runs::default(), busy: None }
    }

    /// Its settings.
    pub(crate) fn setting(&self) -> GroupSetting {
        GroupSetting { id: self.id, config: self.terms.config, start: self.terms.start }
    }

    pub(crate) fn set_terms(&mut self, terms: Arc<Terms>) {
        self.terms = terms;
    }

    pub(crate) fn terms(&self) -> &Arc<Terms> {
        &self.terms
    }

    /// Whether it is idle: what it has is what is settled and what is ready.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.busy.as_ref().is_none_or(|busy| busy.is_idle())
    }

    /// Gives back what only a busy group needs, if it needs it no more.
    pub(crate) fn rest(&mut self) {
        if self.busy.as_ref().is_some_and(|busy| busy.is_idle()) {
            self.busy = None;
        }
    }

    pub(crate) fn id(&self) -> GroupId {
        self.id
    }

    /// Makes the unsettled offsets of `start..end` ready that nobody has tried.
    pub(crate) fn appear(&mut self, start: u64, end: u64, delays: &Runs<Timestamp>) {
        for (from, to) in self.settled.gaps(start, end) {
            for (from, to) in delays.gaps(from, to) {
                self.ready.insert(from, to, 0);
            }
        }
    }

    /// Leases `start..end`, which are ready, to `holder`.
    pub(crate) fn lease(
        &mut self,
        (start, end): (u64, u64),
        (attempt, bytes): (u32, u64),
        holder: Holder,
        now: Timestamp,
        wheel: &mut Wheel<Timer>,
    ) {
        self.ready.remove(start, end);
        let deadline = now.plus(self.terms.config.lease);
        let timer = wheel.set(deadline, self.lease_timer(end));
        self.leased_count += end - start;
        self.leases.insert(start, Lease { end, attempt, deadline, holder, bytes, timer });
    }

    fn lease_timer(&self, end: u64) -> Timer {
        Timer::Lease { partition: self.partition, group: self.id(), last: Offset(end - 1) }
    }

    /// The leased parts of `start..end`: `(start, end, lease)`.
    pub(crate) fn leased_within(&self, start: u64, end: u64) -> Vec<(u64, u64, &Lease)> {
        if start >= end {
            return Vec::new();
        }
        let first = self.leases.range(..=start).next_back().map_or(start, |(&first, _)| first);
        self.leases
            .range(first..end)
            .filter(|(_, lease)| lease.end > start)
            .map(|(&from, lease)| (from.max(start), lease.end.min(end), lease))
            .collect()
    }

    /// Ends the leases of `start..end` and frees their holders' credit. Does not say what becomes
    /// of the messages: the caller puts them into another state.
    pub(crate) fn end_leases(
        &mut self,
        start: u64,
        end: u64,
        wheel: &mut Wheel<Timer>,
    ) -> Vec<(u64, u64, u32)> {
        let parts: Vec<_> =
            self.leased_within(start, end).iter().map(|&(from, to, _)| (from, to)).collect();
        let mut ended = Vec::with_capacity(parts.len());
        for (from, to) in parts {
            let lease = self.cut_lease(from, to, wheel);
            wheel.cancel(lease.timer);
            ended.push((from, to, lease.attempt));
            if let Some(member) = self.members.iter_mut().find(|m| m.holder == lease.holder) {
                member.held_messages -= to - from;
                member.held_bytes -= lease.bytes;
            }
        }
        ended
    }

    /// Gives the leases of `start..end` this deadline.
    pub(crate) fn extend_leases(
        &mut self,
        start: u64,
        end: u64,
        deadline: Timestamp,
        wheel: &mut Wheel<Timer>,
    ) {
        let parts: Vec<_> =
            self.leased_within(start, end).iter().map(|&(from, to, _)| (from, to)).collect();
        for (from, to) in parts {
            let mut lease = self.cut_lease(from, to, wheel);
            wheel.cancel(lease.timer);
            lease.deadline = deadline;
            lease.timer = wheel.set(deadline, self.lease_timer(to));
            self.leased_count += to - from;
            self.leases.insert(from, lease);
        }
    }

    /// Takes `from..to`, which lies within one lease, out of it. What is left of the lease on
    /// either side stays leased; the part that is taken keeps a timer of its own.
    fn cut_lease(&mut self, from: u64, to: u64, wheel: &mut Wheel<Timer>) -> Lease {
        let (&start, _) =
            self.leases.range(..=from).next_back().expect("the part lies within a lease");
        let mut lease = self.leases.remove(&start).expect("found just now");
        assert!(to <= lease.end, "the part lies within one lease");
        self.leased_count -= to - from;
        if to < lease.end {
            let bytes = lease.share(start, lease.end - to);
            let rest = Lease { bytes, ..lease.clone() };
            self.leases.insert(to, rest);
            lease.bytes -= bytes;
            lease.timer = wheel.set(lease.deadline, self.lease_timer(to));
            lease.end = to;
        }
        if start < from {
            let bytes = lease.share(start, from - start);
            let timer = wheel.set(lease.deadline, self.lease_timer(from));
            self.leases.insert(start, Lease { end: from, bytes, timer, ..lease.clone() });
            lease.bytes -= bytes;
        }
        lease
    }

    /// Is through with `start..end`, whatever became of it before.
    pub(crate) fn settle(&mut self, start: u64, end: u64, wheel: &mut Wheel<Timer>) {
        self.end_leases(start, end, wheel);
        self.forget(start, end);
        self.settled.insert(start, end);
        self.rest();
    }

    fn forget(&mut self, start: u64, end: u64) {
        if !self.ready.is_empty() {
            self.ready.remove(start, end);
        }
        if !self.waiting.is_empty() {
            self.waiting.remove(start, end);
        }
        if !self.dying.is_empty() {
            self.dying.remove(start, end);
        }
        if !self.damaged.is_empty() {
            self.damaged.remove(start, end);
        }
    }

    /// The messages of `start..end` cannot be read: what is ready or dying of them is passed over
    /// from now on. Returns those parts.
    pub(crate) fn damage(&mut self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut parts = Vec::new();
        for (from, to, attempts) in self.ready.remove(start, end) {
            self.damaged.insert(from, to, Damaged::Ready(attempts));
            parts.push((from, to));
        }
        for (from, to, dying) in self.dying.remove(start, end) {
            self.damaged.insert(from, to, Damaged::Dying(dying));
            parts.push((from, to));
        }
        parts.sort_unstable();
        parts
    }

    /// Takes the unsettled parts of `start..end` out of whatever state they are in.
    pub(crate) fn take_unsettled(
        &mut self,
        start: u64,
        end: u64,
        wheel: &mut Wheel<Timer>,
    ) -> Vec<(u64, u64)> {
        self.end_leases(start, end, wheel);
        self.forget(start, end);
        self.settled.gaps(start, end)
    }

    /// Makes the messages of `start..end` ready that failed for good, as if nobody had tried them.
    /// Only for a partition where these are parked.
    pub(crate) fn unpark(&mut self, start: u64, end: u64) {
        for (from, to, _) in self.dying.remove(start, end) {
            self.ready.insert(from, to, 0);
        }
        self.rest();
    }

    /// Puts `start..end`, which is in no state, where a failed attempt leads: to the dead letters
    /// (or, in their own topic, to the parked) when it was the last or when `dead`; else to wait for
    /// `due`; else to the ready.
    pub(crate) fn fail(
        &mut self,
        (start, end): (u64, u64),
        attempts: u32,
        (failed_at, due): (Timestamp, Timestamp),
        dead: bool,
        reason: &str,
        wheel: &mut Wheel<Timer>,
    ) {
        if dead || attempts >= self.terms.config.attempts_max {
            self.dying.insert(start, end, Dying { attempts, failed_at, reason: reason.into() });
        } else if due > failed_at {
            self.wait((start, end), Waiting { attempts, due }, wheel);
        } else {
            self.ready.insert(start, end, attempts);
        }
    }

    /// Has `start..end`, which is in no state, wait.
    pub(crate) fn wait(
        &mut self,
        (start, end): (u64, u64),
        waiting: Waiting,
        wheel: &mut Wheel<Timer>,
    ) {
        let (partition, group) = (self.partition, self.id());
        wheel.set(waiting.due, Timer::Retry { partition, group, range: range(start, end) });
        self.waiting.insert(start, end, waiting);
    }

    /// Adds a subscription, or replaces the window of one that is there.
    pub(crate) fn join(&mut self, holder: Holder, credit: Credit) {
        match self.members.iter_mut().find(|m| m.holder == holder) {
            Some(member) => member.credit = credit,
            None => {
                // A holder that left with its leases and came back still has them.
                let held = self.leases.iter().filter(|(_, lease)| lease.holder == holder);
                let (held_messages, held_bytes) =
                    held.fold((0, 0), |(messages, bytes), (start, lease)| {
                        (messages + lease.end - start, bytes + lease.bytes)
                    });
                self.members.push(Member { holder, credit, held_messages, held_bytes });
            }
        }
    }

    /// Removes a subscription; its leases stay until they end otherwise.
    pub(crate) fn leave(&mut self, holder: Holder) {
        self.members.retain(|member| member.holder != holder);
        self.rest();
    }

    /// The runs leased by subscriptions that `of` picks.
    pub(crate) fn leases_of(&self, of: impl Fn(Holder) -> bool) -> Vec<(u64, u64, u32)> {
        let held = self.leases.iter().filter(|(_, lease)| of(lease.holder));
        held.map(|(&start, lease)| (start, lease.end, lease.attempt)).collect()
    }

    /// The member whose turn it is and who has room; the turn passes on to the one after.
    pub(crate) fn next_member(&mut self) -> Option<usize> {
        let count = self.members.len();
        let index = (0..count)
            .map(|step| (self.turn + step) % count)
            .find(|&index| self.members[index].room_messages() > 0)?;
        self.turn = (index + 1) % count;
        Some(index)
    }

    /// Whether some member has room for a message.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn has_room(&self) -> bool {
        self.members.iter().any(|member| member.room_messages() > 0)
    }

    /// How many messages it waits for until a publisher's delay is over. Costs a step for each run of
    /// what is settled and of what is delayed, where something is.
    fn delayed(&self, visible: u64, delays: &Runs<Timestamp>) -> u64 {
        if delays.is_empty() {
            return 0;
        }
        let unsettled = self.settled.gaps(0, visible).into_iter();
        let delayed = unsettled.flat_map(|(start, end)| delays.within(start, end));
        delayed.map(|(start, end, _)| end - start).sum()
    }

    /// How the group is doing, with all offsets below `visible` to be accounted for; `parks` says
    /// whether what fails for good is parked.
    pub(crate) fn describe(
        &self,
        visible: u64,
        delays: &Runs<Timestamp>,
        parks: bool,
    ) -> GroupDescription {
        let unsettled = visible.saturating_sub(self.settled.count());
        let held = self.leased_count + self.waiting.count() + self.dying.count();
        let held = held + self.damaged.count();
        let delayed = self.delayed(visible, delays);
        let elsewhere = held + delayed;
        let failed = self.dying.count();
        let (dying, parked) = if parks { (0, failed) } else { (failed, 0) };
        GroupDescription {
            group: self.id(),
            ready: unsettled.saturating_sub(elsewhere),
            leased: self.leased_count,
            delayed: self.waiting.count() + delayed,
            dying,
            parked,
            damaged: self.damaged.count(),
            settled_before: Offset(self.settled.floor()),
            consumers: u32::try_from(self.members.len()).unwrap_or(u32::MAX),
        }
    }

    /// Asserts that each offset below `visible` is in exactly one state.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn check(&self, visible: u64, delays: &Runs<Timestamp>) {
        let leased = self.leases.iter().map(|(&start, lease)| (start, lease.end));
        // What is not visible yet may have expired all the same.
        let settled = std::iter::once((0, self.settled.floor())).chain(self.settled.above());
        let settled = settled.filter(|(start, _)| *start < visible);
        let mut states: Vec<(u64, u64)> = settled
            .map(|(start, end)| (start, end.min(visible)))
            .chain(self.ready.iter().map(|(start, end, _)| (start, end)))
            .chain(self.waiting.iter().map(|(start, end, _)| (start, end)))
            .chain(self.dying.iter().map(|(start, end, _)| (start, end)))
            .chain(self.damaged.iter().map(|(start, end, _)| (start, end)))
            .chain(leased)
            .collect();
        for (start, end, _) in delays.iter() {
            for (from, to) in self.settled.gaps(start, end.min(visible)) {
                states.push((from, to));
            }
        }
        states.sort_unstable();
        let mut at = 0;
        for (start, end) in states {
            if start == end {
                continue;
            }
            assert_eq!(start, at, "an offset is in no state or in two: {self:?}");
            at = end;
        }
        assert_eq!(at, visible, "an offset is in no state or is not visible: {self:?}");
        let held: u64 = self.leases.iter().map(|(start, lease)| lease.end - start).sum();
        assert_eq!(held, self.leased_count);
        for member in &self.members {
            let held = self.leases.iter().filter(|(_, lease)| lease.holder == member.holder);
            let (messages, bytes) = held.fold((0, 0), |(messages, bytes), (start, lease)| {
                (messages + lease.end - start, bytes + lease.bytes)
            });
            assert_eq!((messages, bytes), (member.held_messages, member.held_bytes));
        }
    }
}

/// A half-open range as the model spells it.
pub(crate) fn range(start: u64, end: u64) -> OffsetRange {
    OffsetRange { start: Offset(start), end: Offset(end) }
}
