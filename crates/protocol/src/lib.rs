//! The native protocol: converts bytes to typed frames and back. Both ends and all tests use it.
//!
//! bytes -> [`Preface`] once, then [`FrameReader`] -> [`FrameHeader`] and body -> [`Request`] at the server,
//! [`Reply`] at the client. Control bodies are protobuf ([`control`]). The frames of the data path have a fixed
//! binary form and are decoded without copying ([`Publish`], [`Confirm`], [`Deliver`], [`Settle`], [`Settled`],
//! [`SetCredit`], [`Gap`], [`Taken`]). The page is docs/reference/protocol.md.
//!
//! [`peer`] is the protocol between the nodes of a cluster.
//!
//! This crate knows no socket, no queue and no file, and does not interpret frames.

mod config;
mod confirm;
pub mod control;
mod decode_error;
mod deliver;
mod durability;
mod error_code;
mod error_reply;
mod features;
mod frame_header;
mod frame_reader;
mod gap;
mod kind;
pub mod peer;
mod preface;
mod publish;
mod publish_at;
mod publish_atomic;
mod publish_note;
mod reply;
mod request;
mod runs;
mod scheduling_config;
mod set_credit;
mod settle;
mod settled;
mod taken;

pub use config::{negotiated_frame_bytes_max, topic_kind};
pub use confirm::{Confirm, ConfirmHead, ConfirmRun};
pub use decode_error::DecodeError;
pub use deliver::{Deliver, DeliverHead};
pub use error_code::ErrorCode;
pub use features::Features;
pub use frame_header::FrameHeader;
pub use frame_reader::FrameReader;
pub use gap::{Gap, GapReason};
pub use kind::Kind;
pub use preface::Preface;
pub use publish::{Publish, PublishHead};
pub use publish_at::{PublishAt, PublishedAt};
pub use publish_atomic::{AtomicAck, PublishAtomic};
pub use publish_note::PublishNote;
pub use reply::Reply;
pub use request::{CONTROL_REQUEST_BYTES_MAX, REWORK_REQUEST_BYTES_MAX, Request};
pub use runs::{Run, Runs};
/// The durability that frames carry in one byte.
pub use sennit_model::Durability;
pub use set_credit::SetCredit;
pub use settle::{Settle, SettleHead, SettleRun, Verdict};
pub use settled::Settled;
pub use taken::Taken;

/// The default port of a server.
pub const DEFAULT_PORT: u16 = 4438;

#[cfg(test)]
mod tests;
