//! The labels of a replica's log: for each entry its term, and where in the lane its frame lies. They say what a
//! group has agreed on and not one byte of it; bodies are read from the lane.

use std::collections::{BTreeMap, VecDeque};

use sennit_journal::{FrameBody, Position};

use crate::group_record::{EntryContent, EntryId, Membership};

/// The entry before the first of a new group's log. Nobody has it: a replica that has nothing is not fed with
/// entries alone.
pub const LOG_BEGIN: EntryId = EntryId { term: 1, index: 1 };

/// The label of one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// The term of the leader that made it.
    pub term: u64,
    /// Its content.
    pub content: EntryContent,
    /// The body of its frame in the lane.
    pub body: FrameBody,
}

/// The labels of the entries that the lane holds, in order and without gaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels {
    /// The entry before the first.
    before: EntryId,
    labels: VecDeque<Label>,
    /// What the entries say that change the group's members.
    memberships: BTreeMap<u64, Membership>,
}

impl Labels {
    /// The labels of a log that begins behind the entry `before`.
    #[must_use]
    pub fn behind(before: EntryId) -> Self {
        Self { before, labels: VecDeque::new(), memberships: BTreeMap::new() }
    }

    /// The entry before the first: its term is known, its body is not.
    #[must_use]
    pub fn before(&self) -> EntryId {
        self.before
    }

    /// The index of the first entry whose body the lane holds; one behind the last if there is none.
    #[must_use]
    pub fn first_index(&self) -> u64 {
        self.before.index + 1
    }

    /// The last entry; the one before the first if there is none.
    #[must_use]
    pub fn last(&self) -> EntryId {
        let index = self.before.index + self.labels.len() as u64;
        EntryId { index, term: self.labels.back().map_or(self.before.term, |last| last.term) }
    }

    /// The term of the entry at `index`, which may be the one before the first.
    #[must_use]
    pub fn term(&self, index: u64) -> Option<u64> {
        match index == self.before.index {
            true => Some(self.before.term),
            false => self.get(index).map(|label| label.term),
        }
    }

    /// The label of the entry at `index`.
    #[must_use]
    pub fn get(&self, index: u64) -> Option<&Label> {
        let at = index.checked_sub(self.first_index())?;
        self.labels.get(usize::try_from(at).ok()?)
    }

    /// The members of which the entry at `index` speaks, if it changes them.
    #[must_use]
    pub fn membership(&self, index: u64) -> Option<&Membership> {
        self.memberships.get(&index)
    }

    /// The highest index whose frame ends at or before `end`. O(log entries).
    #[must_use]
    pub fn last_before(&self, end: Position) -> u64 {
        let count = self.labels.partition_point(|label| label.body.frame_end() <= end);
        self.before.index + count as u64
    }

    /// Bytes of the bodies behind the entry `commit`. O(those entries).
    pub(crate) fn bytes_behind(&self, commit: u64) -> u64 {
        self.bytes_between(commit, self.last().index + 1)
    }

    /// Bytes of the bodies of the entries behind `after` and before `before`. O(those entries).
    #[must_use]
    pub fn bytes_between(&self, after: u64, before: u64) -> u64 {
        let first = self.first_index();
        let nth = |index: u64| index.saturating_sub(first).min(self.labels.len() as u64) as usize;
        let (from, to) = (nth(after + 1), nth(before));
        self.labels.range(from..to.max(from)).map(|label| u64::from(label.body.bytes)).sum()
    }

    /// Adds the label of the next entry; returns its index.
    ///
    /// # Panics
    /// If its frame does not lie behind the others, or its term is lower.
    pub(crate) fn push(&mut self, label: Label) -> u64 {
        let last = self.labels.back();
        let is_behind = last.is_none_or(|last| last.body.frame_end() <= label.body.frame);
        assert!(is_behind && self.last().term <= label.term, "entries are out of order");
        self.labels.push_back(label);
        self.last().index
    }

    /// Notes the members of which the last entry speaks.
    ///
    /// # Panics
    /// If it does not change them.
    pub(crate) fn note_membership(&mut self, membership: Membership) {
        let changes =
            self.labels.back().is_some_and(|last| last.content == EntryContent::Membership);
        assert!(changes, "the entry changes no members");
        self.memberships.insert(self.last().index, membership);
    }

    /// Cuts the log: drops the entries from `index` on.
    ///
    /// # Panics
    /// If the log begins behind `index`.
    pub(crate) fn cut_from(&mut self, index: u64) {
        assert!(self.before.index < index, "the log begins behind entry {index}");
        let kept = usize::try_from(index - self.first_index()).unwrap_or(usize::MAX);
        self.labels.truncate(kept);
        self.memberships.split_off(&index);
    }

