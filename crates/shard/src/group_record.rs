//! The records of a shard that is a replica of a group, as bytes: they say which entry of the group's log a frame is,
//! what this replica knows of its group, and the group's members. Their kinds begin where the engine's end; a kind's
//! number and layout never change. FORMAT.md describes the bytes.

use std::collections::BTreeSet;

use sennit_engine::RECORD_KIND_END;
use sennit_model::Timestamp;

use crate::quarantine::Quarantine;

/// The kind of [`Entry`].
pub(crate) const ENTRY: u8 = RECORD_KIND_END;
/// The kind of [`Here`].
pub(crate) const HERE: u8 = RECORD_KIND_END + 1;
/// The kind of [`Stands`].
pub(crate) const STANDS: u8 = RECORD_KIND_END + 2;
/// The kind of [`Membership`].
pub(crate) const MEMBERSHIP: u8 = RECORD_KIND_END + 3;
/// The kind of [`Quarantine`].
pub(crate) const QUARANTINED: u8 = RECORD_KIND_END + 4;

/// Most members that a [`Membership`] can name, over all its lists.
pub const MEMBERS_MAX: usize = 1024;

/// An entry of the group's log: its index, and the term of the leader that made it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryId {
    /// The term.
    pub term: u64,
    /// The index.
    pub index: u64,
}

/// The content of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryContent {
    /// Records of the engine follow.
    Records,
    /// Nothing follows: a leader's term begins.
    TermBegan,
    /// A [`Membership`] follows.
    Membership,
    /// The replicas are to compare their states. Nothing follows yet.
    Audit,
}

impl EntryContent {
    fn of(number: u8) -> Option<Self> {
        [Self::Records, Self::TermBegan, Self::Membership, Self::Audit]
            .into_iter()
            .find(|content| content.number() == number)
    }

    fn number(self) -> u8 {
        match self {
            Self::Records => 0,
            Self::TermBegan => 1,
            Self::Membership => 2,
            Self::Audit => 3,
        }
    }
}

/// The first record of a frame that is an entry of the group's log. The body of such a frame is the same on every
/// replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Which entry.
    pub id: EntryId,
    /// The index up to which the log was known to be committed when the frame began; 0 if not said.
    pub commit: u64,
    /// What follows in the frame.
    pub content: EntryContent,
}

/// The first record of a frame that is this replica's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Here {
    /// The newest term of which the replica knows.
    pub term: u64,
    /// The replica that got its vote in that term; 0 if none did.
    pub vote: u64,
    /// The index up to which the replica knows the log to be committed.
    pub commit: u64,
}

/// Stands behind the begin of a checkpoint, and says where in the group's log that is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stands {
    /// The group.
    pub group: u64,
    /// The replica whose checkpoint it is.
    pub replica: u64,
    /// The last entry before it.
    pub last: EntryId,
    /// The newest time in the group's records.
    pub time: Timestamp,
    /// The members as of the commit.
    pub membership: Membership,
}

/// The members of a group: numbers of replicas, which are never 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// The voters.
    pub voters: BTreeSet<u64>,
    /// While a change is under way: the voters until then, whose majority counts as well.
    pub outgoing: BTreeSet<u64>,
    /// Replicas that have no vote.
    pub learners: BTreeSet<u64>,
    /// Voters that are learners once the change is over.
    pub next_learners: BTreeSet<u64>,
}

/// The reason why bytes are not a record of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GroupRecordError {
    /// The kind is unknown: a newer program has written it.
    #[error("record kind {kind} of a group is not known to this version")]
    Kind {
        /// The kind.
        kind: u8,
    },
    /// The bytes end too early or too late.
    #[error("a record of kind {kind} does not end where its fields end")]
    Length {
        /// The kind.
        kind: u8,
    },
    /// A field has a value that it cannot have.
    #[error("{field} of a record of kind {kind} cannot be {value}")]
    Field {
        /// The kind.
        kind: u8,
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
}

/// A record of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupRecord {
    /// The frame is an entry.
    Entry(Entry),
    /// The frame is the replica's own.
    Here(Here),
    /// A checkpoint's place in the log.
    Stands(Stands),
    /// The group's members.
    Membership(Membership),
    /// The replica is in quarantine.
    Quarantined(Quarantine),
}

impl From<Entry> for GroupRecord {
    fn from(entry: Entry) -> Self {
        Self::Entry(entry)
    }
}

impl From<Here> for GroupRecord {
    fn from(here: Here) -> Self {
        Self::Here(here)
    }
}

