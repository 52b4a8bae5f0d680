//! What a replay learns of a replica's group from its lane: terms, votes, members, labels, and which entries count. An
//! entry waits until a later frame says that it is committed; until then a later frame may override it. Records of
//! the engine are passed on, and not looked at.

use bytes::Bytes;
use sennit_journal::{FrameBody, Position};

use crate::{
    entry_queue::EntryQueue,
    group_record::{
        ENTRY, Entry, EntryContent, EntryId, GroupRecord, GroupRecordError, Here, Membership,
        Stands,
    },
    labels::{Label, Labels},
    replica_log::{Replica, ReplicaLog},
    uncommitted::UNCOMMITTED_BYTES_MAX,
};

/// The reason why frames are not those of a replica's lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplicaError {
    /// A record of the group is not one.
    #[error(transparent)]
    Record(#[from] GroupRecordError),
    /// A frame does not begin as those of a replica do: the lane was not written by a replica.
    #[error("a frame does not begin with an entry or with the replica's own record")]
    NoHead,
    /// A record of a group stands where it may not.
    #[error("a record of kind {kind} stands in the wrong place")]
    Misplaced {
        /// The kind.
        kind: u8,
    },
    /// The lane belongs to another replica.
    #[error("the lane is replica {replica} of group {group}")]
    Other {
        /// The group that the lane names.
        group: u64,
        /// The replica that the lane names.
        replica: u64,
    },
    /// An entry does not follow those before it.
    #[error("entry {} of term {} follows entry {} of term {}", .found.index, .found.term, .last.index, .last.term)]
    Order {
        /// The entry.
        found: EntryId,
        /// The last one before it.
        last: EntryId,
    },
    /// An entry overrides one that was committed.
    #[error("entry {index} overrides one that was committed: the log is committed up to {commit}")]
    Committed {
        /// The index.
        index: u64,
        /// The index up to which the log is committed.
        commit: u64,
    },
    /// More is uncommitted than a group accepts.
    #[error("{bytes} bytes of entries are not committed, more than {UNCOMMITTED_BYTES_MAX}")]
    Uncommitted {
        /// The number of bytes.
        bytes: u64,
    },
}

/// A record of the engine: its kind, the position of its body, its body.
pub(crate) type EngineRecord = (u8, Position, Bytes);

/// An entry that waits.
#[derive(Debug)]
struct WaitingEntry {
    membership: Option<Membership>,
    records: Vec<EngineRecord>,
}

/// The frame that is being read.
#[derive(Debug)]
enum OpenFrame {
    Local,
    Entry(Entry, WaitingEntry),
}

/// The state of a replay of a replica's lane.
#[derive(Debug)]
pub(crate) struct ReplicaReading {
    /// The replica that the lane has to be, if that is known.
    expected: Option<Replica>,
    pub(crate) log: ReplicaLog,
    queue: EntryQueue<WaitingEntry>,
    open: Option<(FrameBody, OpenFrame)>,
    /// Whether the checkpoint is read with which the replay began: what lies before its end is committed.
    pub(crate) is_loading: bool,
    /// Whether entries may be missing before the next one, because damage was read.
    may_skip: bool,
    /// Whether damage was read in the lane of a replica that is not alone. Such a replica is in quarantine from its start on.
    is_damaged: bool,
    /// The lowest index of an entry that was applied at a damage, and which no frame says to be committed.
    assumed_from: u64,
    /// Whether an entry behind damage has contradicted what was applied. No further entry is applied.
    is_contradicted: bool,
    /// The lowest index that was overridden since it was asked for.
    voided: Option<u64>,
    /// The last frame that no later start may miss, as it says more of the group than those before.
    pub(crate) needed: Position,
}

impl ReplicaReading {
    pub(crate) fn new(expected: Option<Replica>) -> Self {
        let replica = expected.unwrap_or(Replica { group: 0, id: 0, is_alone: true });
        Self {
            expected,
            log: ReplicaLog::new(replica),
            queue: EntryQueue::default(),
            open: None,
            is_loading: false,
            may_skip: false,
            is_damaged: false,
            assumed_from: u64::MAX,
            is_contradicted: false,
            voided: None,
            needed: Position(0),
        }
    }

