//! A lane that keeps labels and votes: what was written is lost at a crash unless it was synced.

use std::collections::VecDeque;

use sennit_replication::{Content, EntryId, Label, Mark, Membership, Orders, Start, Vote};

use crate::seed::Seed;

/// A replica's lane.
#[derive(Clone)]
pub struct Lane {
    /// What a crash leaves.
    pub synced: Start,
    writes: VecDeque<Write>,
    /// It syncs nothing while this is set.
    pub stalled: bool,
}

#[derive(Clone)]
struct Write {
    mark: Mark,
    labels: Vec<Label>,
    vote: Option<Vote>,
    commit: u64,
    done_ns: u64,
}

impl Lane {
    /// A lane with this on it.
    pub fn new(start: Start) -> Self {
        Self { synced: start, writes: VecDeque::new(), stalled: false }
    }

    /// Writes what orders say; it is synced at `done_ns`.
    pub fn write(&mut self, orders: &Orders, done_ns: u64) {
        if let Some(mark) = orders.mark {
            self.writes.push_back(Write {
                mark,
                labels: orders.append.clone(),
                vote: orders.vote,
                commit: orders.committed,
                done_ns,
            });
        }
    }

    /// Syncs what is due, all with one sync: the newest mark.
    pub fn sync(&mut self, now_ns: u64) -> Option<Mark> {
        let mut mark = None;
        while !self.stalled
            && let Some(write) = self.writes.pop_front_if(|write| write.done_ns <= now_ns)
        {
            mark = Some(write.mark);
            self.keep(&write, write.labels.len());
        }
        mark
    }

    /// A crash: of what is not synced, a part from the front survives.
    pub fn crash(&mut self, seed: &mut Seed) {
        let survivors = seed.below(self.writes.len() as u64 + 1) as usize;
        let writes = std::mem::take(&mut self.writes);
        for (nth, write) in writes.iter().take(survivors).enumerate() {
            let torn = nth + 1 == survivors && write.vote.is_none();
            let count = write.labels.len() as u64;
            let whole = if torn { seed.below(count + 1) } else { count };
            self.keep(write, whole as usize);
        }
    }

    /// The term of a synced entry.
    pub fn synced_label(&self, index: u64) -> Option<&Label> {
        let nth = index.checked_sub(self.synced.before.index + 1)?;
        self.synced.labels.get(nth as usize)
    }

    /// With what a start begins: the members as of the commit that is known.
    pub fn start(&self, first_members: &Membership) -> Start {
        let mut start = self.synced.clone();
        start.membership = members_as_of(first_members, &start.labels, start.commit);
        start
    }

    /// Later wins: an entry voids all that lie before it from its index on.
    fn keep(&mut self, write: &Write, count: usize) {
        for label in &write.labels[..count] {
            let nth = (label.id.index - self.synced.before.index - 1) as usize;
            assert!(nth <= self.synced.labels.len(), "a gap in the log before {label:?}");
            self.synced.labels.truncate(nth);
            self.synced.labels.push(label.clone());
        }
        self.synced.vote = write.vote.unwrap_or(self.synced.vote);
        let last = self.synced.last();
        self.synced.vote.term = self.synced.vote.term.max(last.term);
        self.synced.commit = self.synced.commit.max(write.commit.min(last.index));
    }

    /// The last entry that is synced.
    pub fn last(&self) -> EntryId {
        self.synced.last()
    }
}

/// The members that a log says, up to an index.
pub fn members_as_of(first: &Membership, labels: &[Label], commit: u64) -> Membership {
    let said = labels.iter().filter(|label| label.id.index <= commit).rev();
    let mut said = said.filter_map(|label| match &label.content {
        Content::Membership(members) => Some((**members).clone()),
        Content::Records(_) | Content::TermBegan => None,
    });
    said.next().unwrap_or_else(|| first.clone())
}
