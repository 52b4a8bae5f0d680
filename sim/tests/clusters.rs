//! Many clusters without a broken promise, and each the same whenever it is run. `SENNIT_SIM_CLUSTERS` is their number.

use std::env;

const SEEDS: u64 = 100;

#[test]
fn no_cluster_breaks_a_promise() {
    let seeds = env::var("SENNIT_SIM_CLUSTERS").map_or(SEEDS, |text| text.parse().unwrap());
    let failures = sennit_sim::run_clusters(0..seeds, 2, |_| {});
    let texts: Vec<String> = failures.iter().take(10).map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), texts.join("\n"));
}

#[test]
fn a_cluster_run_twice_does_the_same() {
    for seed in 0..5 {
        let once = sennit_sim::run_cluster(seed, false).unwrap();
        assert!(once.committed > 0, "{once:?}");
        assert_eq!(Ok(once), sennit_sim::run_cluster(seed, false));
    }
}
