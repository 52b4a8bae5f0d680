//! Everything around the shards: threads, sockets, sessions, placement, budgets, HTTP. It knows
//! how a lease travels, not when it expires; where a lane lies, not how a segment is laid out.
//!
//! In reading order: [`serve`] starts a core thread per shard; a `listener` hands it connections;
//! a `connection` reads frames and a `session` makes commands of them; the `core` runs the shard
//! and carries its frames to the `lane_thread`; effects leave through an `outbox`. Names and
//! settings go through `control`, on the first core. A `backup` and the `scrub_thread` reach the
//! shards' files through `doors`.

mod broker;
mod config;
mod core_thread;
mod doors;
mod http;
mod runtime;
mod serve;
mod subscriptions;

pub use broker::archive::{ArchiveError, ArchiveSummary, check_archive};
pub use broker::repair::{ShardRepair, repair_storage};
pub use broker::restore::{RestoreError, Restored, restore};
pub use broker::storage_check::{ShardVerdict, verify_storage};
pub use config::Config;
pub use doors::streams::{
    PublicUrl, PublicUrlError, StreamStorage, StreamStorageError, StreamStorageRule,
    StreamStorageRuleError,
};
pub use http::{
    Headers, HostName, HostNameError, HttpOrigin, HttpOriginError, Received, Refused, Request,
    RequestDecoder,
};
pub use runtime::error::ServeError;
pub use sennit_journal::{Damage, Fault, disk::Access};
pub use serve::{Addresses, serve};
