//! Sennit's Rust client, on tokio.
//!
//! [`Client`] -> [`Publisher`] -> [`Pending`] -> [`Confirm`] for those who publish,
//! [`Client`] -> [`Consumer`] -> [`Delivery`] -> its verdict for those who consume,
//! [`Client`] -> [`Reader`] -> [`ReadMessage`] for those who read. One task owns the
//! socket; it reconnects, sends again and subscribes again by itself. Publishers encode messages into
//! buffers that this task sends batch by batch, and consumers get each frame's messages at once, so
//! that nothing is allocated and no channel is passed for a message of its own.
//!
//! This crate knows the protocol and the model, and nothing of the broker's inside.

mod admin;
mod asked;
mod auto_commit;
mod bell;
mod client;
mod connection;
mod consumer;
mod conversation;
mod delivery;
mod delivery_queue;
mod error;
mod gap;
mod heard;
mod joining;
mod link;
mod outbox;
mod outgoing;
mod partition_buffer;
mod pattern_reader;
mod pending;
mod pool;
mod publisher;
mod publisher_core;
mod read_range;
mod read_run;
mod read_window;
mod reader;
mod reader_queue;
mod readings;
mod reconnect;
mod session;
mod settle_ledger;
mod settle_queue;
mod shares;
mod subscriptions;
mod unsettled;
mod untaken;
mod watchings;

pub use admin::{
    Cursor, GroupDescription, ParkedRun, PartitionDescription, TopicDescription, TopicSummary,
};
pub use auto_commit::AutoCommit;
pub use client::{Client, ClientBuilder};
pub use consumer::{Consumer, ConsumerBuilder};
pub use delivery::{Delivery, DeliveryRun};
pub use error::Error;
pub use gap::{Gap, Received};
pub use pattern_reader::{PatternReader, PatternReaderBuilder};
pub use pending::{Confirm, ConfirmedRun, Pending, PendingBatch};
pub use publisher::{Publisher, PublisherBuilder};
pub use read_range::ReadRange;
pub use read_run::{ReadMessage, ReadRun};
pub use reader::{Reader, ReaderBuilder};
pub use reconnect::Reconnect;
pub use settle_queue::Settled;

// What the signatures above are made of, so that a program needs this crate only.
pub use sennit_model::{
    Batch, BatchBuilder, BatchError, CursorName, Filter, FilterError, Generation, GroupConfig,
    GroupId, GroupName, Header, HeaderKind, Headers, Message, MessageView, Messages, Offset,
    OffsetRange, PartitionIndex, ProducerId, ReadFrom, Retention, StartAt, Timestamp, TopicConfig,
    TopicId, TopicKind, TopicName, TopicPattern, WhenSlow,
};
pub use sennit_protocol::{DEFAULT_PORT, Durability, ErrorCode, GapReason};

/// The README's example, which is compiled with the documentation's tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;
