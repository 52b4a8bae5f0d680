//! The other cores, as a core's connections see them: by the streams that live there. It knows no sockets and no
//! protocol.

use std::{cell::Cell, sync::Arc};

use super::{
    index::{CoreIndex, IndexVec},
    metrics::CoreMetrics,
};

/// A core among the others, and what its connections ask for.
#[derive(Debug)]
pub(crate) struct PeerCores {
    pub(crate) here: CoreIndex,
    pub(crate) cores: IndexVec<CoreIndex, Arc<CoreMetrics>>,
    /// The core of the stream that was asked for last, until the connection has heard of it.
    asked_of: Cell<Option<CoreIndex>>,
}

impl PeerCores {
    /// Those of the core `here`.
    pub(crate) fn of(here: CoreIndex, cores: IndexVec<CoreIndex, Arc<CoreMetrics>>) -> Self {
        Self { here, cores, asked_of: Cell::new(None) }
    }

    /// Somebody's request is worked on now: what others have asked for is nothing to it.
    pub(crate) fn attend(&self) {
        self.asked_of.set(None);
    }

    /// The core that was asked since somebody was attended to.
    pub(crate) fn take_asked(&self) -> Option<CoreIndex> {
        self.asked_of.take()
    }

    /// What is done just now is for a stream of this core.
    pub(crate) fn asked(&self, of: CoreIndex) {
        self.asked_of.set(Some(of));
    }
}
