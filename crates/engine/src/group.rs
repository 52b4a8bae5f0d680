//! A group in one partition: the state of each message, which is ready, leased, waiting, dying, damaged or settled.
//! In a dead-letter topic the dying ones are parked: they go nowhere. Every visible offset is in exactly one of
//! these states, or delayed by its publisher.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use sennit_model::{GroupId, MessageFields, Offset, OffsetRange, Order, PartitionId, Timestamp};

use crate::{
    classes::Classes,
    command::{GroupSetting, SessionId},
    delays::Delays,
    effect::GroupDescription,
    fair::{Fair, Pending, Setting},
    lease::{Holder, Lease},
    member::Member,
    runs::{Runs, SettledSet},
    terms::Terms,
    timer::Timer,
    tries::{Tries, Waiting},
    undecided::Undecided,
    wheel::Wheel,
};

/// A run of messages that failed for good: on their way to the dead-letter topic, or parked where they
/// are in such a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dying {
    pub(crate) tries: Tries,
    pub(crate) failed_at: Timestamp,
    pub(crate) reason: Arc<str>,
}

/// A run of messages that cannot be read, and what they were before that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Damaged {
    /// Ready, with what came of their deliveries.
    Ready(Tries),
    /// On their way to the dead-letter topic.
    Dying(Dying),
}

impl Damaged {
    pub(crate) fn tries(&self) -> Tries {
        match self {
            Self::Ready(tries) => *tries,
            Self::Dying(dying) => dying.tries,
        }
    }
}

/// A group in one partition.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) partition: PartitionId,
    id: GroupId,
    terms: Arc<Terms>,
    pub(crate) settled: SettledSet,
    /// Ready messages with what came of their deliveries. The lowest offset goes first, so what
    /// returns goes to the front.
    pub(crate) ready: Runs<Tries>,
    /// `None` while nobody takes part and nothing went wrong.
    activity: Option<Box<Activity>>,
}

/// What only a group has that somebody takes part in, or where something went wrong.
#[derive(Debug)]
pub(crate) struct Activity {
    pub(crate) waiting: Runs<Waiting>,
    pub(crate) dying: Runs<Dying>,
    /// In memory only: after a restart they are found again by reading.
    pub(crate) damaged: Runs<Damaged>,
    pub(crate) leases: BTreeMap<u64, Lease>,
    pub(crate) leased_count: u64,
    pub(crate) members: Vec<Member>,
    /// Subscriptions whose connection was lost, while they may still hold something.
    pub(crate) departed: Vec<Member>,
    /// Subscriptions whose oldest delivery has outlived its lease, and that have said nothing since: they
    /// are taken to be at work on that one still.
    pub(crate) stuck: Vec<Holder>,
    /// The member whose turn it is.
    pub(crate) turn: usize,
    /// `(offset, byte)`: the message at `offset` begins at `byte` of its batch.
    pub(crate) place_hint: Option<(u64, usize)>,
    /// The index of what is ready by fair key, where messages have any and somebody takes part.
    pub(crate) fair: Option<Box<Fair>>,
    /// Messages that wait or die, and go no further until somebody has decided.
    pub(crate) undecided: Option<Box<Undecided>>,
}

