//! Links to the other nodes of a cluster: one TCP connection for each peer and link number, which frames of three classes
//! share. Link `i` of two nodes lies on core `i` of each; there are as many as the node with fewer cores has. The node with
//! the lower id dials.
//!
//! [`links::Links`] is the service of a core that has its links: others send frames by it, and a
//! [`link_listener::LinkListener`] takes what comes. It knows no replicas, no commands and no effects.

pub(crate) mod dialler;
pub(crate) mod greeting;
pub(crate) mod link;
pub(crate) mod link_listener;
pub(crate) mod links;
pub(crate) mod peer_listener;
pub(crate) mod peer_metrics;
pub(crate) mod peer_state;
pub(crate) mod send_queue;
pub(crate) mod settings;
mod socket;
