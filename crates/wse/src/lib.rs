//! The WSE protocol, as PyPI's `wse-client` speaks it: the bytes of a client become requests, events become bytes. A message of
//! a topic is written with its stamp: topic, epoch and offset, by which a client drops what it has and notices what is missing.
//!
//! In reading order: [`decode`] makes [`Request`]s of a message, with `list` for its lists; [`put_event`] writes what the broker
//! says, and [`put_message`] what a topic has. [`is_reserved`] knows the types that clients act on, which no message of a topic
//! may have. [`CloseCode`] says why a connection ends. There is no socket here, no clock, and no topic.

mod close_code;
mod decode_error;
mod event;
mod list;
mod message;
mod request;
mod reserved;

#[cfg(test)]
mod tests;

pub use close_code::CloseCode;
pub use decode_error::DecodeError;
pub use event::{Event, Position, put_event};
pub use list::LIST_MAX;
pub use message::{Category, MessageView, put_message};
pub use request::{Publish, Request, decode};
pub use reserved::is_reserved;

/// The version of the protocol.
pub const VERSION: u32 = 1;

/// Bytes of the longest message that clients take: they drop longer ones, or close the connection.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;
