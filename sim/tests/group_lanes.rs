//! Lanes of replicas whose entries are overridden, and what a start makes of them.

const SEEDS: u64 = 100;

#[test]
fn of_each_index_a_start_has_the_entry_that_lies_last() {
    match sennit_sim::run_group_lanes(0..SEEDS) {
        Ok(count) => assert_eq!(count, SEEDS),
        Err((seed, violation)) => panic!("lane {seed}: {violation}"),
    }
}
