//! How much the lane takes at a time. Everything that gathers while a commit is under way goes with the
//! next, and only then a checkpoint begins or gets on: so long may a replay be beyond what is due.

use std::collections::VecDeque;

use sennit_journal::Frame;

/// So many checkpoints back: those that a replay and the replay before begin with, one that is written
/// and not yet stated, one under way, and one more after a restart.
const CHECKPOINTS: usize = 5;

/// The longest take between one checkpoint's end and the next one's, for the last few.
#[derive(Debug, Default)]
pub struct Takes {
    longest: VecDeque<u64>,
    checkpoints: u64,
}

impl Takes {
    /// The lane took these, and so many checkpoints were written in this life.
    pub fn taken(&mut self, frames: &[Frame], checkpoints: u64) {
        let (Some(first), Some(last)) = (frames.first(), frames.last()) else { return };
        let bytes = last.end.0 - first.position.0;
        if self.longest.is_empty() {
            self.longest.push_back(0);
        }
        // The end of a checkpoint comes behind all that gathered.
        if let Some(longest) = self.longest.back_mut() {
            *longest = bytes.max(*longest);
        }
        if self.checkpoints != checkpoints {
            self.checkpoints = checkpoints;
            self.longest.push_back(0);
            self.longest.drain(..self.longest.len().saturating_sub(CHECKPOINTS + 1));
        }
    }

    /// The longest since the checkpoint from which a replay may have to begin, in bytes.
    #[must_use]
    pub fn longest(&self) -> u64 {
        self.longest.iter().copied().max().unwrap_or(0)
    }
}
