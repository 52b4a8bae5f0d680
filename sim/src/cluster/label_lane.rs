//! A lane that holds labels instead of frames: what is written, what is synced, what a crash leaves, and what a start
//! makes of it.

use sennit_replication::{GROUP_BEGINS, Label, Vote};

use crate::random::Random;

/// What a frame of the lane says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LabelFrame {
    /// An entry of the group.
    Entry(Label),
    /// The term of the replica and its vote in that.
    Vote(Vote),
}

/// What a start finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The entries, by index, without those that later ones override.
    pub labels: Vec<Label>,
    /// The newest term and vote.
    pub vote: Vote,
    /// The greatest commit index of which a frame knew.
    pub commit: u64,
}

impl Found {
    /// What an empty lane of a new group says.
    fn nothing() -> Self {
        let vote = Vote { term: GROUP_BEGINS.term, vote: None };
        Self { labels: Vec::new(), vote, commit: GROUP_BEGINS.index }
    }

    /// Adds a frame and the commit index that it knew: what lies later wins.
    fn add(&mut self, frame: &LabelFrame, commit: u64) {
        self.commit = self.commit.max(commit);
        match frame {
            LabelFrame::Vote(vote) => self.vote = *vote,
            LabelFrame::Entry(label) => {
                let kept = self.labels.partition_point(|held| held.id.index < label.id.index);
                self.labels.truncate(kept);
                self.labels.push(label.clone());
            }
        }
    }

    /// The entry of an index.
    #[must_use]
    pub fn label(&self, index: u64) -> Option<&Label> {
        self.labels.get(index.checked_sub(GROUP_BEGINS.index + 1)? as usize)
    }
}

/// The lane of a replica. It outlives the process.
#[derive(Debug)]
pub struct LabelLane {
    /// What was written and is not synced, each frame with the commit index that it knew.
    unsynced: Vec<(LabelFrame, u64)>,
    /// What a start finds if nothing but the synced frames is left.
    durable: Found,
}

impl LabelLane {
    /// An empty lane.
    #[must_use]
    pub fn new() -> Self {
        Self { unsynced: Vec::new(), durable: Found::nothing() }
    }

    /// Writes frames behind the others, each with the commit index that was known when it began.
    pub fn write(&mut self, frames: Vec<(LabelFrame, u64)>) {
        self.unsynced.extend(frames);
    }

    /// Syncs all that is written.
    pub fn sync(&mut self) {
        for (frame, commit) in self.unsynced.drain(..) {
            self.durable.add(&frame, commit);
        }
    }

    /// What a start finds if nothing but the synced frames is left.
    #[must_use]
    pub fn durable(&self) -> &Found {
        &self.durable
    }

    /// Loses what is not synced, from a random place on; nothing of it `keeps_all` times of a thousand.
    pub fn lose_unsynced(&mut self, random: &mut Random, keeps_all: u32) {
        if !random.chance(keeps_all) {
            let kept = random.below(self.unsynced.len() as u64 + 1) as usize;
            self.unsynced.truncate(kept);
        }
    }

    /// What a start finds. It syncs what a killed process has left unsynced, before it counts on it.
    pub fn start(&mut self) -> &Found {
        self.sync();
        &self.durable
    }
}

#[cfg(test)]
mod tests {
    use sennit_replication::{Content, EntryId};

    use super::*;

    fn entry(index: u64, term: u64) -> (LabelFrame, u64) {
        let id = EntryId { index, term };
        (LabelFrame::Entry(Label { id, content: Content::TermBegan }), 1)
    }

    #[test]
    fn a_later_entry_overrides_those_of_its_index_and_behind() {
        let mut lane = LabelLane::new();
        lane.write(vec![entry(2, 1), entry(3, 3), entry(4, 3), entry(3, 2)]);
        let found: Vec<_> = lane.start().labels.iter().map(|l| (l.id.index, l.id.term)).collect();
        assert_eq!(found, [(2, 1), (3, 2)]);
        assert_eq!(lane.durable().label(3).map(|label| label.id.term), Some(2));
        assert_eq!(lane.durable().label(4), None);
    }

    #[test]
    fn a_crash_loses_a_tail_of_what_is_not_synced() {
        let mut lengths = Vec::new();
        for seed in 0..50 {
            let mut lane = LabelLane::new();
            lane.write(vec![entry(2, 1), entry(3, 1)]);
            lane.sync();
            lane.write(vec![entry(4, 1), entry(5, 1), entry(6, 1)]);
            lane.lose_unsynced(&mut Random::new(seed), 0);
            lengths.push(lane.start().labels.len());
        }
        lengths.sort_unstable();
        lengths.dedup();
        assert_eq!(lengths, [2, 3, 4, 5]);
    }
}
