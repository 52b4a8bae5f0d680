//! Numbers that identify things inside one broker.

use std::fmt;

/// A topic's number. Given out in order by the catalogue and never used again after deletion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(pub u32);

/// A group's number. Given out in order by the catalogue and never used again after deletion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

impl GroupId {
    /// No group: the catalogue never comes to this number. Readers have it where consumers have
    /// their group's.
    pub const NONE: Self = Self(u32::MAX);
}

/// A partition's number within its topic, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionIndex(pub u32);

impl PartitionIndex {
    /// The partition that messages of `key` go to: the same key, the same partition, for as long as
    /// the topic keeps its number of `partitions`. XXH3-64 of the key, modulo that number.
    #[must_use]
    pub fn of_key(key: &[u8], partitions: u32) -> Self {
        let hash = xxhash_rust::xxh3::xxh3_64(key) % u64::from(partitions.max(1));
        // The remainder of a division by a u32 fits one.
        Self(hash as u32)
    }
}

/// One partition of one topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId {
    /// The topic.
    pub topic: TopicId,
    /// Which of its partitions.
    pub index: PartitionIndex,
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.topic.0, self.index.0)
    }
}

/// A random number drawn once when a topic is created, kept for its life: two topics of the same
/// name at different times are different topics, and this says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// How many times a shard has started. Part of a delivery's identity: attempt counts that were
/// never written down start again after a crash, and the generation keeps the old ones apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u32);

/// Who publishes; drawn at random by the publisher. 0 means nobody: such a publish is not
/// idempotent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProducerId(pub u64);

/// What makes a publish idempotent: who, with which fence, and the number of its first message in
/// this partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProducerStamp {
    /// Who publishes.
    pub id: ProducerId,
    /// The fence: a higher epoch shuts out the lower ones.
    pub epoch: u32,
    /// The sequence of the first message of the batch; the others follow without gaps. From 0 in
    /// each partition and epoch.
    pub first_sequence: u64,
}