    /// Drops the entries whose frames end behind `end`.
    pub(crate) fn cut_behind(&mut self, end: Position) {
        self.cut_from(self.last_before(end) + 1);
    }

    /// Lets the log begin later: drops the entries below `index` whose frames lie before `position`.
    pub(crate) fn release_before(&mut self, position: Position, index: u64) {
        while self.first_index() < index
            && let Some(released) = self.labels.pop_front_if(|label| label.body.frame < position)
        {
            self.before = EntryId { term: released.term, index: self.before.index + 1 };
            self.memberships.remove(&self.before.index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The label of an entry of `term`, whose frame is the `block`th block.
    fn label(term: u64, block: u64) -> Label {
        let frame = Position(block * 4096);
        let body = FrameBody { frame, bytes: 100, checksum: block as u32, records: 1 };
        Label { term, content: EntryContent::Records, body }
    }

    fn labels(terms: &[u64]) -> Labels {
        let mut labels = Labels::behind(LOG_BEGIN);
        for (block, term) in (1..).zip(terms) {
            labels.push(label(*term, block));
        }
        labels
    }

    #[test]
    fn a_log_begins_behind_index_one() {
        let mut labels = labels(&[]);
        assert_eq!((labels.first_index(), labels.last()), (2, LOG_BEGIN));
        assert_eq!((labels.term(1), labels.term(2)), (Some(1), None));
        assert_eq!(labels.push(label(1, 1)), 2);
        assert_eq!(labels.last(), EntryId { term: 1, index: 2 });
    }

    #[test]
    fn what_is_cut_is_replaced_by_what_lies_later() {
        let mut labels = labels(&[1, 1, 2, 2]);
        labels.cut_from(4);
        assert_eq!(labels.last(), EntryId { term: 1, index: 3 });
        assert_eq!(labels.push(label(3, 9)), 4);
        assert_eq!(labels.get(4), Some(&label(3, 9)));
        assert_eq!((labels.get(1), labels.get(5)), (None, None));
        labels.cut_from(100);
        assert_eq!(labels.last().index, 4, "there is nothing to cut");
    }

    #[test]
    fn a_log_whose_oldest_segments_go_knows_the_term_before_its_first_entry() {
        let mut labels = labels(&[1, 2, 3]);
        labels.release_before(Position(3 * 4096), u64::MAX);
        assert_eq!((labels.first_index(), labels.before()), (4, EntryId { term: 2, index: 3 }));
        assert_eq!((labels.term(2), labels.term(3), labels.term(4)), (None, Some(2), Some(3)));
        labels.release_before(Position(u64::MAX), 4);
        assert_eq!(labels.first_index(), 4, "it holds on to the others");
        labels.release_before(Position(u64::MAX), u64::MAX);
        assert_eq!(labels.last(), EntryId { term: 3, index: 4 });
    }

    #[test]
    fn an_entry_is_before_a_position_if_its_frame_ends_there() {
        let labels = labels(&[1, 1]);
        assert_eq!(labels.last_before(Position(2 * 4096 - 1)), 1);
        assert_eq!(labels.last_before(Position(2 * 4096)), 2);
        assert_eq!(labels.last_before(Position(u64::MAX)), 3);
        let mut cut = labels.clone();
        cut.cut_behind(Position(2 * 4096));
        assert_eq!(cut.last().index, 2);
    }

    #[test]
    fn bytes_are_those_of_the_bodies_that_the_log_has() {
        let mut labels = labels(&[1, 1, 2, 2]);
        assert_eq!(
            [0, 1, 3, 5, 9].map(|commit| labels.bytes_behind(commit)),
            [400, 400, 200, 0, 0]
        );
        assert_eq!(labels.bytes_between(3, 5), 100);
        assert_eq!(labels.bytes_between(4, 3), 0);
        labels.release_before(Position(3 * 4096), u64::MAX);
        assert_eq!(labels.bytes_behind(1), 200);
    }

    #[test]
    fn a_label_takes_40_bytes() {
        assert_eq!(size_of::<Label>(), 40);
    }

    #[test]
    fn members_are_known_as_long_as_their_entries() {
        let mut labels = Labels::behind(LOG_BEGIN);
        for block in 1..=3 {
            labels.push(Label { content: EntryContent::Membership, ..label(1, block) });
            labels.note_membership(Membership::of_one(block));
        }
        let known = |labels: &Labels| [2, 3, 4].map(|index| labels.membership(index).is_some());
        assert_eq!(labels.membership(3), Some(&Membership::of_one(2)));
        labels.cut_from(4);
        assert_eq!(known(&labels), [true, true, false]);
        labels.release_before(Position(2 * 4096), u64::MAX);
        assert_eq!(known(&labels), [false, true, false]);
    }
}
