//! The simulator's command line: one seed with its steps, or a range of seeds.

mod progress;

use std::{
    io::Write,
    process::ExitCode,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use clap::Parser;
use progress::Progress;
use sennit_sim::{
    ClusterKind, RunCounts, cluster_mix, mix, run, run_all, run_cluster, run_clusters,
    run_group_lanes, run_rot, run_scenarios, run_sequences, traced_course,
};

/// Runs everything below the waterline on a disk that fails, as seeds tell it to.
#[derive(Debug, Parser)]
struct Arguments {
    /// One seed.
    #[arg(long, default_value_t = 0, conflicts_with = "seeds")]
    seed: u64,
    /// Many seeds: FROM..TO, without TO.
    #[arg(long, value_name = "FROM..TO", value_parser = range)]
    seeds: Option<(u64, u64)>,
    /// How many operations each seed has.
    #[arg(long, default_value_t = 2_000)]
    operations: u64,
    /// How many seeds run at a time.
    #[arg(long, default_value_t = 2)]
    threads: u64,
    /// All sequences of so many acts, with a crash at each call of the disk.
    #[arg(long, conflicts_with_all = ["seed", "seeds", "scenarios"])]
    sequences: Option<usize>,
    /// All scenarios, with each call of the disk failing.
    #[arg(long, conflicts_with_all = ["seed", "seeds"])]
    scenarios: bool,
    /// Lanes of replicas, whose entries are overridden, one for each seed.
    #[arg(long, value_name = "FROM..TO", value_parser = range, conflicts_with_all = ["seed", "seeds"])]
    group_lanes: Option<(u64, u64)>,
    /// All scenarios, with bits that rot at their ends.
    #[arg(long, conflicts_with_all = ["seed", "seeds"])]
    rot: bool,
    /// With scenarios: every crash at every call, and every end after every failure, instead of one by
    /// turns.
    #[arg(long, requires = "scenarios")]
    whole: bool,
    /// One seed of a cluster: nodes, their disks, and the network between them.
    #[arg(long, value_name = "SEED", conflicts_with_all = ["seed", "seeds", "sequences", "scenarios", "rot"])]
    cluster: Option<u64>,
    /// Many seeds of clusters: FROM..TO, without TO.
    #[arg(long, value_name = "FROM..TO", value_parser = range, conflicts_with_all = ["seed", "seeds", "sequences", "scenarios", "rot", "cluster"])]
    clusters: Option<(u64, u64)>,
    /// One seed of a cluster whose replicas have shards, with clients.
    #[arg(long, value_name = "SEED", conflicts_with_all = ["seed", "seeds", "sequences", "scenarios", "rot", "cluster", "clusters"])]
    shard_cluster: Option<u64>,
    /// Many seeds of such clusters: FROM..TO, without TO.
    #[arg(long, value_name = "FROM..TO", value_parser = range, conflicts_with_all = ["seed", "seeds", "sequences", "scenarios", "rot", "cluster", "clusters", "shard_cluster"])]
    shard_clusters: Option<(u64, u64)>,
    /// Write each step to standard error.
    #[arg(long)]
    trace: bool,
}

fn range(text: &str) -> Result<(u64, u64), String> {
    let (from, to) = text.split_once("..").ok_or("it has no `..`")?;
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text:?}: {error}"));
    Ok((number(from)?, number(to)?))
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.sequences.is_some() || arguments.scenarios || arguments.rot {
        return courses(&arguments);
    }
    if let Some((from, to)) = arguments.group_lanes {
        return group_lanes(from, to);
    }
    let Arguments { cluster, clusters: seeds, shard_cluster, shard_clusters, .. } = arguments;
    if cluster.is_some() || seeds.is_some() {
        return clusters(ClusterKind::Labels, cluster, seeds, &arguments);
    }
    if shard_cluster.is_some() || shard_clusters.is_some() {
        return clusters(ClusterKind::Shards, shard_cluster, shard_clusters, &arguments);
    }
    let (from, to) = arguments.seeds.unwrap_or((arguments.seed, arguments.seed + 1));
    let mut out = std::io::stdout();
    if arguments.seeds.is_none() {
        let ended = run(from, arguments.operations, arguments.trace);
        let (line, code) = match ended {
            Ok(finished) => {
                (format!("seed {from}: {finished:?}\n  {}", mix(from)), ExitCode::SUCCESS)
            }
            Err(failure) => (failure.to_string(), ExitCode::FAILURE),
        };
        // Where nobody reads any more, nobody misses it.
        let _ = writeln!(out, "{line}");
        return code;
    }
    let count = to.saturating_sub(from);
    let progress = Progress::new("seeds");
    let (done, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    let failures = run_all(from..to, arguments.operations, arguments.threads, |_, ended| {
        let failed_now = u64::from(ended.is_err());
        let failed = failed.fetch_add(failed_now, Relaxed) + failed_now;
        if let Err(failure) = ended {
            // At once: whoever stops a long run has what it found.
            progress.say(&failure.to_string());
        }
        progress.update(done.fetch_add(1, Relaxed) + 1, count, failed);
    });
    progress.end();
    let _ = writeln!(out, "{count} seeds, {} failed", failures.len());
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the lanes of these seeds.
fn group_lanes(from: u64, to: u64) -> ExitCode {
    let (line, code) = match run_group_lanes(from..to) {
        Ok(count) => (format!("{count} lanes"), ExitCode::SUCCESS),
        Err((seed, violation)) => (format!("lane {seed}: {violation}"), ExitCode::FAILURE),
    };
    let _ = writeln!(std::io::stdout(), "{line}");
    code
}

/// Runs one cluster, or many.
fn clusters(
    kind: ClusterKind,
    one: Option<u64>,
    many: Option<(u64, u64)>,
    arguments: &Arguments,
) -> ExitCode {
    let mut out = std::io::stdout();
    if let Some(seed) = one {
        let (line, code) = match run_cluster(kind, seed, arguments.trace) {
            Ok(run) => (
                format!("cluster seed {seed}: {run:?}\n  {}", cluster_mix(kind, seed)),
                ExitCode::SUCCESS,
            ),
            Err(failure) => (failure.to_string(), ExitCode::FAILURE),
        };
        let _ = writeln!(out, "{line}");
        return code;
    }
    let (from, to) = many.unwrap_or_default();
    let count = to.saturating_sub(from);
    let progress = Progress::new("clusters");
    let (done, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    let failures = run_clusters(kind, from..to, arguments.threads, |ended| {
        let failed_now = u64::from(ended.is_err());
        let failed = failed.fetch_add(failed_now, Relaxed) + failed_now;
        if let Err(failure) = ended {
            progress.say(&failure.to_string());
        }
        progress.update(done.fetch_add(1, Relaxed) + 1, count, failed);
    });
    progress.end();
    let _ = writeln!(out, "{count} clusters, {} failed", failures.len());
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs short sequences or scenarios. With a trace, it prints the steps of the one that fails.
fn courses(arguments: &Arguments) -> ExitCode {
    let threads = arguments.threads as usize;
    let of = if arguments.sequences.is_some() { "sequences" } else { "scenarios" };
    let progress = Progress::new(of);
    let told = |done, all| progress.update(done, all, 0);
    let ran = match arguments.sequences {
        Some(length) => run_sequences(length, threads, told),
        None if arguments.rot => run_rot(threads, told),
        None => run_scenarios(arguments.whole, threads, told),
    };
    progress.end();
    let mut out = std::io::stdout();
    match ran {
        Ok(counted) => {
            let RunCounts { courses, points, runs } = counted;
            let _ = writeln!(out, "{courses} {of}, {points} calls, {runs} runs");
            ExitCode::SUCCESS
        }
        Err(broken) => {
            if arguments.trace {
                let (acts, from) = (&broken.acts, broken.from);
                let _ = traced_course(acts, from, broken.injected_fault, broken.ending, true);
            }
            let _ = writeln!(out, "{broken}");
            ExitCode::FAILURE
        }
    }
}
