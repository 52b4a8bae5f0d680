//! The real binary on a real disk: messages come out as they went in, confirmed ones survive a kill, and errors are
//! reported with their exit codes. Knows commands and processes only.
#![expect(
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a test that cannot go on says where, and the seed is printed"
)]

mod asking;
mod atomic;
mod atomic_publish;
mod auth;
mod backup;
mod bench_live;
mod bounds;
mod broker;
mod checker;
mod client_certificates;
mod cluster_disks;
mod cluster_groups;
mod cluster_names;
mod cluster_nodes;
mod cluster_pauses;
mod compaction;
mod config;
mod contexts;
mod crash;
mod delayed;
mod descriptors;
mod durability;
mod exec;
mod explain;
mod fair;
mod fair_settings;
mod fila_features;
mod files;
mod formats;
mod full_disk;
mod gaps;
mod golden;
mod golden_dedup;
mod golden_delayed;
mod golden_groups;
mod golden_kinds;
mod golden_workbench;
mod group_metrics;
mod groups;
mod histories;
mod hook_failures;
mod hooks;
mod http_streams;
mod interrupts;
mod kept_counts;
mod kv;
mod ledger;
mod limits;
mod live;
mod live_targets;
mod lost_brokers;
mod memory;
mod node_directories;
mod node_links;
mod order;
mod patterns;
mod pipes;
mod quotas;
mod reading;
mod refusals;
mod request;
mod rotten;
mod schedules;
mod sealed;
mod short_frames;
mod skipped;
mod small_disk;
mod soak;
mod storage;
mod stream_ends;
mod subscriptions;
mod tls;
mod tls_trust;
mod together;
mod tokens;
mod torture;
mod traces;
mod typed;
mod verdicts;
mod workbench;