impl Activity {
    const fn new() -> Self {
        Self {
            waiting: Runs::new(),
            dying: Runs::new(),
            damaged: Runs::new(),
            leases: BTreeMap::new(),
            leased_count: 0,
            members: Vec::new(),
            departed: Vec::new(),
            stuck: Vec::new(),
            turn: 0,
            place_hint: None,
            fair: None,
            undecided: None,
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

static IDLE: Activity = Activity::new();

impl Group {
    /// A group that is through with everything below `start`.
    pub(crate) fn new(
        partition: PartitionId,
        (id, terms): (GroupId, Arc<Terms>),
        start: u64,
    ) -> Self {
        let settled = SettledSet::below(start);
        Self { partition, id, terms, settled, ready: Runs::default(), activity: None }
    }

    /// Its activity, or an empty one.
    pub(crate) fn activity(&self) -> &Activity {
        self.activity.as_deref().unwrap_or(&IDLE)
    }

    /// Its activity, which is made if there is none.
    pub(crate) fn activity_mut(&mut self) -> &mut Activity {
        self.activity.get_or_insert_with(|| Box::new(Activity::new()))
    }

    /// Its settings.
    pub(crate) fn setting(&self) -> GroupSetting {
        GroupSetting { id: self.id, config: self.terms.config.clone(), start: self.terms.start }
    }

    pub(crate) fn set_terms(&mut self, terms: Arc<Terms>) {
        self.terms = terms;
    }

    pub(crate) fn terms(&self) -> &Arc<Terms> {
        &self.terms
    }

    /// Whether it is idle: what it has is what is settled and what is ready.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.activity.as_ref().is_none_or(|activity| activity.is_idle())
    }

    /// Whether somebody takes part, or took part not long ago, or something went wrong.
    pub(crate) fn is_active(&self) -> bool {
        self.activity.is_some()
    }

    /// Gives back the memory of its activity, if there is none.
    pub(crate) fn rest(&mut self) {
        if self.is_at_rest() {
            self.activity = None;
        }
    }

    /// Whether it is given no messages.
    pub(crate) fn is_paused(&self) -> bool {
        self.terms.config.is_paused
    }

    /// Whether its messages are given by fair key, of a topic that has these fields.
    pub(crate) fn is_fair(&self, fields: Option<&MessageFields>) -> bool {
        let config = &self.terms.config;
        let has_rules = config.throttle.is_some() || !config.key_rules.is_empty();
        fields.is_some() || has_rules || config.order != Order::None
    }

    pub(crate) fn id(&self) -> GroupId {
        self.id
    }

    /// Makes the unsettled offsets of `start..end` ready that nobody has tried.
    pub(crate) fn appear(&mut self, start: u64, end: u64, delays: &Delays) {
        for unsettled in self.settled.gaps(start, end) {
            for due in delays.gaps(unsettled.start, unsettled.end) {
                self.make_ready(due.start, due.end, Tries::default());
            }
        }
    }

    /// Has `start..end`, which is in no state, be ready.
    pub(crate) fn make_ready(&mut self, start: u64, end: u64, tries: Tries) {
        self.ready.insert(start, end, tries);
        if let Some(fair) = self.activity.as_mut().and_then(|activity| activity.fair.as_mut()) {
            fair.arrive(start, end);
        }
    }

    /// What no consumer has.
    pub(crate) fn pending(&self) -> Pending<'_> {
        Pending { ready: &self.ready, waiting: &self.activity().waiting }
    }

    /// Takes the index by fair key, which is made if there is none, for [`Self::put_fair`].
    pub(crate) fn take_fair(&mut self, setting: &Setting<'_>) -> Box<Fair> {
        let order = self.terms.config.order;
        if let Some(fair) = self.activity_mut().fair.take()
            && fair.order() == order
        {
            return fair;
        }
        let leased =
            self.activity().leases.iter().map(|(&start, lease)| (start..lease.end, lease.holder));
        Box::new(Fair::new(&self.pending(), leased, setting))
    }

    pub(crate) fn put_fair(&mut self, fair: Box<Fair>) {
        self.activity_mut().fair = Some(fair);
    }

    /// Forgets the index by fair key: messages have no such keys any more.
    pub(crate) fn forget_fair(&mut self) {
        if let Some(activity) = &mut self.activity {
            activity.fair = None;
        }
    }

    /// Has the index by fair key count what is not leased any more, or what goes: `going`. To be called before
    /// classes are forgotten.
    pub(crate) fn account(&mut self, classes: &Classes, going: Range<u64>) {
        let leased = match &self.activity().fair {
            Some(_) => self.leased_parts(going.start, going.end),
            None => return,
        };
        if let Some(fair) = self.activity.as_mut().and_then(|activity| activity.fair.as_mut()) {
            fair.forget(leased.into_iter());
            fair.account(classes);
        }
    }

    /// Is through with `start..end`, whatever became of it before.
    pub(crate) fn settle(&mut self, start: u64, end: u64, wheel: &mut Wheel<Timer>) {
        self.end_leases(start, end, wheel);
        self.forget(start, end);
        self.settled.insert(start, end);
        self.rest();
    }

    /// Has the offsets of `start..end` that were ready be so no more.
    pub(crate) fn withdraw(&mut self, start: u64, end: u64) {
        if self.ready.has_any(start, end) {
            self.ready.remove(start, end);
            // It is made anew, of what is ready then.
            self.forget_fair();
        }
    }

    fn forget(&mut self, start: u64, end: u64) {
        if !self.ready.is_empty() {
            self.ready.remove(start, end);
        }
        let Some(activity) = self.activity.as_deref_mut() else { return };
        let Activity { waiting, dying, damaged, fair, .. } = activity;
        if !waiting.is_empty()
            && !waiting.remove(start, end).is_empty()
            && let Some(fair) = fair
        {
            fair.free_failed();
        }
        if !dying.is_empty() {
            dying.remove(start, end);
        }
        if !damaged.is_empty() {
            damaged.remove(start, end);
        }
        self.end_questions(start, end);
    }

    /// The messages about which somebody has to decide, if there are any.
    pub(crate) fn undecided_mut(&mut self) -> Option<&mut Undecided> {
        self.activity.as_deref_mut()?.undecided.as_deref_mut()
    }

    /// Ends the questions about the messages of `start..end`.
    pub(crate) fn end_questions(&mut self, start: u64, end: u64) {
        let Some(activity) = self.activity.as_deref_mut() else { return };
        if let Some(undecided) = &mut activity.undecided {
            undecided.remove(start, end);
            if undecided.is_empty() {
                activity.undecided = None;
            }
        }
    }

    /// The parts of `start..end` about which nobody has to decide.
    pub(crate) fn decided(&self, start: u64, end: u64) -> Vec<Range<u64>> {
        match &self.activity().undecided {
            Some(undecided) => undecided.gaps(start, end),
            None => vec![Range { start, end }],
        }
    }

    /// The first message that goes to the dead-letter topic now.
    pub(crate) fn first_to_bury(&self) -> Option<(u64, Dying)> {
        let Activity { dying, undecided, .. } = self.activity();
        if undecided.is_none() {
            return dying.first().map(|(start, _, dying)| (start, dying.clone()));
        }
        dying.iter().find_map(|(start, end, dying)| {
            let decided = self.decided(start, end);
            decided.first().map(|part| (part.start, dying.clone()))
        })
    }

    /// The messages of `start..end` cannot be read: what is ready or dying of them is passed over
    /// from now on. Returns those parts.
    pub(crate) fn damage(&mut self, start: u64, end: u64) -> Vec<Range<u64>> {
        let mut parts = Vec::new();
        for (from, to, tries) in self.ready.remove(start, end) {
            self.activity_mut().damaged.insert(from, to, Damaged::Ready(tries));
            parts.push(from..to);
        }
        for (from, to, dying) in self.activity_mut().dying.remove(start, end) {
            self.activity_mut().damaged.insert(from, to, Damaged::Dying(dying));
            parts.push(from..to);
        }
        parts.sort_unstable_by_key(|part| part.start);
        parts
    }

    /// Takes the unsettled parts of `start..end` out of whatever state they are in; returns them with
    /// what came of their deliveries.
    pub(crate) fn take_unsettled(
        &mut self,
        start: u64,
        end: u64,
        wheel: &mut Wheel<Timer>,
    ) -> Vec<(u64, u64, Tries)> {
        let mut known = Runs::default();
        for (from, to, tries) in self.end_leases(start, end, wheel) {
            known.insert(from, to, tries);
        }
        for (from, to, tries) in self.tries_within(start, end) {
            known.insert(from, to, tries);
        }
        self.forget(start, end);
        for unsettled in self.settled.gaps(start, end) {
            for unknown in known.gaps(unsettled.start, unsettled.end) {
                known.insert(unknown.start, unknown.end, Tries::default());
            }
        }
        known.within(start, end)
    }

    /// What came of the deliveries of those messages of `start..end` that nobody holds, in order.
    pub(crate) fn tries_within(&self, start: u64, end: u64) -> Vec<(u64, u64, Tries)> {
        let ready = self.ready.within(start, end).into_iter();
        let Activity { waiting, dying, damaged, .. } = self.activity();
        let waiting = waiting.within(start, end).into_iter();
        let dying = dying.within(start, end).into_iter();
        let damaged = damaged.within(start, end).into_iter();
        let mut tried: Vec<_> = ready
            .chain(waiting.map(|(from, to, held)| (from, to, held.tries)))
            .chain(dying.map(|(from, to, held)| (from, to, held.tries)))
            .chain(damaged.map(|(from, to, held)| (from, to, held.tries())))
            .collect();
        tried.sort_unstable_by_key(|(from, ..)| *from);
        tried
    }

    /// Makes the messages of `start..end` ready that failed for good, with no failed attempt. Only for a
    /// partition where these are parked.
    pub(crate) fn unpark(&mut self, start: u64, end: u64) {
        for (from, to, parked) in self.activity_mut().dying.remove(start, end) {
            self.make_ready(from, to, parked.tries.with_failures_forgiven());
        }
        self.rest();
    }

    /// Puts `range`, which is in no state, where a failed attempt leads: to the dead letters
    /// (or, in their own topic, to the parked) when it was the last or when `dead`; else to wait for
    /// `due`; else to the ready.
    pub(crate) fn fail(
        &mut self,
        range: Range<u64>,
        tries: Tries,
        (failed_at, due): (Timestamp, Timestamp),
        dead: bool,
        reason: &str,
        wheel: &mut Wheel<Timer>,
    ) {
        if dead || tries.failed >= self.terms.config.attempts_max {
            let dying = Dying { tries, failed_at, reason: reason.into() };
            self.activity_mut().dying.insert(range.start, range.end, dying);
        } else if due > failed_at {
            self.wait(range, Waiting { tries, due }, wheel);
        } else {
            self.make_ready(range.start, range.end, tries);
        }
    }

    /// Has `start..end`, which is in no state, wait.
    pub(crate) fn wait(
        &mut self,
        Range { start, end }: Range<u64>,
        waiting: Waiting,
        wheel: &mut Wheel<Timer>,
    ) {
        let (partition, group) = (self.partition, self.id());
        wheel.set(waiting.due, Timer::Retry { partition, group, range: range(start, end) });
        let activity = self.activity_mut();
        activity.waiting.insert(start, end, waiting);
        if let Some(fair) = &mut activity.fair {
            fair.fail(start, end);
        }
    }

    /// The member whose turn it is and who has room; the turn passes on to the one after.
    pub(crate) fn next_member(&mut self) -> Option<usize> {
        let Activity { members, turn, .. } = self.activity.as_deref_mut()?;
        let count = members.len();
        let index = (0..count)
            .map(|step| (*turn + step) % count)
            .find(|&index| members[index].room_messages() > 0)?;
        *turn = (index + 1) % count;
        Some(index)
    }

    /// Whether this subscription takes part.
    pub(crate) fn has_member(&self, holder: Holder) -> bool {
        self.activity().members.iter().any(|member| member.holder == holder)
    }

    /// The session that has messages of a key, where the group has an order.
    pub(crate) fn holder_of(&self, key: u32) -> Option<SessionId> {
        let holder = self.activity().fair.as_ref()?.holder_of(key)?;
        Some(holder.session)
    }

    /// Whether some member has room for a message.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn has_room(&self) -> bool {
        self.activity().members.iter().any(|member| member.room_messages() > 0)
    }

