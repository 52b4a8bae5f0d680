//! The reasons why a member of a group does not do what it is asked, or does not hear what it is told.

use crate::label::EntryId;
use crate::membership::MembershipError;
use crate::message::MessageError;

/// The reason why a member does not do what it is asked. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It does not lead.
    #[error("the replica does not lead its group")]
    NotLeader {
        /// The leader, if it is known.
        leader: Option<u64>,
    },
    /// It leads, but the entry that begins its term is not committed yet.
    #[error("the leader's term has not begun yet")]
    NotEstablished,
    /// It is handing leadership over.
    #[error("leadership is being handed over")]
    HandingOver,
    /// The label is not that of the entry that comes next.
    #[error("entry {} of term {} comes next, not entry {} of term {}", next.index, next.term, found.index, found.term)]
    NotNext {
        /// The entry that comes next.
        next: EntryId,
        /// The label's.
        found: EntryId,
    },
    /// Memberships and beginnings of terms are not proposed as labels.
    #[error("only records are proposed as a label")]
    NotRecords,
    /// A change of members is not applied yet.
    #[error("a change of members is under way")]
    ChangeUnderWay,
    /// The members cannot become those at once. A change of one is possible; a change into a joint membership; and from
    /// there to the new one. The leader stays a voter.
    #[error("the membership is not one step away")]
    NotOneStep,
    /// The membership cannot be.
    #[error("the membership cannot be")]
    Membership(#[from] MembershipError),
    /// The replica is no voter of the group, or it is this one.
    #[error("replica {replica} cannot take leadership over")]
    NotAVoter {
        /// The replica.
        replica: u64,
    },
    /// Too many rounds wait for answers.
    #[error("too many rounds wait for answers")]
    TooManyRounds,
    /// The replica is in quarantine.
    #[error("the replica is in quarantine")]
    Quarantined(#[from] Quarantine),
}

/// The reason why a member does not hear a message. It has changed nothing, except that the replica may be in quarantine
/// from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HearError {
    /// The message is for another group or another replica.
    #[error("a message for replica {replica} of group {group} came here")]
    Astray {
        /// The group.
        group: u64,
        /// The receiver.
        replica: u64,
    },
    /// A replica answers that is no member. It may have been one a moment ago.
    #[error("replica {replica} is not a member of the group")]
    UnknownReplica {
        /// The replica.
        replica: u64,
    },
    /// A field has a value that no replica sends.
    #[error("a message of a group cannot be")]
    Message(#[from] MessageError),
    /// Another replica leads in the term that this one leads in.
    #[error("replica {replica} claims to lead term {term}, as this one does")]
    SecondLeader {
        /// The replica.
        replica: u64,
        /// The term.
        term: u64,
    },
    /// A follower says that it has entries that its leader does not have.
    #[error("replica {replica} says that it has entry {index}, but the leader's last is {last}")]
    Ahead {
        /// The follower.
        replica: u64,
        /// The index that it names.
        index: u64,
        /// The leader's last index.
        last: u64,
    },
    /// A vote came before this replica has asked for it.
    #[error("replica {replica} gives a vote for term {term} that it was not asked for")]
    VoteUnasked {
        /// The replica.
        replica: u64,
        /// The term.
        term: u64,
    },
    /// This replica has lost what it had acknowledged.
    #[error("the replica is in quarantine")]
    Quarantined(#[from] Quarantine),
}

/// The reason why a replica neither votes nor acknowledges any more: it is not the one that it was, and has to be
/// replaced under a new number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Quarantine {
    /// The replica's lane is damaged.
    #[error("the lane of the replica is damaged at position {position}")]
    Damaged {
        /// The position.
        position: u64,
    },
    /// The leader knows that this replica has acknowledged more than it has.
    #[error(
        "the group has committed entry {committed}, which this replica has acknowledged; its last is {last}"
    )]
    Forgotten {
        /// The leader's commit index for this replica.
        committed: u64,
        /// This replica's last index.
        last: u64,
    },
    /// The leader has another entry where this replica knows one to be committed.
    #[error(
        "entry {index} is committed with term {own} here, and has term {leaders} at the leader"
    )]
    Contradicted {
        /// The index.
        index: u64,
        /// The entry's term here.
        own: u64,
        /// The entry's term at the leader.
        leaders: u64,
    },
    /// A committed change of members cannot be applied to the members that this replica knows.
    #[error("the change of members at entry {index} does not follow from the members before")]
    Members {
        /// The entry's index.
        index: u64,
    },
}
