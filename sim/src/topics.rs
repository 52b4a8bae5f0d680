//! The topics and groups of the catalogue. After a restart the shard receives them again.

use std::{collections::BTreeMap, sync::Arc};

use sennit_engine::{
    Command, Credit, DeadLetters, DelayChange, GroupSetting, Origin, PartitionCommand, SessionId,
    SourceNames,
};
use sennit_model::{
    GroupId, Offset, Order, PartitionId, PartitionIndex, StartAt, ThrottleRule, TopicConfig,
    TopicId, TopicKind,
};

use crate::{fair_settings, oracle::Violation, random::Random, swarm::Swarm, world::World};

/// The greatest number of topics at a time, without dead-letter topics.
const TOPICS_MAX: usize = 4;
/// The greatest number of groups of a topic.
const GROUPS_MAX: usize = 3;

/// A topic's settings.
#[derive(Clone, Debug)]
struct Topic {
    config: TopicConfig,
    groups: Vec<GroupSetting>,
    dead_letters: DeadLetters,
}

/// All topics.
#[derive(Debug, Default)]
pub struct Topics {
    topics: BTreeMap<TopicId, Topic>,
    dropped: Vec<PartitionId>,
    next_topic: u32,
    next_group: u32,
    throttles: Arc<[ThrottleRule]>,
}

