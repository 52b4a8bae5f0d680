//! The side of a link that takes frames: replicas and the sessions of the doors. Until a node has any, frames for groups
//! are counted.

use std::sync::Arc;

use sennit_protocol::peer::PeerFrame;

use super::peer_state::ClusterState;
use crate::runtime::index::CoreIndex;

/// Takes what the links of a core bring, on the core's thread, and must not wait.
pub(crate) trait LinkListener {
    /// A frame has come: a message between replicas, commands or effects. Those of a class come in the order in which
    /// they were sent.
    fn on_frame(&self, peer: u16, frame: PeerFrame);

    /// The link to a peer is there, or has ended. What was sent before it ended may have been lost, from some frame of each
    /// class on.
    fn on_link(&self, peer: u16, is_up: bool);
}

/// Of a core without groups.
#[derive(Debug)]
pub(crate) struct WithoutGroups {
    pub(crate) core: CoreIndex,
    pub(crate) state: Arc<ClusterState>,
}

impl LinkListener for WithoutGroups {
    fn on_frame(&self, peer: u16, _: PeerFrame) {
        if let Some(peer) = self.state.peer(peer) {
            peer.links[self.core.0 as usize].unclaimed_frames.add(1);
        }
    }

    fn on_link(&self, peer: u16, is_up: bool) {
        tracing::debug!(peer, is_up, "a link without groups");
    }
}
