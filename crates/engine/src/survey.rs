//! A walk over all partitions, a part at a time, that adds up what no turn counts. What it found is a
//! little old when it is told, and nothing depends on it.

use crate::{engine::Engine, folded::Folded, partition::Partition};

/// What a survey of all partitions found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Parked messages of all groups.
    pub parked: u64,
}

/// A survey under way.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// The place at which it goes on.
    hand: u32,
    so_far: Findings,
}

impl Engine {
    /// Goes on with a survey, by one of so many `parts` of all partitions. Returns what it found once
    /// it has come round. Costs a step for each partition that is looked at; one that is folded is
    /// unfolded only if it may have something to tell.
    pub fn survey(&mut self, parts: u32) -> Option<Findings> {
        let Survey { hand, so_far } = &mut self.survey;
        *hand = self.partitions.look_at_some(*hand, parts, may_tell, |held| so_far.add(held));
        (*hand == 0).then(|| std::mem::take(so_far))
    }
}

/// What is parked keeps a partition from being folded.
fn may_tell(_: &Folded) -> bool {
    false
}

impl Findings {
    fn add(&mut self, partition: &Partition) {
        if partition.parks() {
            self.parked += partition.groups.iter().map(|group| group.dying.count()).sum::<u64>();
        }
    }
}