    /// Takes the next record. Appends the records of the engine that are to be applied now to `ready`.
    pub(crate) fn take(
        &mut self,
        (kind, position, body): EngineRecord,
        frame: FrameBody,
        ready: &mut Vec<EngineRecord>,
    ) -> Result<(), ReplicaError> {
        if self.open.as_ref().is_none_or(|(open, _)| open.frame != frame.frame) {
            self.close(ready)?;
            let head = self.head(kind, &body)?;
            let open = self.begin(head, frame, ready)?;
            self.open = Some((frame, open));
            return Ok(());
        }
        let misplaced = Err(ReplicaError::Misplaced { kind });
        let is_of_group = GroupRecord::is_kind(kind);
        match &mut self.open {
            Some((_, OpenFrame::Local)) if is_of_group => match GroupRecord::decode(kind, &body)? {
                GroupRecord::Stands(stands) => self.stand(stands),
                GroupRecord::Quarantined(quarantine) => {
                    self.log.quarantine.get_or_insert(quarantine);
                    self.needed = frame.frame;
                    Ok(())
                }
                _ => misplaced,
            },
            Some((_, OpenFrame::Entry(entry, waiting))) => {
                match (entry.content, is_of_group) {
                    (EntryContent::Records, false) => {
                        waiting.records.push((kind, position, body));
                    }
                    (EntryContent::Membership, true) => match GroupRecord::decode(kind, &body)? {
                        GroupRecord::Membership(members) => waiting.membership = Some(members),
                        _ => return misplaced,
                    },
                    _ => return misplaced,
                }
                Ok(())
            }
            _ => {
                ready.push((kind, position, body));
                Ok(())
            }
        }
    }

    /// The first record of a frame.
    fn head(&self, kind: u8, body: &[u8]) -> Result<GroupRecord, ReplicaError> {
        match GroupRecord::is_kind(kind) {
            true => Ok(GroupRecord::decode(kind, body)?),
            false => Err(ReplicaError::NoHead),
        }
    }

    fn begin(
        &mut self,
        head: GroupRecord,
        frame: FrameBody,
        ready: &mut Vec<EngineRecord>,
    ) -> Result<OpenFrame, ReplicaError> {
        match head {
            GroupRecord::Entry(entry) => {
                self.commit(entry.commit, ready);
                self.label(&entry, frame)?;
                let (membership, records) = (None, Vec::new());
                Ok(OpenFrame::Entry(entry, WaitingEntry { membership, records }))
            }
            GroupRecord::Here(here) => {
                let known = &mut self.log.here;
                if (known.term, known.vote) != (here.term, here.vote) && !self.log.replica.is_alone
                {
                    self.needed = frame.frame;
                }
                (known.term, known.vote) = (here.term, here.vote);
                self.commit(here.commit, ready);
                Ok(OpenFrame::Local)
            }
            head => Err(ReplicaError::Misplaced { kind: head.kind() }),
        }
    }

    /// Labels an entry. It overrides those from its index on that lie before it.
    fn label(&mut self, entry: &Entry, body: FrameBody) -> Result<(), ReplicaError> {
        let Entry { id, content, .. } = *entry;
        let (last, commit) = (self.log.labels.last(), self.log.here.commit);
        if self.may_skip && id.index > last.index + 1 {
            // The log begins again behind the first entry that is there.
            self.log.labels = Labels::behind(id);
            self.log.here.commit = commit.max(id.index);
            self.may_skip = false;
            return Ok(());
        }
        let before = self.log.labels.term(id.index - 1);
        let fault = match before.filter(|before| id.term >= *before) {
            _ if id.index <= commit => Some(ReplicaError::Committed { index: id.index, commit }),
            None => Some(ReplicaError::Order { found: id, last }),
            Some(_) => None,
        };
        if let Some(fault) = fault {
            if !self.is_damaged {
                return Err(fault);
            }
            self.begin_again(id);
            return Ok(());
        }
        if id.index <= last.index {
            self.void_from(id.index);
        }
        self.may_skip = false;
        self.log.labels.push(Label { term: id.term, content, body });
        if !self.log.replica.is_alone {
            self.needed = body.frame;
        }
        Ok(())
    }

    /// Begins the log again behind an entry that contradicts what was read before the damage: some of that was not
    /// committed, though it is applied.
    fn begin_again(&mut self, last: EntryId) {
        self.is_contradicted = true;
        self.queue.void_from(0);
        self.note_voided(self.assumed_from);
        self.log.labels = Labels::behind(last);
        self.log.here.commit = self.log.here.commit.max(last.index);
    }

    fn void_from(&mut self, index: u64) {
        self.queue.void_from(index);
        self.log.labels.cut_from(index);
        self.note_voided(index);
    }

    fn note_voided(&mut self, index: u64) {
        self.voided = Some(self.voided.map_or(index, |voided| voided.min(index)));
    }

    /// The lowest index that was overridden since the last call.
    pub(crate) fn take_voided(&mut self) -> Option<u64> {
        self.voided.take()
    }

