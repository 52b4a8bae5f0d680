//! The broker above its shards: the control of names and settings, streams by name, backup and repair. It
//! knows no protocol.

pub(crate) mod archive;
pub(crate) mod atomic_append;
pub(crate) mod audit;
pub(crate) mod audit_stream;
pub(crate) mod backup;
pub(crate) mod catalogue_needs;
pub(crate) mod cluster_secrets;
pub(crate) mod configuration;
pub(crate) mod control;
pub(crate) mod control_peers;
pub(crate) mod control_request;
pub(crate) mod interrupted_reads;
pub(crate) mod key_file;
pub(crate) mod key_use_store;
pub(crate) mod live_changes;
pub(crate) mod name_change;
pub(crate) mod path_encoding;
pub(crate) mod publish_hook;
pub(crate) mod recovered_state;
pub(crate) mod repair;
pub(crate) mod reserved_names;
pub(crate) mod restore;
pub(crate) mod schedules;
pub(crate) mod scrub_thread;
pub(crate) mod storage_check;
pub(crate) mod stream_control;
pub(crate) mod stream_lineage;
pub(crate) mod stream_offset;
pub(crate) mod stream_request;
pub(crate) mod streams;
pub(crate) mod tenant_storage;
pub(crate) mod topic_listener;
pub(crate) mod topic_locks;
