//! The protocol between the nodes of a cluster: converts bytes to frames and back.
//!
//! A link is one TCP connection. The node that dials sends a [`Greeting`], the other a [`GreetingAnswer`]; from then on
//! both send [`PeerFrame`]s. Each frame has a [`Class`]. Frames of a class keep their order; those of a higher class
//! overtake the others between two pieces of at most [`PIECE_BYTES_MAX`].
//!
//! frame -> [`Pieces`] -> bytes at the sender, bytes -> [`PeerReader`] -> frame at the receiver. The header is described
//! in the file `header`, what follows it in `frame`. It knows no sockets, and no more of a message between replicas than
//! its length.

mod error;
mod frame;
mod greeting;
mod header;
mod kind;
mod pieces;
mod reader;

pub use error::PeerError;
pub use frame::{Content, PeerFrame};
pub use greeting::{Greeting, GreetingAnswer, PEER_PROTOCOL, Refusal};
pub use header::PeerHeader;
pub use kind::{Class, PeerKind};
pub use pieces::Pieces;
pub use reader::PeerReader;

/// The default port for other nodes.
pub const PEER_PORT: u16 = 4439;

/// The table of a message between replicas, in bytes.
pub const RAFT_MESSAGE_BYTES: usize = 96;

/// Longest piece of a body in bytes: a frame of a higher class waits no longer than for one of them.
pub const PIECE_BYTES_MAX: usize = 256 << 10;

/// Longest body of a frame in bytes. An entry of a group's log is as long as a segment at most.
pub const BODY_BYTES_MAX: usize = 64 << 20;

/// Longest [`Greeting`] or [`GreetingAnswer`] in bytes.
pub const PEER_GREETING_BYTES_MAX: usize = 4 << 10;

mod schema {
    include!(concat!(env!("OUT_DIR"), "/sennit.peer.v1.rs"));
}

#[cfg(test)]
mod tests;
