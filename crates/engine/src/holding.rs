//! Finds the groups that keep the oldest messages of a partition from being freed, although all other groups have
//! settled them. It frees nothing.

use crate::{effect::Holding, group::Group, partition::Partition};

impl Partition {
    /// The groups that hold the oldest messages; `None` where messages are not kept until they are settled,
    /// and where all groups are equally far.
    pub(crate) fn holding(&self) -> Option<Holding> {
        if !self.config.retention.until_settled {
            return None;
        }
        let first_unsettled = |group: &Group| group.settled.floor().max(self.log.start());
        let lowest = self.groups.iter().map(first_unsettled).min()?;
        let groups: Vec<_> = self
            .groups
            .iter()
            .filter(|group| first_unsettled(group) == lowest)
            .map(Group::id)
            .collect();
        let oldest = self.log.entries_from(lowest).next();
        let oldest = oldest.filter(|_| groups.len() < self.groups.len())?;
        Some(Holding { groups, since: oldest.appended_at })
    }
}
