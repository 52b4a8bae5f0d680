//! Many seeds without a broken promise, and each the same whenever it is run. `SENNIT_SIM_SEEDS` is their number;
//! with `SENNIT_TORTURE_SECONDS` there are more until that time is over.

use std::{
    env,
    num::ParseIntError,
    time::{Duration, Instant},
};

const SEEDS: u64 = 300;
const OPERATIONS: u64 = 2_000;

fn seeds() -> Result<u64, ParseIntError> {
    env::var("SENNIT_SIM_SEEDS").map_or(Ok(SEEDS), |text| text.parse())
}

#[test]
fn no_seed_breaks_a_promise() {
    let begun = Instant::now();
    let torture = env::var("SENNIT_TORTURE_SECONDS").map_or(0, |text| text.parse().unwrap());
    let mut from = seeds().unwrap();
    let mut failures = sennit_sim::run_all(0..from, OPERATIONS, 2, |_, _| {});
    while failures.is_empty() && begun.elapsed() < Duration::from_secs(torture) {
        failures = sennit_sim::run_all(from..from + SEEDS, OPERATIONS, 2, |_, _| {});
        from += SEEDS;
    }
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
