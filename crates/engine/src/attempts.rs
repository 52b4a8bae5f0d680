//! Questions about failed attempts, and their answers.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use sennit_model::{GroupId, Offset, PartitionId, Timestamp, TopicId};

/// Failed attempts of a group, about which somebody has to decide: a [`FailureAnswers`] is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedAttempts {
    /// The partition.
    pub partition: PartitionId,
    /// The group.
    pub group: GroupId,
    /// One for each message.
    pub attempts: Vec<FailedAttempt>,
}

/// A failed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedAttempt {
    /// The message's offset.
    pub offset: Offset,
    /// How many attempts have failed, this one included.
    pub attempts: u32,
    /// When the message was appended.
    pub appended_at: Timestamp,
    /// When the attempt failed.
    pub failed_at: Timestamp,
    /// Why, in the consumer's or the broker's words.
    pub reason: Arc<str>,
    /// The message, in the layout of [`sennit_model::Batch`].
    pub message: Bytes,
}

/// The decisions about [`FailedAttempts`].
#[derive(Clone, Debug, PartialEq)]
pub struct FailureAnswers {
    /// The partition.
    pub partition: PartitionId,
    /// The group.
    pub group: GroupId,
    /// One for each message that was asked about.
    pub answers: Vec<FailureAnswer>,
}

/// A decision about a failed attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct FailureAnswer {
    /// The message's offset.
    pub offset: Offset,
    /// The failed attempts that were told.
    pub attempts: u32,
    /// What becomes of it.
    pub decision: FailureDecision,
}

/// What becomes of a message after a failed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailureDecision {
    /// What the group's policy says, or the consumer.
    Policy,
    /// The next attempt comes so long from now. After the last attempt, or for a message that is too old, the policy
    /// decides.
    RetryAfter(Duration),
    /// It goes to the dead letters.
    DeadLetter {
        /// Why; at most [`sennit_model::limits::REASON_BYTES_MAX`] bytes.
        reason: String,
    },
    /// It is published to another topic, and the group is through with it.
    Route {
        /// The topic. If its partition is not on this shard, the policy decides.
        topic: TopicId,
        /// The number of its partitions.
        partitions: u32,
        /// The message as it was told.
        message: Bytes,
    },
}
