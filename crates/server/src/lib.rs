//! Everything around the shards: threads, sockets, sessions, placement, budgets, HTTP. It knows
//! how a lease travels, not when it expires; where a lane lies, not how a segment is laid out.
//!
//! Its layers, each in a folder: `runtime` runs the shards; `broker` controls names and settings, finds streams by
//! name, and makes backups; `cluster` has the links to other nodes; `hooks` runs the scripts of topics; `identity` says who asks; `http` is the transport of HTTP; `subscriptions` wakes workers
//! when streams grow; `doors` speak the protocols. [`serve`], the `core_thread`, `config` and `reload` put them together.
//! ARCHITECTURE.md says which layer may name which.

mod access;
mod broker;
mod cluster;
mod config;
mod core_thread;
mod doors;
mod hooks;
mod http;
mod identity;
mod reload;
mod runtime;
mod serve;
mod subscriptions;

pub use broker::archive::{ArchiveError, ArchiveSummary, check_archive};
pub use broker::configuration::{ConfigurationChange, KeptConfiguration, KeptConfigurationError};
pub use broker::name_change::{NameChangeError, NameMessage};
pub use broker::repair::{ShardRepair, repair_storage};
pub use broker::restore::{RestoreError, Restored, restore};
pub use broker::storage_check::{ShardVerdict, verify_storage};
pub use cluster::settings::{ClusterSettings, PeerAddress, PeerAddressError};
pub use config::Config;
pub use doors::api::ApiBody;
pub use doors::live::backend::{
    BackendAsk, BackendAskError, LiveBackend, LiveBackendUrl, LiveBackendUrlError,
};
pub use doors::live::relay::{
    LiveRedis,
    message::{RelayDecodeError, RelayMessage},
    redis_link::{RedisUrl, RedisUrlError},
};
pub use doors::streams::{
    PublicUrl, PublicUrlError, StreamStorage, StreamStorageError, StreamStorageRule,
    StreamStorageRuleError,
};
pub use http::{
    Headers, HostName, HostNameError, HttpOrigin, HttpOriginError, Received, Refused, Request,
    RequestDecoder,
};
pub use identity::{KeySetUrl, KeySetUrlError, TokenConfig, TokenConfigError, TokenKeySource};
pub use runtime::error::ServeError;
pub use runtime::tls_reload::TlsReload;
pub use runtime::tls_settings::BrokerCertificate;
pub use sennit_identity::Zeroizing;
pub use sennit_journal::{Damage, Fault, NODE_ID_MAX, disk::Access};
pub use sennit_tls::{CertificateFiles, ClientCertificates, Fingerprint};
pub use serve::{Addresses, Started, TlsAddress, serve, serve_and_reload};
