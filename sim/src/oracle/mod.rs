//! The judge: an independent model of the broker's promises, told every command and every effect. It is written
//! from the promises (DESIGN section 10), and uses nothing of the engine but the types of commands and effects.
//!
//! Every call of the shard is a *turn*. The records of a turn are durable once the lane has committed the frames
//! that were taken after it.

mod atomic_append;
mod attempts;
mod delivery;
mod group;
mod native;
mod outstanding;
mod partition;
mod reader;
mod restart;
mod retry;
mod stream;
mod streams;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use sennit_engine::{
    Command, Confirmed, DeliveryRun, Effect, PartitionCommand, Publish, Refusal, SessionId,
    Settled, StreamCommand, Subscribe, Verdict,
};
use sennit_model::{Generation, GroupId, Offset, PartitionId, Timestamp};

pub use outstanding::OUTSTANDING;
pub use streams::FoundStream;

use group::Asked;
use native::waits_for_its_reason;
use partition::{ExpectedOutcome, PartitionLife, PartitionModel};
use reader::Readers;
use streams::Streams;

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which promise.
    pub rule: &'static str,
    /// What was expected, and what came.
    pub detail: String,
}

impl Violation {
    /// `rule` was broken as `detail` says.
    pub fn new(rule: &'static str, detail: impl Into<String>) -> Self {
        Self { rule, detail: detail.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.detail)
    }
}

/// A publish on its way.
#[derive(Clone, Debug)]
struct Sent {
    publish: Publish,
    /// The offset that it had to begin at, if it had to: it is answered in another way then.
    expected: Option<Offset>,
    admitted: ExpectedOutcome,
    turn: u64,
}

/// A subscription as its consumer knows it.
#[derive(Clone, Copy, Debug)]
struct Subscription {
    partition: PartitionId,
    group: GroupId,
    messages: u64,
}

/// See the file's page.
#[derive(Debug, Default)]
pub struct Oracle {
    partitions: BTreeMap<PartitionId, PartitionModel>,
    subscriptions: BTreeMap<(SessionId, u32), Subscription>,
    sent: BTreeMap<u64, Sent>,
    asked: BTreeMap<u64, Asked>,
    /// Opens and drops on their way: of which partition, in which turn.
    changes: BTreeMap<u64, (PartitionId, u64)>,
    dead_letters_by_offset: BTreeMap<(PartitionId, GroupId, u64), (PartitionId, u64)>,
    readers: Readers,
    streams: Streams,
    turn: u64,
    durable_turn: u64,
    batches: u64,
    deliveries: u64,
    generation: Generation,
    /// The last in which something was delivered.
    delivering_generation: Generation,
    is_fenced: bool,
    is_full: bool,
}

impl Oracle {
    /// The turn that was last, to be given to [`Oracle::committed`] for frames taken now.
    #[must_use]
    pub fn turn(&self) -> u64 {
        self.turn
    }

    /// The frames that were taken after `turn` are on the platter.
    pub fn committed(&mut self, turn: u64) {
        self.durable_turn = turn;
    }

    /// The shard was told that its lane has failed.
    pub fn fenced(&mut self) {
        self.is_fenced = true;
    }

    /// The shard was told whether the disk is full.
    pub fn storage_full(&mut self, full: bool) {
        self.is_full = full;
    }

