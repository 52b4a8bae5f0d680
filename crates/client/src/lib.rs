//! Sennit's Rust client, on tokio.
//!
//! A program that publishes uses [`Client`] -> [`Publisher`] -> [`Pending`] -> [`Confirm`]. A consumer uses
//! [`Client`] -> [`Consumer`] -> [`Delivery`] -> a verdict. A reader uses [`Client`] -> [`Reader`] ->
//! [`ReadMessage`].
//!
//! One task owns the socket. It reconnects, sends unconfirmed batches again and renews subscriptions. Publishers
//! encode messages into buffers, and the task sends these batch by batch. Consumers take all messages of a frame at
//! once. So no message costs an allocation or a channel of its own.
//!
//! This crate knows the protocol and the model, and nothing of the broker's inside.

mod access;
mod addresses;
mod admin;
mod atomic;
mod atomic_steps;
mod auto_commit;
mod client;
mod configuration;
mod configuration_event;
mod configuration_watch;
mod configuration_watches;
mod connection;
mod connection_handle;
mod consumer;
mod conversation;
mod credential;
mod delayed;
mod delivery;
mod delivery_queue;
mod error;
mod explain;
mod gap;
mod hooks;
mod inbox;
mod leaderless;
mod outbox;
mod partition_buffer;
mod pattern_reader;
mod pattern_watch;
mod pending;
mod pending_request;
mod pool;
mod publisher;
mod publisher_core;
mod read_range;
mod read_run;
mod read_window;
mod reader;
mod reader_queue;
mod readers;
mod ready_list;
mod receive_window;
mod reconnect;
mod requests;
mod schedules;
mod sent_settlements;
mod sequence_ranges;
mod session;
mod settle_queue;
mod subscriptions;
mod unsettled;
mod watched_topics;
mod watches;
mod wire;
mod workbench;
mod write_buffer;

pub use access::{
    Access, AccessChanged, AccessEntry, AccessKind, Holder, PrincipalName, Quotas, RightDecision,
};
pub use admin::{
    Cursor, GroupDescription, ParkedRun, PartitionDescription, TopicDescription, TopicSummary,
};
pub use atomic::{Atomic, AtomicConfirm};
pub use auto_commit::AutoCommit;
pub use client::{Client, ClientBuilder};
pub use configuration::{Configuration, ConfigurationChanged, ConfigurationPage};
pub use configuration_event::{ConfigurationChange, ConfigurationEntry, ConfigurationEvent};
pub use configuration_watch::ConfigurationWatch;
pub use consumer::{Consumer, ConsumerBuilder};
pub use credential::Credential;
pub use delayed::{DelayedPage, DelayedRun, DueTime};
pub use delivery::{Delivery, DeliveryRun};
pub use error::Error;
pub use explain::{ExplainSubject, Explanation, FairKey, KeyDeliveries, WaitReason};
pub use gap::{Gap, Received};
pub use hooks::{
    HookChanged, HookCore, HookDescription, HookOnError, HookState, HookSummary, HookVersion,
};
pub use inbox::{HEADER_CORRELATION_ID, HEADER_REPLY_TO};
pub use pattern_reader::{PatternReader, PatternReaderBuilder};
pub use pending::{Confirm, ConfirmedRun, Pending, PendingBatch};
pub use publisher::{Publisher, PublisherBuilder};
pub use read_range::ReadRange;
pub use read_run::{ReadMessage, ReadRun};
pub use reader::{Reader, ReaderBuilder};
pub use reconnect::Reconnect;
pub use requests::{INBOX_PREFIX, ReplyOutcome};
pub use schedules::{LastTick, Schedule, ScheduleConfig, SchedulePage};
pub use settle_queue::Settled;
pub use workbench::{
    CountRow, InspectVerb, Inspected, InspectedMessage, MessageEdit, MessagePage, MessageSelection,
    MessageState, ReworkVerb, Reworked,
};

// The types in the signatures above, so that a program needs only this crate.
pub use sennit_model::{
    Backoff, Batch, BatchBuilder, BatchError, CatchUp, ConfigurationKey, Cost, CursorName,
    FieldValues, Filter, FilterError, Generation, GroupChange, GroupConfig, GroupId, GroupName,
    Header, HeaderKind, HeaderName, Headers, KeyRule, KeyRules, Message, MessageFields,
    MessageView, Messages, Offset, OffsetRange, Order, Overlap, PartitionIndex, ProducerId,
    ReadFrom, Retention, RetryDelays, RetryPolicy, ScheduleName, StartAt, ThrottleError,
    ThrottlePattern, ThrottleRate, Timestamp, TopicConfig, TopicId, TopicKind, TopicName,
    TopicPattern, WhenSlow,
};
pub use sennit_protocol::{DEFAULT_PORT, Durability, ErrorCode, GapReason};
pub use sennit_tls::{CertificateFiles, Fingerprint, FingerprintError, TlsOptions};

/// The README's example, which is compiled with the documentation's tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;