    /// Ends the frame that is read: an entry waits from now on.
    fn close(&mut self, ready: &mut Vec<EngineRecord>) -> Result<(), ReplicaError> {
        let Some((frame, OpenFrame::Entry(entry, waiting))) = self.open.take() else {
            return Ok(());
        };
        let EntryId { index, .. } = entry.id;
        match &waiting.membership {
            None if entry.content == EntryContent::Membership => {
                return Err(ReplicaError::Misplaced { kind: ENTRY });
            }
            Some(membership) if self.log.labels.get(index).is_some() => {
                self.log.labels.note_membership(membership.clone());
            }
            _ => {}
        }
        self.queue.push(index, frame.bytes as usize, waiting);
        let bytes = self.queue.bytes() as u64;
        match bytes > UNCOMMITTED_BYTES_MAX && !self.is_loading {
            true if self.log.replica.is_alone => self.commit(index, ready),
            true => return Err(ReplicaError::Uncommitted { bytes }),
            false if self.is_loading => self.commit(index, ready),
            // It may be covered already, behind damage.
            false => self.commit(self.log.here.commit, ready),
        }
        Ok(())
    }

    /// The log is committed up to `commit`: what waits of it is ready.
    fn commit(&mut self, commit: u64, ready: &mut Vec<EngineRecord>) {
        self.log.here.commit = commit.max(self.log.here.commit);
        while let Some(entry) = self.queue.pop_committed(self.log.here.commit) {
            if let Some(membership) = entry.membership {
                self.log.membership = membership;
            }
            if !self.is_contradicted {
                ready.extend(entry.records);
            }
        }
    }

    /// A checkpoint begins behind this entry.
    fn stand(&mut self, stands: Stands) -> Result<(), ReplicaError> {
        let Stands { group, replica, last, time, membership } = stands;
        if self.expected.is_some_and(|expected| (expected.group, expected.id) != (group, replica)) {
            return Err(ReplicaError::Other { group, replica });
        }
        self.log.time = self.log.time.max(time);
        let (found, commit) = (self.log.labels.last(), self.log.here.commit);
        if self.is_loading || self.may_skip && last.index > found.index {
            // Nothing was read before it, or not all.
            self.log.labels = Labels::behind(last);
            self.log.membership = membership;
            self.log.here.commit = commit.max(last.index);
            self.may_skip = false;
            return Ok(());
        }
        let fault = match self.log.labels.term(last.index) {
            _ if last.index < commit => {
                Some(ReplicaError::Committed { index: last.index + 1, commit })
            }
            term if term != Some(last.term) => {
                Some(ReplicaError::Order { found: last, last: found })
            }
            _ => None,
        };
        if let Some(fault) = fault {
            if !self.is_damaged {
                return Err(fault);
            }
            self.begin_again(last);
            return Ok(());
        }
        if last.index < found.index {
            self.void_from(last.index + 1);
        }
        Ok(())
    }

    /// Records are missing here. All that waits is applied: entries from before and from behind are not mixed.
    pub(crate) fn damage(&mut self, ready: &mut Vec<EngineRecord>) -> Result<(), ReplicaError> {
        self.close(ready)?;
        self.assumed_from = self.assumed_from.min(self.log.here.commit + 1);
        self.commit(self.log.labels.last().index, ready);
        self.may_skip = true;
        self.is_damaged = !self.log.replica.is_alone;
        Ok(())
    }

    /// Ends the replay of a log, of which these are the labels: entries that are not where they say are cut. Those up to
    /// the entry `commit` are ready; the records of the others are appended to `rest`.
    pub(crate) fn finish_at(
        &mut self,
        labels: &Labels,
        commit: u64,
        ready: &mut Vec<EngineRecord>,
        rest: &mut Vec<EngineRecord>,
    ) -> Result<(), ReplicaError> {
        self.close(ready)?;
        let found = &self.log.labels;
        let is_cut = |index: &u64| {
            let [found, held] = [found, labels].map(|labels| labels.get(*index));
            found.map(|label| label.body.frame) != held.map(|label| label.body.frame)
        };
        let last = found.last().index;
        if let Some(cut) = (self.log.here.commit + 1..=last).find(is_cut) {
            self.void_from(cut);
        }
        self.commit(commit.min(self.log.labels.last().index), ready);
        self.take_rest(rest);
        Ok(())
    }

    /// Takes the records of what is not committed.
    fn take_rest(&mut self, rest: &mut Vec<EngineRecord>) {
        while let Some(entry) = self.queue.pop_committed(u64::MAX) {
            if !self.is_contradicted {
                rest.extend(entry.records);
            }
        }
    }

    /// Ends the replay. What waits is ready too in a replica that is alone. In a group it is not committed: its records
    /// are appended to `rest`.
    pub(crate) fn finish(
        &mut self,
        ready: &mut Vec<EngineRecord>,
        rest: &mut Vec<EngineRecord>,
    ) -> Result<(), ReplicaError> {
        self.close(ready)?;
        let last = self.log.labels.last();
        if self.log.replica.is_alone {
            self.commit(last.index, ready);
        }
        self.take_rest(rest);
        // Damage may have taken the entries of which a later frame has spoken, and the vote in the newest term.
        self.log.here.commit = self.log.here.commit.min(last.index);
        if self.log.here.term < last.term {
            self.log.here = Here { term: last.term, vote: 0, ..self.log.here };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
