//! Counts of what went wrong or was held back, in all and by group. In memory only; they begin at zero with each start.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use sennit_model::{GroupId, TopicId, limits::GROUPS_NAMED_MAX};

/// What went wrong or was held back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupCounts {
    /// Deliveries of messages that had been delivered before.
    pub redelivered: u64,
    /// Messages moved to a dead-letter topic.
    pub dead_lettered: u64,
    /// How often a throttle had no token for a message whose turn it was.
    pub throttle_waits: u64,
}

impl GroupCounts {
    /// Whether there is nothing to tell.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    fn add(&mut self, more: Self) {
        self.redelivered += more.redelivered;
        self.dead_lettered += more.dead_lettered;
        self.throttle_waits += more.throttle_waits;
    }
}

/// The counts of all groups together, and those of some.
#[derive(Debug, Default)]
pub(crate) struct AllGroupCounts {
    pub(crate) total: GroupCounts,
    /// At most [`GROUPS_NAMED_MAX`]: groups that come later count in the total alone.
    groups: HashMap<(TopicId, GroupId), GroupCounts, FixedState>,
}

impl AllGroupCounts {
    pub(crate) fn add(&mut self, group: (TopicId, GroupId), more: GroupCounts) {
        if more.is_none() {
            return;
        }
        self.total.add(more);
        if self.groups.len() < GROUPS_NAMED_MAX || self.groups.contains_key(&group) {
            self.groups.entry(group).or_default().add(more);
        }
    }

    pub(crate) fn of(&self, group: (TopicId, GroupId)) -> GroupCounts {
        self.groups.get(&group).copied().unwrap_or_default()
    }

    /// Forgets the groups of a topic.
    pub(crate) fn forget(&mut self, topic: TopicId) {
        self.groups.retain(|(of, _), _| *of != topic);
    }
}
