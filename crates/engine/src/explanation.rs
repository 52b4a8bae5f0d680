//! Why a message or a fair key waits.

use std::time::Duration;

use sennit_model::{Offset, Timestamp};

use crate::command::SessionId;

/// The one reason why a message is not with a consumer. The first that applies, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// There is no such message: it was never published, or is not kept any more.
    NoMessage,
    /// It is not committed yet.
    NotCommitted,
    /// The group is through with it.
    Settled,
    /// A consumer has it.
    Leased {
        /// The session of its subscription.
        session: SessionId,
        /// Which delivery this is, from 1.
        attempt: u32,
        /// When its lease ends.
        until: Timestamp,
    },
    /// Its publisher has delayed it.
    Delayed {
        /// Until then.
        until: Timestamp,
    },
    /// An attempt failed, and the next is not due.
    Retrying {
        /// When it is due.
        until: Timestamp,
        /// How many attempts failed.
        failed: u32,
    },
    /// It failed for good: it is on its way to the dead letters, or parked there.
    Dead {
        /// Why.
        reason: String,
    },
    /// It cannot be read.
    Damaged,
    /// The topic is paused.
    TopicPaused,
    /// The group is paused.
    GroupPaused,
    /// Nobody takes part in the group.
    NoConsumer,
    /// Its fair key is paused by a rule.
    KeyPaused,
    /// Consumers hold as many messages of its key as its rule allows.
    Concurrency {
        /// How many they hold.
        in_flight: u64,
        /// How many they may.
        limit: u64,
    },
    /// The group's throttle holds everything back.
    GroupThrottled {
        /// Until then.
        until: Timestamp,
    },
    /// The throttle of its key, or of one of its throttle keys, holds it back.
    Throttled {
        /// Until then.
        until: Timestamp,
    },
    /// The group keeps the order of its keys, or of its partition, and an earlier message waits for another attempt.
    BehindFailed {
        /// The earlier message.
        offset: Offset,
        /// When its next attempt is due.
        until: Timestamp,
    },
    /// The group keeps the order of its keys, or of its partition, and a consumer has earlier messages: it has no
    /// room for more, or another takes over when it is through with them.
    HeldBy {
        /// The session of that consumer.
        session: SessionId,
    },
    /// Nobody has room: the windows of all consumers are full.
    NoCredit,
    /// It is ready, and others go first.
    Behind {
        /// Ready messages of its key, or of the group if it has no keys, before it.
        messages: u64,
        /// Keys that take turns with its own.
        keys: u64,
    },
}

/// The answer to [`crate::PartitionCommand::Explain`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The message; `None` for a key that has no ready one.
    pub offset: Option<Offset>,
    /// Its fair key; empty without one.
    pub fair_key: String,
    /// Why it waits.
    pub reason: WaitReason,
}

/// A fair key as a listing shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyDescription {
    /// The key.
    pub fair_key: String,
    /// Its ready messages.
    pub ready: u64,
    /// Messages that consumers hold.
    pub in_flight: u64,
    /// When the oldest ready message was appended.
    pub oldest_appended_at: Option<Timestamp>,
    /// Why the oldest ready one waits; `None` without one.
    pub reason: Option<WaitReason>,
    /// The session that has messages of it, where the group keeps the order of keys.
    pub session: Option<SessionId>,
    /// How often it was served, if it is among the keys that were served the most.
    pub served: Option<KeyDeliveries>,
}

/// How often a fair key was served, as far as that is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyDeliveries {
    /// The key; empty for messages without one.
    pub fair_key: String,
    /// Deliveries, every attempt of each message. May be too many by [`Self::at_most_over`].
    pub delivered: u64,
    /// Deliveries that may have been of other keys, which had its counter before.
    pub at_most_over: u64,
    /// First deliveries that [`Self::waited`] adds up; none of them is of another key.
    pub first_deliveries: u64,
    /// How long the messages of these waited for them after they were appended.
    pub waited: Duration,
}

impl KeyDeliveries {
    /// Adds what another partition has counted.
    pub fn add(&mut self, other: &Self) {
        self.delivered += other.delivered;
        self.at_most_over += other.at_most_over;
        self.first_deliveries += other.first_deliveries;
        self.waited += other.waited;
    }
}
