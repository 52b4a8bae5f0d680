//! A world around an engine for tests: a list for a journal, a map for the batches, a clock that
//! is set by hand. Effects that wait for the commit get it at once, unless held back.

pub mod fair_groups;
pub mod streams;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use sennit_engine::{
    Command, Credit, DeadLetters, Delivery, DeliveryRun, Effect, Encoded, Engine, ExplainSubject,
    Explanation, GroupDescription, GroupSetting, Journal, KeyDescription, Origin, Outbox,
    PartitionCommand, Payloads, Place, Publish, Record, Refusal, Replay, SessionId, Settle,
    Settled, SourceNames, Subscribe, Verdict,
};
use sennit_model::{
    Batch, BatchBuilder, Generation, GroupConfig, GroupId, GroupName, Message, Messages, Offset,
    PartitionId, PartitionIndex, ProducerStamp, StartAt, Timestamp, TopicConfig, TopicId,
    TopicKind,
};

pub const ORDERS: PartitionId = PartitionId { topic: TopicId(1), index: PartitionIndex(0) };
pub const DEAD: PartitionId = PartitionId { topic: TopicId(2), index: PartitionIndex(0) };
pub const GROUP: GroupId = GroupId(0);
pub const ALICE: SessionId = SessionId(1);
pub const BOB: SessionId = SessionId(2);

/// Set in the position of a batch that is kept without a record.
pub const IN_MEMORY: u64 = 1 << 62;

#[derive(Default)]
pub struct Memory {
    pub records: Vec<(Record, u64)>,
    pub batches: BTreeMap<u64, Bytes>,
    pub end: u64,
    /// Batches that were moved, each to a place of its own.
    pub pack: u64,
    /// Batches that were kept without a record.
    pub kept: u64,
    /// How many records were to be held together, each time.
    pub held_together: Vec<usize>,
    /// Batches that have to be fetched first.
    pub absent: bool,
    pub asked: Vec<Place>,
}

/// A command that was sent by another node comes as it was sent, unless the sender refuses it.
fn travels(command: &Command) {
    let mut encoded = Encoded::default();
    if let Err(refusal) = command.encode(&mut encoded) {
        return assert!(matches!(refusal, Refusal::Config(_)), "{refusal}");
    }
    assert_eq!(Command::decode(&mut encoded.to_bytes()).as_ref(), Ok(command));
}

/// An effect for another node comes as it was sent.
fn returns(effect: &Effect) {
    let mut encoded = Encoded::default();
    effect.encode(&mut encoded).expect("it is within the limits");
    assert_eq!(Effect::decode(&mut encoded.to_bytes()).as_ref(), Ok(effect));
}

impl Journal for Memory {
    fn append(&mut self, record: &Record) -> u64 {
        let mut head = Vec::new();
        record.encode_head(&mut head);
        let position = self.end + head.len() as u64;
        self.end = position;
        if let Some(batch) = record.batch() {
            self.batches.insert(position, batch.bytes().clone());
            self.end += batch.bytes().len() as u64;
        }
        self.records.push((record.clone(), position));
        self.end += 1;
        position
    }

    fn hold_together(&mut self, records: &[Record]) {
        self.held_together.push(records.len());
    }

    fn keep(&mut self, batch: &Batch) -> u64 {
        self.kept += 1;
        let position = IN_MEMORY | self.kept;
        self.batches.insert(position, batch.bytes().clone());
        position
    }
}

impl Payloads for Memory {
    fn batch(&mut self, _: PartitionId, place: Place) -> Option<Bytes> {
        if self.absent {
            self.asked.push(place);
            return None;
        }
        // A part of a batch lies within it.
        let (begin, batch) = self.batches.range(..=place.position).next_back()?;
        let at = (place.position - begin) as usize;
        Some(batch.slice(at..at + place.bytes as usize))
    }
}

pub struct World {
    pub engine: Engine,
    pub journal: Memory,
    pub now: Timestamp,
    pub effects: Vec<Effect>,
    /// That of the deliveries.
    pub generation: Generation,
    request: u64,
}

pub fn queue() -> TopicConfig {
    TopicConfig::of_kind(TopicKind::Queue)
}

pub fn setting(config: GroupConfig) -> GroupSetting {
    GroupSetting { id: GROUP, config, start: StartAt::Earliest }
}

impl World {
    /// A queue with a group, and a partition for its dead letters.
    pub fn new() -> Self {
        Self::with(queue(), GroupConfig::default())
    }

    pub fn with(config: TopicConfig, group: GroupConfig) -> Self {
        let mut world = Self::empty();
        world.open(DEAD, queue(), vec![setting(GroupConfig::default())], DeadLetters::Stay);
        world.open(ORDERS, config, vec![setting(group)], DeadLetters::To(DEAD.topic));
        world.effects.clear();
        world
    }

