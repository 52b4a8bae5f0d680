//! Questions why messages and fair keys of a group wait, and the listing of its fair keys.

use std::time::Duration;

use sennit_model::{GroupName, Offset, PartitionIndex, Timestamp, TopicName};
use sennit_protocol::{
    Reply, Request,
    control::{self, WaitKind},
};

use crate::{client::Client, error::Error};

/// A message or a fair key that is asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExplainSubject {
    /// The message at an offset.
    Offset(Offset),
    /// The oldest ready message of a fair key.
    FairKey(String),
}

/// Why a message waits in one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The partition.
    pub partition: PartitionIndex,
    /// The message; `None` if no message of the fair key is ready.
    pub offset: Option<Offset>,
    /// Its fair key; empty without one.
    pub fair_key: String,
    /// Why it waits.
    pub reason: WaitReason,
}

/// A fair key of a group, over all partitions of the topic. Counts are of messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FairKey {
    /// The key; empty for messages without one.
    pub fair_key: String,
    /// Messages that wait for a consumer.
    pub ready: u64,
    /// Messages that consumers hold.
    pub in_flight: u64,
    /// When the oldest ready message was appended; `None` without one.
    pub oldest_at: Option<Timestamp>,
    /// Why the oldest ready message waits; `None` without one.
    pub reason: Option<WaitReason>,
    /// In a group that keeps the order of keys: the session of the consumer that holds messages of this one.
    pub session: Option<u64>,
    /// How often it was served since the consumers came, if it is among the 32 keys of a partition that are served the
    /// most.
    pub served: Option<KeyDeliveries>,
}

/// How often a fair key was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyDeliveries {
    /// Deliveries, every attempt of each message. May be too many by [`Self::overcounted`].
    pub delivered: u64,
    /// Deliveries that may have been of other keys.
    pub overcounted: u64,
    /// How long a message waited for its first delivery after it was appended, on average.
    pub mean_wait: Duration,
}

/// Why a message is not with a consumer. The first reason that applies, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitReason {
    /// There is no such message: it was never published, or is not kept any more. Of a key: no message is ready.
    NoMessage,
    /// It is not committed yet.
    NotCommitted,
    /// The group has settled it.
    Settled,
    /// A consumer holds it.
    Leased {
        /// The session of the consumer's connection.
        session: u64,
        /// Which delivery this is, from 1.
        attempt: u32,
        /// When the lease ends.
        until: Timestamp,
    },
    /// Its publisher has delayed it.
    Delayed {
        /// When it is due.
        until: Timestamp,
    },
    /// An attempt failed, and the next one is not due.
    Retrying {
        /// When it is due.
        until: Timestamp,
        /// How many attempts failed.
        failed: u32,
    },
    /// It failed for good: it is on its way to the dead-letter topic, or parked there.
    Dead {
        /// Why.
        reason: String,
    },
    /// It cannot be read because of damage on the disk.
    Damaged,
    /// The topic is paused.
    TopicPaused,
    /// The group is paused.
    GroupPaused,
    /// Nobody takes part in the group.
    NoConsumer,
    /// A rule pauses its fair key.
    KeyPaused,
    /// Consumers hold as many messages of its key as its rule allows.
    Concurrency {
        /// How many they hold.
        in_flight: u64,
        /// How many they may hold.
        limit: u64,
    },
    /// The group's throttle holds everything back.
    GroupThrottled {
        /// Until when.
        until: Timestamp,
    },
    /// The throttle of its key, or of one of its throttle keys, holds it back.
    Throttled {
        /// Until when.
        until: Timestamp,
    },
    /// The group keeps an order, and an earlier message waits for its next attempt.
    BehindFailed {
        /// The earlier message.
        offset: Offset,
        /// When its attempt is due.
        until: Timestamp,
    },
    /// The group keeps an order, and a consumer holds earlier messages: it has no room for more, or another takes
    /// over once these are settled.
    HeldBy {
        /// The session of the consumer's connection.
        session: u64,
    },
    /// The windows of all consumers are full.
    NoCredit,
    /// It is ready, and others go first.
    Behind {
        /// Ready messages of its key before it; of the group, if it has no keys.
        messages: u64,
        /// Keys that take turns.
        keys: u64,
    },
    /// A reason of a later version of the broker, by its number.
    Unknown(i32),
}