    /// How many messages it waits for until a publisher's delay is over. Costs a step for each run of
    /// what is settled and of what is delayed, where something is.
    fn delayed(&self, visible: u64, delays: &Delays) -> u64 {
        if delays.is_empty() {
            return 0;
        }
        let unsettled = self.settled.gaps(0, visible).into_iter();
        unsettled.map(|part| delays.count(part.start, part.end)).sum()
    }

    /// How the group is doing, with all offsets below `visible` to be accounted for; `parks` says
    /// whether what fails for good is parked.
    pub(crate) fn describe(&self, visible: u64, delays: &Delays, parks: bool) -> GroupDescription {
        let unsettled = visible.saturating_sub(self.settled.count());
        let Activity { waiting, dying, damaged, leased_count, members, .. } = self.activity();
        let held = leased_count + waiting.count() + dying.count() + damaged.count();
        let delayed = self.delayed(visible, delays);
        let elsewhere = held + delayed;
        let failed = dying.count();
        let (on_their_way, parked) = if parks { (0, failed) } else { (failed, 0) };
        GroupDescription {
            group: self.id(),
            ready: unsettled.saturating_sub(elsewhere),
            leased: *leased_count,
            delayed: waiting.count() + delayed,
            dying: on_their_way,
            parked,
            damaged: damaged.count(),
            settled_before: Offset(self.settled.floor()),
            consumers: u32::try_from(members.len()).unwrap_or(u32::MAX),
            active: self.holder_of(0).filter(|_| self.terms.config.order == Order::Partition),
        }
    }

