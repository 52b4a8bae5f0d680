//! The runtime that drives the shards: threads, lanes, the mail between cores, clock, budgets and metrics. It knows
//! no door, no topic by name and no protocol.

pub(crate) mod clock;
pub(crate) mod core;
pub(crate) mod count;
pub(crate) mod disk_need;
pub(crate) mod disk_reserve;
pub(crate) mod drain;
pub(crate) mod error;
pub(crate) mod file_descriptors;
pub(crate) mod group_metrics;
pub(crate) mod hook_metrics;
pub(crate) mod inbox;
pub(crate) mod index;
pub(crate) mod lane_thread;
pub(crate) mod listener;
pub(crate) mod memory_release;
pub(crate) mod metrics;
pub(crate) mod move_permit;
pub(crate) mod move_thread;
pub(crate) mod own_topic;
pub(crate) mod peer_cores;
pub(crate) mod placement;
pub(crate) mod publish_gauge;
pub(crate) mod read_thread;
pub(crate) mod reader_pacing;
pub(crate) mod send_budget;
pub(crate) mod services;
pub(crate) mod session_takeover;
pub(crate) mod shard_answers;
pub(crate) mod shard_files;
pub(crate) mod slot_thread;
pub(crate) mod thread_priority;
pub(crate) mod wire;
pub(crate) mod write_buffer;
