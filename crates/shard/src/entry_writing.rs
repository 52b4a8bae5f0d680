//! The writer in a group: frames of entries that the leader has sent or that each replica makes by itself, votes,
//! quarantine, and what becomes of records that gather when leadership is lost.

use bytes::Bytes;
use sennit_journal::{BodyError, FrameBody, Position};

use crate::{
    group_record::{Entry, EntryContent, EntryId, GroupRecord, Membership},
    quarantine::Quarantine,
    received_entry::ReceivedEntry,
    replica_log::{FrameSort, ReplicaLog},
    uncommitted::PUBLISHED_BYTES_MAX,
    writer::Writer,
};

impl Writer {
    /// Appends an entry that the leader has sent, behind all that was sealed or gathers.
    ///
    /// # Errors
    /// A [`BodyError`] if no segment can hold it.
    pub(crate) fn append_received(
        &mut self,
        entry: &ReceivedEntry,
    ) -> Result<FrameBody, BodyError> {
        self.seal();
        self.note_frame_start();
        let frame = self.builder.seal_received(&entry.body)?;
        let (body, begin) = (frame.body, frame.body.position());
        let log = self.group_log();
        log.begin(&entry.head.into());
        log.seal(body);
        for (record, _) in &entry.records {
            log.note_time(record);
        }
        self.record_count += u64::from(entry.body.record_count());
        self.keep(frame);
        for (record, at) in &entry.records {
            if let Some(batch) = record.batch() {
                self.segments.add_live(begin.plus(*at), batch.bytes().len() as u32);
            }
        }
        Ok(body)
    }

    /// Appends an entry whose body each replica makes by itself.
    pub(crate) fn append_made(&mut self, id: EntryId, membership: Option<&Membership>) {
        self.seal();
        let content = match membership {
            None => EntryContent::TermBegan,
            Some(_) => EntryContent::Membership,
        };
        let members = membership.cloned().map(GroupRecord::Membership);
        let bodies: Vec<_> = members.iter().map(GroupRecord::encode).collect();
        let lengths: Vec<_> = bodies.iter().map(Vec::len).collect();
        self.begin_frame(&Entry { id, commit: 0, content }.into(), &lengths);
        for (record, body) in members.iter().zip(&bodies) {
            self.builder.push(record.kind(), &[body]).expect("room was made for it");
        }
        self.seal();
        if let Some(membership) = membership {
            self.group_log().labels.note_membership(membership.clone());
        }
    }

    /// Appends a frame of the replica's own with its term and its vote; 0 if there is none.
    pub(crate) fn append_vote(&mut self, term: u64, vote: u64) {
        let here = &mut self.group_log().here;
        (here.term, here.vote) = (term, vote);
        self.seal_mark();
    }

    /// Appends a frame of the replica's own that says that it is in quarantine.
    pub(crate) fn append_quarantine(&mut self, quarantine: Quarantine) {
        self.seal();
        let here = GroupRecord::Here(self.group_log().here);
        let record = GroupRecord::Quarantined(quarantine);
        let body = record.encode();
        self.begin_frame(&here, &[body.len()]);
        self.builder.push(record.kind(), &[&body]).expect("room was made for it");
        self.seal();
        self.group_log().quarantine = Some(quarantine);
    }

    /// Bytes of the entries of a leader, with what gathers, that the lane does not say to be committed; 0 in a shard that
    /// is in no group.
    pub(crate) fn uncommitted_bytes(&mut self) -> u64 {
        let Some(log) = self.log.as_ref().filter(|log| !log.replica.is_alone) else { return 0 };
        let gathered = match self.builder.is_empty() {
            true => 0,
            false => self.end().0 - self.frame_start().0,
        };
        let unsaid = log.labels.bytes_behind(log.said_commit) + gathered;
        let commit = log.here.commit;
        if unsaid < PUBLISHED_BYTES_MAX / 2 || log.said_commit == commit {
            return unsaid;
        }
        // The next frame says that more is committed.
        self.seal();
        self.group_log().labels.bytes_behind(commit)
    }

    /// Drops the entry that gathers: it was never proposed. Returns whether there was one.
    pub(crate) fn drop_gathering_entry(&mut self) -> bool {
        if self.builder.is_empty() || !self.group_log().gathers(FrameSort::Entry) {
            return false;
        }
        self.memory_batches.drop_from(self.frame_start());
        self.builder.drop_gathering();
        true
    }

    /// The body of the frame at `frame`, if the lane has not taken it.
    pub(crate) fn sealed_body(&self, frame: Position) -> Option<Bytes> {
        let found = self.sealed.iter().find(|sealed| sealed.body.frame == frame)?;
        Some(found.body_bytes())
    }

    /// The end of the last sealed frame.
    pub(crate) fn sealed_end(&self) -> Position {
        self.builder.sealed_end()
    }

    /// The log of the replica.
    ///
    /// # Panics
    /// If the shard is no replica.
    pub(crate) fn group_log(&mut self) -> &mut ReplicaLog {
        self.log.as_mut().expect("only a replica has a group")
    }
}
