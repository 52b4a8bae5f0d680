//! The settings of a group as its partitions share them.

use std::sync::Arc;

use sennit_model::{GroupConfig, GroupName, StartAt};

/// What partitions share of a group's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) config: GroupConfig,
    pub(crate) start: StartAt,
}

/// What groups share in the catalogue: queues, their default group.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NamedTerms {
    pub(crate) name: GroupName,
    pub(crate) terms: Arc<Terms>,
}
