//! With what a member of a group begins, and the numbers that all members share.

use crate::label::{EntryId, GROUP_BEGINS, Label};
use crate::membership::{Membership, MembershipError};
use crate::message::TERM_MAX;
use crate::orders::Vote;

/// Milliseconds of a tick.
pub const TICK_MS: u64 = 50;
/// Ticks between two heartbeats.
pub const HEARTBEAT_TICKS: usize = 2;
/// Ticks of silence after which a leader may be doubted. A replica gives no vote before, nor after a start.
pub const ELECTION_TICKS: usize = 10;
/// Ticks of silence before which a replica asks for votes: below this.
pub const ELECTION_TICKS_END: usize = 20;
/// Nanoseconds for which a leader may give, from when something left that a quorum acknowledged. One tick less than a
/// follower's patience, because ticks are coarse, and a tenth less twice: the leader's clock may be a tenth too slow, and a
/// follower's a tenth too fast.
pub const LEASE_NS: u64 = (ELECTION_TICKS as u64 - 1) * TICK_MS * 1_000_000 / 100 * 81;
/// Fewest entries that may be under way to a follower.
pub const WINDOW_MIN: usize = 4;
/// Most entries that may be under way to a follower.
pub const WINDOW_MAX: usize = 256;
/// Most rounds of [`Member::confirm_leadership`](crate::Member::confirm_leadership) that may wait for answers.
pub const ROUNDS_MAX: usize = 64;

/// Which member of which group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The group.
    pub group: u64,
    /// The replica, never 0.
    pub replica: u64,
}

/// What a replica's lane says at a start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// The last term and vote that were kept.
    pub vote: Vote,
    /// The index up to which the log is known to be committed.
    pub commit: u64,
    /// The members as of `commit`.
    pub membership: Membership,
    /// The entry before the first label.
    pub before: EntryId,
    /// The labels of the log, without gaps, all of them synced.
    pub labels: Vec<Label>,
}

impl Start {
    /// The start of each of the first members of a new group.
    #[must_use]
    pub fn of_new_group(membership: Membership) -> Self {
        Self {
            vote: Vote { term: GROUP_BEGINS.term, vote: None },
            commit: GROUP_BEGINS.index,
            membership,
            before: GROUP_BEGINS,
            labels: Vec::new(),
        }
    }

    /// The last entry.
    #[must_use]
    pub fn last(&self) -> EntryId {
        self.labels.last().map_or(self.before, |label| label.id)
    }

    /// # Errors
    /// A [`StartError`] if no lane can say this.
    pub fn check(&self) -> Result<(), StartError> {
        let mut last = self.before;
        for label in &self.labels {
            if label.id.index != last.index + 1 || label.id.term < last.term.max(1) {
                return Err(StartError::Labels { last, next: label.id });
            }
            last = label.id;
        }
        if !(self.before.index..=last.index).contains(&self.commit) {
            return Err(StartError::Commit {
                commit: self.commit,
                before: self.before.index,
                last: last.index,
            });
        }
        if !(last.term..=TERM_MAX).contains(&self.vote.term) {
            return Err(StartError::Term { term: self.vote.term, last: last.term });
        }
        Ok(self.membership.check()?)
    }
}

/// The reason why a replica cannot begin with what it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// A label does not follow the one before.
    #[error("entry {} of term {} cannot follow entry {} of term {}", next.index, next.term, last.index, last.term)]
    Labels {
        /// The entry before.
        last: EntryId,
        /// The label's entry.
        next: EntryId,
    },
    /// The commit index lies outside of the log.
    #[error("commit index {commit} lies outside of the log, which goes from {before} to {last}")]
    Commit {
        /// The commit index.
        commit: u64,
        /// The index before the first label.
        before: u64,
        /// The last index.
        last: u64,
    },
    /// The log has an entry of a newer term, or the term is above [`TERM_MAX`].
    #[error(
        "the newest term cannot be {term}: the last entry is of term {last}, and the highest term is {TERM_MAX}"
    )]
    Term {
        /// The newest term that was kept.
        term: u64,
        /// The last entry's.
        last: u64,
    },
    /// The number of the replica is 0.
    #[error("0 is not the number of a replica")]
    Replica,
    /// The membership cannot be.
    #[error("the membership cannot be")]
    Membership(#[from] MembershipError),
}
