//! A message as bytes: a table of 96 bytes, and behind it the membership if the entry is one. All numbers are
//! little-endian; a field that a kind does not use is 0.
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 1 | kind |
//! | 1 | 1 | flags: 1 refused, 2 leadership was handed over, 4 an entry, 8 a round, 16 no room on the sender's disk |
//! | 2 | 1 | content of the entry: 0 records, 1 a term began, 2 membership |
//! | 3 | 1 | 0 |
//! | 4 | 4 | bytes of the membership that follows |
//! | 8 | 8 | group |
//! | 16 | 8 | from |
//! | 24 | 8 | to |
//! | 32 | 8 | term |
//! | 40 | 8 | index: of the entry before, of the last entry, of what is acknowledged |
//! | 48 | 8 | that entry's term; of a refused append the term of the hint |
//! | 56 | 8 | commit index |
//! | 64 | 8 | term of the entry at the commit index; of a refused append the index of the hint |
//! | 72 | 8 | term of the entry that is sent; number of the round |
//! | 80 | 4 | length of the entry's body |
//! | 84 | 4 | its CRC-32C |
//! | 88 | 4 | its number of records |
//! | 92 | 4 | 0 |

use crate::label::{Body, Content, EntryId, Label};
use crate::membership::{MEMBERS_MAX, Membership};
use crate::message::{Message, MessageError, MessageKind};

/// Bytes of the table.
pub const MESSAGE_TABLE_BYTES: usize = 96;
/// Most bytes of a message: the table and the largest membership.
pub const MESSAGE_BYTES_MAX: usize = MESSAGE_TABLE_BYTES + 4 * 4 + MEMBERS_MAX * 8;

const APPEND: u8 = 1;
const APPENDED: u8 = 2;
const REQUEST_VOTE: u8 = 3;
const REQUEST_PRE_VOTE: u8 = 4;
const VOTE: u8 = 5;
const PRE_VOTE: u8 = 6;
const HEARTBEAT: u8 = 7;
const HEARTBEAT_HEARD: u8 = 8;
const TAKE_OVER: u8 = 9;

const REFUSED: u8 = 1;
const HANDED_OVER: u8 = 2;
const HAS_ENTRY: u8 = 4;
const HAS_ROUND: u8 = 8;
const FULL: u8 = 16;

/// The table, with all fields of all kinds.
#[derive(Default, PartialEq, Eq)]
struct Table {
    kind: u8,
    flags: u8,
    content: u8,
    membership_bytes: u32,
    group: u64,
    from: u64,
    to: u64,
    term: u64,
    index: u64,
    index_term: u64,
    commit: u64,
    commit_term: u64,
    number: u64,
    length: u32,
    checksum: u32,
    records: u32,
}

impl Message {
    /// The bytes.
    ///
    /// # Panics
    /// If it carries a membership of more than [`MEMBERS_MAX`] members.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut table = Table::of(self);
        let mut membership = Vec::new();
        if let MessageKind::Append {
            label: Some(Label { content: Content::Membership(members), .. }),
            ..
        } = &self.kind
        {
            members.encode(&mut membership);
            assert!(
                membership.len() <= MESSAGE_BYTES_MAX - MESSAGE_TABLE_BYTES,
                "a membership of {} bytes is too large for a message",
                membership.len()
            );
            table.membership_bytes = membership.len() as u32;
        }
        let mut bytes = Vec::with_capacity(MESSAGE_TABLE_BYTES + membership.len());
        bytes.extend_from_slice(&table.encode());
        bytes.extend_from_slice(&membership);
        bytes
    }

    /// Number of bytes of the message that begins with this table.
    ///
    /// # Errors
    /// A [`MessageError`] if no message is as long.
    pub fn length(table: &[u8; MESSAGE_TABLE_BYTES]) -> Result<usize, MessageError> {
        let membership_bytes = Table::decode(table)?.membership_bytes;
        match MESSAGE_TABLE_BYTES + membership_bytes as usize {
            length if length <= MESSAGE_BYTES_MAX => Ok(length),
            _ => Err(wrong("length of the membership", membership_bytes)),
        }
    }

    /// The message in these bytes, checked.
    ///
    /// # Errors
    /// A [`MessageError`] that says what cannot be.
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        let (table, rest) = bytes.split_first_chunk().ok_or(MessageError::Length)?;
        let table = Table::decode(table)?;
        let has_membership =
            table.kind == APPEND && table.flags & HAS_ENTRY != 0 && table.content == 2;
        if rest.len() != table.membership_bytes as usize || (!has_membership && !rest.is_empty()) {
            return Err(MessageError::Length);
        }
        let message = Self {
            group: table.group,
            from: table.from,
            to: table.to,
            term: table.term,
            kind: table.message_kind(rest)?,
        };
        // Each message has one form: the fields and flags that its kind does not use are 0.
        let used = Table { membership_bytes: table.membership_bytes, ..Table::of(&message) };
        if used != table {
            return Err(wrong("unused field of kind", table.kind));
        }
        message.check()?;
        Ok(message)
    }
}