    /// Asserts that each offset below `visible` is in exactly one state.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn check(&self, visible: u64, delays: &Delays, classes: &Classes) {
        if let Some(fair) = &self.activity().fair {
            let leased = self.activity().leases.iter().map(|(&start, lease)| start..lease.end);
            fair.check(&self.ready, classes, leased);
        }
        let Activity { waiting, dying, damaged, leases, leased_count, members, departed, .. } =
            self.activity();
        let leased = leases.iter().map(|(&start, lease)| start..lease.end);
        // What is not visible yet may have expired all the same.
        let settled = std::iter::once(0..self.settled.floor()).chain(self.settled.above());
        let settled = settled.filter(|settled| settled.start < visible);
        let mut states: Vec<Range<u64>> = settled
            .map(|settled| settled.start..settled.end.min(visible))
            .chain(self.ready.iter().map(|(start, end, _)| start..end))
            .chain(waiting.iter().map(|(start, end, _)| start..end))
            .chain(dying.iter().map(|(start, end, _)| start..end))
            .chain(damaged.iter().map(|(start, end, _)| start..end))
            .chain(leased)
            .collect();
        for delayed in delays.pieces(0, visible) {
            states.extend(self.settled.gaps(delayed.start, delayed.end));
        }
        states.retain(|state| !state.is_empty());
        states.sort_unstable_by_key(|state| state.start);
        let mut at = 0;
        for state in states {
            assert_eq!(state.start, at, "an offset is in no state or in two: {self:?}");
            at = state.end;
        }
        assert_eq!(at, visible, "an offset is in no state or is not visible: {self:?}");
        let held: u64 = leases.iter().map(|(start, lease)| lease.end - start).sum();
        assert_eq!(held, *leased_count);
        for member in members.iter().chain(departed) {
            let held = leases.iter().filter(|(_, lease)| lease.holder == member.holder);
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
