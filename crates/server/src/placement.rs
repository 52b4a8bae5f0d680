//! Which shard a partition lives on. The one table of this kind.

use sennit_model::{PartitionIndex, TopicId};

/// The shard of a partition, of `shards`: partitions of a topic go round the shards, beginning at
/// one that follows from the topic beside which it is placed. A dead-letter topic is placed beside
/// its source, so that moving a dead letter stays within a shard.
pub(crate) fn shard_of(home: TopicId, index: PartitionIndex, shards: usize) -> usize {
    (home.0 as usize + index.0 as usize) % shards
}