    pub fn empty() -> Self {
        let now = Timestamp(1_000_000);
        Self {
            engine: Engine::new(Generation(1), now),
            journal: Memory::default(),
            now,
            effects: Vec::new(),
            generation: Generation(1),
            request: 0,
        }
    }

    pub fn open(
        &mut self,
        partition: PartitionId,
        config: TopicConfig,
        groups: Vec<GroupSetting>,
        dead_letters: DeadLetters,
    ) {
        let of_groups = groups.iter().map(|group| group.id).collect::<Vec<_>>();
        let command = PartitionCommand::Open { config, groups, dead_letters };
        let origin = self.origin(ALICE);
        self.do_now(Command::Partition(origin, partition, command));
        if matches!(dead_letters, DeadLetters::To(_)) {
            self.name(partition, &of_groups);
        }
    }

    /// Says what the topic and its groups are called.
    pub fn name(&mut self, partition: PartitionId, groups: &[GroupId]) {
        let groups = groups.iter().map(|&id| (id, GroupName::default_group())).collect();
        let topic = "orders".parse().expect("it is a name");
        let names = PartitionCommand::Name(Arc::new(SourceNames { topic, groups }));
        let origin = self.origin(ALICE);
        self.do_now(Command::Partition(origin, partition, names));
    }

    pub fn origin(&mut self, session: SessionId) -> Origin {
        self.request += 1;
        Origin { session, request: self.request }
    }

    /// A turn whose records are committed at once.
    pub fn do_now(&mut self, command: Command) {
        self.do_in_one_turn([command]);
    }

    /// The same, with several commands.
    pub fn do_in_one_turn(&mut self, commands: impl IntoIterator<Item = Command>) {
        let mut out = Outbox::default();
        for command in commands {
            travels(&command);
            self.engine.handle(command, self.now, &mut self.journal, &mut out);
        }
        self.engine.end_turn(&mut self.journal);
        self.finish(out);
    }

    pub fn finish(&mut self, mut out: Outbox) {
        loop {
            out.now.iter().chain(&out.after_commit).for_each(returns);
            self.effects.append(&mut out.now);
            self.effects.append(&mut out.after_commit);
            self.engine.committed(self.journal.end);
            let mut payloads = self.journal_payloads();
            self.engine.deliver(self.now, &mut self.journal, &mut payloads, &mut out);
            check(&self.engine);
            if out.now.is_empty()
                && out.after_commit.is_empty()
                && !self.engine.has_ready_partitions()
            {
                // Twice round: whatever was touched is folded now, if it is at rest.
                (0..2).for_each(|_| self.engine.fold_untouched(1));
                break;
            }
        }
    }

    fn journal_payloads(&self) -> Memory {
        Memory {
            batches: self.journal.batches.clone(),
            absent: self.journal.absent,
            ..Memory::default()
        }
    }

    pub fn pass(&mut self, duration: Duration) {
        self.now = self.now.plus(duration);
        self.engine.advance(self.now, &mut self.journal);
        self.finish(Outbox::default());
    }

    pub fn publish(&mut self, messages: &[Message]) {
        self.publish_as(ProducerStamp::default(), messages);
    }

    pub fn publish_as(&mut self, producer: ProducerStamp, messages: &[Message]) {
        let origin = self.origin(ALICE);
        let batch = batch(messages);
        self.do_now(Command::Publish(Publish { origin, partition: ORDERS, producer, batch }));
    }

    pub fn publish_texts(&mut self, texts: &[&str]) {
        let messages: Vec<_> = texts.iter().map(|text| Message::new(text.to_string())).collect();
        self.publish(&messages);
    }

    pub fn subscribe(&mut self, session: SessionId, messages: u32) {
        self.subscribe_to(ORDERS, session, Credit { messages, bytes: 1 << 20 });
    }

    pub fn subscribe_to(&mut self, partition: PartitionId, session: SessionId, credit: Credit) {
        let origin = self.origin(session);
        let subscribe = Subscribe { origin, subscription: 7, partition, group: GROUP, credit };
        self.do_now(Command::Subscribe(subscribe));
    }

    pub fn settle(&mut self, verdict: Verdict, runs: Vec<DeliveryRun>) -> Settled {
        self.settle_as(ALICE, verdict, runs)
    }

    pub fn settle_as(
        &mut self,
        session: SessionId,
        verdict: Verdict,
        runs: Vec<DeliveryRun>,
    ) -> Settled {
        let origin = self.origin(session);
        let group = GROUP;
        let confirm = true;
        let settle = Settle { origin, partition: ORDERS, group, verdict, runs, confirm };
        self.do_now(Command::Settle(settle));
        let found = self.effects.iter().position(
            |effect| matches!(effect, Effect::Settled(settled) if settled.origin == origin),
        );
        match self.effects.remove(found.expect("a settle with confirm is answered")) {
            Effect::Settled(settled) => settled,
            other => panic!("{other:?}"),
        }
    }

