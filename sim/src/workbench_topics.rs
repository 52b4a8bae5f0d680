//! The topics of the workbench, and the messages that its consumers hold.

use std::time::Duration;

use sennit_engine::{Command, DeliveryRun, SessionId};
use sennit_model::{GroupId, PartitionId, PartitionIndex, TopicId};

/// How long consumers may hold a message.
pub const LEASE: Duration = Duration::from_secs(30);
/// The first of the topics. Others have far lower numbers.
const FIRST_TOPIC: u32 = 1 << 24;
/// The topic from which messages fail.
pub const JOBS: PartitionId = partition(0);
/// Its dead letters.
pub const LETTERS: PartitionId = partition(1);
/// A topic to which messages are moved.
pub const ELSEWHERE: PartitionId = partition(2);
/// Another one.
pub const FARTHER: PartitionId = partition(3);
/// All of them.
pub const PARTITIONS: [PartitionId; 4] = [JOBS, LETTERS, ELSEWHERE, FARTHER];
/// The first session. Others have far lower numbers.
pub const FIRST_SESSION: u64 = 1 << 48;
/// The session of all that is not a consumer.
pub const DESK: SessionId = SessionId(FIRST_SESSION);

const fn partition(number: u32) -> PartitionId {
    PartitionId { topic: TopicId(FIRST_TOPIC + number), index: PartitionIndex(0) }
}

/// Whether a partition is one of the workbench.
#[must_use]
pub fn is_partition(id: PartitionId) -> bool {
    id.topic.0 >= FIRST_TOPIC
}

/// The partition with the dead letters of another.
#[must_use]
pub fn dead_letters_of(id: PartitionId) -> Option<PartitionId> {
    (id == JOBS).then_some(LETTERS)
}

/// The partition whose dead letters another holds.
#[must_use]
pub fn source_of(id: PartitionId) -> Option<PartitionId> {
    (id == LETTERS).then_some(JOBS)
}

/// Whether a command comes from a user of the workbench.
#[must_use]
pub fn is_command(command: &Command) -> bool {
    match command {
        Command::Publish(publish) => is_partition(publish.partition),
        Command::Settle(settle) => is_partition(settle.partition),
        Command::Subscribe(subscribe) => is_partition(subscribe.partition),
        Command::Partition(_, id, _) => is_partition(*id),
        Command::PublishAtomic(_) => true,
        Command::EndSession { session, .. } => session.0 >= FIRST_SESSION,
        _ => false,
    }
}

/// A message that a consumer holds.
#[derive(Clone, Copy, Debug)]
pub struct HeldMessage {
    pub session: SessionId,
    pub partition: PartitionId,
    pub run: DeliveryRun,
}

/// The group of a partition.
#[must_use]
pub fn group_of(id: PartitionId) -> GroupId {
    GroupId(id.topic.0)
}
