//! The clients of a cluster of shards. They ask whom they take for the leader, are sent on, lose patience and
//! connections, and say what they were told in a history.

mod calls;
mod consumer;
mod early;
mod publisher;
mod reader;

use std::{collections::BTreeMap, time::Duration};

use sennit_engine::{
    Command, DeadLetters, Delivery, Effect, GroupSetting, Origin, PartitionCommand,
    PartitionDescription, Refusal, SessionId,
};
use sennit_history::{History, What};
use sennit_model::{
    Durability, GroupConfig, PartitionId, PartitionIndex, StartAt, TopicConfig, TopicId, TopicKind,
};

pub use calls::Reach;
use calls::{Call, Caller, Calls, KnownPartition};
use consumer::{Consumer, GROUP};
use early::EarlyMessages;
use publisher::Publisher;
use reader::Reader;

use crate::{cluster::shard_weather::ShardWeather, oracle::Violation, random::Random};

/// The promise that a delivery of a newer leader is the last word.
pub const ONE_GIVES: &str = "I5 no leader gives behind a newer one";
/// The promise that what is settled is over.
pub const SETTLED: &str = "I3 what is settled is not delivered again";
/// The number of publishers to the partition whose messages are given before they are committed.
const EARLY_PUBLISHERS: usize = 2;
/// The number of its readers.
const EARLY_READERS: usize = 2;
/// The process that asks how much is left, in the history.
const ASKER: u32 = 3000;

/// A partition.
struct Partition {
    known: KnownPartition,
    is_open: bool,
    /// Whether its group has said that nothing is left.
    is_drained: bool,
    /// Messages that its group has confirmed as settled: the end of each run by its first offset.
    settled: BTreeMap<u64, u64>,
}

/// All clients.
pub struct Clients {
    random: Random,
    calls: Calls,
    partitions: Vec<Partition>,
    publishers: Vec<Publisher>,
    readers: Vec<Reader>,
    consumers: Vec<Consumer>,
    early: EarlyMessages,
    /// The durability of the partition whose messages are given before they are committed.
    early_durability: Durability,
    /// How long a consumer has a message; `None` without groups.
    lease: Option<Duration>,
    /// Whether messages expire.
    expires: bool,
    control: SessionId,
    patience_us: u64,
    has_sane_clocks: bool,
    /// The newest term whose leader has given, or might have.
    newest_term: u64,
    /// The number of processes that there were.
    lives: u64,
}

impl Clients {
    /// Clients that have done nothing.
    pub fn new(weather: &ShardWeather, has_sane_clocks: bool, seed: u64) -> Self {
        let (mut random, mut calls) = (Random::new(seed), Calls::default());
        let known = |index: usize, is_early| {
            let topic = TopicId(index as u32 + 1);
            let id = PartitionId { topic, index: PartitionIndex(0) };
            KnownPartition { index: index as u32, id, is_early }
        };
        let durable = weather.partitions;
        // A client without a partition of its own has any of the durable ones.
        let any = |random: &mut Random| known(random.below(durable as u64) as usize, false);
        let early = weather.early.map(|_| known(durable, true));
        let own = |partition: Option<KnownPartition>, count: usize| {
            std::iter::repeat_n(partition, if partition.is_some() { count } else { 0 })
        };
        let wanted =
            std::iter::repeat_n(None, weather.publishers).chain(own(early, EARLY_PUBLISHERS));
        let publisher = |(index, wanted): (usize, Option<KnownPartition>)| {
            let session = calls.session();
            let partition = wanted.unwrap_or_else(|| any(&mut random));
            Publisher::new(index, session, partition, weather, &mut random)
        };
        let publishers = wanted.enumerate().map(publisher).collect();
        let wanted = std::iter::repeat_n(None, weather.readers).chain(own(early, EARLY_READERS));
        let reader = |(index, wanted): (usize, Option<KnownPartition>)| {
            let partition = wanted.unwrap_or_else(|| any(&mut random));
            Reader::new(index, partition, false, weather.patience_us)
        };
        let readers = wanted.enumerate().map(reader).collect();
        let consumer = |index| Consumer::new(index, any(&mut random), false, weather.patience_us);
        let consumers = (0..weather.consumers).map(consumer).collect();
        let partition = |known| Partition {
            known,
            is_open: false,
            is_drained: false,
            settled: BTreeMap::new(),
        };
        let partitions = (0..durable).map(|index| known(index, false)).chain(early);
        let has_groups = weather.consumers > 0;
        let control = calls.session();
        Self {
            random,
            calls,
            partitions: partitions.map(partition).collect(),
            publishers,
            readers,
            consumers,
            early: EarlyMessages::default(),
            early_durability: weather.early.unwrap_or_default(),
            lease: has_groups.then(|| Duration::from_millis(weather.lease_ms)),
            expires: weather.expiring.0 > 0,
            control,
            patience_us: weather.patience_us,
            has_sane_clocks,
            newest_term: 0,
            lives: 0,
        }
    }

