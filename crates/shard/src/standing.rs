//! A shard's standing in its group: whether it decides. It knows no raft: a replica says what its standing is.

use sennit_engine::Refusal;
use sennit_model::Generation;

/// The standing of a shard. A shard that is no replica is alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// There is no group: what the own lane has written is committed.
    Alone,
    /// It decides. The first entry of its term is committed, and no transfer is under way.
    Leader {
        /// Its term.
        term: u64,
        /// Whether it may deliver, which takes the leader's lease.
        may_give: bool,
    },
    /// A leader whose leadership is being transferred: it decides nothing more, and still tells what becomes
    /// committed.
    HandingOver {
        /// Its term.
        term: u64,
    },
    /// It applies what the leader has decided.
    Follower {
        /// The id of the replica that leads, if it is known.
        leader: Option<u64>,
    },
    /// Its state has applied what the group did not decide. It is thrown away.
    Poisoned,
    /// It is to be replaced, and does nothing any more.
    Quarantined,
}

impl Standing {
    /// Returns whether commands and timers are decided.
    #[must_use]
    pub fn decides(self) -> bool {
        matches!(self, Self::Alone | Self::Leader { .. })
    }

    /// Returns whether effects wait for commits: a leader's do.
    pub(crate) fn leads(self) -> bool {
        self.decides() || matches!(self, Self::HandingOver { .. })
    }

    /// Returns whether it may say how the state is: where the end is, that a name is unknown. In a group another may lead
    /// by now, unless it has the lease.
    pub(crate) fn may_say(self) -> bool {
        matches!(self, Self::Alone | Self::Leader { may_give: true, .. })
    }

    /// The term in which it leads.
    pub(crate) fn term(self) -> Option<u64> {
        match self {
            Self::Leader { term, .. } | Self::HandingOver { term } => Some(term),
            _ => None,
        }
    }

    /// The refusal of commands where nothing is decided.
    pub(crate) fn refusal(self) -> Option<Refusal> {
        match self {
            Self::Alone | Self::Leader { .. } => None,
            Self::Follower { leader: Some(leader) } => Some(Refusal::NotLeader { leader }),
            Self::HandingOver { .. }
            | Self::Follower { leader: None }
            | Self::Poisoned
            | Self::Quarantined => Some(Refusal::NoLeader),
        }
    }
}

/// The generation of what is delivered in a term. A group refuses terms of more than 32 bits.
pub(crate) fn generation_of(term: u64) -> Generation {
    Generation(u32::try_from(term).unwrap_or(u32::MAX))
}
