//! The simulator of a cluster: one seed is one run of nodes with disks and clocks of their own, and a network between
//! them.
//!
//! In reading order: `weather` draws the parameters and the troubles, `course` carries messages and time to the nodes,
//! `network` is between them, `label_node` is a node with a group's log of labels, and `raft_judge` and
//! `sent_messages` hold them against the promises. `shard_node` is a node with a real shard, `clients` are those who
//! publish, consume and read, and `shard_judge` holds all of these against the promises, with `agreed_log` and
//! `synced_log`.

mod agenda;
mod agreed_log;
mod clients;
mod clock;
mod course;
mod judge;
mod label_lane;
mod label_node;
mod network;
mod node;
mod raft_judge;
mod rot;
mod sent_messages;
mod shard_judge;
mod shard_node;
mod shard_weather;
mod synced_log;
mod weather;

use std::{
    fmt,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
};

use clients::Clients;
use course::Course;
use judge::Judge;
use label_node::LabelNode;
use raft_judge::RaftJudge;
use shard_judge::ShardJudge;
use shard_node::ShardNode;
use shard_weather::ShardWeather;
use weather::Weather;

use crate::{oracle::Violation, seeds::run_on_threads, trace::Trace};

/// Time with troubles.
const TROUBLED_US: (u64, u64) = (5_000_000, 20_000_000);
/// The same of a cluster of shards, which does more in that time.
const SHARDS_TROUBLED_US: (u64, u64) = (4_000_000, 8_000_000);
/// Time without troubles, at the end.
const QUIET_US: u64 = 10_000_000;
/// The same of a cluster of shards; progress ends it.
const SHARDS_QUIET_US: u64 = 5_000_000;
/// The same of one whose messages come in any order: a replica that is behind catches up one entry at a time.
const EVIL_SHARDS_QUIET_US: u64 = 30_000_000;

/// The logs and states of a cluster's replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterKind {
    /// Labels alone: raft without payloads.
    Labels,
    /// Real shards, with clients.
    Shards,
}

/// The result of a run of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterRun {
    /// The hash of everything that happened.
    pub hash: u64,
    /// The number of steps.
    pub steps: u64,
    /// The number of terms that had a leader.
    pub terms: usize,
    /// The number of entries with records that were committed.
    pub committed: u64,
    /// How often a state was made anew.
    pub rebuilds: u64,
    /// The number of operations of clients.
    pub operations: usize,
    /// Whether a replica stayed behind for want of a shipment.
    pub needs_shipment: bool,
}

/// A promise that was broken in a run of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterFailure {
    /// The replicas.
    pub kind: ClusterKind,
    /// The run's seed.
    pub seed: u64,
    /// The broken promise.
    pub violation: Violation,
}

impl fmt::Display for ClusterFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, seed, violation } = self;
        let option = match kind {
            ClusterKind::Labels => "--cluster",
            ClusterKind::Shards => "--shard-cluster",
        };
        write!(
            f,
            "cluster seed {seed}: {violation}\n  replay: cargo run --release -p sennit-sim -- {option} {seed} --trace\n  {}",
            cluster_mix(*kind, *seed)
        )
    }
}

/// The parameters of a seed as text.
#[must_use]
pub fn cluster_mix(kind: ClusterKind, seed: u64) -> String {
    match kind {
        ClusterKind::Labels => format!("{:?}", Weather::of_seed(seed).0),
        ClusterKind::Shards => {
            let (weather, shards, _) = ShardWeather::of_seed(seed);
            format!("{weather:?}\n  {shards:?}")
        }
    }
}

/// Runs a cluster of a seed.
///
/// # Errors
/// The first promise that was broken.
pub fn run_cluster(kind: ClusterKind, seed: u64, echo: bool) -> Result<ClusterRun, ClusterFailure> {
    run_traced(kind, seed, Trace::new(echo))
}

fn run_traced(kind: ClusterKind, seed: u64, trace: Trace) -> Result<ClusterRun, ClusterFailure> {
    let whole = || match kind {
        ClusterKind::Labels => run_labels(seed, trace),
        ClusterKind::Shards => run_shards(seed, trace),
    };
    let ended = catch_unwind(AssertUnwindSafe(whole)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied());
        Err(Violation::new("no assertion fails", text.unwrap_or("it does not say which")))
    });
    ended.map_err(|violation| ClusterFailure { kind, seed, violation })
}

fn run_labels(seed: u64, trace: Trace) -> Result<ClusterRun, Violation> {
    let (weather, mut random) = Weather::of_seed(seed);
    trace.step(format_args!("cluster seed {seed}: {weather:?}"));
    let nodes = weather.nodes;
    let judge = RaftJudge::new(nodes, !weather.is_evil);
    let node = |node| LabelNode::new(node, &weather, &mut random, trace.clone());
    let label_nodes = (0..nodes).map(node).collect();
    let troubled_us = random.between(TROUBLED_US.0, TROUBLED_US.1);
    let mut course = Course::new(weather, random, label_nodes, judge, trace.clone());
    course.run(troubled_us, QUIET_US)?;
    let (terms, committed) = (course.judge.terms(), course.judge.progress());
    let (hash, steps) = (trace.hash(), trace.steps());
    Ok(ClusterRun {
        hash,
        steps,
        terms,
        committed,
        rebuilds: 0,
        operations: 0,
        needs_shipment: false,
    })
}

fn run_shards(seed: u64, trace: Trace) -> Result<ClusterRun, Violation> {
    let (weather, shards, mut random) = ShardWeather::of_seed(seed);
    trace.step(format_args!("cluster seed {seed}: {weather:?} {shards:?}"));
    let nodes = weather.nodes;
    let clients = Clients::new(&shards, !weather.is_evil, random.number());
    let judge = ShardJudge::new(nodes, !weather.is_evil, clients);
    let node = |node| ShardNode::new(node, nodes, &shards, random.number(), trace.clone());
    let shard_nodes = (0..nodes).map(node).collect();
    let troubled_us = random.between(SHARDS_TROUBLED_US.0, SHARDS_TROUBLED_US.1);
    let quiet_us = if weather.is_evil { EVIL_SHARDS_QUIET_US } else { SHARDS_QUIET_US };
    let mut course = Course::new(weather, random, shard_nodes, judge, trace.clone());
    course.run(troubled_us, quiet_us)?;
    let (terms, committed) = (course.judge.terms(), course.judge.progress());
    let rebuilds = course.nodes.iter().map(|node| node.rebuilds).sum();
    let operations = course.judge.clients.history().operations().len();
    let (hash, steps) = (trace.hash(), trace.steps());
    let needs_shipment = course.judge.needs_shipment();
    Ok(ClusterRun { hash, steps, terms, committed, rebuilds, operations, needs_shipment })
}

/// Runs clusters on `threads` threads, and returns the failures, by seed. They are not traced. `each` receives the result of every run.
pub fn run_clusters(
    kind: ClusterKind,
    seeds: Range<u64>,
    threads: u64,
    each: impl Fn(&Result<ClusterRun, ClusterFailure>) + Sync,
) -> Vec<ClusterFailure> {
    run_on_threads(seeds, threads, |seed| {
        let ended = run_traced(kind, seed, Trace::silent());
        each(&ended);
        ended.map(drop)
    })
}