impl WaitReason {
    /// The name, as in the JSON of the command line.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::NoMessage => "no-message",
            Self::NotCommitted => "not-committed",
            Self::Settled => "settled",
            Self::Leased { .. } => "leased",
            Self::Delayed { .. } => "delayed",
            Self::Retrying { .. } => "retrying",
            Self::Dead { .. } => "dead",
            Self::Damaged => "damaged",
            Self::TopicPaused => "topic-paused",
            Self::GroupPaused => "group-paused",
            Self::NoConsumer => "no-consumer",
            Self::KeyPaused => "key-paused",
            Self::Concurrency { .. } => "concurrency",
            Self::GroupThrottled { .. } => "group-throttled",
            Self::Throttled { .. } => "throttled",
            Self::BehindFailed { .. } => "behind-failed",
            Self::HeldBy { .. } => "held-by",
            Self::NoCredit => "no-credit",
            Self::Behind { .. } => "behind",
            Self::Unknown(_) => "unknown",
        }
    }

    fn of(body: control::WaitReason) -> Self {
        let until = Timestamp(body.until_ms);
        match body.kind() {
            WaitKind::NoMessage => Self::NoMessage,
            WaitKind::NotCommitted => Self::NotCommitted,
            WaitKind::Settled => Self::Settled,
            WaitKind::Leased => {
                Self::Leased { session: body.session_id, attempt: body.attempt, until }
            }
            WaitKind::Delayed => Self::Delayed { until },
            WaitKind::Retrying => Self::Retrying { until, failed: body.failed },
            WaitKind::Dead => Self::Dead { reason: body.text },
            WaitKind::Damaged => Self::Damaged,
            WaitKind::TopicPaused => Self::TopicPaused,
            WaitKind::GroupPaused => Self::GroupPaused,
            WaitKind::NoConsumer => Self::NoConsumer,
            WaitKind::KeyPaused => Self::KeyPaused,
            WaitKind::Concurrency => {
                Self::Concurrency { in_flight: body.in_flight, limit: body.limit }
            }
            WaitKind::GroupThrottled => Self::GroupThrottled { until },
            WaitKind::Throttled => Self::Throttled { until },
            WaitKind::BehindFailed => Self::BehindFailed { offset: Offset(body.offset), until },
            WaitKind::HeldBy => Self::HeldBy { session: body.session_id },
            WaitKind::NoCredit => Self::NoCredit,
            WaitKind::Behind => Self::Behind { messages: body.messages, keys: body.keys },
            WaitKind::Unspecified => Self::Unknown(body.kind),
        }
    }
}

/// Both are queries, which are sent again after a lost connection. `unknown-kind` by a broker that does not support
/// them.
impl Client {
    /// Explains why a message or a fair key waits in a group, in one partition, or in all partitions that have such a
    /// message. If none has, there is one explanation that says so.
    ///
    /// # Errors
    /// `unknown-topic`, also for a partition that the topic does not have, `unknown-group`, `limit-reached` for a key
    /// that is too long; [`Error::Closed`], [`Error::Unreachable`].
    pub async fn explain(
        &self,
        topic: &TopicName,
        group: &GroupName,
        partition: Option<PartitionIndex>,
        subject: &ExplainSubject,
    ) -> Result<Vec<Explanation>, Error> {
        let subject = match subject {
            ExplainSubject::Offset(offset) => control::explain::Subject::Offset(offset.0),
            ExplainSubject::FairKey(key) => control::explain::Subject::FairKey(key.clone()),
        };
        let body = control::Explain {
            topic: topic.to_string(),
            group: group.to_string(),
            partition: partition.map(|partition| partition.0),
            subject: Some(subject),
        };
        match self.connection.ask(Request::Explain(body), true).await? {
            Reply::Explanations(body) => {
                Ok(body.explanations.into_iter().map(explanation).collect())
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Lists the fair keys of a group that have the most ready messages, at most `most` and 1000; 0 stands for 20. Of
    /// more than 250,000 ready messages in a partition, the oldest 250,000 are counted.
    ///
    /// # Errors
    /// `unknown-topic`, `unknown-group`, `limit-reached`; [`Error::Closed`], [`Error::Unreachable`].
    pub async fn list_fair_keys(
        &self,
        topic: &TopicName,
        group: &GroupName,
        most: u32,
    ) -> Result<Vec<FairKey>, Error> {
        let (topic, group) = (topic.to_string(), group.to_string());
        let body = control::ListFairKeys { topic, group, most };
        match self.connection.ask(Request::ListFairKeys(body), true).await? {
            Reply::FairKeyList(body) => Ok(body.keys.into_iter().map(fair_key).collect()),
            other => Err(unexpected(&other)),
        }
    }
}

fn explanation(body: control::Explanation) -> Explanation {
    Explanation {
        partition: PartitionIndex(body.partition),
        offset: body.offset.map(Offset),
        fair_key: body.fair_key,
        reason: WaitReason::of(body.reason.unwrap_or_default()),
    }
}

fn fair_key(body: control::FairKey) -> FairKey {
    FairKey {
        fair_key: body.fair_key,
        ready: body.ready,
        in_flight: body.in_flight,
        oldest_at: body.oldest_ms.map(Timestamp),
        reason: body.reason.map(WaitReason::of),
        session: body.session_id,
        served: body.served.map(|served| KeyDeliveries {
            delivered: served.delivered,
            overcounted: served.overcounted,
            mean_wait: Duration::from_millis(served.waited_ms / served.first_deliveries.max(1)),
        }),
    }
}

fn unexpected(reply: &Reply) -> Error {
    Error::Unexpected(format!("{} is not the answer to this request", reply.kind()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_of_a_later_version_is_told_by_its_number() {
        let body = control::WaitReason { kind: 99, ..<_>::default() };
        assert_eq!(WaitReason::of(body), WaitReason::Unknown(99));
        let body = control::WaitReason { kind: 8, ..<_>::default() };
        assert_eq!(WaitReason::of(body), WaitReason::Damaged);
    }
}