impl Table {
    fn of(message: &Message) -> Self {
        let table = Self {
            group: message.group,
            from: message.from,
            to: message.to,
            term: message.term,
            ..Self::default()
        };
        match &message.kind {
            MessageKind::Append { before, commit, label } => Self {
                kind: APPEND,
                index: before.index,
                index_term: before.term,
                commit: *commit,
                ..table
            }
            .with_label(label.as_ref()),
            MessageKind::Appended { index, commit } => {
                Self { kind: APPENDED, index: *index, commit: *commit, ..table }
            }
            MessageKind::NotAppended { index, hint, commit } => Self {
                kind: APPENDED,
                flags: REFUSED,
                index: *index,
                index_term: hint.term,
                commit: *commit,
                commit_term: hint.index,
                ..table
            },
            MessageKind::RequestVote { pre_vote, handed_over, last, commit } => Self {
                kind: if *pre_vote { REQUEST_PRE_VOTE } else { REQUEST_VOTE },
                flags: flag(*handed_over, HANDED_OVER),
                index: last.index,
                index_term: last.term,
                commit: commit.index,
                commit_term: commit.term,
                ..table
            },
            MessageKind::Vote { pre_vote, granted, commit } => Self {
                kind: if *pre_vote { PRE_VOTE } else { VOTE },
                flags: flag(!granted, REFUSED),
                commit: commit.index,
                commit_term: commit.term,
                ..table
            },
            MessageKind::Heartbeat { commit, round } => {
                Self { kind: HEARTBEAT, commit: *commit, ..table }.with_round(*round)
            }
            MessageKind::HeartbeatHeard { commit, round, is_full } => {
                let flags = flag(*is_full, FULL);
                Self { kind: HEARTBEAT_HEARD, flags, commit: *commit, ..table }.with_round(*round)
            }
            MessageKind::TakeOver => Self { kind: TAKE_OVER, ..table },
        }
    }

    fn with_label(self, label: Option<&Label>) -> Self {
        let Some(Label { id, content }) = label else {
            return self;
        };
        let table = Self { flags: HAS_ENTRY, number: id.term, ..self };
        match content {
            Content::Records(Body { length, checksum, records }) => {
                Self { length: *length, checksum: *checksum, records: *records, ..table }
            }
            Content::TermBegan => Self { content: 1, ..table },
            Content::Membership(_) => Self { content: 2, ..table },
        }
    }

    fn with_round(self, round: Option<u64>) -> Self {
        match round {
            Some(number) => Self { flags: self.flags | HAS_ROUND, number, ..self },
            None => self,
        }
    }

