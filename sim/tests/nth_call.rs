//! Scenarios, each with a fault in its nth call of the disk, for every n and every fault. With
//! `SENNIT_TORTURE_SECONDS` each run ends in all ways.

use std::{collections::BTreeSet, env};

use sennit_sim::SCENARIOS;

#[test]
fn every_promise_holds_whichever_call_fails() {
    let whole = env::var_os("SENNIT_TORTURE_SECONDS").is_some();
    match sennit_sim::run_scenarios(whole, 2, |_, _| {}) {
        Ok(counted) => {
            assert!(counted.points > 100 * counted.courses, "{counted:?}");
            assert!(counted.runs > counted.points, "{counted:?}");
        }
        Err(broken) => panic!("{broken}"),
    }
}

#[test]
fn rot_in_any_block_is_reported_and_loses_nothing_else() {
    match sennit_sim::run_rot(2, |_, _| {}) {
        Ok(counted) => assert!(counted.runs > 10 * counted.courses, "{counted:?}"),
        Err(broken) => panic!("{broken}"),
    }
}

#[test]
fn no_scenario_occurs_twice() {
    let names: BTreeSet<_> = SCENARIOS.iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), SCENARIOS.len());
    for (at, (name, acts)) in SCENARIOS.iter().enumerate() {
        let twin = SCENARIOS[..at].iter().find(|(_, other)| other == acts);
        assert_eq!(twin, None, "{name}");
    }
}
