//! What a start has found that the catalogue may not know: it is brought in line before anybody is let in.

use std::collections::HashSet;

use sennit_model::{PartitionId, TopicId};

/// What was recovered that the catalogue may not know.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Partitions, each with its shard.
    pub(crate) partitions: Vec<(usize, PartitionId)>,
    /// Streams with each of their forks; without one, those that are deleted and have none.
    pub(crate) held_streams: Vec<(PartitionId, Option<TopicId>)>,
    /// Streams that are forks, each with what it was made of.
    pub(crate) forks: HashSet<(TopicId, PartitionId)>,
}
