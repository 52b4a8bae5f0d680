//! A hash of the settings that a partition has of its topic. At a start, shards and catalogue compare half a
//! million of them without a message between threads.

use std::hash::{BuildHasher, Hash, Hasher};

use foldhash::quality::FixedState;
use sennit_model::TopicConfig;

use crate::command::{DeadLetters, GroupSetting};

/// Says whether two have the same settings, groups and place for dead letters: equal numbers mean so but
/// for one time in 2^64. It means nothing outside the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettingsHash(u64);

impl SettingsHash {
    pub(crate) fn of(
        config: &TopicConfig,
        groups: impl Iterator<Item = GroupSetting>,
        dead_letters: DeadLetters,
    ) -> Self {
        let mut hasher = FixedState::default().build_hasher();
        (config, dead_letters).hash(&mut hasher);
        groups.for_each(|group| group.hash(&mut hasher));
        Self(hasher.finish())
    }
}
