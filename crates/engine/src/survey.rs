//! A walk over all partitions, a part at a time, that adds up what is not counted on the way. Its result is a little
//! old, and nothing depends on it.

use std::cmp::Reverse;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use sennit_model::{
    GroupId, Timestamp, TopicId,
    limits::{GROUPS_NAMED_MAX, GROUPS_WITH_NAMED_KEYS_MAX, HOLDING_GROUPS_MAX, KEYS_NAMED_MAX},
};

use crate::{
    effect::Holding,
    explanation::KeyDeliveries,
    folded::Folded,
    group::Group,
    group_counts::{AllGroupCounts, GroupCounts},
    partition::Partition,
};

/// The result of a survey of all partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Parked messages of all groups.
    pub parked: u64,
    /// Groups that hold messages which others of their topic are through with; those that have held
    /// them longest come first, and there are at most [`HOLDING_GROUPS_MAX`].
    pub holding: Vec<HoldingGroup>,
    /// The groups with the most messages, those with more first; at most [`GROUPS_NAMED_MAX`].
    pub backlogs: Vec<GroupBacklog>,
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

/// What a group has to do in all partitions of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupBacklog {
    /// Its topic.
    pub topic: TopicId,
    /// The group.
    pub group: GroupId,
    /// Messages that wait for a consumer.
    pub ready: u64,
    /// Messages that consumers hold.
    pub leased: u64,
    /// Failed messages that wait for another attempt.
    pub retrying: u64,
    /// Messages that failed for good: parked, or on their way to the dead-letter topic.
    pub dead: u64,
    /// When the oldest message was appended that the group has not settled; `None` without one, and while its messages
    /// are all delayed.
    pub oldest: Option<Timestamp>,
    /// What went wrong or was held back since the start.
    pub counts: GroupCounts,
    /// The fair keys that were given the most; at most [`KEYS_NAMED_MAX`] for each partition, and those of
    /// [`GROUPS_WITH_NAMED_KEYS_MAX`] groups.
    pub keys: Vec<KeyDeliveries>,
}

impl GroupBacklog {
    fn messages(&self) -> u64 {
        self.ready + self.leased + self.retrying + self.dead
    }

    fn add(&mut self, partition: &Partition, group: &Group) {
        let activity = group.activity();
        self.ready += group.ready.count();
        self.leased += activity.leased_count;
        self.retrying += activity.waiting.count();
        self.dead += activity.dying.count();
        if self.messages() > 0 {
            let floor = group.settled.floor().max(partition.log.start());
            let appended_at = partition.log.find_from(floor).map(|entry| entry.appended_at);
            self.oldest = self.oldest.into_iter().chain(appended_at).min();
        }
        for key in activity.fair.iter().flat_map(|fair| fair.busiest(KEYS_NAMED_MAX)) {
            match self.keys.iter_mut().find(|held| held.fair_key == key.fair_key) {
                Some(held) => held.add(&key),
                None => self.keys.push(key),
            }
        }
    }
}

/// A survey under way.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// The place at which it goes on.
    pub(crate) hand: u32,
    pub(crate) so_far: SurveySoFar,
}

/// What a survey has found up to now.
#[derive(Debug, Default)]
pub(crate) struct SurveySoFar {
    findings: Findings,
    groups: HashMap<(TopicId, GroupId), GroupBacklog, FixedState>,
    /// Groups with no more messages than this are not among those that are named; `None` while there is room.
    fewest: Option<u64>,
}

impl SurveySoFar {
    /// Says of a folded partition whether it may have something to tell; what is parked keeps one from being folded.
    pub(crate) fn may_tell(&self) -> impl Fn(&Folded) -> bool + use<> {
        let fewest = self.fewest;
        move |folded| folded.may_hold() || fewest.is_none_or(|fewest| folded.messages() > fewest)
    }

    pub(crate) fn add(&mut self, partition: &Partition, group_counts: &AllGroupCounts) {
        self.findings.add(partition);
        let topic = partition.id.topic;
        for group in &partition.groups {
            let name = (topic, group.id());
            let new = || GroupBacklog {
                topic,
                group: group.id(),
                ready: 0,
                leased: 0,
                retrying: 0,
                dead: 0,
                oldest: None,
                counts: group_counts.of(name),
                keys: Vec::new(),
            };
            self.groups.entry(name).or_insert_with(new).add(partition, group);
        }
        // The partitions of a topic follow one another as a rule, so that few groups are left out half counted.
        if self.groups.len() > 2 * GROUPS_NAMED_MAX {
            let kept = self.most();
            self.fewest = kept.last().map(GroupBacklog::messages);
            self.groups = kept.into_iter().map(|held| ((held.topic, held.group), held)).collect();
        }
    }

    /// The groups with the most messages.
    fn most(&mut self) -> Vec<GroupBacklog> {
        let mut all: Vec<_> = self.groups.drain().map(|(_, backlog)| backlog).collect();
        let rank = |held: &GroupBacklog| {
            (Reverse((held.messages(), !held.counts.is_none())), held.topic, held.group)
        };
        all.sort_unstable_by_key(rank);
        all.truncate(GROUPS_NAMED_MAX);
        all
    }

    pub(crate) fn findings(mut self) -> Findings {
        self.findings.backlogs = self.most();
        let with_keys = self.findings.backlogs.iter_mut().filter(|held| !held.keys.is_empty());
        for more in with_keys.skip(GROUPS_WITH_NAMED_KEYS_MAX) {
            more.keys.clear();
        }
        self.findings
    }
}

impl Findings {
    fn add(&mut self, partition: &Partition) {
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
