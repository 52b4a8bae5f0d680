//! The benchmark harness: workloads that measure a broker from outside, with clients in their own
//! processes.
//!
//! [`Workload`] -> rows to measure -> a parent starts [`worker`]s with a plan each, gives the start,
//! watches what the broker costs, and compares what was confirmed with what came -> [`Row`].
//! bench/README.md says how each workload measures and what each field means.
//!
//! This crate knows the client and the kernel's accounts, and nothing of the broker's inside.

mod amplification;
mod answered;
mod backlog;
mod bare;
mod bare_pace;
mod broker;
mod catch_up;
mod child;
mod children;
mod clock;
mod consumer;
mod echo;
mod fan_out;
mod ground;
mod http;
mod identity;
mod latency;
mod load;
mod many_streams;
mod many_topics;
mod merge;
mod options;
mod orders;
mod parked;
mod pauses;
mod plan;
mod probe;
mod producer;
mod reader;
mod row;
mod run;
mod socket;
mod stamp;
mod synced_file;
mod usage;
mod waited;
pub mod worker;
mod workload;

pub use children::end_children;
pub use options::Options;
pub use row::Row;
pub use run::{Workload, run};
