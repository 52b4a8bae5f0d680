//! The other cores, as a core's connections see them: by the streams that live there. It knows no sockets and no
//! protocol.

use std::{cell::Cell, sync::Arc};

use super::{
    index::{CoreIndex, IndexVec},
    metrics::CoreMetrics,
};

/// A core among the others, and the last core that its connections used.
#[derive(Debug)]
pub(crate) struct PeerCores {
    pub(crate) here: CoreIndex,
    pub(crate) cores: IndexVec<CoreIndex, Arc<CoreMetrics>>,
    /// The core of the stream that was used last, until the connection takes note of it.
    requested: Cell<Option<CoreIndex>>,
}

impl PeerCores {
    /// Those of the core `here`.
    pub(crate) fn of(here: CoreIndex, cores: IndexVec<CoreIndex, Arc<CoreMetrics>>) -> Self {
        Self { here, cores, requested: Cell::new(None) }
    }

    /// A request is worked on from now on: earlier requests do not count for it.
    pub(crate) fn attend(&self) {
        self.requested.set(None);
    }

    /// The core of the last stream that was used since [`Self::attend`].
    pub(crate) fn take_requested(&self) -> Option<CoreIndex> {
        self.requested.take()
    }

    /// The current request uses a stream of this core.
    pub(crate) fn note_request(&self, of: CoreIndex) {
        self.requested.set(Some(of));
    }
}
