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
    /// Those that are cut off, and end when their grace is over.
    ending: BTreeSet<SessionId>,
}

impl Sessions {
    /// The session takes part. If it was cut off, it has come back.
    pub(crate) fn join(&mut self, session: SessionId, part: Part) {
        self.ending.remove(&session);
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

    /// The session is cut off: it ends unless it comes back.
    pub(crate) fn cut_off(&mut self, session: SessionId) {
        self.ending.insert(session);
    }

    /// The grace of a session is over: where it took part, unless it has come back or ended.
    pub(crate) fn grace_over(&mut self, session: SessionId) -> Vec<Part> {
        if self.ending.contains(&session) { self.end(session) } else { Vec::new() }
    }

    /// The session is over: where it took part.
    pub(crate) fn end(&mut self, session: SessionId) -> Vec<Part> {
        self.ending.remove(&session);
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
    fn a_session_that_has_come_back_does_not_end_with_its_grace() {
        let (mut sessions, session) = (Sessions::default(), SessionId(1));
        sessions.join(session, part(7, 0));
        sessions.cut_off(session);
        sessions.join(session, part(7, 0));
        assert_eq!(sessions.grace_over(session), []);
        sessions.cut_off(session);
        assert_eq!(sessions.grace_over(session), [part(7, 0)]);
        assert_eq!(sessions.grace_over(session), []);
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
