//! The writer in a group: frames of entries that the leader has sent or that each replica makes by itself, votes, and
//! what becomes of records that gather when leadership is lost.

use bytes::Bytes;
use sennit_journal::{BodyError, FrameBody, Position};

use crate::{
    group_record::{Entry, EntryContent, EntryId, GroupRecord, Membership},
    received_entry::ReceivedEntry,
    replica_log::{FrameSort, ReplicaLog},
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
