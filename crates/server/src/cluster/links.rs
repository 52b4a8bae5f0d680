//! The links of a core: one for each peer at most, number `core` of both nodes. All that the nodes say of the groups that the
//! core runs goes over them.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fmt,
    rc::Rc,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use bytes::BytesMut;
use sennit_protocol::peer::{Greeting, PeerFrame, PeerReader};

use super::{
    link::Link, link_listener::LinkListener, peer_state::ClusterState, send_queue::NotSent,
};
use crate::runtime::{index::CoreIndex, wire::Wire};

/// The links of a core.
pub(crate) struct Links {
    core: CoreIndex,
    state: Arc<ClusterState>,
    listener: Rc<dyn LinkListener>,
    /// By the id of the peer.
    open: RefCell<BTreeMap<u16, Rc<Link>>>,
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Links").field("core", &self.core).finish_non_exhaustive()
    }
}

impl Links {
    /// Of a core that has none yet. Frames and the state of links go to `listener`.
    pub(crate) fn new(
        core: CoreIndex,
        state: Arc<ClusterState>,
        listener: Rc<dyn LinkListener>,
    ) -> Self {
        Self { core, state, listener, open: RefCell::default() }
    }

    pub(super) fn core(&self) -> CoreIndex {
        self.core
    }

    pub(super) fn state(&self) -> &Arc<ClusterState> {
        &self.state
    }

    /// Sends a frame behind those of its class. If the link breaks, a tail of each class is lost.
    ///
    /// # Errors
    /// [`NotSent`]; nothing of it is sent then.
    pub(crate) fn send(&self, peer: u16, frame: PeerFrame) -> Result<(), NotSent> {
        let open = self.open.borrow();
        open.get(&peer).ok_or(NotSent::Unreachable)?.send(frame)
    }

    /// Whether there is a link to this peer.
    pub(crate) fn is_up(&self, peer: u16) -> bool {
        self.open.borrow().contains_key(&peer)
    }

    /// Whether all that was sent on the links that are there is out of this process.
    pub(crate) fn have_sent_all(&self) -> bool {
        self.open.borrow().values().all(|link| link.has_sent_all())
    }

    /// Ends the link to a peer, as something is lost that had to be sent: the loss of a link is told at both ends.
    pub(crate) fn end(&self, peer: u16) {
        if let Some(link) = self.open.borrow().get(&peer) {
            link.end();
        }
    }

    /// Serves a link until it ends, in the place of the one that the peer had. `first` is sent before all else.
    pub(super) async fn serve(
        &self,
        wire: Wire,
        unread: (PeerReader, BytesMut),
        theirs: &Greeting,
        first: Option<PeerFrame>,
    ) {
        let node = theirs.node;
        let Some(index) = self.state.peers.iter().position(|peer| peer.node == node) else {
            return;
        };
        let peer = &self.state.peers[index];
        let link = Rc::new(Link::new(self.state.clone(), index, self.core.0 as usize));
        peer.accepted(theirs);
        let before = self.open.borrow_mut().insert(node, link.clone());
        if let Some(before) = before {
            before.end();
            self.listener.on_link(node, false);
        }
        // An empty queue takes it.
        let _ = first.map(|frame| self.send(node, frame));
        link.state().is_up.store(true, Relaxed);
        let (core, start_epoch) = (self.core.0, theirs.start_epoch);
        tracing::info!(peer = node, core, start_epoch, "a link to a peer is there");
        self.listener.on_link(node, true);
        let ended = link.serve(wire, unread, &*self.listener).await;
        link.state().breaks.add(1);
        let is_current = |open: &Rc<Link>| Rc::ptr_eq(open, &link);
        if !self.open.borrow().get(&node).is_some_and(is_current) {
            return;
        }
        self.open.borrow_mut().remove(&node);
        link.state().is_up.store(false, Relaxed);
        link.state().unsent_bytes.set(0);
        tracing::warn!(peer = node, core, reason = %ended, "a link to a peer has ended");
        self.listener.on_link(node, false);
    }
}

#[cfg(test)]
mod tests;
