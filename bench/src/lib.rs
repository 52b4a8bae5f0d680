//! The benchmark harness: workloads that measure a broker from outside, with clients in processes of their own.
//!
//! [`Workload`] -> rows to measure -> a parent starts [`worker`]s with a plan each, gives the start, measures the
//! costs of the broker, and compares confirmed with received messages -> [`Row`]. bench/README.md describes the
//! measurement of each workload and each field.
//!
//! This crate knows the client and the kernel's accounts, and nothing of the broker's inside.

mod backlog;
mod bare_fan_out;
mod bare_fan_out_latency;
mod broker;
mod catch_up;
mod child;
mod children;
mod clock;
mod comparison;
mod comparison_results;
mod connect;
mod consumer;
mod echo;
mod fair_results;
mod fair_shares;
mod fan_out;
mod flood;
mod flooded_tenant;
mod http;
mod http_stream_results;
mod kill_results;
mod lag;
mod latency;
mod link;
mod live;
mod live_results;
mod load;
mod many_streams;
mod many_topics;
mod merge;
mod nodes;
mod options;
mod parked;
mod parked_reader_results;
mod pauses;
mod phases;
mod plan;
mod probe;
mod producer;
mod quiet_tenant;
mod reader;
mod replicated;
mod row;
mod run;
mod run_topic;
mod sequence_check;
mod socket;
mod stalled_results;
mod stamp;
mod synced_file;
mod tenant_queue;
mod throttled_tenant;
mod usage;
pub mod worker;
mod worker_messages;
mod workload;
mod write_amplification;

pub use children::end_children;
pub use live::RedisError;
pub use options::Options;
pub use row::Row;
pub use run::{Workload, run};
