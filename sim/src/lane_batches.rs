//! The sizes of the lane's writes. All records that gather during a commit go with the next write, and only then a
//! checkpoint begins or continues; a replay may exceed its bound by this much.

use std::collections::VecDeque;

use sennit_journal::Frame;

/// The number of checkpoints that are remembered: those at the start of the replay and of the one
/// before, one that is written and not announced, one under way, and one more after a restart.
const CHECKPOINTS: usize = 5;

/// The largest write between two checkpoints, for the last few.
#[derive(Debug, Default)]
pub struct LaneBatches {
    longest: VecDeque<u64>,
    checkpoints: u64,
}

impl LaneBatches {
    /// Notes a write of the lane, and the number of checkpoints since the start.
    pub fn taken(&mut self, frames: &[Frame], checkpoints: u64) {
        let (Some(first), Some(last)) = (frames.first(), frames.last()) else { return };
        let bytes = last.end.0 - first.position.0;
        if self.longest.is_empty() {
            self.longest.push_back(0);
        }
        // The end of a checkpoint follows all records that have gathered.
        if let Some(longest) = self.longest.back_mut() {
            *longest = bytes.max(*longest);
        }
        if self.checkpoints != checkpoints {
            self.checkpoints = checkpoints;
            self.longest.push_back(0);
            self.longest.drain(..self.longest.len().saturating_sub(CHECKPOINTS + 1));
        }
    }

    /// The largest write since the checkpoint at which a replay may begin, in bytes.
    #[must_use]
    pub fn longest(&self) -> u64 {
        self.longest.iter().copied().max().unwrap_or(0)
    }
}
