//! Which shard a partition lives on, the one table of this kind; and which core takes another
//! connection.

use std::sync::Arc;

use sennit_model::{PartitionIndex, TopicId};

use super::metrics::CoreMetrics;

/// The shard of a partition, of `shards`: partitions of a topic go round the shards, beginning at
/// one that follows from the topic beside which it is placed. A dead-letter topic is placed beside
/// its source, so that moving a dead letter stays within a shard.
pub(crate) fn shard_of(home: TopicId, index: PartitionIndex, shards: usize) -> usize {
    (home.0 as usize + index.0 as usize) % shards
}

/// The shard of all streams of a stream group, for the life of a data directory: XXH3-64 of its name,
/// modulo the number of shards.
pub(crate) fn shard_of_group(group: &str, shards: usize) -> usize {
    // The remainder of a division by a usize fits one.
    (xxhash_rust::xxh3::xxh3_64(group.as_bytes()) % shards as u64) as usize
}

/// Connections that a core takes whatever its share of all is.
const CONNECTIONS_ANYHOW: u64 = 8;

/// So many connections at the core of their partition bring it more readers, whatever its share is.
const READERS_ANYHOW: u64 = 4;

/// Whether there is room for one more connection at `core`, so that it may work where its partition
/// is: a core takes twice its share of all, and a few anyhow.
pub(crate) fn has_place_at(cores: &[Arc<CoreMetrics>], core: usize) -> bool {
    let share = connections(cores).div_ceil(cores.len() as u64);
    cores[core].connections.value() < (2 * share).max(CONNECTIONS_ANYHOW)
}

/// As [`has_place_at`], for a connection of the HTTP port.
pub(crate) fn has_http_place_at(cores: &[Arc<CoreMetrics>], core: usize) -> bool {
    let all: u64 = cores.iter().map(|core| core.http_connections.value()).sum();
    let share = all.div_ceil(cores.len() as u64);
    cores[core].http_connections.value() < (2 * share).max(CONNECTIONS_ANYHOW)
}

/// As [`has_place_at`], for a connection that reads. Writing to the sockets of readers is most of the
/// work that they make: they stay spread over the cores, but for the first few.
pub(crate) fn has_reading_place_at(cores: &[Arc<CoreMetrics>], core: usize) -> bool {
    let share = connections(cores) / cores.len() as u64;
    cores[core].connections.value() < share.max(READERS_ANYHOW)
}

fn connections(cores: &[Arc<CoreMetrics>]) -> u64 {
    cores.iter().map(|core| core.connections.value()).sum()
}