    pub fn ack(&mut self, run: DeliveryRun) -> Settled {
        self.settle(Verdict::Ack, vec![run])
    }

    /// Takes the deliveries made since the last call.
    pub fn deliveries(&mut self) -> Vec<Delivery> {
        let (deliveries, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.effects)
            .into_iter()
            .partition(|effect| matches!(effect, Effect::Deliver(_)));
        self.effects = rest;
        let deliveries = deliveries.into_iter().map(|effect| match effect {
            Effect::Deliver(delivery) => delivery,
            other => panic!("{other:?}"),
        });
        deliveries.collect()
    }

    /// Takes the deliveries made since the last call, as `(offset, attempt, payload)`.
    pub fn delivered(&mut self) -> Vec<(u64, u32, String)> {
        self.deliveries()
            .iter()
            .flat_map(|delivery| {
                let messages = Messages::of_checked(&delivery.messages);
                let texts = messages.map(|m| String::from_utf8_lossy(m.payload()).into_owned());
                (delivery.first.0..)
                    .zip(texts)
                    .map(|(offset, text)| (offset, delivery.attempt, text))
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    /// The same, as `(offset, attempt)`.
    pub fn attempts(&mut self) -> Vec<(u64, u32)> {
        self.delivered().into_iter().map(|(offset, attempt, _)| (offset, attempt)).collect()
    }

    pub fn refusals(&mut self) -> Vec<Refusal> {
        std::mem::take(&mut self.effects)
            .into_iter()
            .filter_map(|effect| match effect {
                Effect::Refused { refusal, .. } => Some(refusal),
                _ => None,
            })
            .collect()
    }

    pub fn describe(&mut self, partition: PartitionId) -> sennit_engine::PartitionDescription {
        let origin = self.origin(ALICE);
        self.do_now(Command::Partition(origin, partition, PartitionCommand::Describe));
        match self.effects.pop() {
            Some(Effect::Described { description, .. }) => description,
            other => panic!("{other:?}"),
        }
    }

    pub fn explain(&mut self, subject: ExplainSubject) -> Explanation {
        let origin = self.origin(ALICE);
        let command = PartitionCommand::Explain(GROUP, subject);
        self.do_now(Command::Partition(origin, ORDERS, command));
        match self.effects.pop() {
            Some(Effect::Explained { explanation, .. }) => explanation,
            other => panic!("{other:?}"),
        }
    }

    pub fn keys(&mut self, most: usize) -> Vec<KeyDescription> {
        let origin = self.origin(ALICE);
        let command = PartitionCommand::ListKeys(GROUP, most);
        self.do_now(Command::Partition(origin, ORDERS, command));
        match self.effects.pop() {
            Some(Effect::Keys { keys, .. }) => keys,
            other => panic!("{other:?}"),
        }
    }

    pub fn group(&mut self) -> GroupDescription {
        self.describe(ORDERS).groups[0]
    }

    /// The engine that a restart would come to by replaying every record.
    pub fn replayed(&self) -> Engine {
        let mut engine = Engine::new(Generation(2), self.now);
        for (record, position) in &self.journal.records {
            engine.apply(record, *position);
            engine.committed(u64::MAX);
        }
        engine
    }

    /// The world after a crash that the records from `count` on did not outlive.
    pub fn crashed(mut self, count: usize) -> Self {
        self.journal.records.truncate(count);
        let mut replay = Replay::new(self.now);
        for (record, position) in &self.journal.records {
            let mut body = Vec::new();
            record.encode_head(&mut body);
            let begin = position - body.len() as u64;
            body.extend(record.batch().iter().flat_map(|batch| batch.bytes().iter()));
            replay.record(record.kind(), begin, body.into()).expect("it was written");
        }
        let (engine, lost) = replay.finish(Generation(2), true).expect("it is whole");
        self.engine = engine;
        self.journal.batches.retain(|position, _| position & IN_MEMORY == 0);
        for record in &lost {
            self.journal.append(record);
        }
        self.effects.clear();
        self.finish(Outbox::default());
        self
    }
}

/// Asserts the engine's invariants, which it can do where assertions for debugging are built in.
pub fn check(engine: &Engine) {
    #[cfg(debug_assertions)]
    engine.check();
    #[cfg(not(debug_assertions))]
    let _ = engine;
}

pub fn batch(messages: &[Message]) -> Batch {
    let mut builder = BatchBuilder::new();
    for message in messages {
        builder.push(message).expect("within the limits");
    }
    builder.take().expect("not empty")
}

pub fn run(first: u64, count: u32, attempt: u32) -> DeliveryRun {
    DeliveryRun { first: Offset(first), count, attempt, generation: Generation(1) }
}