impl Topics {
    /// Creates a topic with one or two groups, unless there are too many topics.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn create(
        &mut self,
        world: &mut World,
        random: &mut Random,
        swarm: &Swarm,
    ) -> Result<(), Violation> {
        let own = self.topics.values().filter(|topic| topic.dead_letters != DeadLetters::Stay);
        if own.count() >= TOPICS_MAX {
            return Ok(());
        }
        let id = self.topic_id();
        let mut config = swarm.topic(random);
        config.partitions = random.between(1, 2) as u32;
        let groups = (0..random.between(1, 2)).map(|_| self.group(random, swarm)).collect();
        self.topics.insert(id, Topic { config, groups, dead_letters: DeadLetters::NotYet });
        if random.chance(300) {
            self.make_dead_letter_topic(world, id)?;
        }
        self.open(world, id)
    }

    fn topic_id(&mut self) -> TopicId {
        self.next_topic += 1;
        TopicId(self.next_topic)
    }

    fn group(&mut self, random: &mut Random, swarm: &Swarm) -> GroupSetting {
        self.next_group += 1;
        let start = match random.below(6) {
            0 => StartAt::Latest,
            1 => StartAt::Offset(Offset(random.below(100))),
            _ => StartAt::Earliest,
        };
        GroupSetting { id: GroupId(self.next_group), config: swarm.group(random), start }
    }

    /// Changes a topic's settings, or adds or deletes a group.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn alter(
        &mut self,
        world: &mut World,
        random: &mut Random,
        swarm: &Swarm,
    ) -> Result<(), Violation> {
        if swarm.fair > 0 && random.chance(200) {
            self.throttles = fair_settings::throttles(random);
            world.submit(Command::SetThrottles(self.throttles.clone()));
        }
        let ids: Vec<TopicId> = self.topics.keys().copied().collect();
        let Some(&id) = random.pick(&ids) else { return Ok(()) };
        let new_group = self.group(random, swarm);
        let Some(topic) = self.topics.get_mut(&id) else { return Ok(()) };
        match random.below(4) {
            0 if topic.dead_letters != DeadLetters::Stay => {
                let partitions = topic.config.partitions;
                topic.config = TopicConfig { partitions, ..swarm.topic(random) };
            }
            1 if topic.groups.len() < GROUPS_MAX => topic.groups.push(new_group),
            2 if topic.groups.len() > 1 => {
                topic.groups.remove(random.below(topic.groups.len() as u64) as usize);
            }
            _ => {
                if let Some(group) = topic.groups.first_mut() {
                    group.config = swarm.group(random);
                }
            }
        }
        self.retry_parked_of(world, id);
        self.open(world, id)
    }

    /// Retries the parked messages of all dead-letter topics.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn retry_parked(&self, world: &mut World) -> Result<(), Violation> {
        self.topics.keys().for_each(|&id| self.retry_parked_of(world, id));
        world.turn()
    }

    fn retry_parked_of(&self, world: &mut World, id: TopicId) {
        let letters = self.topics.get(&id).filter(|held| held.dead_letters == DeadLetters::Stay);
        let Some(topic) = letters else { return };
        for partition in partitions(id, &topic.config) {
            for group in &topic.groups {
                send_command(world, partition, PartitionCommand::RetryParked(group.id, None));
            }
        }
    }

    /// Cancels or changes the delay of some messages of a partition, or of one that is not delayed.
    pub fn change_delay(&self, world: &mut World, random: &mut Random, swarm: &Swarm) {
        let ids: Vec<PartitionId> =
            self.topics.iter().flat_map(|(&id, topic)| partitions(id, &topic.config)).collect();
        let Some(&id) = random.pick(&ids) else { return };
        let delayed = world.oracle.delayed(id, world.now);
        let mut offsets: Vec<Offset> = Vec::new();
        for _ in 0..random.between(1, 3) {
            offsets.extend(random.pick(&delayed).copied().map(Offset));
        }
        if random.chance(50) {
            offsets.push(Offset(random.below(100)));
        }
        offsets.sort_unstable();
        offsets.dedup();
        let change = match random.below(4) {
            0 | 1 => DelayChange::Cancel,
            2 => DelayChange::DueAt(world.now),
            _ => DelayChange::DueAfter(swarm.span(random)),
        };
        if !offsets.is_empty() {
            send_command(world, id, PartitionCommand::ChangeDelayed(offsets, change));
        }
    }

    /// Drops a topic's partitions, for good.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn drop_one(&mut self, world: &mut World, random: &mut Random) -> Result<(), Violation> {
        let own = self.topics.iter().filter(|held| held.1.dead_letters != DeadLetters::Stay);
        let ids: Vec<TopicId> = own.map(|(&id, _)| id).collect();
        let Some(&id) = random.pick(&ids) else { return Ok(()) };
        let Some(topic) = self.topics.remove(&id) else { return Ok(()) };
        for partition in partitions(id, &topic.config) {
            self.dropped.push(partition);
            world.publishers.dropped(partition);
            send_command(world, partition, PartitionCommand::Drop);
        }
        world.turn()
    }

    /// Creates the dead-letter topics that the shard needs.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn letters(&mut self, world: &mut World) -> Result<(), Violation> {
        for source in std::mem::take(&mut world.dead_letter_topics_needed) {
            let topic = self.topics.get(&source);
            match topic.map(|topic| topic.dead_letters) {
                Some(DeadLetters::NotYet) => {
                    self.make_dead_letter_topic(world, source)?;
                    self.name(world, source)?;
                    self.open(world, source)?;
                }
                Some(DeadLetters::To(_)) => self.name(world, source)?,
                Some(DeadLetters::Stay) | None => {}
            }
        }
        Ok(())
    }

    /// Creates the dead-letter topics of all topics.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn make_all_dead_letter_topics(&mut self, world: &mut World) -> Result<(), Violation> {
        world.dead_letter_topics_needed = self.topics.keys().copied().collect();
        self.letters(world)
    }

    fn make_dead_letter_topic(
        &mut self,
        world: &mut World,
        source: TopicId,
    ) -> Result<(), Violation> {
        let id = self.topic_id();
        self.next_group += 1;
        let group = GroupSetting {
            id: GroupId(self.next_group),
            config: Default::default(),
            start: StartAt::Earliest,
        };
        let Some(topic) = self.topics.get_mut(&source) else { return Ok(()) };
        topic.dead_letters = DeadLetters::To(id);
        let kind = TopicConfig::of_kind(TopicKind::Stream);
        let config = TopicConfig { partitions: topic.config.partitions, ..kind };
        let groups = vec![group];
        self.topics.insert(id, Topic { config, groups, dead_letters: DeadLetters::Stay });
        self.open(world, id)
    }

    /// Sends the names of a topic and its groups to the shard.
    fn name(&self, world: &mut World, id: TopicId) -> Result<(), Violation> {
        let Some(topic) = self.topics.get(&id) else { return Ok(()) };
        let names = Arc::new(names(id, &topic.groups));
        for partition in partitions(id, &topic.config) {
            send_command(world, partition, PartitionCommand::Name(names.clone()));
        }
        world.turn()
    }

    /// Opens a topic in the shard with its current settings.
    fn open(&mut self, world: &mut World, id: TopicId) -> Result<(), Violation> {
        let Some(topic) = self.topics.get(&id) else { return Ok(()) };
        for partition in partitions(id, &topic.config) {
            // The start of a new group depends on the current end.
            world.turn()?;
            world.describe(partition)?;
            let (config, groups) = (topic.config.clone(), topic.groups.clone());
            let dead_letters = topic.dead_letters;
            send_command(world, partition, PartitionCommand::Open { config, groups, dead_letters });
            world.turn()?;
        }
        Ok(())
    }

    /// Opens all topics after a restart, and drops deleted ones that exist again.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn open_all(&mut self, world: &mut World) -> Result<(), Violation> {
        if !self.throttles.is_empty() {
            world.submit(Command::SetThrottles(self.throttles.clone()));
        }
        let ids: Vec<TopicId> = self.topics.keys().copied().collect();
        // Dead-letter topics first: they have the higher numbers.
        ids.into_iter().rev().try_for_each(|id| self.open(world, id))?;
        let there = world.oracle.partitions();
        for &partition in self.dropped.iter().filter(|id| there.contains(id)) {
            send_command(world, partition, PartitionCommand::Drop);
        }
        world.turn()
    }

    /// Lifts all pauses, and has all throttles let enough pass. What it changes reaches the shard when the topics are
    /// opened the next time.
    pub fn lift(&mut self, world: &mut World) {
        for topic in self.topics.values_mut() {
            topic.config.is_paused = false;
            let configs = topic.groups.iter_mut().map(|group| &mut group.config);
            configs.for_each(fair_settings::lift_group);
        }
        if !self.throttles.is_empty() {
            let faster = |rule: &ThrottleRule| ThrottleRule {
                rate: fair_settings::faster(rule.rate),
                ..rule.clone()
            };
            self.throttles = self.throttles.iter().map(faster).collect();
            world.submit(Command::SetThrottles(self.throttles.clone()));
        }
    }

    /// Adds a topic with one partition and one group, with these settings.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn add(
        &mut self,
        world: &mut World,
        config: TopicConfig,
    ) -> Result<(PartitionId, GroupId), Violation> {
        let id = self.topic_id();
        self.next_group += 1;
        let (group, start) = (GroupId(self.next_group), StartAt::Earliest);
        let groups = vec![GroupSetting { id: group, config: Default::default(), start }];
        self.topics.insert(id, Topic { config, groups, dead_letters: DeadLetters::NotYet });
        self.open(world, id)?;
        Ok((PartitionId { topic: id, index: PartitionIndex(0) }, group))
    }

    /// Adds a group to every topic that reads it from the oldest kept message on.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn audit(&mut self, world: &mut World) -> Result<(), Violation> {
        let ids: Vec<TopicId> = self.topics.keys().copied().collect();
        for &id in &ids {
            self.next_group += 1;
            let (group, start) = (GroupId(self.next_group), StartAt::Earliest);
            if let Some(topic) = self.topics.get_mut(&id) {
                topic.groups.push(GroupSetting { id: group, config: Default::default(), start });
            }
            self.open(world, id)?;
        }
        Ok(())
    }

    /// Subscribes to every group of every partition with ample credit; to one with an order twice and with little, so
    /// that keys are handed over.
    pub fn subscribe_all(&self, world: &mut World, random: &mut Random) {
        for (&id, topic) in &self.topics {
            for partition in partitions(id, &topic.config) {
                let consumers = topic.groups.iter().flat_map(|group| {
                    let is_ordered = group.config.order != Order::None;
                    std::iter::repeat_n((group, is_ordered), 1 + usize::from(is_ordered))
                });
                for (group, is_ordered) in consumers {
                    let messages = if is_ordered { 8 } else { 200 };
                    let credit = Credit { messages, bytes: 64 << 10 };
                    let request = world.request();
                    let command =
                        world.consumers.subscribe(random, partition, group.id, credit, request);
                    world.submit(command);
                }
            }
        }
    }

    /// A random partition for a publish; at times a dropped one.
    pub fn to_publish(&self, random: &mut Random) -> Option<PartitionId> {
        if random.chance(5) {
            return random.pick(&self.dropped).copied();
        }
        let own = self.topics.iter().filter(|held| held.1.dead_letters != DeadLetters::Stay);
        let all: Vec<_> = own.flat_map(|(&id, topic)| partitions(id, &topic.config)).collect();
        random.pick(&all).copied()
    }

    /// A random group of a partition for a subscription.
    pub fn to_subscribe(&self, random: &mut Random) -> Option<(PartitionId, GroupId)> {
        let all: Vec<_> = self
            .topics
            .iter()
            .flat_map(|(&id, topic)| {
                let groups =
                    move |partition| topic.groups.iter().map(move |group| (partition, group.id));
                partitions(id, &topic.config).flat_map(groups)
            })
            .collect();
        random.pick(&all).copied()
    }
}

fn partitions(topic: TopicId, config: &TopicConfig) -> impl Iterator<Item = PartitionId> + use<> {
    (0..config.partitions).map(move |index| PartitionId { topic, index: PartitionIndex(index) })
}

fn send_command(world: &mut World, partition: PartitionId, command: PartitionCommand) {
    let origin = Origin { session: SessionId(1), request: world.request() };
    world.submit(Command::Partition(origin, partition, command));
}

/// The names of a topic and its groups, by number.
///
/// # Panics
/// Never, because these are valid names.
#[must_use]
pub fn names(topic: TopicId, groups: &[GroupSetting]) -> SourceNames {
    let group = |group: &GroupSetting| {
        (group.id, format!("group-{}", group.id.0).parse().expect("it is a name"))
    };
    SourceNames {
        topic: format!("topic-{}", topic.0).parse().expect("it is a name"),
        groups: groups.iter().map(group).collect(),
    }
}