    /// One call of the shard: the commands it was given, and the effects that came of it.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn turned(
        &mut self,
        commands: &[Command],
        effects: &[Effect],
        now: Timestamp,
    ) -> Result<(), Violation> {
        self.turn += 1;
        self.streams_pass(now);
        let mut refused: BTreeMap<u64, &Refusal> = BTreeMap::new();
        let mut stale: BTreeMap<u64, &[DeliveryRun]> = BTreeMap::new();
        for effect in effects {
            match effect {
                Effect::Refused { origin, refusal } => {
                    refused.insert(origin.request, refusal);
                }
                Effect::Settled(settled) => {
                    stale.insert(settled.origin.request, &settled.stale);
                }
                _ => {}
            }
        }
        for command in commands {
            self.command(command, &mut refused, &stale, now)?;
        }
        for (request, refusal) in refused {
            self.late_refusal(request, refusal)?;
        }
        self.check_no_lost_refusals()?;
        effects.iter().try_for_each(|effect| self.effect(effect, now))?;
        self.check_cursor_takeovers()
    }

    /// What was on its way is refused because the lane has failed, or for what is durable by now.
    fn late_refusal(&mut self, request: u64, refusal: &Refusal) -> Result<(), Violation> {
        if self.refused_in_time(request, refusal)? {
            return Ok(());
        }
        let is_known = self.sent.contains_key(&request)
            || self.asked.contains_key(&request)
            || self.changes.contains_key(&request)
            || self.streams.awaits(request);
        if *refusal == Refusal::OutcomeUnknown && self.is_fenced && is_known {
            return Ok(());
        }
        Err(Violation::new("a refusal answers a command", format!("{refusal} of {request}")))
    }

    fn command(
        &mut self,
        command: &Command,
        refused: &mut BTreeMap<u64, &Refusal>,
        stale: &BTreeMap<u64, &[DeliveryRun]>,
        now: Timestamp,
    ) -> Result<(), Violation> {
        let expected = self.expected_refusal(command);
        let may_wait = expected.is_none() && self.may_be_refused_in_time(command);
        if let Some(origin) = origin_of(command).filter(|_| !may_wait) {
            let found = refused.remove(&origin);
            if expected.as_ref() != found {
                return Err(Violation::new(
                    "a command is refused for its reason alone",
                    format!("expected {expected:?}, came {found:?}, of {command:?}"),
                ));
            }
        }
        if expected.is_some() || self.is_fenced {
            return Ok(());
        }
        match command {
            Command::Publish(publish) if self.is_stream(publish.partition) => {
                self.publish_to_stream(publish, None, now);
            }
            Command::Publish(publish) => self.publish(publish, now),
            Command::PublishAt(publish, expected) => {
                self.publish_to_stream(publish, Some(*expected), now);
            }
            Command::Settle(settle) => {
                let Some(partition) = self.partitions.get_mut(&settle.partition) else {
                    return Ok(());
                };
                let limits = (partition.is_clear(), partition.limit());
                let Some(group) = partition.groups.get_mut(&settle.group) else { return Ok(()) };
                let when = (self.turn, now, self.deliveries);
                let entries = &partition.entries;
                let appended_at = |offset| Some(entries.get(offset as usize)?.appended_at);
                let asked = group.asked(settle, self.generation, when, limits, appended_at);
                if settle.confirm {
                    self.asked.insert(settle.origin.request, asked);
                } else {
                    let stale = stale.get(&settle.origin.request).copied().unwrap_or_default();
                    group.answered(&asked, stale)?;
                }
            }
            Command::Subscribe(subscribe) => {
                let Subscribe { origin, subscription, partition, group, credit } = *subscribe;
                let messages = u64::from(credit.messages);
                let key = (origin.session, subscription);
                self.subscriptions.insert(key, Subscription { partition, group, messages });
            }
            Command::SetCredit { session, subscription, credit, .. } => {
                if let Some(held) = self.subscriptions.get_mut(&(*session, *subscription)) {
                    held.messages = u64::from(credit.messages);
                }
            }
            Command::Unsubscribe { session, subscription, partition, group } => {
                self.subscriptions.remove(&(*session, *subscription));
                let whose = (*session, Some(*subscription));
                self.left(Some((*partition, *group)), whose, None, now);
            }
            Command::EndSession { session, grace } => {
                self.subscriptions.retain(|(held, _), _| held != session);
                self.readers.end_where(|key, _| key.0 == *session);
                let cut_off = (!grace.is_zero()).then(|| now.plus(*grace));
                self.left(None, (*session, None), cut_off, now);
            }
            Command::Partition(origin, id, change) if self.is_stream(*id) => {
                self.stream_dropped(origin.request, *id, change, now);
            }
            Command::Partition(origin, id, change) => self.change(origin.request, *id, change, now),
            Command::Stream(origin, id, asked) => self.stream_asked(*origin, *id, asked, now),
            Command::Read(read) => self.begin_to_read(read),
            Command::Reader { session, subscription, change, .. } => {
                self.change_reader((*session, *subscription), *change);
            }
            Command::AppendTogether(origin, appends) => self.together_asked(*origin, appends, now),
            Command::Catalogue(..) => {}
        }
        Ok(())
    }

    fn expected_refusal(&self, command: &Command) -> Option<Refusal> {
        let unknown_topic = |id: &PartitionId| match self.partitions.get(id) {
            Some(partition) if partition.is_open() => Ok(partition),
            _ => Err(Refusal::UnknownTopic),
        };
        let in_group = |id: &PartitionId, group: &GroupId| match unknown_topic(id) {
            Ok(partition) if partition.groups.contains_key(group) => None,
            Ok(_) => Some(Refusal::UnknownGroup),
            Err(refusal) => Some(refusal),
        };
        if self.is_fenced {
            return origin_of(command).map(|_| Refusal::OutcomeUnknown);
        }
        match command {
            Command::Publish(_) | Command::PublishAt(..) if self.is_full => {
                Some(Refusal::StorageFull)
            }
            Command::Publish(publish) | Command::PublishAt(publish, _)
                if self.is_stream(publish.partition) =>
            {
                self.refused_at_once(publish)
            }
            Command::Publish(publish) | Command::PublishAt(publish, _) => {
                match unknown_topic(&publish.partition) {
                    Ok(partition) => {
                        let needs_keys = partition.config.retention.latest_per_key.is_some();
                        match partition.admit(publish.producer, publish.batch.count()) {
                            Ok(ExpectedOutcome::New(_))
                                if needs_keys && !publish.batch.is_keyed() =>
                            {
                                Some(Refusal::KeyMissing)
                            }
                            admitted => admitted.err().filter(|why| !waits_for_its_reason(why)),
                        }
                    }
                    Err(refusal) => Some(refusal),
                }
            }
            Command::Settle(settle) => in_group(&settle.partition, &settle.group),
            Command::Subscribe(subscribe) => in_group(&subscribe.partition, &subscribe.group),
            Command::Partition(_, _, PartitionCommand::Open { .. }) => None,
            Command::Stream(_, _, asked) if self.is_full => {
                let grows = match asked {
                    StreamCommand::Open(_) => true,
                    StreamCommand::Append(append) => append.content.is_some(),
                    _ => false,
                };
                grows.then_some(Refusal::StorageFull)
            }
            Command::AppendTogether(_, appends) if self.is_full => {
                let grows = appends.iter().any(|(_, append)| append.content.is_some());
                grows.then_some(Refusal::StorageFull)
            }
            Command::Partition(_, id, _) if self.is_stream(*id) => {
                (!self.stream_is_there(*id)).then_some(Refusal::UnknownTopic)
            }
            Command::Partition(_, id, change) => match (unknown_topic(id), change) {
                (Err(refusal), _) => Some(refusal),
                (Ok(_), PartitionCommand::SetCursor(name, _, by)) => {
                    self.refused_cursor(*id, name, by)
                }
                (Ok(_), PartitionCommand::RetryParked(group, _)) => in_group(id, group),
                (Ok(_), _) => None,
            },
            _ => None,
        }
    }

    fn publish(&mut self, publish: &Publish, now: Timestamp) {
        let Some(partition) = self.partitions.get_mut(&publish.partition) else { return };
        let admitted = match partition.admit(publish.producer, publish.batch.count()) {
            Ok(admitted) => admitted,
            Err(refusal) => return self.publish_of_fenced(publish, refusal),
        };
        let turn = match admitted {
            ExpectedOutcome::New(_) => {
                self.batches += 1;
                let when = (self.batches, self.turn);
                partition.append(&publish.batch, publish.producer, now, when);
                self.turn
            }
            ExpectedOutcome::Duplicate(offset) => partition.entries[offset as usize].turn,
        };
        let sent = Sent { publish: publish.clone(), expected: None, admitted, turn };
        self.sent.insert(publish.origin.request, sent);
    }

    fn change(&mut self, request: u64, id: PartitionId, change: &PartitionCommand, now: Timestamp) {
        let turn = self.turn;
        match change {
            PartitionCommand::Open { config, groups, dead_letters } => {
                let fresh = || PartitionModel::new(*config, turn);
                let partition = self.partitions.entry(id).or_insert_with(fresh);
                if !partition.is_open() {
                    *partition = fresh();
                }
                let changes = partition.open(*config, groups, *dead_letters, (turn, now));
                self.changes.insert(request, (id, if changes { turn } else { 0 }));
                let kept = |held: &Subscription| {
                    held.partition != id || groups.iter().any(|group| group.id == held.group)
                };
                self.subscriptions.retain(|_, held| kept(held));
            }
            PartitionCommand::Drop => {
                if let Some(partition) = self.partitions.get_mut(&id) {
                    partition.existence = PartitionLife::Dropped(turn);
                }
                self.changes.insert(request, (id, turn));
                self.subscriptions.retain(|_, held| held.partition != id);
                self.readers.end_where(|_, partition| partition == id);
            }
            PartitionCommand::SetCursor(name, offset, by) => {
                self.set_cursor(request, id, (name, Some(*offset), Some(by)));
            }
            PartitionCommand::DeleteCursor(name) => {
                self.set_cursor(request, id, (name, None, None))
            }
            PartitionCommand::RetryParked(group, _) => {
                let group =
                    self.partitions.get_mut(&id).and_then(|held| held.groups.get_mut(group));
                if let Some(group) = group {
                    group.retried(turn);
                }
            }
            PartitionCommand::Name(_) => drop(self.changes.insert(request, (id, 0))),
            PartitionCommand::Describe
            | PartitionCommand::Locate(..)
            | PartitionCommand::ListCursors
            | PartitionCommand::Trim(_) => {}
        }
    }

    fn left(
        &mut self,
        place: Option<(PartitionId, GroupId)>,
        (session, subscription): (SessionId, Option<u32>),
        cut_off: Option<Timestamp>,
        now: Timestamp,
    ) {
        for (id, partition) in &mut self.partitions {
            for (group, model) in &mut partition.groups {
                if place.is_none_or(|place| place == (*id, *group)) {
                    let of = |held: &group::Held| {
                        held.session == session
                            && subscription.is_none_or(|number| held.subscription == number)
                    };
                    model.left(of, cut_off, now);
                }
            }
        }
    }

    fn effect(&mut self, effect: &Effect, now: Timestamp) -> Result<(), Violation> {
        match effect {
            Effect::Confirmed(confirmed) => self.confirmed(confirmed),
            Effect::PublishedAt { origin, first, count } => {
                self.published_at(origin.request, *first, *count)
            }
            Effect::Settled(settled) => self.settled(settled),
            Effect::Deliver(delivery) if delivery.attempt == 0 => self.was_read(delivery),
            Effect::Deliver(delivery) => self.delivered(delivery, now),
            Effect::Done { origin, .. } => self.done(origin.request),
            Effect::Gap { session, subscription, partition, range, reason } => {
                self.gap((*session, *subscription), *partition, *range, *reason, now)
            }
            Effect::CursorTaken { session, subscription, .. } => {
                self.cursor_taken((*session, *subscription))
            }
            Effect::Stream(origin, answer) => self.stream_answered(origin.request, answer),
            Effect::Described { .. }
            | Effect::Located { .. }
            | Effect::Cursors { .. }
            | Effect::Unparked { .. }
            | Effect::StreamEnded { .. }
            | Effect::ReaderTooSlow { .. }
            | Effect::Subscribed { .. }
            | Effect::SubscriptionEnded { .. }
            | Effect::Refused { .. }
            | Effect::DeadLetterTopicNeeded { .. } => Ok(()),
        }
    }

    fn must_be_durable(&self, turn: u64, what: &dyn fmt::Debug) -> Result<(), Violation> {
        if turn <= self.durable_turn {
            return Ok(());
        }
        let durable = self.durable_turn;
        Err(Violation::new(
            "I6 nothing is said before its commit",
            format!("{what:?} stands on turn {turn}, durable is turn {durable}"),
        ))
    }

    fn done(&mut self, request: u64) -> Result<(), Violation> {
        match self.changes.remove(&request) {
            Some((id, turn)) => self.must_be_durable(turn, &id),
            None => Err(Violation::new("an answer has a question", format!("done {request}"))),
        }
    }

    fn confirmed(&mut self, confirmed: &Confirmed) -> Result<(), Violation> {
        let Some(sent) = self.sent.remove(&confirmed.origin.request) else {
            return Err(Violation::new("I2 never sent is absent", format!("{confirmed:?}")));
        };
        let (offset, duplicate) = match sent.admitted {
            ExpectedOutcome::New(offset) => (offset, false),
            ExpectedOutcome::Duplicate(offset) => (offset, true),
        };
        // A duplicate may be so old that its offset is forgotten.
        let is_at = match confirmed.first_offset {
            Some(found) => found == Offset(offset),
            None => duplicate,
        };
        let stamp = sent.publish.producer;
        let fits = is_at
            && sent.expected.is_none()
            && confirmed.duplicate == duplicate
            && confirmed.count == sent.publish.batch.count()
            && (confirmed.producer, confirmed.first_sequence) == (stamp.id, stamp.first_sequence);
        if !fits {
            return Err(Violation::new(
                "I1 confirmed is present once, at its offset",
                format!("expected offset {offset}, duplicate {duplicate}; came {confirmed:?}"),
            ));
        }
        self.note_reported(&sent);
        self.must_be_durable(sent.turn, confirmed)
    }

    fn settled(&mut self, settled: &Settled) -> Result<(), Violation> {
        // Without a confirm it was dealt with when it was asked for.
        let Some(asked) = self.asked.remove(&settled.origin.request) else { return Ok(()) };
        let Some(partition) = self.partitions.get_mut(&settled.partition) else { return Ok(()) };
        let Some(group) = partition.groups.get_mut(&asked.settle.group) else { return Ok(()) };
        let least = group.answered(&asked, &settled.stale)?;
        let stale: u64 = settled.stale.iter().map(|run| u64::from(run.count)).sum();
        let all: u64 = asked.settle.runs.iter().map(|run| u64::from(run.count)).sum();
        if settled.applied < least || settled.applied + stale > all {
            return Err(Violation::new(
                "I3 a settlement of what is held applies",
                format!("{settled:?} of {all} messages, {least} of them held"),
            ));
        }
        if settled.applied == 0
            || matches!(asked.settle.verdict, Verdict::Extend(_) | Verdict::Started)
        {
            // Nothing was written.
            return Ok(());
        }
        self.must_be_durable(asked.turn, settled)
    }

    /// The partitions that there are, as far as commands say.
    #[must_use]
    pub fn partitions(&self) -> BTreeSet<PartitionId> {
        self.partitions.iter().filter(|(_, held)| held.is_open()).map(|(&id, _)| id).collect()
    }
}

fn origin_of(command: &Command) -> Option<u64> {
    match command {
        Command::Publish(publish) | Command::PublishAt(publish, _) => Some(publish.origin.request),
        Command::Settle(settle) => Some(settle.origin.request),
        Command::Subscribe(subscribe) => Some(subscribe.origin.request),
        Command::Read(read) => Some(read.origin.request),
        Command::Stream(_, _, StreamCommand::StopReading) => None,
        Command::Catalogue(origin, _)
        | Command::Partition(origin, ..)
        | Command::AppendTogether(origin, ..)
        | Command::Stream(origin, ..) => Some(origin.request),
        Command::SetCredit { .. }
        | Command::Reader { .. }
        | Command::Unsubscribe { .. }
        | Command::EndSession { .. } => None,
    }
}
