//! The simulator of a cluster: one seed is one run of nodes with disks and clocks of their own, and a network between
//! them.
//!
//! In reading order: `weather` draws the parameters and the troubles, `course` carries messages and time to the nodes,
//! `network` is between them, `label_node` is a node with a group's log of labels, and `raft_judge` and
//! `sent_messages` hold them against the promises.

mod agenda;
mod clock;
mod course;
mod label_lane;
mod label_node;
mod network;
mod node;
mod raft_judge;
mod sent_messages;
mod weather;

use std::{
    fmt,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
};

use course::{Course, Judge};
use label_node::LabelNode;
use raft_judge::RaftJudge;
use weather::Weather;

use crate::{oracle::Violation, seeds::run_on_threads, trace::Trace};

/// Time with troubles.
const TROUBLED_US: (u64, u64) = (5_000_000, 20_000_000);
/// Time without troubles, at the end.
const QUIET_US: u64 = 10_000_000;

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
}

/// A promise that was broken in a run of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterFailure {
    /// The run's seed.
    pub seed: u64,
    /// The broken promise.
    pub violation: Violation,
}

impl fmt::Display for ClusterFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, violation } = self;
        write!(
            f,
            "cluster seed {seed}: {violation}\n  replay: cargo run --release -p sennit-sim -- --cluster {seed} --trace\n  {}",
            cluster_mix(*seed)
        )
    }
}

/// The parameters of a seed as text.
#[must_use]
pub fn cluster_mix(seed: u64) -> String {
    format!("{:?}", Weather::of_seed(seed).0)
}

/// Runs a cluster of a seed.
///
/// # Errors
/// The first promise that was broken.
pub fn run_cluster(seed: u64, echo: bool) -> Result<ClusterRun, ClusterFailure> {
    run_traced(seed, Trace::new(echo))
}

fn run_traced(seed: u64, trace: Trace) -> Result<ClusterRun, ClusterFailure> {
    let whole = || {
        let (weather, mut random) = Weather::of_seed(seed);
        trace.step(format_args!("cluster seed {seed}: {weather:?}"));
        let nodes = weather.nodes;
        let judge = RaftJudge::new(nodes, !weather.is_evil);
        let node = |node| LabelNode::new(node, &weather, &mut random, trace.clone());
        let label_nodes = (0..nodes).map(node).collect();
        let troubled_us = random.between(TROUBLED_US.0, TROUBLED_US.1);
        let mut course = Course::new(weather, random, label_nodes, judge, trace.clone());
        course.run(troubled_us, QUIET_US)?;
        let (hash, steps) = (trace.hash(), trace.steps());
        let (terms, committed) = (course.judge.terms(), course.judge.progress());
        Ok(ClusterRun { hash, steps, terms, committed })
    };
    let ended = catch_unwind(AssertUnwindSafe(whole)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied());
        Err(Violation::new("no assertion fails", text.unwrap_or("it does not say which")))
    });
    ended.map_err(|violation| ClusterFailure { seed, violation })
}

/// Runs clusters on `threads` threads, and returns the failures, by seed. They are not traced. `each` receives the result of every run.
pub fn run_clusters(
    seeds: Range<u64>,
    threads: u64,
    each: impl Fn(&Result<ClusterRun, ClusterFailure>) + Sync,
) -> Vec<ClusterFailure> {
    run_on_threads(seeds, threads, |seed| {
        let ended = run_traced(seed, Trace::silent());
        each(&ended);
        ended.map(drop)
    })
}
