//! The names of topics and groups that dead letters need. The catalogue's shard sends them on request; they are
//! kept in memory only, since each dead letter's record contains them.

use std::sync::Arc;

use hashbrown::HashMap;
use sennit_model::{GroupId, GroupName, TopicId, TopicName};

/// The names of a topic and of its groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceNames {
    /// The topic.
    pub topic: TopicName,
    /// Its groups.
    pub groups: Vec<(GroupId, GroupName)>,
}

/// The topic and the group that a dead letter comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    pub(crate) topic: &'a TopicName,
    pub(crate) group: &'a GroupName,
}

impl SourceNames {
    /// The names of this group and its topic, if it is known.
    pub(crate) fn of(&self, id: GroupId) -> Option<Source<'_>> {
        let group = self.groups.iter().find(|(held, _)| *held == id);
        group.map(|(_, group)| Source { topic: &self.topic, group })
    }
}

/// The names of topics that have had dead letters since the start.
#[derive(Debug, Default)]
pub(crate) struct Names(HashMap<TopicId, Arc<SourceNames>, foldhash::fast::FixedState>);

impl Names {
    /// Those of a topic, if they are known.
    pub(crate) fn of(&self, topic: TopicId) -> Option<Arc<SourceNames>> {
        self.0.get(&topic).cloned()
    }

    /// A topic is called so, and its groups.
    pub(crate) fn set(&mut self, topic: TopicId, names: Arc<SourceNames>) {
        self.0.insert(topic, names);
    }

    /// The topic is gone.
    pub(crate) fn forget(&mut self, topic: TopicId) {
        self.0.remove(&topic);
    }
}
