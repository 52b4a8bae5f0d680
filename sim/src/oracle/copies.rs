//! The oracle's model of messages that are moved, cancelled and published again: each has one living copy, which is in
//! one place. It knows who may have moved a message whither, and learns where it is when it is delivered. The
//! partitions of `workbench` are its own; no other part of the oracle judges them.

use std::collections::{BTreeMap, BTreeSet};

use sennit_engine::{Command, Delivery, DeliveryRun, Effect, Refusal, SessionId, Settled, Verdict};
use sennit_model::{Messages, PartitionId, Timestamp};
use xxhash_rust::xxh3::xxh3_64;

use super::{Oracle, Violation};
use crate::{
    numbered_messages,
    workbench_topics::{self, LEASE},
};

/// The promise that a message is in one place.
const ONE_COPY: &str = "I3 a message that is published again has one living copy";

/// Whether a message exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Existence {
    Yes,
    /// Its publish has no answer.
    Maybe,
    No,
}

/// A lease on a message.
#[derive(Clone, Copy, Debug)]
struct HeldLease {
    session: SessionId,
    run: DeliveryRun,
    ends: Timestamp,
    /// A settlement of it has no answer.
    is_settling: bool,
}

/// A message, by its number.
#[derive(Clone, Debug)]
pub(super) struct Copy {
    pub(super) exists: Existence,
    /// The partition in which it was last, with its offset there if that is known.
    pub(super) place: (PartitionId, Option<u64>),
    /// The places that it has certainly left.
    pub(super) left: BTreeSet<(PartitionId, u64)>,
    /// The partitions in which it may be by now.
    pub(super) may_go: BTreeSet<PartitionId>,
    /// It is acked or cancelled.
    pub(super) is_gone: bool,
    /// The requests and steps that may have acked or cancelled it.
    pub(super) doubts: BTreeSet<u64>,
    /// The hashes of the payloads that it may have.
    pub(super) payloads: Vec<u64>,
    lease: Option<HeldLease>,
    /// How often it was delivered.
    pub(super) deliveries: u64,
}

/// A settlement of one message without an answer.
#[derive(Clone, Debug)]
struct PendingSettle {
    number: u64,
    place: (PartitionId, u64),
    run: DeliveryRun,
    verdict: Verdict,
    was_live: bool,
    deliveries: u64,
}

/// A walk without an answer.
#[derive(Clone, Debug)]
pub(super) struct PendingWalk {
    pub(super) source: PartitionId,
    /// Where messages go; `None` if they are cancelled.
    pub(super) to: Option<PartitionId>,
    pub(super) dry_run: bool,
    /// The offsets that it selects; all without.
    pub(super) offsets: Vec<u64>,
    /// The messages that certainly are where it selects them, with their offsets if they are known.
    pub(super) there: Vec<(u64, Option<u64>)>,
    /// Of which of these it is certain that they could not go elsewhere.
    pub(super) bound: Vec<bool>,
    /// The messages that it may have cancelled.
    pub(super) doubtful: Vec<u64>,
    /// The hash of the payload that messages get.
    pub(super) payload: Option<u64>,
    /// The turn in which it was sent.
    pub(super) turn: u64,
}

/// What is known of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Unknown,
    Done,
    /// It is not done, and will be if it is sent again while nobody has what it acks.
    NotYet,
    NotDone,
}

/// A message that a step acks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input {
    pub(super) number: u64,
    /// How often it was delivered before the step.
    pub(super) deliveries: u64,
    /// Whether it was certainly leased when the step was sent first.
    pub(super) was_live: bool,
}

/// A step.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) outcome: Outcome,
    pub(super) inputs: Vec<Input>,
    /// How many deliveries it acks, known or not.
    pub(super) acks: usize,
    /// The messages of each part.
    pub(super) outputs: Vec<Vec<u64>>,
    /// Whether it may never be done.
    pub(super) is_wrong: bool,
    /// Whether it was answered that it is done.
    pub(super) is_answered: bool,
}

/// A step that was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepRequest {
    pub(super) first: u64,
    /// Whether it was sent for the first time.
    pub(super) is_new: bool,
    /// Whether it was certainly not done before.
    pub(super) was_not_done: bool,
    /// Whether somebody else certainly has a message that it acks.
    pub(super) is_stale: bool,
    /// The turn in which it was sent.
    pub(super) turn: u64,
}

/// All steps, by the number of their first message.
#[derive(Debug, Default)]
pub(super) struct Steps {
    pub(super) by_first: BTreeMap<u64, Step>,
    /// The requests without an answer.
    pub(super) requests: BTreeMap<u64, StepRequest>,
    /// The steps that have published a message.
    pub(super) of_output: BTreeMap<u64, u64>,
}

