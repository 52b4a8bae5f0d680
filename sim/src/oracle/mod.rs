//! The oracle: an independent model of the broker's promises. It reads every command and checks every effect. It
//! follows from the promises alone, and uses nothing of the engine except the types of commands and effects.
//!
//! Every call of the shard is a *turn*. The records of a turn are durable once the lane has committed the frames
//! that were taken after it.

mod atomic_append;
mod attempts;
mod copies;
mod dedup;
mod delays;
mod delivery;
mod fair;
mod group;
mod native;
mod order;
mod outstanding;
mod partition;
mod reader;
mod replacements;
mod restart;
mod retry;
mod rework;
mod settlements;
mod steps;
mod stream;
mod streams;
mod topic_limit;

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

use copies::Copies;
use delays::{PendingChanges, is_no_delay};
use fair::Buckets;
use group::Lease;
use native::waits_for_commit;
use partition::{ExpectedOutcome, PartitionLife, PartitionModel};
use reader::Readers;
use settlements::PendingSettlement;
use streams::Streams;

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The promise.
    pub rule: &'static str,
    /// The expected and the actual effect.
    pub detail: String,
}

impl Violation {
    /// A violation of `rule`.
    pub fn new(rule: &'static str, detail: impl Into<String>) -> Self {
        Self { rule, detail: detail.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.detail)
    }
}

/// A publish without an answer.
#[derive(Clone, Debug)]
struct PendingPublish {
    publish: Publish,
    /// The offset that the publisher expects, if it expects one: the answer has another form then.
    expected_offset: Option<Offset>,
    outcome: ExpectedOutcome,
    /// The turn that must be durable before the answer.
    turn: u64,
}

/// A subscription as its consumer knows it.
#[derive(Clone, Copy, Debug)]
struct Subscription {
    partition: PartitionId,
    group: GroupId,
    /// Its credit in messages.
    messages: u64,
}

/// The model of all partitions, groups, readers and streams, and the requests without an answer.
#[derive(Debug, Default)]
pub struct Oracle {
    partitions: BTreeMap<PartitionId, PartitionModel>,
    subscriptions: BTreeMap<(SessionId, u32), Subscription>,
    publishes: BTreeMap<u64, PendingPublish>,
    settlements: BTreeMap<u64, PendingSettlement>,
    /// Changes of partitions without an answer: the partition, and the turn that must be durable before the answer.
    changes: BTreeMap<u64, (PartitionId, u64)>,
    /// Changes of delays without an answer.
    delay_changes: PendingChanges,
    dead_letters_by_source: BTreeMap<(PartitionId, GroupId, u64), (PartitionId, u64)>,
    readers: Readers,
    streams: Streams,
    buckets: Buckets,
    copies: Copies,
    turn: u64,
    durable_turn: u64,
    batches: u64,
    deliveries: u64,
    generation: Generation,
    /// The last generation with a delivery.
    delivering_generation: Generation,
    is_fenced: bool,
    is_full: bool,
}

impl Oracle {
    /// The last turn. A caller that takes frames now passes it to [`Oracle::committed`] once they are durable.
    #[must_use]
    pub fn turn(&self) -> u64 {
        self.turn
    }

    /// Notes that the frames which were taken after `turn` are durable.
    pub fn committed(&mut self, turn: u64) {
        self.durable_turn = turn;
    }

    /// Notes that the shard knows of the lane's failure.
    pub fn fenced(&mut self) {
        self.is_fenced = true;
    }

    /// Notes whether the shard considers the disk full.
    pub fn set_storage_full(&mut self, full: bool) {
        self.is_full = full;
    }

