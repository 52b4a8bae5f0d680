//! The topics and groups that should exist, as the catalogue would say. The shard is told again after a restart.

use std::collections::BTreeMap;

use sennit_engine::{
    Command, Credit, DeadLetters, GroupSetting, Origin, PartitionCommand, SessionId, SourceNames,
};
use sennit_model::{
    GroupId, Offset, PartitionId, PartitionIndex, StartAt, TopicConfig, TopicId, TopicKind,
};

use crate::{oracle::Violation, random::Random, swarm::Swarm, world::World};

/// Most topics at a time, those of dead letters apart.
const TOPICS_MAX: usize = 4;
/// Most groups of a topic.
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
}

impl Topics {
    /// Makes a topic with one to three groups, if there are not too many.
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
            self.make_letters(world, id)?;
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

    /// Gives a topic other settings, another group or one less.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn alter(
        &mut self,
        world: &mut World,
        random: &mut Random,
        swarm: &Swarm,
    ) -> Result<(), Violation> {
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

    /// Asks for the parked messages of all dead-letter topics.
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
                say(world, partition, PartitionCommand::RetryParked(group.id, None));
            }
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
            say(world, partition, PartitionCommand::Drop);
        }
        world.turn()
    }

    /// Makes the dead-letter topics that are wanted.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn letters(&mut self, world: &mut World) -> Result<(), Violation> {
        for source in std::mem::take(&mut world.letters_wanted) {
            let topic = self.topics.get(&source);
            match topic.map(|topic| topic.dead_letters) {
                Some(DeadLetters::NotYet) => {
                    self.make_letters(world, source)?;
                    self.name(world, source)?;
                    self.open(world, source)?;
                }
                Some(DeadLetters::To(_)) => self.name(world, source)?,
                Some(DeadLetters::Stay) | None => {}
            }
        }
        Ok(())
    }

    /// Makes all dead-letter topics that there may be.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn letters_for_all(&mut self, world: &mut World) -> Result<(), Violation> {
        world.letters_wanted = self.topics.keys().copied().collect();
        self.letters(world)
    }

    fn make_letters(&mut self, world: &mut World, source: TopicId) -> Result<(), Violation> {
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

    /// Tells the shard what a topic and its groups are called.
    fn name(&self, world: &mut World, id: TopicId) -> Result<(), Violation> {
        let Some(topic) = self.topics.get(&id) else { return Ok(()) };
        let names = std::sync::Arc::new(names(id, &topic.groups));
        for partition in partitions(id, &topic.config) {
            say(world, partition, PartitionCommand::Name(names.clone()));
        }
        world.turn()
    }

    /// Tells the shard of a topic as it should be.
    fn open(&mut self, world: &mut World, id: TopicId) -> Result<(), Violation> {
        let Some(topic) = self.topics.get(&id) else { return Ok(()) };
        for partition in partitions(id, &topic.config) {
            // Where a new group begins depends on what there is now.
            world.turn()?;
            world.describe(partition)?;
            let (config, groups) = (topic.config, topic.groups.clone());
            let dead_letters = topic.dead_letters;
            say(world, partition, PartitionCommand::Open { config, groups, dead_letters });
            world.turn()?;
        }
        Ok(())
    }

    /// Tells the shard of all topics, and again of those that were dropped. After a restart.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn open_all(&mut self, world: &mut World) -> Result<(), Violation> {
        let ids: Vec<TopicId> = self.topics.keys().copied().collect();
        // Dead letters first: theirs are the higher numbers.
        ids.into_iter().rev().try_for_each(|id| self.open(world, id))?;
        let there = world.oracle.partitions();
        for &partition in self.dropped.iter().filter(|id| there.contains(id)) {
            say(world, partition, PartitionCommand::Drop);
        }
        world.turn()
    }

    /// Gives every topic a group that begins with the oldest message kept, to read all of it.
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

    /// Subscribes to every group of every partition with ample credit.
    pub fn subscribe_all(&self, world: &mut World, random: &mut Random) {
        for (&id, topic) in &self.topics {
            for partition in partitions(id, &topic.config) {
                for group in &topic.groups {
                    let credit = Credit { messages: 200, bytes: 64 << 10 };
                    let request = world.request();
                    let place = (partition, group.id);
                    let command = world.consumers.subscribe(random, place, credit, request);
                    world.say(command);
                }
            }
        }
    }

    /// A partition that publishers may publish to; at times one that is gone.
    pub fn to_publish(&self, random: &mut Random) -> Option<PartitionId> {
        if random.chance(5) {
            return random.pick(&self.dropped).copied();
        }
        let own = self.topics.iter().filter(|held| held.1.dead_letters != DeadLetters::Stay);
        let all: Vec<_> = own.flat_map(|(&id, topic)| partitions(id, &topic.config)).collect();
        random.pick(&all).copied()
    }

    /// A group of a partition to subscribe to.
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

fn say(world: &mut World, partition: PartitionId, command: PartitionCommand) {
    let origin = Origin { session: SessionId(1), request: world.request() };
    world.say(Command::Partition(origin, partition, command));
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
