//! Histories of a model broker, which keeps its promises by its making: the checker finds nothing in them, and
//! something in each that was changed afterwards.

mod broker;
mod changes;

use proptest::prelude::*;
use sennit_history::check;

use crate::{
    broker::{Choices, history_of},
    changes::{CHANGES, change},
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_history_of_a_log_breaks_no_rule(seed: u64, steps in 10_usize..1500) {
        let verdict = check(&history_of(seed, steps));
        prop_assert!(verdict.violations.is_empty(), "{:#?}", verdict.violations);
    }

    #[test]
    fn a_history_that_was_changed_breaks_one(seed: u64, steps in 100_usize..1500, which in 0..CHANGES) {
        let mut history = history_of(seed, steps);
        if change(&mut history, which, &mut Choices::new(seed)) {
            let violations = check(&history).violations;
            prop_assert!(!violations.is_empty(), "change {which} is not found");
        }
    }
}

#[test]
fn each_change_can_be_made_and_is_found() {
    for which in 0..CHANGES {
        let made = (0..40).filter(|&seed| {
            let mut history = history_of(seed, 800);
            let is_made = change(&mut history, which, &mut Choices::new(seed));
            assert!(!is_made || !check(&history).violations.is_empty(), "{which} of seed {seed}");
            is_made
        });
        assert!(made.count() > 0, "change {which} is never made");
    }
}

#[test]
fn a_long_history_is_judged() {
    let verdict = check(&history_of(1, 400_000));
    assert_eq!(verdict.violations, []);
    assert!(verdict.counts.operations > 100_000, "{:?}", verdict.counts);
}
