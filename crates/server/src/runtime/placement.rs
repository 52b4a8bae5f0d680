//! The placement table: the shard of a partition, the core of a shard, and the core that takes another connection.
//! It is made at the start and never changes, so cores share it without a lock.

use std::sync::Arc;

use sennit_model::{PartitionIndex, TopicId};

use super::{
    index::{CoreIndex, IndexVec, ShardIndex},
    metrics::CoreMetrics,
};

/// Where a shard is run.
#[derive(Clone, Copy, Debug)]
struct Location {
    core: CoreIndex,
    /// Its number among the shards of that core.
    number: u32,
}

/// Which core runs each shard of the data directory. A core may run several, or none.
#[derive(Clone, Debug)]
pub(crate) struct Placement {
    locations: IndexVec<ShardIndex, Location>,
    cores: usize,
}

impl Placement {
    /// Shards go round the cores, beginning with the first: it has the catalogue.
    pub(crate) fn round_robin(shards: u32, cores: u32) -> Self {
        let cores = cores.max(1);
        let location = |shard: ShardIndex| Location {
            core: CoreIndex(shard.0 % cores),
            number: shard.0 / cores,
        };
        Self { locations: IndexVec::of(shards as usize, location), cores: cores as usize }
    }

    /// How many shards there are.
    pub(crate) fn shards(&self) -> usize {
        self.locations.len()
    }

    /// How many cores there are.
    /// All shards.
    pub(crate) fn all_shards(&self) -> impl Iterator<Item = ShardIndex> + use<> {
        (0..self.shards() as u32).map(ShardIndex)
    }

    /// How many cores there are.
    pub(crate) fn cores(&self) -> usize {
        self.cores
    }

    /// The core that comes after another when something goes round them.
    pub(crate) fn core_after(&self, core: CoreIndex) -> CoreIndex {
        CoreIndex((core.0 + 1) % self.cores as u32)
    }

    /// The shard of a partition: partitions of a topic go round the shards, beginning at one that follows
    /// from the topic beside which it is placed. A dead-letter topic is placed beside its source, so that
    /// moving a dead letter stays within a shard.
    pub(crate) fn shard_of(&self, home: TopicId, index: PartitionIndex) -> ShardIndex {
        // A directory has at most 1024 shards.
        ShardIndex(((home.0 as usize + index.0 as usize) % self.shards()) as u32)
    }

    /// The shard of all streams of a stream group, for the life of a data directory: XXH3-64 of its name,
    /// modulo the number of shards.
    pub(crate) fn shard_of_group(&self, group: &str) -> ShardIndex {
        ShardIndex((xxhash_rust::xxh3::xxh3_64(group.as_bytes()) % self.shards() as u64) as u32)
    }

    /// The core that runs a shard.
    pub(crate) fn core_of(&self, shard: ShardIndex) -> CoreIndex {
        self.locations[shard].core
    }

    /// The number of a shard among those of its core, counted from 0.
    pub(crate) fn number_on_core(&self, shard: ShardIndex) -> usize {
        self.locations[shard].number as usize
    }

    /// The shards that a core runs, in the order of their numbers on it.
    pub(crate) fn shards_of(&self, core: CoreIndex) -> impl Iterator<Item = ShardIndex> {
        let locations = self.locations.iter_indexed();
        locations.filter_map(move |(shard, location)| (location.core == core).then_some(shard))
    }
}

/// Connections that a core takes whatever its share of all is.
const CONNECTIONS_ANYHOW: u64 = 8;

/// So many connections at the core of their partition bring it more readers, whatever its share is.
const READERS_ANYHOW: u64 = 4;

/// What each core counts.
type Counts = IndexVec<CoreIndex, Arc<CoreMetrics>>;

/// Whether there is room for one more connection at `core`, so that it may work where its partition
/// is: a core takes twice its share of all, and a few anyhow.
pub(crate) fn has_place_at(cores: &Counts, core: CoreIndex) -> bool {
    let share = connections(cores).div_ceil(cores.len() as u64);
    cores[core].connections.value() < (2 * share).max(CONNECTIONS_ANYHOW)
}

/// As [`has_place_at`], for a connection of the HTTP port.
pub(crate) fn has_http_place_at(cores: &Counts, core: CoreIndex) -> bool {
    let all: u64 = cores.iter().map(|core| core.http_connections.value()).sum();
    let share = all.div_ceil(cores.len() as u64);
    cores[core].http_connections.value() < (2 * share).max(CONNECTIONS_ANYHOW)
}

/// As [`has_place_at`], for a connection that reads. Writing to the sockets of readers is most of the
/// work that they make: they stay spread over the cores, but for the first few.
pub(crate) fn has_reading_place_at(cores: &Counts, core: CoreIndex) -> bool {
    let share = connections(cores) / cores.len() as u64;
    cores[core].connections.value() < share.max(READERS_ANYHOW)
}

fn connections(cores: &Counts) -> u64 {
    cores.iter().map(|core| core.connections.value()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shards_of(placement: &Placement, core: u32) -> Vec<u32> {
        placement.shards_of(CoreIndex(core)).map(|shard| shard.0).collect()
    }

    #[test]
    fn shards_go_round_the_cores_and_a_core_may_have_several_or_none() {
        let three_on_two = Placement::round_robin(3, 2);
        assert_eq!(shards_of(&three_on_two, 0), [0, 2]);
        assert_eq!(shards_of(&three_on_two, 1), [1]);
        let two_on_three = Placement::round_robin(2, 3);
        let held = [0, 1, 2].map(|core| shards_of(&two_on_three, core));
        assert_eq!(held, [vec![0], vec![1], vec![]]);
        assert_eq!((two_on_three.shards(), two_on_three.cores()), (2, 3));
    }

    #[test]
    fn a_shard_is_found_under_its_number_on_its_core_and_the_catalogue_is_on_the_first() {
        for (shards, cores) in [(1, 1), (1, 4), (7, 3), (1024, 5), (3, 1)] {
            let placement = Placement::round_robin(shards, cores);
            for core in (0..cores).map(CoreIndex) {
                for (number, shard) in placement.shards_of(core).enumerate() {
                    assert_eq!(placement.core_of(shard), core);
                    assert_eq!(placement.number_on_core(shard), number);
                }
            }
            assert_eq!(placement.core_of(ShardIndex::CATALOGUE), CoreIndex::FIRST);
        }
    }

    #[test]
    fn the_shard_of_a_partition_does_not_depend_on_the_cores() {
        for cores in 1..5 {
            let placement = Placement::round_robin(3, cores);
            let shard = |home, index| placement.shard_of(TopicId(home), PartitionIndex(index)).0;
            assert_eq!([shard(0, 0), shard(0, 4), shard(5, 0), shard(5, 1)], [0, 1, 2, 0]);
            assert_eq!(placement.shard_of_group("orders").0, {
                (xxhash_rust::xxh3::xxh3_64(b"orders") % 3) as u32
            });
        }
    }
}
