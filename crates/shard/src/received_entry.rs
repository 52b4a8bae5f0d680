//! An entry that the leader of a group has sent: its body is checked before the lane or the state gets anything of it.

use bytes::Bytes;
use sennit_engine::{Record, RecordError};
use sennit_journal::{BodyError, ReceivedBody};

use crate::{
    group_record::{Entry, EntryContent, EntryId, GroupRecord, GroupRecordError},
    replica_log::FrameSort,
    uncommitted::UNCOMMITTED_BYTES_MAX,
};

/// The reason why bytes are not the body of the entry that they came for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// They are not the body of a frame.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// The body has another length, or number of records, than its label says.
    #[error("the body has {found} {unit}, and its label says {expected}")]
    Size {
        /// Bytes or records.
        unit: &'static str,
        /// The number in the label.
        expected: u64,
        /// The number found.
        found: u64,
    },
    /// The first record does not say which entry it is.
    #[error("the body of an entry does not begin with its name")]
    NoHead,
    /// The first record is not one.
    #[error(transparent)]
    Head(#[from] GroupRecordError),
    /// It is the body of another entry.
    #[error("the body is of entry {} of term {}, not of entry {} of term {}", found.index, found.term, expected.index, expected.term)]
    Other {
        /// The entry of the label.
        expected: EntryId,
        /// The entry of the body.
        found: EntryId,
    },
    /// It does not hold records of the engine, and each replica makes it by itself.
    #[error("the body of an entry that each replica makes by itself was sent")]
    Content,
    /// A record is not one.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// More would be uncommitted than a leader lets be.
    #[error("{bytes} bytes of entries would not be committed, more than {UNCOMMITTED_BYTES_MAX}")]
    Uncommitted {
        /// The number of bytes.
        bytes: u64,
    },
    /// A record says where something lies on the sender's disk.
    #[error("a record of kind {kind} is the sender's own")]
    Local {
        /// The kind.
        kind: u8,
    },
}

/// The size of a body, as the label of its entry says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntrySize {
    /// Its length in bytes.
    pub bytes: u32,
    /// Its CRC-32C.
    pub checksum: u32,
    /// The number of its records, the first included, which names the entry.
    pub records: u32,
}

/// A checked entry with records of the engine.
#[derive(Clone, Debug)]
pub struct ReceivedEntry {
    pub(crate) head: Entry,
    pub(crate) body: ReceivedBody,
    /// The records, each with the offset of its batch from the begin of the body: of its end, without one.
    pub(crate) records: Vec<(Record, u64)>,
}

impl ReceivedEntry {
    /// Checks the body of an entry. O(bytes).
    ///
    /// # Errors
    /// An [`EntryError`] that says what cannot be.
    pub fn check(id: EntryId, size: EntrySize, bytes: Bytes) -> Result<Self, EntryError> {
        let found = bytes.len() as u64;
        check_size("bytes", size.bytes.into(), found)?;
        let body = ReceivedBody::check(bytes, size.checksum)?;
        check_size("records", size.records.into(), body.record_count().into())?;
        let mut found = body.records();
        let (kind, _, head) = found.next().ok_or(EntryError::NoHead)?;
        if !GroupRecord::is_kind(kind) {
            return Err(EntryError::NoHead);
        }
        let GroupRecord::Entry(head) = GroupRecord::decode(kind, &head)? else {
            return Err(EntryError::NoHead);
        };
        if head.id != id {
            return Err(EntryError::Other { expected: id, found: head.id });
        }
        if head.content != EntryContent::Records {
            return Err(EntryError::Content);
        }
        let mut records = Vec::with_capacity(body.record_count() as usize - 1);
        for (kind, at, bytes) in found {
            let (record, head_bytes) = Record::decode(kind, bytes)?;
            if FrameSort::of(&record) == FrameSort::Local {
                return Err(EntryError::Local { kind });
            }
            records.push((record, at + head_bytes as u64));
        }
        Ok(Self { head, body, records })
    }

    /// Which entry it is.
    #[must_use]
    pub fn id(&self) -> EntryId {
        self.head.id
    }
}

fn check_size(unit: &'static str, expected: u64, found: u64) -> Result<(), EntryError> {
    match expected == found {
        true => Ok(()),
        false => Err(EntryError::Size { unit, expected, found }),
    }
}
