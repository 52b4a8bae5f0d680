//! The log of a replica, as the writer keeps it: the labels of the entries, and what the first record of the next frame
//! says. It does not write: the `writer` does, and the `replay` rebuilds it.

use sennit_engine::Record;
use sennit_journal::{FrameBody, Position};
use sennit_model::{Generation, Timestamp};

use crate::{
    group_record::{Entry, EntryContent, EntryId, GroupRecord, Here, Membership, Stands},
    labels::{LOG_BEGIN, Label, Labels},
    quarantine::Quarantine,
};

/// A shard as a replica of a group: its lane is the group's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replica {
    /// The number of the group.
    pub group: u64,
    /// The number of the replica; never 0.
    pub id: u64,
    /// Whether it is its group's only voter and no raft runs: each start is a term, and what the lane has synced is
    /// committed.
    pub is_alone: bool,
}

/// The two sorts of frames in a replica's lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameSort {
    /// An entry: what the group decided, the same on every replica.
    Entry,
    /// What this replica did by itself.
    Local,
}

impl FrameSort {
    /// The sort of frame in which records of the engine of this kind lie.
    pub(crate) fn of(record: &Record) -> Self {
        match record {
            Record::Moved { .. }
            | Record::CheckpointBegan { .. }
            | Record::CheckpointPart { .. }
            | Record::CheckpointEnded { .. } => Self::Local,
            _ => Self::Entry,
        }
    }
}

/// The log of a replica, and what it knows of its group.
#[derive(Clone, Debug)]
pub(crate) struct ReplicaLog {
    pub(crate) replica: Replica,
    /// What the next local frame says.
    pub(crate) here: Here,
    /// The members as of the commit.
    pub(crate) membership: Membership,
    /// The newest time in the group's records.
    pub(crate) time: Timestamp,
    pub(crate) labels: Labels,
    /// The reason why the replica is in quarantine, if it is.
    pub(crate) quarantine: Option<Quarantine>,
    /// The highest commit that a frame of the lane says.
    pub(crate) said_commit: u64,
    /// What gathers: an entry, or a frame of the replica's own.
    gathers: Option<Entry>,
}

impl ReplicaLog {
    /// The log of a new replica.
    pub(crate) fn new(replica: Replica) -> Self {
        let membership = match replica.is_alone {
            true => Membership::of_one(replica.id),
            false => Membership::default(),
        };
        Self {
            replica,
            here: Here { term: 0, vote: 0, commit: LOG_BEGIN.index },
            membership,
            time: Timestamp(0),
            labels: Labels::behind(LOG_BEGIN),
            quarantine: None,
            said_commit: LOG_BEGIN.index,
            gathers: None,
        }
    }

    /// Begins a life of the replica, in a lane that ends at `end`. Each life of one that is alone is a term, and what
    /// its lane has is committed.
    pub(crate) fn begin_life(&mut self, end: Position, generation: Generation, now: Timestamp) {
        self.labels.cut_behind(end);
        let last = self.labels.last().index;
        self.here.commit = self.here.commit.min(last);
        self.said_commit = self.here.commit;
        if self.replica.is_alone {
            let term = u64::from(generation.0);
            self.here = Here { term, vote: self.replica.id, commit: last };
            self.time = self.time.max(now);
        }
    }

    /// Returns whether the frame that gathers is of this sort.
    pub(crate) fn gathers(&self, sort: FrameSort) -> bool {
        (sort == FrameSort::Entry) == self.gathers.is_some()
    }

    /// The first record of the next frame, for one that holds records of the engine.
    pub(crate) fn head(&self, sort: FrameSort) -> GroupRecord {
        match sort {
            FrameSort::Entry => {
                let id = EntryId { term: self.here.term, index: self.labels.last().index + 1 };
                let (commit, content) = (self.here.commit, EntryContent::Records);
                Entry { id, commit, content }.into()
            }
            FrameSort::Local => self.here.into(),
        }
    }

    /// Notes that a frame begins with this record.
    pub(crate) fn begin(&mut self, head: &GroupRecord) {
        let said = match head {
            GroupRecord::Entry(entry) => entry.commit,
            GroupRecord::Here(here) => here.commit,
            _ => 0,
        };
        self.said_commit = self.said_commit.max(said);
        self.gathers = match head {
            GroupRecord::Entry(entry) => Some(*entry),
            _ => None,
        };
    }

    /// Notes that the frame that gathers is sealed.
    pub(crate) fn seal(&mut self, body: FrameBody) {
        if let Some(Entry { id, content, .. }) = self.gathers.take() {
            debug_assert_eq!(id.index, self.labels.last().index + 1, "entries have no gaps");
            self.labels.push(Label { term: id.term, content, body });
        }
    }

    /// The record that says where the checkpoint stands that begins now.
    pub(crate) fn stands(&self) -> Stands {
        let Replica { group, id: replica, .. } = self.replica;
        let (last, time, membership) = (self.labels.last(), self.time, self.membership.clone());
        Stands { group, replica, last, time, membership }
    }

    /// Notes the time of a record of the group.
    pub(crate) fn note_time(&mut self, record: &Record) {
        if let Some(time) = record.time() {
            self.time = self.time.max(time);
        }
    }

    /// Handles that the lane has synced everything before `end`.
    pub(crate) fn handle_synced(&mut self, end: Position) {
        if self.replica.is_alone {
            self.commit(self.labels.last_before(end));
        }
    }

    /// Notes that the entries up to `index` are committed.
    pub(crate) fn commit(&mut self, index: u64) {
        for committed in self.here.commit + 1..=index {
            if let Some(membership) = self.labels.membership(committed) {
                self.membership = membership.clone();
            }
        }
        self.here.commit = self.here.commit.max(index);
    }
}
