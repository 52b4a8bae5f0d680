//! The promises of the protocol between nodes.

mod any_peer_frame;
mod refusals;
mod round_trip;
mod vectors;