    fn message_kind(&self, membership: &[u8]) -> Result<MessageKind, MessageError> {
        let entry = EntryId { term: self.index_term, index: self.index };
        let committed = EntryId { term: self.commit_term, index: self.commit };
        let round = (self.flags & HAS_ROUND != 0).then_some(self.number);
        Ok(match (self.kind, self.flags & REFUSED != 0) {
            (APPEND, _) => MessageKind::Append {
                before: entry,
                commit: self.commit,
                label: self.label(membership)?,
            },
            (APPENDED, false) => MessageKind::Appended { index: self.index, commit: self.commit },
            (APPENDED, true) => MessageKind::NotAppended {
                index: self.index,
                hint: EntryId { term: self.index_term, index: self.commit_term },
                commit: self.commit,
            },
            (REQUEST_VOTE | REQUEST_PRE_VOTE, _) => MessageKind::RequestVote {
                pre_vote: self.kind == REQUEST_PRE_VOTE,
                handed_over: self.flags & HANDED_OVER != 0,
                last: entry,
                commit: committed,
            },
            (VOTE | PRE_VOTE, refused) => MessageKind::Vote {
                pre_vote: self.kind == PRE_VOTE,
                granted: !refused,
                commit: committed,
            },
            (HEARTBEAT, _) => MessageKind::Heartbeat { commit: self.commit, round },
            (HEARTBEAT_HEARD, _) => MessageKind::HeartbeatHeard {
                commit: self.commit,
                round,
                is_full: self.flags & FULL != 0,
            },
            (TAKE_OVER, _) => MessageKind::TakeOver,
            (kind, _) => return Err(MessageError::Kind { kind }),
        })
    }

    fn label(&self, membership: &[u8]) -> Result<Option<Label>, MessageError> {
        if self.flags & HAS_ENTRY == 0 {
            return Ok(None);
        }
        let content = match self.content {
            0 => Content::Records(Body {
                length: self.length,
                checksum: self.checksum,
                records: self.records,
            }),
            1 => Content::TermBegan,
            2 => Content::Membership(Box::new(Membership::decode(membership)?)),
            content => return Err(wrong("content", content)),
        };
        let id = EntryId { term: self.number, index: self.index.saturating_add(1) };
        Ok(Some(Label { id, content }))
    }

    fn encode(&self) -> [u8; MESSAGE_TABLE_BYTES] {
        let mut bytes = [0; MESSAGE_TABLE_BYTES];
        [bytes[0], bytes[1], bytes[2]] = [self.kind, self.flags, self.content];
        bytes[4..8].copy_from_slice(&self.membership_bytes.to_le_bytes());
        let numbers = [
            self.group,
            self.from,
            self.to,
            self.term,
            self.index,
            self.index_term,
            self.commit,
            self.commit_term,
            self.number,
        ];
        for (at, number) in bytes[8..80].chunks_exact_mut(8).zip(numbers) {
            at.copy_from_slice(&number.to_le_bytes());
        }
        for (at, number) in
            bytes[80..92].chunks_exact_mut(4).zip([self.length, self.checksum, self.records])
        {
            at.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8; MESSAGE_TABLE_BYTES]) -> Result<Self, MessageError> {
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|nth| bytes[at + nth]));
        let short = |at: usize| u32::from_le_bytes(std::array::from_fn(|nth| bytes[at + nth]));
        if bytes[3] != 0 || short(92) != 0 {
            return Err(wrong("reserved field", bytes[3].max(1)));
        }
        Ok(Self {
            kind: bytes[0],
            flags: bytes[1],
            content: bytes[2],
            membership_bytes: short(4),
            group: long(8),
            from: long(16),
            to: long(24),
            term: long(32),
            index: long(40),
            index_term: long(48),
            commit: long(56),
            commit_term: long(64),
            number: long(72),
            length: short(80),
            checksum: short(84),
            records: short(88),
        })
    }
}

fn flag(set: bool, flag: u8) -> u8 {
    if set { flag } else { 0 }
}

fn wrong(field: &'static str, value: impl Into<u64>) -> MessageError {
    MessageError::Field { field, value: value.into() }
}
