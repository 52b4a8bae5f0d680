//! State that recovery found and the catalogue may not know; it is brought in line before clients are accepted.

use std::collections::HashSet;

use sennit_engine::{Catalogue, Engine, SettingsHash};
use sennit_model::{PartitionId, TopicId};

use crate::runtime::{core::CoreHandle, index::ShardIndex, placement::Placement};

/// What was recovered that the catalogue may not know.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) partitions: Vec<FoundPartition>,
    /// Streams with each of their forks; without one, those that are deleted and have none.
    pub(crate) held_streams: Vec<(PartitionId, Option<TopicId>)>,
    /// Streams that are forks, each with what it was made of.
    pub(crate) forks: HashSet<(TopicId, PartitionId)>,
}

impl Found {
    /// The entries that a shard has.
    pub(crate) fn of(shard: ShardIndex, engine: &Engine) -> Self {
        let partitions = engine.settings_hashes();
        let partitions = partitions.map(|(id, settings)| FoundPartition { id, shard, settings });
        Self {
            partitions: partitions.collect(),
            held_streams: engine.held_streams().collect(),
            forks: engine.forks_of_streams().collect(),
        }
    }

    /// Adds what others have found.
    pub(crate) fn append(&mut self, mut others: Self) {
        self.partitions.append(&mut others.partitions);
        self.held_streams.append(&mut others.held_streams);
        self.forks.extend(others.forks);
    }
}

/// The entries that the shards of a core have by now: a service of the core.
#[derive(Debug)]
pub(crate) struct PartitionsHere(pub(crate) CoreHandle);

impl PartitionsHere {
    /// All of it.
    pub(crate) fn found(&self) -> Found {
        let mut found = Found::default();
        self.0.look(|core| {
            core.engines().for_each(|(shard, engine)| found.append(Found::of(shard, engine)));
        });
        found
    }
}

/// A partition that a shard was recovered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FoundPartition {
    pub(crate) id: PartitionId,
    pub(crate) shard: ShardIndex,
    pub(crate) settings: SettingsHash,
}

/// What is to be done so that the shards are as the catalogue says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Lag {
    /// Topics of which a partition is not there, or not as its topic is now.
    pub(crate) topics: Vec<TopicId>,
    /// Partitions of no topic.
    pub(crate) strays: Vec<FoundPartition>,
}

impl Lag {
    /// Compares what was found, in the order of the numbers, with the catalogue: one walk over both.
    pub(crate) fn of(
        found: &[FoundPartition],
        catalogue: &Catalogue,
        placement: &Placement,
    ) -> Self {
        let mut lag = Self::default();
        let mut found = found.iter().peekable();
        for topic in catalogue.topics() {
            let (id, partitions) = (topic.id(), topic.config().partitions);
            let settings = topic.settings_hash();
            let mut in_line = 0;
            while let Some(held) = found.next_if(|held| held.id.topic <= id) {
                let PartitionId { topic: of, index } = held.id;
                if of < id || index.0 >= partitions {
                    lag.strays.push(*held);
                    continue;
                }
                let is_home = held.shard == placement.shard_of(topic.created.home, index);
                in_line += u32::from(is_home && held.settings == settings);
            }
            if in_line < partitions {
                lag.topics.push(id);
            }
        }
        lag.strays.extend(found);
        lag
    }
}

#[cfg(test)]
mod tests {
    use sennit_engine::{
        CatalogueCommand, Command, Journal, Origin, Outbox, PartitionCommand, Record, SessionId,
    };
    use sennit_model::{
        Batch, Generation, Incarnation, PartitionIndex, Retention, Timestamp, TopicConfig,
        TopicKind,
    };

    use super::*;
    use crate::runtime::index::IndexVec;

    struct Nowhere;

    impl Journal for Nowhere {
        fn append(&mut self, _: &Record) -> u64 {
            0
        }

        fn keep(&mut self, _: &Batch) -> u64 {
            0
        }
    }

    const NOBODY: Origin = Origin { session: SessionId(0), request: 0 };
    const SHARDS: usize = 2;

    fn placement() -> Placement {
        Placement::round_robin(SHARDS as u32, 1)
    }

