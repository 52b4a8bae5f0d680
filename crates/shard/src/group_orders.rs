//! What its group has a replica's shard do: entries are appended and applied, the log is cut, a vote is kept, and the
//! commit index moves.

use bytes::Bytes;
use sennit_journal::{BodyError, Position};
use sennit_model::Timestamp;

use crate::{
    group_record::{EntryId, Membership},
    read_cache::Fetch,
    received_entry::{EntryError, ReceivedEntry},
    shard::Shard,
    standing::Standing,
    uncommitted::UNCOMMITTED_BYTES_MAX,
};

/// Where the body of an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryBody {
    /// In memory.
    Here(Bytes),
    /// In the lane: it has to be read.
    InLane(Fetch),
}

/// # Panics
/// All of these panic if the shard is no replica.
impl Shard {
    /// Begins the life of a replica in a group, which follows nobody yet. `first_members` are the members if the lane
    /// knows of none.
    pub fn join_group(&mut self, first_members: &Membership, now: Timestamp) {
        let log = self.writer.group_log();
        if log.membership == Membership::default() {
            log.membership = first_members.clone();
        }
        let time = log.time;
        self.engine.join_group(time);
        if self.standing != Standing::Quarantined {
            self.stand(Standing::Follower { leader: None }, now);
        }
    }

    /// Returns whether the lane can take an entry: a segment holds its body, and no start will meet more uncommitted
    /// entries than it keeps in memory.
    ///
    /// # Errors
    /// An [`EntryError`] that says what it is too long for.
    pub fn check_fits(&self, entry: &ReceivedEntry) -> Result<(), EntryError> {
        self.writer.builder.check_fits(&entry.body)?;
        let log = self.writer.log.as_ref().expect("it is a replica");
        let said_commit = log.said_commit.max(entry.head.commit);
        let before = log.labels.bytes_between(said_commit, entry.id().index);
        match before + u64::from(entry.body.length()) {
            0..=UNCOMMITTED_BYTES_MAX => Ok(()),
            bytes => Err(EntryError::Uncommitted { bytes }),
        }
    }

    /// Seals what gathers.
    pub fn seal(&mut self) {
        self.writer.seal();
    }

    /// Appends an entry that the leader has sent, and applies it.
    ///
    /// # Errors
    /// A [`BodyError`] if no segment can hold it.
    pub fn receive(&mut self, entry: &ReceivedEntry, now: Timestamp) -> Result<(), BodyError> {
        let body = self.writer.append_received(entry)?;
        if self.is_usable() {
            for (record, at) in &entry.records {
                self.engine.apply(record, body.position().0 + at);
            }
            self.engine.end_followed_turn();
        }
        self.finish_turn(now);
        Ok(())
    }

    /// Appends an entry whose body each replica makes by itself: the begin of a term, or a change of members.
    pub fn append_made(&mut self, id: EntryId, membership: Option<&Membership>) {
        self.writer.append_made(id, membership);
    }

    /// Cuts the log: the group has decided otherwise from the entry `index` on. The state has applied it, and is
    /// poisoned.
    pub fn cut_from(&mut self, index: u64, now: Timestamp) {
        self.writer.seal();
        self.writer.group_log().labels.cut_from(index);
        self.stand(Standing::Poisoned, now);
    }

    /// Drops the entry that gathers, as it will never be proposed. If there is one, the state has applied it, and is
    /// poisoned.
    pub fn drop_gathering_entry(&mut self, now: Timestamp) {
        if self.writer.drop_gathering_entry() {
            self.stand(Standing::Poisoned, now);
        }
    }

    /// Keeps the term and the vote in it, 0 for none, in a frame of its own.
    pub fn keep_vote(&mut self, term: u64, vote: u64) {
        self.writer.append_vote(term, vote);
    }

    /// The group has committed its log up to `index`. To be called again when the lane has got frames of the replica's
    /// own.
    pub fn commit_entries(&mut self, index: u64, now: Timestamp) {
        let log = self.writer.group_log();
        let index = index.min(log.labels.last().index);
        log.commit(index);
        let end = self.writer.end_of(index).expect("it is a replica");
        if end > self.progress.committed() {
            self.committed(end, now);
        }
    }

    /// The body of an entry, if the log has it. It is read from the lane only if that has written it.
    #[must_use]
    pub fn entry_body(&self, index: u64) -> Option<EntryBody> {
        let body = self.writer.log.as_ref()?.labels.get(index)?.body;
        let (position, length) = (body.position(), body.bytes as usize);
        if let Some(bytes) = self.cache.read(position, length) {
            return Some(EntryBody::Here(bytes));
        }
        if let Some(bytes) = self.writer.sealed_body(body.frame) {
            return Some(EntryBody::Here(bytes));
        }
        Some(EntryBody::InLane(Fetch { position, length }))
    }

    /// The end of all sealed frames: once the lane has written to there, all that was ordered is synced.
    #[must_use]
    pub fn sealed_end(&self) -> Position {
        self.writer.sealed_end()
    }
}
