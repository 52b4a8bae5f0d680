//! Everything around the shards: threads, sockets, sessions, placement, budgets, HTTP. It knows
//! how a lease travels, not when it expires; where a lane lies, not how a segment is laid out.
//!
//! In reading order: [`serve`] starts a core thread per shard; a `listener` hands it connections;
//! a `connection` reads frames and a `session` makes commands of them; the `core` runs the shard
//! and carries its frames to the `lane_thread`; effects leave through an `outbox`. Names and
//! settings go through `control`, on the first core. A `backup` and the `scrub_thread` reach the
//! shards' files through `doors`.

mod answers;
mod archive;
mod arrival;
mod asked;
mod backup;
mod breaks;
mod changes;
mod clock;
mod config;
mod connection;
mod control;
mod control_request;
mod core;
mod core_thread;
mod delivery_frames;
mod descriptors;
mod disk_need;
mod doors;
mod drain;
mod error;
mod fitting;
mod found;
mod gauge;
mod holding_back;
mod http;
mod inbox;
mod key_file;
mod lane_thread;
mod listener;
mod metrics;
mod move_thread;
mod move_turn;
mod native_control;
mod needs;
mod neighbours;
mod outbox;
mod outgoing;
mod pace;
mod placement;
mod priority;
mod read_thread;
mod refusal_reply;
mod repair;
mod reserve;
mod reserved;
mod resting;
mod restore;
mod routes;
mod scrub_thread;
mod send_queue;
mod serve;
mod services;
mod session;
mod slot_thread;
mod spelling;
mod storage;
mod stream_control;
mod stream_lineage;
mod stream_offset;
mod stream_request;
mod streams;
mod streams_together;
mod subscription_request;
mod subscriptions;
mod successor;
mod topic_listener;
mod waiting_room;
mod watching;

pub use archive::{ArchiveError, ArchiveSummary, check_archive};
pub use config::Config;
pub use error::ServeError;
pub use http::{
    Headers, HostName, HostNameError, HttpOrigin, HttpOriginError, PublicUrl, PublicUrlError,
    Received, Refused, Request, RequestDecoder, StreamStorage, StreamStorageError,
    StreamStorageRule, StreamStorageRuleError,
};
pub use repair::{ShardRepair, repair_storage};
pub use restore::{RestoreError, Restored, restore};
pub use sennit_journal::{Damage, Fault, disk::Access};
pub use serve::{Addresses, serve};
pub use storage::{ShardVerdict, verify_storage};