    const CONFIG: TopicConfig = TopicConfig {
        partitions: 2,
        retention: Retention::FOREVER,
        time_to_live: None,
        durability: sennit_model::Durability::Durable,
        fields: None,
        is_paused: false,
        limit: sennit_model::TopicLimit {
            messages: None,
            bytes: None,
            when_full: sennit_model::WhenFull::Refuse,
        },
        dedup: None,
        live: sennit_model::LiveSettings {
            presence: false,
            when_behind: sennit_model::WhenBehind::Recover,
        },
    };

    fn tell(engine: &mut Engine, command: Command) {
        engine.handle(command, Timestamp(1), &mut Nowhere, &mut Outbox::default());
    }

    fn catalogue(topics: u64) -> Engine {
        let mut engine = Engine::new(Generation(1), Timestamp(1));
        for number in 0..topics {
            let name = format!("topic-{number}").parse().expect("a name");
            let incarnation = Incarnation(number);
            let placed = None;
            let create = CatalogueCommand::CreateTopic {
                name,
                config: CONFIG,
                incarnation,
                placed,
                is_stream: false,
            };
            tell(&mut engine, Command::Catalogue(NOBODY, create));
        }
        engine
    }

    /// What the shards say that were told all that the catalogue says now.
    fn in_line(catalogue: &Catalogue) -> Vec<FoundPartition> {
        let mut shards = IndexVec::of(SHARDS, |_| Engine::new(Generation(1), Timestamp(1)));
        for topic in catalogue.topics() {
            for index in (0..topic.config().partitions).map(PartitionIndex) {
                let id = PartitionId { topic: topic.id(), index };
                let config = topic.config().clone();
                let (groups, dead_letters) = (topic.group_settings(), topic.dead_letters());
                let open = PartitionCommand::Open { config, groups, dead_letters };
                let shard = placement().shard_of(topic.created.home, index);
                tell(&mut shards[shard], Command::Partition(NOBODY, id, open));
            }
        }
        let found = shards.iter_indexed().flat_map(|(shard, engine)| {
            let hashes = engine.settings_hashes();
            hashes.map(move |(id, settings)| FoundPartition { id, shard, settings })
        });
        let mut found: Vec<_> = found.collect();
        found.sort_by_key(|found| found.id);
        found
    }

    #[test]
    fn shards_that_are_as_the_catalogue_says_are_told_nothing() {
        let engine = catalogue(5);
        let found = in_line(engine.catalogue());
        assert_eq!(found.len(), 10);
        assert_eq!(Lag::of(&found, engine.catalogue(), &placement()), Lag::default());
    }

    #[test]
    fn what_is_missing_changed_or_elsewhere_lags_and_what_no_topic_has_is_a_stray() {
        let mut engine = catalogue(5);
        let topics: Vec<TopicId> = engine.catalogue().topics().map(|topic| topic.id()).collect();
        let found = in_line(engine.catalogue());
        let lag = |found: &[FoundPartition], engine: &Engine| {
            Lag::of(found, engine.catalogue(), &placement())
        };
        let mut missing = found.clone();
        let gone = missing.remove(3);
        let only = |topic| Lag { topics: vec![topic], strays: Vec::new() };
        assert_eq!(lag(&missing, &engine), only(gone.id.topic));
        let mut elsewhere = found.clone();
        elsewhere[4].shard = ShardIndex(1 - elsewhere[4].shard.0);
        assert_eq!(lag(&elsewhere, &engine), only(topics[2]));

        let beyond = PartitionId { topic: topics[1], index: PartitionIndex(2) };
        let unknown = PartitionId { topic: TopicId(99), index: PartitionIndex(0) };
        let strays = [beyond, unknown].map(|id| FoundPartition { id, ..found[0] });
        let mut more = [&found[..], &strays].concat();
        more.sort_by_key(|found| found.id);
        let expected = Lag { topics: Vec::new(), strays: strays.to_vec() };
        assert_eq!(lag(&more, &engine), expected);

        let retention = TopicConfig::of_kind(TopicKind::Queue).retention;
        let config = TopicConfig { retention, ..CONFIG };
        let alter = CatalogueCommand::AlterTopic { topic: topics[4], config };
        tell(&mut engine, Command::Catalogue(NOBODY, alter));
        assert_eq!(lag(&found, &engine), only(topics[4]));
        let delete = CatalogueCommand::DeleteTopic { topic: topics[0] };
        tell(&mut engine, Command::Catalogue(NOBODY, delete));
        let expected = Lag { topics: vec![topics[4]], strays: found[..2].to_vec() };
        assert_eq!(lag(&found, &engine), expected);
    }
}
