//! The part of a replica's log that its lane has synced for certain, as the frames tell.

use std::collections::BTreeMap;

use sennit_journal::Frame;
use sennit_replication::{Message, MessageKind};
use sennit_shard::{Entry, EntryId, GroupRecord, Here, LOG_BEGIN, Labels};

use crate::{
    cluster::{raft_judge::VOTES_KEPT, sent_messages::AFTER_SYNC},
    oracle::Violation,
};

/// The promise that a start has what was synced.
pub const STARTS_WITH_ALL: &str = "I1 a start has all entries that were synced";

/// The terms of the synced entries by index, and the last vote.
#[derive(Debug)]
pub struct SyncedLog {
    terms: BTreeMap<u64, u64>,
    vote: (u64, u64),
}

/// The first record of a frame, if it is one of a group.
pub fn begin_of(frame: &Frame) -> Option<GroupRecord> {
    let (kind, _, body) = frame.records().next()?;
    GroupRecord::is_kind(kind)
        .then(|| GroupRecord::decode(kind, &body).expect("it was encoded just now"))
}

impl SyncedLog {
    /// The log of a replica that has never run.
    pub fn new() -> Self {
        Self { terms: BTreeMap::new(), vote: (LOG_BEGIN.term, 0) }
    }

    /// The term of the entry at an index.
    pub fn term(&self, index: u64) -> Option<u64> {
        self.terms.get(&index).copied()
    }

    /// The lane has synced frames, in order.
    pub fn add(&mut self, frames: &[Frame]) {
        for begin in frames.iter().filter_map(begin_of) {
            match begin {
                GroupRecord::Entry(Entry { id, .. }) => self.put(id),
                GroupRecord::Here(Here { term, vote, .. }) => self.vote = (term, vote),
                GroupRecord::Stands(_)
                | GroupRecord::Membership(_)
                | GroupRecord::Quarantined(_) => {}
            }
        }
    }

    fn put(&mut self, id: EntryId) {
        self.terms.split_off(&id.index);
        self.terms.insert(id.index, id.term);
    }

    /// Compares with what a start has found. `unsynced` are frames of which the last life had not said that they are
    /// synced: any first part of them may be found.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn check_start(
        &mut self,
        here: Here,
        labels: &Labels,
        unsynced: &[Frame],
    ) -> Result<(), Violation> {
        let found = (here.term, here.vote);
        let may_be = |begin: GroupRecord| matches!(begin, GroupRecord::Here(here) if (here.term, here.vote) == found);
        if found != self.vote && !unsynced.iter().filter_map(begin_of).any(may_be) {
            let detail = format!("{:?} was synced, and a start finds {found:?}", self.vote);
            return Err(Violation::new(VOTES_KEPT, detail));
        }
        self.vote = found;
        let rewritten = unsynced.iter().filter_map(begin_of).filter_map(|begin| match begin {
            GroupRecord::Entry(entry) => Some(entry.id.index),
            _ => None,
        });
        let is_certain_before = rewritten.min().unwrap_or(u64::MAX);
        for (index, term) in self.terms.range(labels.first_index()..is_certain_before) {
            if labels.term(*index) != Some(*term) {
                let found = labels.term(*index);
                let detail = format!("entry {index} of term {term} was synced, found is {found:?}");
                return Err(Violation::new(STARTS_WITH_ALL, detail));
            }
        }
        self.terms.split_off(&labels.first_index());
        for index in labels.first_index()..=labels.last().index {
            self.terms.extend(labels.term(index).map(|term| (index, term)));
        }
        Ok(())
    }

    /// Checks that a message which leaves speaks of nothing that a crash would take back. `own` is the term of the
    /// entry that it speaks of in the sender's log, and `term` the sender's.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn check_sent(
        &self,
        message: &Message,
        term: u64,
        own: impl FnOnce(u64) -> Option<u64>,
    ) -> Result<(), Violation> {
        let keeps_vote =
            |vote: u64| self.vote.0 > message.term || self.vote == (message.term, vote);
        let is_kept = match &message.kind {
            MessageKind::Appended { index, .. } if *index > LOG_BEGIN.index => {
                // An entry that was cut since is of an older leader, whom nobody believes any more.
                message.term < term || own(*index).is_some_and(|own| self.term(*index) == Some(own))
            }
            MessageKind::Vote { pre_vote: false, granted: true, .. } => keeps_vote(message.to),
            MessageKind::RequestVote { pre_vote: false, .. } => keeps_vote(message.from),
            _ => true,
        };
        match is_kept {
            true => Ok(()),
            false => Err(Violation::new(AFTER_SYNC, format!("{message:?}, synced {self:?}"))),
        }
    }
}
