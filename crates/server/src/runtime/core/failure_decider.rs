//! Somebody decides about failed attempts of this core's shards.

use std::fmt;

use sennit_engine::FailedAttempts;

use crate::runtime::index::ShardIndex;

/// Takes failed attempts; it is called while the core is at work, and decides later.
pub(crate) trait FailureDecider: fmt::Debug {
    /// These attempts of a shard have failed. It waits for the decisions no longer than
    /// [`sennit_model::limits::FAILURE_DECISION_MAX`].
    fn failed(&self, shard: ShardIndex, attempts: FailedAttempts);
}
