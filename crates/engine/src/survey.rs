//! A walk over all partitions, a part at a time, that adds up totals which are not counted on the way. Its result
//! is a little old, and nothing depends on it.

use sennit_model::{GroupId, Timestamp, TopicId, limits::HOLDING_GROUPS_MAX};

use crate::{effect::Holding, folded::Folded, partition::Partition};

/// The result of a survey of all partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Parked messages of all groups.
    pub parked: u64,
    /// Groups that hold messages which others of their topic are through with; those that have held
    /// them longest come first, and there are at most [`HOLDING_GROUPS_MAX`].
    pub holding: Vec<HoldingGroup>,
}

/// A group that holds messages which others of its topic are through with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldingGroup {
    /// Its topic.
    pub topic: TopicId,
    /// The group.
    pub group: GroupId,
    /// The append time of the oldest of these messages.
    pub since: Timestamp,
}

/// A survey under way.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// The place at which it goes on.
    pub(crate) hand: u32,
    pub(crate) so_far: Findings,
}

/// What is parked keeps a partition from being folded.
pub(crate) fn may_tell(folded: &Folded) -> bool {
    folded.may_hold()
}

impl Findings {
    pub(crate) fn add(&mut self, partition: &Partition) {
        if partition.parks() {
            let parked = partition.groups.iter().map(|group| group.activity().dying.count());
            self.parked += parked.sum::<u64>();
        }
        let Some(Holding { groups, since }) = partition.holding() else { return };
        let topic = partition.id.topic;
        groups.into_iter().for_each(|group| self.add_holding(HoldingGroup { topic, group, since }));
    }

    fn add_holding(&mut self, new: HoldingGroup) {
        let is_same = |held: &&mut HoldingGroup| (held.topic, held.group) == (new.topic, new.group);
        match self.holding.iter_mut().find(is_same) {
            Some(held) => held.since = held.since.min(new.since),
            None => self.holding.push(new),
        }
        self.holding.sort_by_key(|held| (held.since, held.group));
        self.holding.truncate(HOLDING_GROUPS_MAX);
    }
}
