//! The simulator: one seed is one run of everything below the waterline, on a disk that fails and with a clock that
//! jumps. An oracle that knows only the promises judges it.
//!
//! In reading order: `swarm` draws the parameters of a run, `run` draws its operations, `world` executes them with
//! `mover_steps` for the mover, `publishers`, `consumers`, `readers`, `streams`, `native_publishers` and `topics`
//! are its users, and `oracle` judges; `follower` has the state that the same records make. `group_lanes` has
//! lanes of replicas, whose entries are overridden.
//! `cluster` runs several nodes and the network between them.

mod act;
mod atomic_append_actions;
mod atomic_step_actions;
mod atomic_workers;
mod atomic_writers;
mod cluster;
mod consumers;
mod disk;
mod drain;
mod fair_settings;
mod follower;
mod full_disk;
mod group_lanes;
mod lane_batches;
mod mover_steps;
mod native_publishers;
mod native_publishing;
mod numbered_messages;
pub mod oracle;
mod publishers;
mod random;
mod reader_actions;
mod readers;
mod rot;
mod run;
mod scenarios;
mod script;
mod seeds;
mod sequences;
mod stream_actions;
mod streams;
mod swarm;
mod topics;
mod trace;
mod turns;
mod workbench;
mod workbench_actions;
mod workbench_topics;
mod world;

pub use act::Act;
pub use cluster::{
    ClusterFailure, ClusterKind, ClusterRun, cluster_mix, run_cluster, run_clusters,
};
pub use disk::InjectedFault;
pub use group_lanes::{FailedLane, run_group_lanes};
pub use run::{Failure, Finished, mix, run, run_all};
pub use scenarios::{SCENARIOS, run_rot, run_scenarios};
pub use script::Ending;
pub use sequences::{ALPHABET, FailedCourse, RunCounts, run_sequences, traced_course};

/// A run has millions of short generations, each with new allocations.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
