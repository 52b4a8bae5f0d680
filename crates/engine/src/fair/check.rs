//! The index is checked against what is ready and what is leased; for tests and debug builds.

use std::ops::Range;

use super::{Fair, FlowState};
use crate::{classes::Classes, lane::Lane, runs::Runs, timer::NEVER, tries::Tries};

impl Fair {
    /// Asserts that each ready message is in the index, and that nothing can be given: for use after a pass that
    /// found nobody's room full.
    pub(crate) fn check(
        &self,
        ready: &Runs<Tries>,
        classes: &Classes,
        leased: impl Iterator<Item = Range<u64>>,
    ) {
        let mut indexed = Runs::default();
        for range in &self.arrived {
            indexed.insert(range.start, range.end, ());
        }
        for lane in &self.lanes {
            lane.ranges().for_each(|range| indexed.insert(range.start, range.end, ()));
        }
        let runs: usize = self.lanes.iter().map(Lane::len).sum();
        assert_eq!(runs, self.runs, "runs are counted");
        for (start, end, _) in ready.iter() {
            for gap in indexed.gaps(start, end) {
                classes.runs(gap, |part, class| {
                    let rest = self.lanes.get(class as usize).map_or(u64::MAX, Lane::rest);
                    assert!(rest <= part.start, "{part:?} is ready and not in the index");
                });
            }
        }
        let mut in_flight = vec![0; self.keys.len()];
        let counted = leased.chain(self.released.iter().cloned());
        for run in counted {
            classes.runs(run, |part, class| {
                let key = self.key_number(class, classes);
                in_flight[key as usize] += part.end - part.start;
            });
        }
        for (number, (key, counted)) in self.keys.iter().zip(in_flight).enumerate() {
            assert_eq!(key.in_flight, counted, "of key {number} so many are under way");
        }
    }

    /// Whether something could be given if somebody had room.
    pub(crate) fn has_turn(&self) -> bool {
        let waits_for_group = self.wakes_at < NEVER && self.wakes_at <= self.group_free_at;
        let mut flows = self.rings.iter().flat_map(|ring| &ring.flows);
        !self.arrived.is_empty()
            || !waits_for_group
                && flows.any(|&(flow, age)| self.flows[flow as usize].is(age, FlowState::InRing))
    }
}