    /// The answers to the clients.
    pub fn history(&self) -> &History {
        &self.calls.history
    }

    /// Some clients do something. `tip` is the node that is asked by those who know of no leader.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn act(&mut self, tip: usize, reach: &mut Reach<'_>) -> Result<(), Violation> {
        if self.open(tip, reach)? {
            for _ in 0..self.random.between(1, 4) {
                self.act_one(tip, reach)?;
            }
        }
        Ok(())
    }

    fn act_one(&mut self, tip: usize, reach: &mut Reach<'_>) -> Result<(), Violation> {
        let Self { random, calls, publishers, readers, consumers, .. } = self;
        let count = publishers.len() + readers.len() + consumers.len();
        let index = random.below(count as u64) as usize;
        if let Some(publisher) = publishers.get_mut(index) {
            return publisher.act(true, tip, calls, reach, random);
        }
        let index = index - publishers.len();
        match readers.get_mut(index) {
            Some(reader) => reader.act(tip, calls, reach, random),
            None => consumers[index - readers.len()].act(tip, calls, reach, random),
        }
    }

    /// Has the partitions opened; returns whether they are.
    fn open(&mut self, tip: usize, reach: &mut Reach<'_>) -> Result<bool, Violation> {
        let Some(index) = self.partitions.iter().position(|partition| !partition.is_open) else {
            return Ok(true);
        };
        let setting = |lease| {
            let config = GroupConfig { lease, attempts_max: u32::MAX, ..GroupConfig::default() };
            GroupSetting { id: GROUP, config, start: StartAt::Earliest }
        };
        let KnownPartition { id, is_early, .. } = self.partitions[index].known;
        let mut config = TopicConfig::of_kind(TopicKind::Queue);
        if is_early {
            config.durability = self.early_durability;
        }
        let open = PartitionCommand::Open {
            config,
            groups: self.lease.filter(|_| !is_early).map(setting).into_iter().collect(),
            dead_letters: DeadLetters::NotYet,
        };
        if reach.at.awake[tip] {
            let origin = self.calls.begin(Caller::Opener(index), self.control, tip, reach);
            reach.tell(tip, Command::Partition(origin, id, open))?;
        }
        Ok(false)
    }

    /// Takes what the nodes say, and finds processes that have ended.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn look(&mut self, reach: &mut Reach<'_>) -> Result<(), Violation> {
        for node in 0..reach.nodes.len() {
            for effect in reach.nodes[node].take_effects() {
                self.handle(effect, reach)?;
            }
        }
        let lives = reach.nodes.iter().map(|node| node.lives).sum();
        if std::mem::replace(&mut self.lives, lives) == lives {
            return Ok(());
        }
        for (request, call) in self.calls.take_broken(reach.nodes) {
            self.refused(request, call, &Refusal::OutcomeUnknown, reach)?;
        }
        Ok(())
    }

    fn handle(&mut self, effect: Effect, reach: &mut Reach<'_>) -> Result<(), Violation> {
        let at = reach.at;
        match effect {
            Effect::Confirmed(confirmed) => {
                let request = confirmed.origin.request;
                if let Some(Caller::Publisher(index)) = self.end(confirmed.origin) {
                    let publisher = &mut self.publishers[index];
                    let KnownPartition { index, is_early, .. } = publisher.partition();
                    if is_early {
                        self.early.confirmed(index, &confirmed, publisher.contents(request))?;
                    }
                    publisher.confirmed(request, &confirmed, &mut self.calls, at)?;
                }
            }
            Effect::PublishedAt { origin, first, .. } => {
                if let Some(Caller::Publisher(index)) = self.end(origin) {
                    let calls = &mut self.calls;
                    self.publishers[index].confirmed_at(origin.request, first, calls, at);
                }
            }
            Effect::Done { origin, .. } => {
                if let Some(Caller::Opener(index)) = self.end(origin) {
                    self.partitions[index].is_open = true;
                }
            }
            Effect::Located { origin, first, end } => {
                if let Some(call) = self.calls.end(origin)
                    && let Caller::Reader(index) = call.caller
                {
                    let Self { readers, calls, random, .. } = self;
                    let call = (origin.request, call);
                    readers[index].located(call, (first, end), calls, reach, random)?;
                }
            }
            Effect::Refused { origin, refusal } => {
                if let Some(call) = self.calls.end(origin) {
                    self.refused(origin.request, call, &refusal, reach)?;
                }
            }
            Effect::Deliver(delivery) => self.delivered(&delivery, reach)?,
            Effect::Gap { session, range, reason, .. } => {
                if let Some(reader) = self.readers.iter_mut().find(|one| one.is(session)) {
                    reader.passed(range, reason, &mut self.calls, at)?;
                }
            }
            Effect::SubscriptionInterrupted { session, .. }
            | Effect::SubscriptionEnded { session, .. } => {
                if let Some(reader) = self.readers.iter_mut().find(|one| one.is(session)) {
                    reader.interrupted();
                }
                if let Some(consumer) = self.consumers.iter_mut().find(|one| one.is(session)) {
                    consumer.interrupted();
                }
            }
            Effect::Subscribed { origin, .. } => {
                if let Some(Caller::Consumer(index)) = self.calls.find(origin).map(|of| of.caller) {
                    self.consumers[index].subscribed(origin.request);
                }
            }
            Effect::Settled(settled) => {
                if let Some(call) = self.calls.end(settled.origin)
                    && let Caller::Consumer(index) = call.caller
                {
                    let call = (settled.origin.request, call);
                    let consumer = &mut self.consumers[index];
                    let runs = consumer.settled(call, &settled, &mut self.calls, at);
                    let partition = consumer.partition().index as usize;
                    let ends =
                        runs.iter().map(|run| (run.first.0, run.first.0 + u64::from(run.count)));
                    self.partitions[partition].settled.extend(ends);
                }
            }
            Effect::Described { origin, description } => {
                if let Some(call) = self.calls.end(origin)
                    && let Caller::Asker(index) = call.caller
                {
                    self.described(index, call, &description, reach);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn delivered(&mut self, delivery: &Delivery, reach: &Reach<'_>) -> Result<(), Violation> {
        let term = delivery.generation.0.into();
        if self.has_sane_clocks && term < self.newest_term {
            let detail = format!("{} had the lease, and then {delivery:?}", self.newest_term);
            return Err(Violation::new(ONE_GIVES, detail));
        }
        self.note_lease(term);
        let Self { calls, readers, consumers, .. } = self;
        let session = delivery.session;
        if let Some(reader) = readers.iter_mut().find(|one| one.is(session)) {
            let (KnownPartition { index, is_early, .. }, reads_back) = reader.reads();
            if is_early {
                self.early.delivered(index, delivery, reads_back)?;
            }
            reader.delivered(delivery, calls, reach.at);
        }
        if let Some(consumer) = consumers.iter_mut().find(|one| one.is(session)) {
            consumer.delivered(delivery, calls, reach.at);
            let partition = consumer.partition().index as usize;
            return self.check_not_settled(partition, delivery);
        }
        Ok(())
    }

    /// The leader of a term has the lease. Returns the newest term whose leader has had it.
    pub fn note_lease(&mut self, term: u64) -> u64 {
        self.newest_term = self.newest_term.max(term);
        self.newest_term
    }

    /// Within sane clocks nobody is given what anybody knows to be settled.
    fn check_not_settled(&self, partition: usize, delivery: &Delivery) -> Result<(), Violation> {
        let end = delivery.first.0 + u64::from(delivery.count);
        let before = self.partitions[partition].settled.range(..end).next_back();
        match before.filter(|(_, settled)| **settled > delivery.first.0) {
            Some((first, settled)) if self.has_sane_clocks => {
                let detail = format!("{first}..{settled} is settled, and then {delivery:?}");
                Err(Violation::new(SETTLED, detail))
            }
            _ => Ok(()),
        }
    }

    /// A partition has said what it has.
    fn described(
        &mut self,
        index: usize,
        call: Call,
        description: &PartitionDescription,
        reach: &Reach<'_>,
    ) {
        let is_over = |group: &sennit_engine::GroupDescription| {
            group.ready + group.leased + group.delayed + group.dying == 0
        };
        self.partitions[index].is_drained = description.groups.iter().all(is_over);
        let are_drained = self.are_drained();
        // Messages that have expired were not given.
        if are_drained && !self.expires {
            let drained = What::Drained { group: GROUP.0 };
            self.calls.ended(ASKER, call.begun_ns, reach.at, drained);
        }
    }

    /// The partitions that have a group, if any has, each with its index.
    fn with_groups(&self) -> impl Iterator<Item = (usize, &Partition)> {
        self.partitions.iter().enumerate().filter(|(_, partition)| !partition.known.is_early)
    }

    fn are_drained(&self) -> bool {
        self.with_groups().all(|(_, partition)| partition.is_drained)
    }

    fn end(&mut self, origin: Origin) -> Option<Caller> {
        self.calls.end(origin).map(|call| call.caller)
    }

    fn refused(
        &mut self,
        request: u64,
        call: Call,
        refusal: &Refusal,
        reach: &mut Reach<'_>,
    ) -> Result<(), Violation> {
        let leader = match refusal {
            Refusal::NotLeader { leader } => Some(*leader as usize - 1),
            _ => None,
        };
        match call.caller {
            Caller::Opener(_) | Caller::Asker(_) => Ok(()),
            Caller::Publisher(index) => {
                let publisher = &mut self.publishers[index];
                publisher.refused(request, call, refusal, &mut self.calls, reach.at)
            }
            Caller::Reader(index) => {
                self.readers[index].refused(request, leader);
                Ok(())
            }
            Caller::Consumer(index) => {
                self.consumers[index].refused(request, leader);
                Ok(())
            }
        }
    }

    /// Has publishers send what they have begun, and nothing new; returns whether all have all answers.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn finish(&mut self, tip: usize, reach: &mut Reach<'_>) -> Result<bool, Violation> {
        // Short runs may end before all are open.
        if !self.open(tip, reach)? {
            return Ok(false);
        }
        let Self { random, calls, publishers, .. } = self;
        publishers
            .iter_mut()
            .try_for_each(|publisher| publisher.act(false, tip, calls, reach, random))?;
        Ok(publishers.iter().all(Publisher::is_idle))
    }

    /// Readers begin that read all back.
    pub fn begin_to_read_back(&mut self) {
        self.readers.clear();
        for (index, Partition { known, .. }) in self.partitions.iter().enumerate() {
            self.readers.push(Reader::new(index, *known, true, self.patience_us));
        }
    }

    /// Has them go on; returns whether they are through.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn read_back(&mut self, leader: usize, reach: &mut Reach<'_>) -> Result<bool, Violation> {
        let Self { random, calls, readers, .. } = self;
        readers.iter_mut().try_for_each(|reader| reader.act(leader, calls, reach, random))?;
        Ok(readers.iter().all(Reader::is_through))
    }

    /// The consumers go, and others begin that take all that is left.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn begin_to_drain(
        &mut self,
        leader: usize,
        reach: &mut Reach<'_>,
    ) -> Result<(), Violation> {
        for session in self.calls.sessions() {
            // Those that hang as well.
            let grace = Duration::ZERO;
            reach.tell(leader, Command::EndSession { session, grace })?;
        }
        let drains = |(index, partition): (usize, &Partition)| {
            Consumer::new(index, partition.known, true, self.patience_us)
        };
        self.consumers = self.with_groups().map(drains).collect();
        self.early.end()
    }

    /// Has them go on; returns whether nothing is left.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn drain(&mut self, leader: usize, reach: &mut Reach<'_>) -> Result<bool, Violation> {
        let Self { random, calls, consumers, .. } = self;
        consumers.iter_mut().try_for_each(|consumer| consumer.act(leader, calls, reach, random))?;
        if self.lease.is_none() || self.are_drained() {
            return Ok(true);
        }
        let asked: Vec<_> = self.with_groups().map(|(index, of)| (index, of.known.id)).collect();
        for (index, id) in asked {
            let origin = self.calls.begin(Caller::Asker(index), self.control, leader, reach);
            reach.tell(leader, Command::Partition(origin, id, PartitionCommand::Describe))?;
        }
        Ok(false)
    }
}