/// All messages, and the requests without an answer.
#[derive(Debug, Default)]
pub(super) struct Copies {
    pub(super) by_number: BTreeMap<u64, Copy>,
    publishes: BTreeMap<u64, Vec<u64>>,
    settles: BTreeMap<u64, PendingSettle>,
    pub(super) walks: BTreeMap<u64, PendingWalk>,
    pub(super) steps: Steps,
    /// Openings of partitions and subscriptions without an answer.
    others: BTreeSet<u64>,
    /// The turn, and the last one that is durable.
    pub(super) turn: u64,
    durable_turn: u64,
}

impl Steps {
    pub(super) fn is_asked(&self, request: u64) -> bool {
        self.requests.contains_key(&request)
    }

    pub(super) fn pending(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn crashed(&mut self) {
        self.requests.clear();
    }
}

impl Copy {
    /// Whether a consumer certainly has it.
    pub(super) fn is_leased(&self, now: Timestamp) -> bool {
        self.lease.is_some_and(|lease| !lease.is_settling && lease.ends > now)
    }

    /// Notes that this session settles a delivery of it. Returns whether that certainly applies.
    pub(super) fn begin_settling(
        &mut self,
        run: &DeliveryRun,
        session: SessionId,
        now: Timestamp,
    ) -> bool {
        let was_leased = self.is_leased(now);
        let Some(lease) = self.lease.as_mut().filter(|lease| lease.run == *run) else {
            return false;
        };
        lease.is_settling = true;
        was_leased && lease.session == session
    }

    /// Whether a consumer certainly has it by another delivery.
    pub(super) fn is_leased_apart(&self, run: &DeliveryRun, now: Timestamp) -> bool {
        self.is_leased(now) && self.lease.is_some_and(|lease| lease.run != *run)
    }

    /// Its delivery is settled.
    pub(super) fn end_lease(&mut self) {
        self.lease = None;
    }

    /// The settlement under way has changed nothing.
    pub(super) fn settling_refused(&mut self) {
        self.lease.iter_mut().for_each(|lease| lease.is_settling = false);
    }
}

impl Copies {
    /// A message that is about to be published to a partition.
    pub(super) fn publish(&mut self, id: PartitionId, batch: &[u8]) -> Vec<u64> {
        let mut numbers = Vec::new();
        for message in Messages::of_checked(batch) {
            let Some(number) = numbered_messages::number(&message) else { continue };
            numbers.push(number);
            self.by_number.entry(number).or_insert_with(|| Copy {
                exists: Existence::Maybe,
                place: (id, None),
                left: BTreeSet::new(),
                may_go: BTreeSet::new(),
                is_gone: false,
                doubts: BTreeSet::new(),
                payloads: vec![xxh3_64(message.payload())],
                lease: None,
                deliveries: 0,
            });
        }
        numbers
    }

    /// A message exists at this place, unless it has gone elsewhere since.
    pub(super) fn note_published(&mut self, number: u64, place: (PartitionId, u64)) {
        let Some(copy) = self.by_number.get_mut(&number) else { return };
        copy.exists = Existence::Yes;
        if copy.place == (place.0, None) && copy.left.is_empty() {
            copy.place.1 = Some(place.1);
        }
    }

    /// The message at a place.
    pub(super) fn find(&mut self, place: (PartitionId, Option<u64>)) -> Option<(u64, &mut Copy)> {
        let mut copies = self.by_number.iter_mut();
        copies.find(|(_, copy)| copy.place == place).map(|(&number, copy)| (number, copy))
    }

    fn command(&mut self, command: &Command, now: Timestamp) {
        match command {
            Command::Publish(publish) => {
                let numbers = self.publish(publish.partition, publish.batch.bytes());
                self.publishes.insert(publish.origin.request, numbers);
            }
            Command::PublishAtomic(step) => self.begin_step(step, now),
            Command::Settle(settle) => {
                let Some(&run) = settle.runs.first() else { return };
                let place = (settle.partition, run.first.0);
                let Some((number, copy)) = self.find((place.0, Some(place.1))) else {
                    self.others.insert(settle.origin.request);
                    return;
                };
                let was_live = copy.begin_settling(&run, settle.origin.session, now);
                if settle.verdict == Verdict::Ack {
                    copy.doubts.insert(settle.origin.request);
                }
                let (verdict, deliveries) = (settle.verdict.clone(), copy.deliveries);
                let pending = PendingSettle { number, place, run, verdict, was_live, deliveries };
                self.settles.insert(settle.origin.request, pending);
            }
            Command::EndSession { session, .. } => {
                for copy in self.by_number.values_mut() {
                    copy.lease = copy.lease.filter(|lease| lease.session != *session);
                }
            }
            Command::Partition(origin, id, change)
                if !self.begin_walk(origin.request, *id, change) =>
            {
                self.others.insert(origin.request);
            }
            Command::Subscribe(subscribe) => drop(self.others.insert(subscribe.origin.request)),
            _ => {}
        }
    }