impl GroupRecord {
    /// The kind's number.
    #[must_use]
    pub fn kind(&self) -> u8 {
        match self {
            Self::Entry(_) => ENTRY,
            Self::Here(_) => HERE,
            Self::Stands(_) => STANDS,
            Self::Membership(_) => MEMBERSHIP,
            Self::Quarantined(_) => QUARANTINED,
        }
    }

    /// Returns whether a record of this kind is one of a group.
    #[must_use]
    pub fn is_kind(kind: u8) -> bool {
        (ENTRY..=QUARANTINED).contains(&kind)
    }

    /// The body.
    ///
    /// # Panics
    /// If a membership names more than [`MEMBERS_MAX`] members.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Entry(Entry { id, commit, content }) => {
                put(&mut out, &[id.term, id.index, *commit]);
                out.push(content.number());
            }
            Self::Here(Here { term, vote, commit }) => put(&mut out, &[*term, *vote, *commit]),
            Self::Stands(Stands { group, replica, last, time, membership }) => {
                put(&mut out, &[*group, *replica, last.term, last.index, time.0]);
                membership.encode(&mut out);
            }
            Self::Membership(membership) => membership.encode(&mut out),
            Self::Quarantined(quarantine) => {
                let (reason, numbers) = quarantine.numbers();
                out.push(reason);
                put(&mut out, &numbers);
            }
        }
        out
    }

    /// The record with this kind and body.
    ///
    /// # Errors
    /// A [`GroupRecordError`] that says what cannot be.
    pub fn decode(kind: u8, body: &[u8]) -> Result<Self, GroupRecordError> {
        let mut fields = Fields { kind, rest: body };
        let record = match kind {
            ENTRY => {
                let id = fields.entry_id()?;
                let commit = fields.number()?;
                if commit >= id.index {
                    return Err(fields.wrong("commit", commit));
                }
                let content = fields.byte()?;
                let content = EntryContent::of(content)
                    .ok_or_else(|| fields.wrong("content", content.into()))?;
                Self::Entry(Entry { id, commit, content })
            }
            HERE => {
                let (term, vote, commit) = (fields.number()?, fields.number()?, fields.number()?);
                Self::Here(Here { term, vote, commit })
            }
            STANDS => {
                let (group, replica) = (fields.number()?, fields.number()?);
                let last = fields.entry_id()?;
                let time = Timestamp(fields.number()?);
                let membership = fields.membership()?;
                Self::Stands(Stands { group, replica, last, time, membership })
            }
            MEMBERSHIP => Self::Membership(fields.membership()?),
            QUARANTINED => {
                let reason = fields.byte()?;
                let numbers = [fields.number()?, fields.number()?, fields.number()?];
                let quarantine = Quarantine::of(reason, numbers);
                Self::Quarantined(quarantine.ok_or_else(|| fields.wrong("reason", reason.into()))?)
            }
            _ => return Err(GroupRecordError::Kind { kind }),
        };
        match fields.rest.is_empty() {
            true => Ok(record),
            false => Err(GroupRecordError::Length { kind }),
        }
    }
}

impl Membership {
    /// A group that this replica alone makes up.
    #[must_use]
    pub fn of_one(replica: u64) -> Self {
        Self { voters: BTreeSet::from([replica]), ..Self::default() }
    }

    fn lists(&self) -> [&BTreeSet<u64>; 4] {
        [&self.voters, &self.outgoing, &self.learners, &self.next_learners]
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let count: usize = self.lists().iter().map(|list| list.len()).sum();
        assert!(count <= MEMBERS_MAX, "a group has {count} members of {MEMBERS_MAX}");
        for list in self.lists() {
            out.extend_from_slice(&(list.len() as u32).to_le_bytes());
            list.iter().for_each(|member| put(out, &[*member]));
        }
    }
}

fn put(out: &mut Vec<u8>, numbers: &[u64]) {
    numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
}

/// The fields of a body that are still to be read.
struct Fields<'a> {
    kind: u8,
    rest: &'a [u8],
}

