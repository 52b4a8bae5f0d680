//! The side of a link that takes frames.

use sennit_protocol::peer::PeerFrame;

/// Takes what the links of a core bring, on the core's thread, and must not wait.
pub(crate) trait LinkListener {
    /// A frame has come: a message between replicas, commands or effects. Those of a class come in the order in which
    /// they were sent.
    fn on_frame(&self, peer: u16, frame: PeerFrame);

    /// The link to a peer is there, or has ended. What was sent before it ended may have been lost, from some frame of each
    /// class on.
    fn on_link(&self, peer: u16, is_up: bool);
}
