//! Shards need something of the catalogue that no session requested; the first core receives all such needs.

use std::fmt;

use sennit_engine::Findings;
use sennit_model::TopicId;

use crate::runtime::index::ShardIndex;

/// Takes what shards need; it is called while the core is at work, and does it later.
pub(crate) trait CatalogueNeeds: fmt::Debug {
    /// The dead letters of this topic have nowhere to go. Each of its partitions may say so.
    fn dead_letter_topic(&self, source: TopicId);

    /// The time of this topic's stream is over.
    fn end_of_stream(&self, topic: TopicId);

    /// The groups of a shard that hold messages which others are through with: their names are wanted.
    fn names_of_groups(&self, shard: ShardIndex, findings: Findings);
}
