//! The layout of a session's id: the core at which the session is at home, and its number on that core.

use sennit_engine::SessionId;

use crate::runtime::index::CoreIndex;

/// Bits of an id that number the sessions of one core. The bits above them are the core.
const NUMBER_BITS: u32 = 48;

/// A session's id, which says at which core the session is at home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CoreSession(u64);

impl CoreSession {
    /// The session of this number at this core.
    pub(crate) fn new(core: CoreIndex, number: u64) -> Self {
        assert!(core.0 >> (u64::BITS - NUMBER_BITS) == 0, "core {} is beyond the layout", core.0);
        assert!(number >> NUMBER_BITS == 0, "session {number} is beyond the layout");
        Self(u64::from(core.0) << NUMBER_BITS | number)
    }

    /// The session under which a core sends commands of its own. Clients' sessions count from 1.
    pub(crate) fn of_core(core: CoreIndex) -> Self {
        Self::new(core, 0)
    }

    /// The core at which the session is at home.
    pub(crate) fn core(self) -> CoreIndex {
        CoreIndex((self.0 >> NUMBER_BITS) as u32)
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
    fn a_session_is_at_home_at_its_core() {
        for (core, number) in [(0, 0), (0, 1), (7, 0), (u16::MAX.into(), (1 << NUMBER_BITS) - 1)] {
            let id = SessionId::from(CoreSession::new(CoreIndex(core), number));
            let session = CoreSession::from(id);
            assert_eq!(session.core(), CoreIndex(core));
            assert_eq!(session == CoreSession::of_core(CoreIndex(core)), number == 0);
        }
    }
}
