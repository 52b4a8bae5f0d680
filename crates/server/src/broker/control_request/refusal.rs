//! The refusals of requests about names and settings, and about streams. Each door gives every refusal a code or
//! status of its own. It knows no protocol.

use sennit_engine::Refusal;
use sennit_identity::{OverQuota, QuotaRetry};
use sennit_model::{
    BatchError, CursorName, GroupName, Offset, PartitionIndex, TopicName, TopicPattern,
    limits::WATCH_TOPICS_MAX,
};

use crate::{
    broker::reserved_names::RESERVED, identity::principal::MissingRight,
    runtime::publish_gauge::NoRoom,
};

/// How long to wait before a request is sent again that the full disk has refused, in milliseconds.
pub(crate) const STORAGE_FULL_RETRY_MS: u64 = 500;

/// How long a client waits before it publishes to a full topic again, in milliseconds.
pub(crate) const TOPIC_FULL_RETRY_MS: u64 = 100;

/// The same where something of a tenant has to go first.
const QUOTA_RETRY_MS: u64 = 1000;

/// The same where the disk is too slow.
const BUSY_RETRY_MS: u64 = 1000;

/// Why a request was refused. A refusal changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ControlRefusal {
    /// The catalogue or a partition has refused it.
    #[error(transparent)]
    Engine(#[from] Refusal),
    /// There is no topic of this name.
    #[error("there is no topic {:?}", .0.as_str())]
    UnknownTopic(TopicName),
    /// The topic has fewer partitions.
    #[error("topic {:?} has {partitions} partitions, none is {}", .topic.as_str(), .partition.0)]
    UnknownPartition { topic: TopicName, partitions: u32, partition: PartitionIndex },
    /// The topic has no group of this name.
    #[error("topic {:?} has no group {:?}", .topic.as_str(), .group.as_str())]
    UnknownGroup { topic: TopicName, group: GroupName },
    /// The topic has no cursor of this name.
    #[error("topic {:?} has no cursor {:?}", .topic.as_str(), .cursor.as_str())]
    UnknownCursor { topic: TopicName, cursor: CursorName },
    /// A range of offsets ends before it begins, or holds none.
    #[error("offsets {start}..{end} are none: the end is behind the start")]
    NoOffsets { topic: TopicName, start: Offset, end: Offset },
    /// Messages are to go to the topic that has them.
    #[error("topic {:?} has the messages already: name another", .0.as_str())]
    SameTopic(TopicName),
    /// The topic is the broker's own.
    #[error("what is below {RESERVED}/ is the broker's own: it can only be read")]
    Reserved,
    /// The principal lacks the right.
    #[error(transparent)]
    Missing(#[from] MissingRight),
    /// A quota of the principal's tenant is used up.
    #[error(transparent)]
    OverQuota(#[from] OverQuota),
    /// More topics match a pattern than may be watched at once.
    #[error("{0} means more than WATCH_TOPICS_MAX topics, {WATCH_TOPICS_MAX}")]
    TooManyWatched(TopicPattern),
    /// A topic that is to lie beside another is there already, and lies elsewhere.
    #[error("topic {:?} exists, and does not lie beside {:?}", .topic.as_str(), .beside.as_str())]
    TopicsApart { topic: TopicName, beside: TopicName },
    /// What is to be published is no message.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The topic has several partitions, and is no channel.
    #[error("topic {:?} has {partitions} partitions: a channel is a topic of one", .topic.as_str())]
    NoChannel { topic: TopicName, partitions: u32 },
    /// The hook of the topic has refused a message that the broker was to publish.
    #[error("the topic's hook: {0}")]
    HookRefused(String),
    /// The hook of the topic has failed on it, or rests, and accepts no message that it has not seen.
    #[error("the topic's hook: {0}")]
    HookFailed(String),
    /// The disk is slower than what is appended.
    #[error(transparent)]
    Busy(#[from] NoRoom),
    /// The broker is about to end.
    #[error("the broker stops")]
    ShuttingDown,
    /// A shard has answered otherwise than it was asked: the broker's own fault.
    #[error("a shard gave another answer than it was asked for")]
    WrongAnswer,
    /// The system gives no random numbers, so that nothing can be created.
    #[error("the system has no random numbers: {0}")]
    NoRandomNumbers(getrandom::Error),
}

impl ControlRefusal {
    /// The topic that was asked for, where this is about one.
    pub(crate) fn topic(&self) -> Option<&TopicName> {
        match self {
            Self::UnknownTopic(topic)
            | Self::UnknownPartition { topic, .. }
            | Self::UnknownGroup { topic, .. }
            | Self::UnknownCursor { topic, .. }
            | Self::SameTopic(topic)
            | Self::TopicsApart { topic, .. }
            | Self::NoChannel { topic, .. }
            | Self::NoOffsets { topic, .. } => Some(topic),
            _ => None,
        }
    }

    /// Whether the same request may succeed later.
    pub(crate) fn is_retryable(&self) -> bool {
        match self {
            Self::Engine(refusal) => matches!(
                refusal,
                Refusal::SequenceGap { .. }
                    | Refusal::StorageFull
                    | Refusal::TopicFull { .. }
                    | Refusal::DedupFull
                    | Refusal::MessageLeased
                    | Refusal::NotLeader { .. }
                    | Refusal::NoLeader
                    | Refusal::OutcomeUnknown
            ),
            Self::OverQuota(over) => over.retry != QuotaRetry::ByHand,
            Self::Busy(_) | Self::ShuttingDown | Self::HookFailed(_) => true,
            _ => false,
        }
    }

    /// How long to wait before the request is sent again, in milliseconds; 0 for the client's own choice.
    pub(crate) fn retry_after_ms(&self) -> u64 {
        match self {
            Self::Engine(Refusal::StorageFull) => STORAGE_FULL_RETRY_MS,
            Self::Engine(Refusal::TopicFull { .. } | Refusal::DedupFull) => TOPIC_FULL_RETRY_MS,
            Self::Busy(_) | Self::HookFailed(_) => BUSY_RETRY_MS,
            Self::OverQuota(over) => match over.retry {
                QuotaRetry::After(wait) => u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
                QuotaRetry::WhenFreed | QuotaRetry::OnceMeasured => QUOTA_RETRY_MS,
                QuotaRetry::ByHand => 0,
            },
            _ => 0,
        }
    }
}
