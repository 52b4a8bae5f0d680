//! The layout of a session's id: the node and the core at which the session is at home, and its number on that core.

use sennit_engine::SessionId;

use crate::runtime::index::CoreIndex;

/// Bits of an id that number the sessions of one core.
const NUMBER_BITS: u32 = 40;

/// Bits of an id that say which core it is. The bits above them are the node, 0 where there is no cluster.
const CORE_BITS: u32 = 12;

/// Bits of a number that count the sessions since a start; the bits above them count the starts of the node.
const COUNT_BITS: u32 = 24;

/// A session's id, which says at which core of which node the session is at home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CoreSession(u64);

impl CoreSession {
    /// The session of this number at this core of this node.
    pub(crate) fn new(node: u16, core: CoreIndex, number: u64) -> Self {
        assert!(
            node >> (u64::BITS - CORE_BITS - NUMBER_BITS) == 0,
            "node {node} is beyond the layout"
        );
        assert!(core.0 >> CORE_BITS == 0, "core {} is beyond the layout", core.0);
        assert!(number >> NUMBER_BITS == 0, "session {number} is beyond the layout");
        Self((u64::from(node) << CORE_BITS | u64::from(core.0)) << NUMBER_BITS | number)
    }

    /// The session under which a core sends commands of its own. Clients' sessions count from 1.
    pub(crate) fn of_core(node: u16, core: CoreIndex) -> Self {
        Self::new(node, core, 0)
    }

    /// The number of a core's session: the `count`th, from 1, since the node was started for the `start_epoch`th time.
    /// Other nodes may still know the sessions of the starts before.
    pub(crate) fn number(start_epoch: u64, count: u64) -> u64 {
        let number = (start_epoch << COUNT_BITS).wrapping_add(count) & ((1 << NUMBER_BITS) - 1);
        // The number 0 is the core's own.
        number.max(1)
    }

    /// The node at which the session is at home.
    pub(crate) fn node(self) -> u16 {
        (self.0 >> (CORE_BITS + NUMBER_BITS)) as u16
    }

    /// The core at which the session is at home.
    pub(crate) fn core(self) -> CoreIndex {
        CoreIndex((self.0 >> NUMBER_BITS) as u32 & ((1 << CORE_BITS) - 1))
    }
}

impl From<SessionId> for CoreSession {
    fn from(id: SessionId) -> Self {
        Self(id.0)
    }
}

impl From<CoreSession> for SessionId {
    fn from(session: CoreSession) -> Self {
        Self(session.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_at_home_at_its_core_of_its_node() {
        let highest = (1 << NUMBER_BITS) - 1;
        for (node, core, number) in [(0, 0, 0), (0, 0, 1), (1, 7, 0), (4095, 4095, highest)] {
            let id = SessionId::from(CoreSession::new(node, CoreIndex(core), number));
            let session = CoreSession::from(id);
            assert_eq!((session.node(), session.core()), (node, CoreIndex(core)));
            assert_eq!(session == CoreSession::of_core(node, CoreIndex(core)), number == 0);
        }
    }

    #[test]
    fn numbers_of_two_starts_differ_and_none_is_that_of_the_core() {
        assert_eq!(CoreSession::number(0, 1), 1);
        assert_ne!(CoreSession::number(7, 1), CoreSession::number(8, 1));
        for (start_epoch, count) in [(1 << 16, 1 << 40), (1 << 16, 0), (u64::MAX, u64::MAX)] {
            let number = CoreSession::number(start_epoch, count);
            assert!((1..1 << NUMBER_BITS).contains(&number), "{start_epoch} {count}");
        }
    }
}
