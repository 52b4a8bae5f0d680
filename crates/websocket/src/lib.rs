//! WebSocket without sockets (RFC 6455), and messages that are compressed each by itself (RFC 7692): bytes in, messages
//! out, and back. It knows no socket, no clock, and nothing of what a message means.
//!
//! In reading order: an [`Upgrade`] is the request that makes a connection a WebSocket. A [`FrameHead`] begins each
//! frame, with an [`Opcode`]; `frame` writes whole ones, which many sockets may share. A [`Decoder`] makes
//! [`Incoming`] messages of what a socket received, or ends with a [`Fault`], which has a [`CloseCode`]. An [`Inflater`]
//! and a [`Deflater`] serve all connections of a core. With the feature `client`, `client` is the other end.

#[cfg(feature = "client")]
pub mod client;
mod close_code;
mod decoder;
mod deflate_offer;
mod deflater;
mod fault;
pub mod frame;
mod frame_head;
mod header_list;
mod inflater;
pub mod limits;
mod mask;
mod opcode;
mod unfinished;
mod upgrade;
mod upgrade_refusal;
mod utf8;
mod window_bits;

pub use close_code::CloseCode;
pub use decoder::{Close, Decoder, DecoderLimits, Incoming};
pub use deflate_offer::DeflateAnswer;
pub use deflater::Deflater;
pub use fault::Fault;
pub use frame_head::{End, FrameHead};
pub use inflater::{InflateFault, Inflater};
pub use opcode::Opcode;
pub use upgrade::Upgrade;
pub use upgrade_refusal::UpgradeRefusal;
pub use window_bits::WindowBits;
