//! All that a member of a group wants done, in one struct.

use crate::label::Label;
use crate::membership::Membership;
use crate::message::Message;

/// What is to be done. The order matters: `messages` leave first, then labels and vote are written, and once those are
/// synced, [`Member::synced`](crate::Member::synced) is told the mark. Messages that have to wait for a sync come out
/// of the first `orders` behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Orders {
    /// The messages to send, now. Those of one receiver stay in order.
    pub messages: Vec<Message>,
    /// The log is cut: the entries from this index on are void, before `append`. A state that has applied one of them
    /// is poisoned.
    pub cut_from: Option<u64>,
    /// The labels to write, in order; the first follows the last that was kept. The leader has sealed the frames of
    /// those with records, and they come here to be written; a follower has received their bodies.
    pub append: Vec<Label>,
    /// The term and the vote to keep. They are written whenever they come.
    pub vote: Option<Vote>,
    /// Names all that this and earlier orders write: none if nothing is to be written.
    pub mark: Option<Mark>,
    /// The index up to which the group has committed its log, as far as this replica knows. A quorum has synced it; this
    /// replica perhaps has not.
    pub committed: u64,
    /// The leadership, as this replica knows it.
    pub leadership: Leadership,
    /// Rounds that have shown that this replica still led when they began.
    pub confirmed: Vec<Confirmed>,
    /// The changes of members that are committed, and synced here, in order.
    pub memberships: Vec<MembershipChange>,
    /// Replicas that need entries from before the log's begin. They get a shipment.
    pub behind: Vec<u64>,
}

/// A term and a vote in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vote {
    /// The newest term of which the replica knows.
    pub term: u64,
    /// The replica that got its vote in that term.
    pub vote: Option<u64>,
}

/// A point in the writes of a replica. Later ones are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(pub(crate) u64);

/// The leadership of a group, as one member of it knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leadership {
    /// Its role.
    pub role: Role,
    /// Its term.
    pub term: u64,
    /// The leader of the term, if it is known.
    pub leader: Option<u64>,
    /// It leads, and the entry that begins its term is committed: entries are taken.
    pub established: bool,
}

/// The role of a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// It follows a leader, or waits for one. Learners have no other role.
    #[default]
    Follower,
    /// It asks for votes.
    Candidate,
    /// It leads.
    Leader,
    /// It has forgotten what it acknowledged: it does nothing any more.
    Quarantined,
}

/// A round that a quorum has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmed {
    /// The round.
    pub round: Round,
    /// The commit index when it began: a read that waits for it sees all that was confirmed before.
    pub index: u64,
}

/// The number of a round in which a leader asks whether it still leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Round(pub(crate) u64);

/// A change of members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MembershipChange {
    /// The entry's index.
    pub index: u64,
    /// The members from now on.
    pub membership: Membership,
}
