//! All short sequences of acts, with a crash at every call of the disk. `SENNIT_SIM_SEQUENCE` is the length of the
//! longest.

use std::env;

const LONGEST: usize = 3;

#[test]
fn after_a_crash_at_any_call_in_any_short_sequence_every_promise_holds() {
    let longest = env::var("SENNIT_SIM_SEQUENCE").map_or(LONGEST, |text| text.parse().unwrap());
    match sennit_sim::run_sequences(longest, 2, |_, _| {}) {
        Ok(counted) => {
            // Two ways to end a life without a crash, two at each call.
            assert!(counted.runs > 2 * counted.courses + 2 * counted.points, "{counted:?}");
            assert!(counted.points > 4 * counted.courses, "{counted:?}");
        }
        Err(broken) => panic!("{broken}"),
    }
}