    fn effect(&mut self, effect: &Effect, now: Timestamp) -> Result<(), Violation> {
        match effect {
            Effect::Deliver(delivery) => self.delivered(delivery, now),
            Effect::Confirmed(confirmed) => {
                let numbers = self.publishes.remove(&confirmed.origin.request).unwrap_or_default();
                let Some(first) = confirmed.first_offset else { return Ok(()) };
                for (offset, number) in (first.0..).zip(numbers) {
                    self.note_published(number, (confirmed.partition, offset));
                }
                Ok(())
            }
            Effect::PublishedAtomic { origin, parts } => self.step_done(origin.request, parts),
            Effect::Settled(settled) => self.settled(settled),
            Effect::Walked { origin, page } => self.end_walk(origin.request, page, now),
            Effect::Refused { origin, refusal } => self.refused(origin.request, refusal),
            Effect::Done { origin, .. } | Effect::Subscribed { origin, .. } => {
                self.others.remove(&origin.request);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn refused(&mut self, request: u64, refusal: &Refusal) -> Result<(), Violation> {
        self.settles.remove(&request);
        self.others.remove(&request);
        self.walks.remove(&request);
        self.step_refused(request, refusal)?;
        for number in self.publishes.remove(&request).unwrap_or_default() {
            let is_unknown = *refusal == Refusal::OutcomeUnknown;
            if let Some(copy) = self.by_number.get_mut(&number).filter(|_| !is_unknown) {
                copy.exists = Existence::No;
            }
        }
        Ok(())
    }

    fn settled(&mut self, settled: &Settled) -> Result<(), Violation> {
        self.others.remove(&settled.origin.request);
        let Some(pending) = self.settles.remove(&settled.origin.request) else { return Ok(()) };
        let Some(copy) = self.by_number.get_mut(&pending.number) else { return Ok(()) };
        let wrong = |rule, copy: &Copy| {
            Err(Violation::new(rule, format!("message {}: {pending:?}, {copy:?}", pending.number)))
        };
        let is_of_this = copy.lease.is_some_and(|lease| lease.run == pending.run);
        if is_of_this {
            copy.lease = None;
        }
        if settled.applied == 0 {
            copy.doubts.remove(&settled.origin.request);
            return match pending.was_live {
                true => wrong("I3 a settlement of a leased message applies", copy),
                false => Ok(()),
            };
        }
        match pending.verdict {
            Verdict::Ack | Verdict::DeadLetter { .. } if copy.deliveries > pending.deliveries => {
                wrong("I3 a settled message is not delivered again", copy)
            }
            Verdict::Ack => {
                copy.is_gone = true;
                Ok(())
            }
            Verdict::DeadLetter { .. } => {
                copy.left.insert(pending.place);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn delivered(&mut self, delivery: &Delivery, now: Timestamp) -> Result<(), Violation> {
        let id = delivery.partition;
        let is_quiet = self.walks.is_empty();
        for (offset, message) in (delivery.first.0..).zip(Messages::of_checked(&delivery.messages))
        {
            let number = numbered_messages::number(&message).unwrap_or(u64::MAX);
            let wrong = |rule, detail: &dyn std::fmt::Debug| {
                let place = format!("message {number} at {offset} of {id}");
                Err(Violation::new(rule, format!("{place}: {detail:?}")))
            };
            let found = self.by_number.get_mut(&number);
            let Some(copy) = found.filter(|copy| copy.exists != Existence::No) else {
                return wrong("I2 nothing appears that was never sent", &number);
            };
            if !copy.payloads.contains(&xxh3_64(message.payload())) {
                return wrong("I1 a message that is published again has its payload", copy);
            }
            if copy.is_gone {
                return wrong("I3 a message that is acked or cancelled is delivered nowhere", copy);
            }
            if copy.left.contains(&(id, offset)) {
                return wrong(ONE_COPY, copy);
            }
            if copy.is_leased(now) {
                return wrong("I5 a leased message is left alone", copy);
            }
            let is_here = copy.place.0 == id && copy.place.1.is_none_or(|at| at == offset);
            if !is_here && !copy.may_go.contains(&id) {
                return wrong("I2 a message is only where it was put", copy);
            }
            if let (false, (place, Some(at))) = (is_here, copy.place) {
                copy.left.insert((place, at));
            }
            (copy.place, copy.exists) = ((id, Some(offset)), Existence::Yes);
            copy.deliveries += 1;
            if is_quiet {
                copy.may_go.clear();
                copy.doubts.clear();
            }
            copy.may_go.extend(workbench_topics::dead_letters_of(id));
            let Delivery { session, attempt, generation, .. } = *delivery;
            let first = sennit_model::Offset(offset);
            let run = DeliveryRun { first, count: 1, attempt, generation };
            copy.lease =
                Some(HeldLease { session, run, ends: now.plus(LEASE), is_settling: false });
            self.note_step_of(number)?;
        }
        Ok(())
    }

    /// Notes the end of the shard, with all requests.
    pub(super) fn crashed(&mut self) {
        self.publishes.clear();
        self.settles.clear();
        self.walks.clear();
        self.steps.crashed();
        self.others.clear();
        self.by_number.values_mut().for_each(|copy| copy.lease = None);
    }

    /// Checks that an answer waits for the records of its request, which are written in this turn or later.
    pub(super) fn must_be_durable(
        &self,
        turn: u64,
        what: &dyn std::fmt::Debug,
    ) -> Result<(), Violation> {
        if turn <= self.durable_turn {
            return Ok(());
        }
        let rule = "I6 no effect is released before its commit";
        Err(Violation::new(rule, format!("{what:?} depends on turn {turn}")))
    }

    fn is_asked(&self, request: u64) -> bool {
        self.publishes.contains_key(&request)
            || self.settles.contains_key(&request)
            || self.walks.contains_key(&request)
            || self.steps.is_asked(request)
            || self.others.contains(&request)
    }

    /// Checks that every message that is not settled was delivered and acked, and every request answered.
    fn check_settled(&self) -> Result<(), Violation> {
        let is_owed =
            |copy: &Copy| copy.exists == Existence::Yes && !copy.is_gone && copy.doubts.is_empty();
        if let Some((number, copy)) = self.by_number.iter().find(|(_, copy)| is_owed(copy)) {
            let detail = format!("message {number}: {copy:?}");
            return Err(Violation::new(
                "I3 every unsettled message is delivered in the end",
                detail,
            ));
        }
        let pending =
            (self.publishes.len(), self.settles.len(), self.walks.len(), self.steps.pending());
        if pending != (0, 0, 0, 0) {
            let detail = format!("(publishes, settlements, walks, steps): {pending:?}");
            return Err(Violation::new("every command is answered", detail));
        }
        Ok(())
    }
}

impl Oracle {
    /// Takes the commands for the workbench's partitions. Returns the others.
    pub(super) fn take_commands<'a>(
        &mut self,
        commands: &'a [Command],
        now: Timestamp,
    ) -> Vec<&'a Command> {
        (self.copies.turn, self.copies.durable_turn) = (self.turn, self.durable_turn);
        let (own, others): (Vec<_>, Vec<_>) =
            commands.iter().partition(|command| workbench_topics::is_command(command));
        own.into_iter().for_each(|command| self.copies.command(command, now));
        others
    }

    /// Checks the effects for the users of the workbench. Returns the others.
    pub(super) fn take_effects<'a>(
        &mut self,
        effects: &'a [Effect],
        now: Timestamp,
    ) -> Result<Vec<&'a Effect>, Violation> {
        let mut others = Vec::new();
        for effect in effects {
            let is_own = match effect {
                Effect::Deliver(delivery) => workbench_topics::is_partition(delivery.partition),
                Effect::Confirmed(confirmed) => self.copies.is_asked(confirmed.origin.request),
                Effect::PublishNoted(note) => workbench_topics::is_partition(note.partition),
                Effect::Settled(settled) => self.copies.is_asked(settled.origin.request),
                Effect::Walked { origin, .. }
                | Effect::PublishedAtomic { origin, .. }
                | Effect::Refused { origin, .. }
                | Effect::Done { origin, .. }
                | Effect::Subscribed { origin, .. } => self.copies.is_asked(origin.request),
                _ => false,
            };
            match is_own {
                true => self.copies.effect(effect, now)?,
                false => others.push(effect),
            }
        }
        Ok(others)
    }

    /// Checks that the messages of the workbench are all settled.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn check_copies_settled(&self) -> Result<(), Violation> {
        self.copies.check_settled()
    }
}