    /// Checks one call of the shard: its commands and its effects.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn check_turn(
        &mut self,
        commands: &[Command],
        effects: &[Effect],
        now: Timestamp,
    ) -> Result<(), Violation> {
        self.turn += 1;
        self.expire_streams(now);
        let mut refused: BTreeMap<u64, &Refusal> = BTreeMap::new();
        let mut stale: BTreeMap<u64, &[DeliveryRun]> = BTreeMap::new();
        let commands = self.take_commands(commands, now);
        let effects = self.take_effects(effects, now)?;
        for &effect in &effects {
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
            self.apply_command(command, &mut refused, &stale, now)?;
        }
        for (request, refusal) in refused {
            self.check_late_refusal(request, refusal)?;
        }
        self.check_no_lost_refusals()?;
        effects.into_iter().try_for_each(|effect| self.check_effect(effect, now))?;
        self.check_cursor_takeovers()
    }

    /// Checks a refusal of an earlier command: the lane has failed, or the reason is durable now.
    fn check_late_refusal(&mut self, request: u64, refusal: &Refusal) -> Result<(), Violation> {
        if self.check_delayed_refusal(request, refusal)? {
            return Ok(());
        }
        let is_pending = self.publishes.contains_key(&request)
            || self.settlements.contains_key(&request)
            || self.changes.contains_key(&request)
            || self.delay_changes.contains_key(&request)
            || self.streams.awaits(request);
        if *refusal == Refusal::OutcomeUnknown && self.is_fenced && is_pending {
            return Ok(());
        }
        Err(Violation::new(
            "every refusal answers a pending command",
            format!("{refusal} of {request}"),
        ))
    }

    /// Checks whether a command is refused as expected, and applies one that is not.
    fn apply_command(
        &mut self,
        command: &Command,
        refused: &mut BTreeMap<u64, &Refusal>,
        stale: &BTreeMap<u64, &[DeliveryRun]>,
        now: Timestamp,
    ) -> Result<(), Violation> {
        let expected = self.expected_refusal(command);
        if let Command::Publish(publish) = command
            && expected.is_none()
            && let Some(refusal) = refused.get(&publish.origin.request)
            && self.check_full(publish, refusal)?
        {
            refused.remove(&publish.origin.request);
            return Ok(());
        }
        if let Some(request) = request_of(command)
            && expected.is_none()
            && refused.get(&request).is_some_and(|refusal| is_no_delay(command, refusal))
        {
            refused.remove(&request);
            return Ok(());
        }
        let may_wait = expected.is_none() && Self::may_be_refused_later(command);
        if let Some(request) = request_of(command).filter(|_| !may_wait) {
            let received = refused.remove(&request);
            if expected.as_ref() != received {
                return Err(Violation::new(
                    "a command is refused for the expected reason",
                    format!("{command:?}: expected {expected:?}, received {received:?}"),
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
            Command::Publish(publish) => self.publish(publish, now)?,
            Command::PublishAt(publish, expected) => {
                self.publish_to_stream(publish, Some(*expected), now);
            }
            Command::Settle(settle) => {
                let stale = stale.get(&settle.origin.request).copied().unwrap_or_default();
                self.settle(settle, stale, now)?;
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
                let partition = self.partitions.get_mut(partition);
                if let Some(group) = partition.and_then(|held| held.groups.get_mut(group)) {
                    let is_own = |lease: &Lease| lease.holder() == (*session, *subscription);
                    group.release_leases(is_own, None, now);
                }
            }
            Command::EndSession { session, grace } => {
                self.subscriptions.retain(|(held, _), _| held != session);
                self.readers.end_where(|key, _| key.0 == *session);
                let deadline = (!grace.is_zero()).then(|| now.plus(*grace));
                for group in self.partitions.values_mut().flat_map(|held| held.groups.values_mut())
                {
                    group.release_leases(|lease| lease.session == *session, deadline, now);
                }
            }
            Command::Partition(origin, id, change) if self.is_stream(*id) => {
                self.change_stream_partition(origin.request, *id, change, now);
            }
            Command::Partition(origin, id, change) => self.change(origin.request, *id, change, now),
            Command::Stream(origin, id, command) => {
                self.expect_stream_answer(*origin, *id, command, now);
            }
            Command::Read(read) => self.start_reader(read),
            Command::Reader { session, subscription, change, .. } => {
                self.change_reader((*session, *subscription), *change);
            }
            Command::AppendTogether(origin, appends) => {
                self.expect_atomic_append(*origin, appends, now);
            }
            Command::SetThrottles(rules) => self.buckets.set_rules(rules),
            Command::Catalogue(..)
            | Command::PublishAtomic(_)
            | Command::WatchFailures(_)
            | Command::DecideFailures(_) => {}
        }
        Ok(())
    }

    fn open_partition(&self, id: PartitionId) -> Result<&PartitionModel, Refusal> {
        let partition = self.partitions.get(&id).filter(|partition| partition.is_open());
        partition.ok_or(Refusal::UnknownTopic)
    }

    /// The expected refusal of a command that does not wait for a commit.
    fn expected_refusal(&self, command: &Command) -> Option<Refusal> {
        let in_group = |id: PartitionId, group: &GroupId| match self.open_partition(id) {
            Ok(partition) if partition.groups.contains_key(group) => None,
            Ok(_) => Some(Refusal::UnknownGroup),
            Err(refusal) => Some(refusal),
        };
        if self.is_fenced {
            return request_of(command).map(|_| Refusal::OutcomeUnknown);
        }
        match command {
            Command::Publish(_) | Command::PublishAt(..) if self.is_full => {
                Some(Refusal::StorageFull)
            }
            Command::Publish(publish) | Command::PublishAt(publish, _)
                if self.is_stream(publish.partition) =>
            {
                self.expected_stream_refusal(publish)
            }
            Command::Publish(publish) | Command::PublishAt(publish, _) => {
                self.expected_publish_refusal(publish)
            }
            Command::Settle(settle) => in_group(settle.partition, &settle.group),
            Command::Subscribe(subscribe) => in_group(subscribe.partition, &subscribe.group),
            Command::Partition(_, _, PartitionCommand::Open { .. }) => None,
            Command::Stream(_, _, command) if self.is_full => {
                let grows = match command {
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
                (!self.stream_exists(*id)).then_some(Refusal::UnknownTopic)
            }
            Command::Partition(_, id, change) => match (self.open_partition(*id), change) {
                (Err(refusal), _) => Some(refusal),
                (Ok(_), PartitionCommand::SetCursor(name, _, by)) => {
                    self.expected_cursor_refusal(*id, name, by)
                }
                (Ok(_), PartitionCommand::RetryParked(group, _)) => in_group(*id, group),
                (Ok(_), PartitionCommand::Walk(walk)) => in_group(*id, &walk.group),
                (Ok(_), _) => None,
            },
            _ => None,
        }
    }

    fn expected_publish_refusal(&self, publish: &Publish) -> Option<Refusal> {
        let partition = match self.open_partition(publish.partition) {
            Ok(partition) => partition,
            Err(refusal) => return Some(refusal),
        };
        let needs_keys = partition.config.retention.latest_per_key.is_some();
        match partition.admit(publish.producer, publish.batch.count()) {
            Ok(ExpectedOutcome::New(_)) if needs_keys && !publish.batch.is_keyed() => {
                Some(Refusal::KeyMissing)
            }
            outcome => outcome.err().filter(|refusal| !waits_for_commit(refusal)),
        }
    }

    fn publish(&mut self, publish: &Publish, now: Timestamp) -> Result<(), Violation> {
        let Some(partition) = self.partitions.get_mut(&publish.partition) else { return Ok(()) };
        let outcome = match partition.admit(publish.producer, publish.batch.count()) {
            Ok(outcome) => outcome,
            Err(refusal) => {
                self.expect_fenced_refusal(publish, refusal);
                return Ok(());
            }
        };
        let turn = match outcome {
            ExpectedOutcome::New(_) => {
                self.batches += 1;
                let Publish { batch, producer, .. } = publish;
                let first = partition.entries.len() as u64;
                partition.append(batch, *producer, now, self.batches, self.turn);
                partition.note_replaced(first, now, self.turn);
                self.check_fits(publish, now)?;
                self.turn
            }
            ExpectedOutcome::Duplicate(offset) => partition.entries[offset as usize].turn,
        };
        let publish = publish.clone();
        let request = publish.origin.request;
        let pending = PendingPublish { publish, expected_offset: None, outcome, turn };
        self.publishes.insert(request, pending);
        Ok(())
    }

    fn change(&mut self, request: u64, id: PartitionId, change: &PartitionCommand, now: Timestamp) {
        let turn = self.turn;
        match change {
            PartitionCommand::Open { config, groups, dead_letters } => {
                let new = || PartitionModel::new(config.clone(), turn);
                let partition = self.partitions.entry(id).or_insert_with(new);
                self.buckets.note_settings(id.topic, partition.settings(), groups);
                if !partition.is_open() {
                    *partition = new();
                }
                let changes = partition.open(config.clone(), groups, *dead_letters, turn, now);
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
                self.set_cursor(request, id, name, Some(*offset), Some(by));
            }
            PartitionCommand::DeleteCursor(name) => {
                self.set_cursor(request, id, name, None, None);
            }
            PartitionCommand::RetryParked(group, _) => {
                let group =
                    self.partitions.get_mut(&id).and_then(|held| held.groups.get_mut(group));
                if let Some(group) = group {
                    group.retry_parked(turn);
                }
                self.changes.insert(request, (id, 0));
            }
            PartitionCommand::ChangeDelayed(offsets, change) => {
                self.change_delays(request, id, (offsets, change), now);
            }
            PartitionCommand::Name(_) => drop(self.changes.insert(request, (id, 0))),
            PartitionCommand::Describe
            | PartitionCommand::Explain(..)
            | PartitionCommand::ListKeys(..)
            | PartitionCommand::ListDelayed(..)
            | PartitionCommand::Walk(_)
            | PartitionCommand::Locate(..)
            | PartitionCommand::ListCursors
            | PartitionCommand::Trim(_) => {}
        }
    }

    fn check_effect(&mut self, effect: &Effect, now: Timestamp) -> Result<(), Violation> {
        match effect {
            Effect::Confirmed(confirmed) => self.check_confirmed(confirmed),
            Effect::PublishNoted(note) => self.check_publish_note(note),
            Effect::PublishedAt { origin, first, count } => {
                self.check_published_at(origin.request, *first, *count)
            }
            Effect::Settled(settled) => self.check_settlement(settled),
            Effect::Deliver(delivery) if delivery.attempt == 0 => self.check_read(delivery),
            Effect::Deliver(delivery) => self.check_delivery(delivery, now),
            Effect::Done { origin, .. } | Effect::Unparked { origin, .. } => {
                self.check_done(origin.request)
            }
            Effect::Gap { session, subscription, partition, range, reason } => {
                self.check_gap((*session, *subscription), *partition, *range, *reason, now)
            }
            Effect::CursorTaken { session, subscription, .. } => {
                self.check_cursor_taken((*session, *subscription))
            }
            Effect::DelaysChanged { origin, count } => {
                self.check_delays_changed(origin.request, *count)
            }
            Effect::Stream(origin, answer) => self.check_stream_answer(origin.request, answer),
            Effect::PublishedAtomic { .. }
            | Effect::Described { .. }
            | Effect::Located { .. }
            | Effect::Cursors { .. }
            | Effect::Explained { .. }
            | Effect::Keys { .. }
            | Effect::Delayed { .. }
            | Effect::Walked { .. }
            | Effect::StreamEnded { .. }
            | Effect::ReaderTooSlow { .. }
            | Effect::Subscribed { .. }
            | Effect::SubscriptionEnded { .. }
            | Effect::SubscriptionInterrupted { .. }
            | Effect::Refused { .. }
            | Effect::AttemptsFailed(_)
            | Effect::DeadLetterTopicNeeded { .. } => Ok(()),
        }
    }

    fn must_be_durable(&self, turn: u64, what: &dyn fmt::Debug) -> Result<(), Violation> {
        if turn <= self.durable_turn {
            return Ok(());
        }
        let durable = self.durable_turn;
        Err(Violation::new(
            "I6 no effect is released before its commit",
            format!("{what:?} depends on turn {turn}, the last durable turn is {durable}"),
        ))
    }

    fn check_done(&mut self, request: u64) -> Result<(), Violation> {
        match self.changes.remove(&request) {
            Some((id, turn)) => self.must_be_durable(turn, &id),
            None => Err(Violation::new(
                "every answer belongs to a pending request",
                format!("request {request} is done"),
            )),
        }
    }

    fn check_confirmed(&mut self, confirmed: &Confirmed) -> Result<(), Violation> {
        let Some(pending) = self.publishes.remove(&confirmed.origin.request) else {
            return Err(Violation::new(
                "I2 nothing appears that was never sent",
                format!("{confirmed:?}"),
            ));
        };
        let offset = pending.outcome.offset();
        let duplicate = matches!(pending.outcome, ExpectedOutcome::Duplicate(_));
        // A duplicate may be so old that the broker does not know its offset any more.
        let has_offset = match confirmed.first_offset {
            Some(first) => first == Offset(offset),
            None => duplicate,
        };
        let stamp = pending.publish.producer;
        let is_expected = has_offset
            && pending.expected_offset.is_none()
            && confirmed.duplicate == duplicate
            && confirmed.count == pending.publish.batch.count()
            && (confirmed.producer, confirmed.first_sequence) == (stamp.id, stamp.first_sequence);
        if !is_expected {
            return Err(Violation::new(
                "I1 a confirmed batch is present once, at its offset",
                format!("expected offset {offset}, duplicate {duplicate}; received {confirmed:?}"),
            ));
        }
        self.note_reported(&pending);
        self.must_be_durable(pending.turn, confirmed)
    }

    fn check_settlement(&mut self, settled: &Settled) -> Result<(), Violation> {
        let request = settled.origin.request;
        // A settlement without a confirm was checked with its command.
        let Some(pending) = self.settlements.remove(&request) else { return Ok(()) };
        let PendingSettlement { settle, time, .. } = &pending;
        let Some(partition) = self.partitions.get_mut(&settled.partition) else { return Ok(()) };
        let Some(group) = partition.groups.get_mut(&settle.group) else { return Ok(()) };
        let least = group.check_settlement(&pending, &settled.stale)?;
        let stale: u64 = settled.stale.iter().map(|run| u64::from(run.count)).sum();
        let all: u64 = settle.runs.iter().map(|run| u64::from(run.count)).sum();
        if settled.applied < least || settled.applied + stale > all {
            return Err(Violation::new(
                "I3 a settlement of a leased message applies",
                format!("{settled:?} of {all} messages, {least} of them leased"),
            ));
        }
        if settled.applied == 0 || matches!(settle.verdict, Verdict::Extend(_) | Verdict::Started) {
            // No record was written.
            return Ok(());
        }
        self.must_be_durable(time.turn, settled)
    }

    /// The partitions that are open, as far as commands say.
    #[must_use]
    pub fn partitions(&self) -> BTreeSet<PartitionId> {
        self.partitions.iter().filter(|(_, held)| held.is_open()).map(|(&id, _)| id).collect()
    }
}

/// The request of a command that is answered.
fn request_of(command: &Command) -> Option<u64> {
    match command {
        Command::Publish(publish) | Command::PublishAt(publish, _) => Some(publish.origin.request),
        Command::PublishAtomic(step) => Some(step.origin.request),
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
        | Command::SetThrottles(_)
        | Command::WatchFailures(_)
        | Command::DecideFailures(_)
        | Command::Unsubscribe { .. }
        | Command::EndSession { .. } => None,
    }
}