impl Fields<'_> {
    fn wrong(&self, field: &'static str, value: u64) -> GroupRecordError {
        GroupRecordError::Field { kind: self.kind, field, value }
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], GroupRecordError> {
        let (bytes, rest) =
            self.rest.split_first_chunk().ok_or(GroupRecordError::Length { kind: self.kind })?;
        self.rest = rest;
        Ok(*bytes)
    }

    fn byte(&mut self) -> Result<u8, GroupRecordError> {
        self.bytes().map(|[byte]| byte)
    }

    fn number(&mut self) -> Result<u64, GroupRecordError> {
        self.bytes().map(u64::from_le_bytes)
    }

    /// An entry that there can be: terms and indexes begin with 1.
    fn entry_id(&mut self) -> Result<EntryId, GroupRecordError> {
        let id = EntryId { term: self.number()?, index: self.number()? };
        match id {
            EntryId { term: 0, .. } => Err(self.wrong("term", 0)),
            EntryId { index: 0 | u64::MAX, .. } => Err(self.wrong("index", id.index)),
            id => Ok(id),
        }
    }

    fn membership(&mut self) -> Result<Membership, GroupRecordError> {
        let mut left = MEMBERS_MAX;
        Ok(Membership {
            voters: self.members(&mut left)?,
            outgoing: self.members(&mut left)?,
            learners: self.members(&mut left)?,
            next_learners: self.members(&mut left)?,
        })
    }

    /// A list of members, in ascending order, of which `left` may be named.
    fn members(&mut self, left: &mut usize) -> Result<BTreeSet<u64>, GroupRecordError> {
        let count = u32::from_le_bytes(self.bytes()?);
        *left = left
            .checked_sub(count as usize)
            .ok_or_else(|| self.wrong("number of members", count.into()))?;
        let mut members = BTreeSet::new();
        let mut last = 0;
        for _ in 0..count {
            let member = self.number()?;
            if member <= last {
                return Err(self.wrong("member", member));
            }
            last = member;
            members.insert(member);
        }
        Ok(members)
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::btree_set, prelude::*};

    use super::*;

    fn entry_ids() -> impl Strategy<Value = EntryId> {
        (1..=u64::MAX, 1..u64::MAX).prop_map(|(term, index)| EntryId { term, index })
    }

    fn memberships() -> impl Strategy<Value = Membership> {
        let members = || btree_set(1..=u64::MAX, 0..8);
        (members(), members(), members(), members()).prop_map(
            |(voters, outgoing, learners, next_learners)| Membership {
                voters,
                outgoing,
                learners,
                next_learners,
            },
        )
    }

    fn records() -> impl Strategy<Value = GroupRecord> {
        let entries = (entry_ids(), any::<u64>(), 0..4_u8).prop_map(|(id, commit, content)| {
            let content = EntryContent::of(content).unwrap();
            GroupRecord::Entry(Entry { id, commit: commit % id.index, content })
        });
        let heres = any::<[u64; 3]>()
            .prop_map(|[term, vote, commit]| GroupRecord::Here(Here { term, vote, commit }));
        let stands = (any::<[u64; 3]>(), entry_ids(), memberships());
        let stands = stands.prop_map(|([group, replica, time], last, membership)| {
            let time = Timestamp(time);
            GroupRecord::Stands(Stands { group, replica, last, time, membership })
        });
        let quarantines = (0..4_u8, any::<[u64; 3]>()).prop_map(|(reason, numbers)| {
            let [first, second, third] = numbers;
            let numbers = match reason {
                0 | 3 => [first, 0, 0],
                1 => [first, second, 0],
                _ => [first, second, third],
            };
            GroupRecord::Quarantined(Quarantine::of(reason, numbers).unwrap())
        });
        let memberships = memberships().prop_map(GroupRecord::Membership);
        prop_oneof![entries, heres, stands, memberships, quarantines]
    }

    proptest! {
        #[test]
        fn each_record_is_read_as_it_was_written(record in records()) {
            let body = record.encode();
            prop_assert_eq!(GroupRecord::decode(record.kind(), &body), Ok(record));
        }

        #[test]
        fn a_record_that_is_cut_off_or_goes_on_is_refused(record in records(), at in any::<prop::sample::Index>()) {
            let kind = record.kind();
            let mut body = record.encode();
            let cut = &body[..at.index(body.len())];
            prop_assert_eq!(GroupRecord::decode(kind, cut), Err(GroupRecordError::Length { kind }));
            body.push(0);
            prop_assert_eq!(GroupRecord::decode(kind, &body), Err(GroupRecordError::Length { kind }));
        }

        #[test]
        fn bytes_that_are_read_are_written_the_same_way(
            kind in ENTRY - 1..=QUARANTINED + 1,
            body in prop::collection::vec(prop_oneof![Just(0_u8), Just(1), any::<u8>()], 0..80),
        ) {
            if let Ok(record) = GroupRecord::decode(kind, &body) {
                prop_assert_eq!(record.kind(), kind);
                prop_assert_eq!(record.encode(), body);
            }
        }
    }

    #[test]
    fn the_bytes_of_each_kind_are_these() {
        let entry = Entry {
            id: EntryId { term: 2, index: 3 },
            commit: 1,
            content: EntryContent::Membership,
        };
        let membership = Membership { learners: BTreeSet::from([7, 258]), ..Membership::of_one(5) };
        let stands = Stands {
            group: 9,
            replica: 5,
            last: entry.id,
            time: Timestamp(4),
            membership: membership.clone(),
        };
        let number = |value: u8| [value, 0, 0, 0, 0, 0, 0, 0];
        let members = [
            &[1, 0, 0, 0][..],
            &number(5),
            &[0; 4],
            &[2, 0, 0, 0],
            &number(7),
            &[2, 1, 0, 0, 0, 0, 0, 0],
            &[0; 4],
        ]
        .concat();
        let of_entry = [&number(2)[..], &number(3), &number(1), &[2]].concat();
        assert_eq!(GroupRecord::Entry(entry).encode(), of_entry);
        let here = Here { term: 2, vote: 5, commit: 1 };
        let of_here = [number(2), number(5), number(1)].concat();
        assert_eq!(GroupRecord::Here(here).encode(), of_here);
        let numbers = [number(9), number(5), number(2), number(3), number(4)].concat();
        assert_eq!(GroupRecord::Stands(stands).encode(), [numbers, members.clone()].concat());
        assert_eq!(GroupRecord::Membership(membership).encode(), members);
    }

    /// The records of the page that describes their bytes.
    fn examples() -> Vec<GroupRecord> {
        let page = include_str!("../FORMAT.md");
        let rows = page.lines().filter_map(|line| line.strip_prefix("| 1")?.split_once(" | `"));
        let rows = rows.filter_map(|(kind, body)| Some((kind, body.strip_suffix("` |")?)));
        let decoded = rows.map(|(kind, body)| {
            let digits: Vec<u8> = body.bytes().filter(|digit| *digit != b' ').collect();
            let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
            let bytes: Vec<u8> = digits.chunks(2).map(byte).collect();
            let record = GroupRecord::decode(100 + kind.parse::<u8>().unwrap(), &bytes).unwrap();
            assert_eq!(record.encode(), bytes);
            record
        });
        decoded.collect()
    }

    #[test]
    fn the_examples_of_the_format_page_are_these_records() {
        let membership = Membership { learners: BTreeSet::from([4]), ..Membership::of_one(2) };
        let last = EntryId { term: 3, index: 9 };
        let time = Timestamp(1_800_000_000_000);
        let entry = Entry { id: last, commit: 7, content: EntryContent::TermBegan };
        let stands = Stands { group: 1, replica: 2, last, time, membership: membership.clone() };
        let expected = [
            GroupRecord::Entry(entry),
            GroupRecord::Here(Here { term: 3, vote: 2, commit: 8 }),
            GroupRecord::Stands(stands),
            GroupRecord::Membership(membership),
            GroupRecord::Quarantined(Quarantine::Contradicted { index: 9, own: 3, leaders: 2 }),
        ];
        assert_eq!(examples(), expected);
    }

    #[test]
    fn fields_that_cannot_be_are_named() {
        let wrong = |kind, field, value| Err(GroupRecordError::Field { kind, field, value });
        let entry = |numbers: &[u64], content: u8| {
            let mut body = Vec::new();
            put(&mut body, numbers);
            body.push(content);
            GroupRecord::decode(ENTRY, &body)
        };
        assert_eq!(entry(&[0, 3, 1], 0), wrong(ENTRY, "term", 0));
        assert_eq!(entry(&[2, 0, 0], 0), wrong(ENTRY, "index", 0));
        assert_eq!(entry(&[2, u64::MAX, 0], 0), wrong(ENTRY, "index", u64::MAX));
        assert_eq!(entry(&[2, 3, 3], 0), wrong(ENTRY, "commit", 3));
        assert_eq!(entry(&[2, 3, 1], 4), wrong(ENTRY, "content", 4));
        let members = |count: u32, members: &[u64]| {
            let mut body = count.to_le_bytes().to_vec();
            put(&mut body, members);
            body.extend([0; 12]);
            GroupRecord::decode(MEMBERSHIP, &body)
        };
        assert_eq!(members(2, &[4, 4]), wrong(MEMBERSHIP, "member", 4));
        assert_eq!(members(1, &[0]), wrong(MEMBERSHIP, "member", 0));
        assert_eq!(members(1025, &[]), wrong(MEMBERSHIP, "number of members", 1025));
        let quarantined = |reason: u8, numbers: [u64; 3]| {
            let mut body = vec![reason];
            put(&mut body, &numbers);
            GroupRecord::decode(QUARANTINED, &body)
        };
        assert_eq!(quarantined(4, [0; 3]), wrong(QUARANTINED, "reason", 4));
        assert_eq!(quarantined(3, [5, 1, 0]), wrong(QUARANTINED, "reason", 3));
        assert_eq!(GroupRecord::decode(127, &[]), Err(GroupRecordError::Kind { kind: 127 }));
    }
}
