//! Labels: all that this crate knows of the entries of a group's log. The bodies lie in the lanes of the replicas.

use crate::membership::Membership;

/// An entry of the group's log: its index, and the term of the leader that made it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId {
    /// The term.
    pub term: u64,
    /// The index.
    pub index: u64,
}

/// What lies before the first entry of a new group's log. A replica that has nothing at all has `EntryId::default()`
/// before its first entry, so it is never sent entries without the state before them.
pub const GROUP_BEGINS: EntryId = EntryId { term: 1, index: 1 };

/// The body of an entry: the same bytes on each replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Body {
    /// Its length in bytes.
    pub length: u32,
    /// Its CRC-32C.
    pub checksum: u32,
    /// Number of records in it.
    pub records: u32,
}

/// The content of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Content {
    /// Records of the engine, in a body that travels beside the label.
    Records(Body),
    /// A leader's term begins. Each replica makes the body by itself.
    TermBegan,
    /// The members from this entry on, once it is committed. Each replica makes the body by itself.
    Membership(Box<Membership>),
}

/// A label: which entry, and its content.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Label {
    /// The entry.
    pub id: EntryId,
    /// Its content.
    pub content: Content,
}
