//! The groups in which each session takes part, or took part: a session that has left a group still settles for
//! itself only. It knows of groups only that they exist, and forgets those that are gone.

use std::collections::BTreeSet;

use sennit_model::{GroupId, PartitionId};

use crate::command::SessionId;

/// A group of a partition.
pub(crate) type Part = (PartitionId, GroupId);

/// All sessions of a shard, looked up either way.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    by_session: BTreeSet<(SessionId, Part)>,
    by_part: BTreeSet<(Part, SessionId)>,
}

impl Sessions {
    pub(crate) fn join(&mut self, session: SessionId, part: Part) {
        if self.by_session.insert((session, part)) {
            self.by_part.insert((part, session));
        }
    }

    /// Whether the session takes part there, or did.
    pub(crate) fn is_part(&self, session: SessionId, part: Part) -> bool {
        self.by_session.contains(&(session, part))
    }

    pub(crate) fn parts_of(&self, session: SessionId) -> Vec<Part> {
        let first = (session, (PartitionId::default(), GroupId(0)));
        let held = self.by_session.range(first..).take_while(|(of, _)| *of == session);
        held.map(|(_, part)| *part).collect()
    }

    /// The session is over: where it took part.
    pub(crate) fn end(&mut self, session: SessionId) -> Vec<Part> {
        let parts = self.parts_of(session);
        for &part in &parts {
            self.by_session.remove(&(session, part));
            self.by_part.remove(&(part, session));
        }
        parts
    }

    /// The group is gone. Costs as much as there are sessions that know it.
    pub(crate) fn forget(&mut self, part: Part) {
        while let Some(&held) = self.by_part.range((part, SessionId(0))..).next()
            && held.0 == part
        {
            self.by_part.remove(&held);
            self.by_session.remove(&(held.1, part));
        }
    }
}

#[cfg(test)]
mod tests {
    use sennit_model::{PartitionIndex, TopicId};

    use super::*;

    fn part(topic: u32, group: u32) -> Part {
        (PartitionId { topic: TopicId(topic), index: PartitionIndex(0) }, GroupId(group))
    }

    #[test]
    fn what_is_forgotten_of_one_is_kept_of_the_others() {
        let mut sessions = Sessions::default();
        for (session, part) in [(1, part(7, 0)), (1, part(7, 1)), (1, part(7, 1)), (2, part(7, 1))]
        {
            sessions.join(SessionId(session), part);
        }
        sessions.forget(part(7, 0));
        assert_eq!(sessions.parts_of(SessionId(1)), [part(7, 1)]);
        assert_eq!(sessions.end(SessionId(1)), [part(7, 1)]);
        assert!(!sessions.is_part(SessionId(1), part(7, 1)));
        assert!(sessions.is_part(SessionId(2), part(7, 1)));
        sessions.forget(part(7, 1));
        assert!(sessions.by_session.is_empty() && sessions.by_part.is_empty());
    }
}
