//! The port of the native protocol: it hands connections round the cores. One listener for all: a fair share by
//! count beats a share by the kernel's hash where connections are few, as they are between services.

use std::sync::Arc;

use super::{arrival::Arrival, connection};
use crate::runtime::{core::Cores, index::CoreIndex, listener::Listener};

/// Accepts for ever, and gives each connection to the next core.
pub(crate) async fn accept(listener: Listener, cores: Arc<Cores>) {
    let mut next = CoreIndex::FIRST;
    loop {
        let arrival = Arrival { wire: listener.accept().await, websocket: None, moved: None };
        let _ = cores.inboxes[next].send(connection::arrives(arrival));
        next = cores.placement.core_after(next);
    }
}
