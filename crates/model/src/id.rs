//! The numbers that identify topics, groups, partitions and producers of one broker.

use std::fmt;

/// A topic's number. The catalogue gives numbers out in order, and reuses none after deletion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(pub u32);

/// A group's number. The catalogue gives numbers out in order, and reuses none after deletion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

impl GroupId {
    /// No group. The catalogue never reaches this number. Readers use it in place of a group.
    pub const NONE: Self = Self(u32::MAX);
}

/// A partition's number within its topic, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionIndex(pub u32);

impl PartitionIndex {
    /// The partition of a key: XXH3-64 of the key, modulo the number of `partitions`. A key keeps
    /// its partition as long as the topic keeps that number.
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
    /// The index of the partition.
    pub index: PartitionIndex,
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.topic.0, self.index.0)
    }
}

/// A random number that a topic gets at creation and keeps. It distinguishes successive topics of
/// the same name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// The number of starts of a shard. It is part of a delivery's identity: attempts live in memory
/// and count from 1 again after a start, and the generation distinguishes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u32);

/// The number of a producer, which the publisher draws at random. 0 is no producer: such a publish
/// is not idempotent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProducerId(pub u64);

/// Makes a publish idempotent: the producer, its epoch, and the sequence of its first message in
/// this partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProducerStamp {
    /// The producer.
    pub id: ProducerId,
    /// The fence: a higher epoch shuts out lower ones.
    pub epoch: u32,
    /// The sequence of the first message of the batch; the others follow without gaps. From 0 in
    /// each partition and epoch.
    pub first_sequence: u64,
}
