//! Links to the other nodes of a cluster: one TCP connection for each peer and link number, which frames of three classes
//! share. Link `i` of two nodes lies on core `i` of each; both have the same number of cores. The node with the lower id
//! dials.
//!
//! [`links::Links`] is the service of a core that has its links: others send frames by it, and a
//! [`link_listener::LinkListener`] takes what comes. [`group_links::GroupLinks`] makes frames of what replicas, sessions
//! and the control of other nodes are told.

pub(crate) mod control_frames;
pub(crate) mod dialler;
pub(crate) mod greeting;
pub(crate) mod group_links;
pub(crate) mod link;
pub(crate) mod link_listener;
pub(crate) mod links;
pub(crate) mod peer_listener;
pub(crate) mod peer_metrics;
pub(crate) mod peer_state;
pub(crate) mod replica_metrics;
pub(crate) mod send_queue;
pub(crate) mod settings;
mod socket;
