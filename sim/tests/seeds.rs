//! Many seeds without a broken promise, and each the same whenever it is run.

use std::{env, num::ParseIntError};

const SEEDS: u64 = 300;
const OPERATIONS: u64 = 2_000;

fn seeds() -> Result<u64, ParseIntError> {
    env::var("SENNIT_SIM_SEEDS").map_or(Ok(SEEDS), |text| text.parse())
}

#[test]
fn no_seed_breaks_a_promise() {
    let failures = sennit_sim::run_all(0..seeds().unwrap(), OPERATIONS, 2, |_, _| {});
    let texts: Vec<String> = failures.iter().take(10).map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), texts.join("\n"));
}

#[test]
fn a_seed_run_twice_does_the_same() {
    for seed in 0..8 {
        let once = sennit_sim::run(seed, 600, false);
        assert_eq!(once, sennit_sim::run(seed, 600, false));
    }
}
