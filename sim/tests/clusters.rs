//! Many clusters of labels and of shards without a broken promise, and each the same whenever it is run. `SENNIT_SIM_CLUSTERS` is the
//! number of the former, `SENNIT_SIM_SHARD_CLUSTERS` that of the latter.

use std::env;

use sennit_sim::ClusterKind;

const SEEDS: u64 = 100;

const SHARD_SEEDS: u64 = 300;

/// Runs the seeds of a kind. `variable` names the variable of the environment that says how many.
fn run(kind: ClusterKind, variable: &str, most: u64) {
    let seeds = env::var(variable).map_or(most, |text| text.parse().expect("a number"));
    let failures = sennit_sim::run_clusters(kind, 0..seeds, 2, |_| {});
    let texts: Vec<String> = failures.iter().take(10).map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), texts.join("\n"));
}

#[test]
fn no_cluster_breaks_a_promise() {
    run(ClusterKind::Labels, "SENNIT_SIM_CLUSTERS", SEEDS);
}

#[test]
fn no_cluster_of_shards_breaks_a_promise() {
    run(ClusterKind::Shards, "SENNIT_SIM_SHARD_CLUSTERS", SHARD_SEEDS);
}

#[test]
fn a_cluster_run_twice_does_the_same() {
    for kind in [ClusterKind::Labels, ClusterKind::Shards] {
        for seed in 0..5 {
            let once = sennit_sim::run_cluster(kind, seed, false).unwrap();
            assert!(once.committed > 0, "{once:?}");
            assert_eq!(Ok(once), sennit_sim::run_cluster(kind, seed, false));
        }
    }
}
