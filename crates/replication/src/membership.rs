//! The members of a group, and their form in bytes: four lists, each a count (u32) and numbers in ascending order
//! (u64), little-endian. It is the form of the record that a lane keeps.

use std::collections::BTreeSet;

/// Most members that a [`Membership`] can name, over all its lists.
pub const MEMBERS_MAX: usize = 1024;

/// The members of a group: numbers of replicas, which are never 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
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

/// The reason why a membership cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MembershipError {
    /// The bytes end too early or too late.
    #[error("a membership does not end where its lists end")]
    Length,
    /// A list names 0, or is not in ascending order.
    #[error("a membership's list names {member} where a greater number belongs")]
    Order {
        /// The number.
        member: u64,
    },
    /// It names more than [`MEMBERS_MAX`] replicas.
    #[error("a membership names more than {MEMBERS_MAX} replicas")]
    TooMany,
    /// A replica has two roles that exclude each other.
    #[error("replica {member} has two roles in a membership")]
    TwoRoles {
        /// The replica.
        member: u64,
    },
    /// There are members, but no voters.
    #[error("a membership has members but no voters")]
    NoVoters,
}

impl Membership {
    /// A group of these voters.
    #[must_use]
    pub fn of(voters: impl IntoIterator<Item = u64>) -> Self {
        Self { voters: voters.into_iter().collect(), ..Self::default() }
    }

    /// Returns whether a change of members is under way: two majorities count.
    #[must_use]
    pub fn is_joint(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Returns whether the replica has a vote.
    #[must_use]
    pub fn is_voter(&self, replica: u64) -> bool {
        self.voters.contains(&replica) || self.outgoing.contains(&replica)
    }

    /// Returns whether the replica is a member.
    #[must_use]
    pub fn is_member(&self, replica: u64) -> bool {
        self.lists().iter().any(|list| list.contains(&replica))
    }

    /// Returns whether this replica is the only one that has a vote.
    #[must_use]
    pub fn is_sole_voter(&self, replica: u64) -> bool {
        self.is_voter(replica) && self.voters.union(&self.outgoing).count() == 1
    }

    /// All replicas with a vote, in ascending order.
    pub(crate) fn all_voters(&self) -> impl Iterator<Item = u64> + '_ {
        self.voters.union(&self.outgoing).copied()
    }

    /// # Errors
    /// A [`MembershipError`] if no group can have these members.
    pub fn check(&self) -> Result<(), MembershipError> {
        if self.lists().iter().any(|list| list.contains(&0)) {
            return Err(MembershipError::Order { member: 0 });
        }
        if self.lists().iter().map(|list| list.len()).sum::<usize>() > MEMBERS_MAX {
            return Err(MembershipError::TooMany);
        }
        let learner_that_votes = self.learners.iter().find(|member| self.is_voter(**member));
        let next_learner_amiss = self.next_learners.iter().find(|member| {
            self.voters.contains(member)
                || self.learners.contains(member)
                || !self.outgoing.contains(member)
        });
        if let Some(member) = learner_that_votes.or(next_learner_amiss) {
            return Err(MembershipError::TwoRoles { member: *member });
        }
        match self.voters.is_empty() && self.lists().iter().any(|list| !list.is_empty()) {
            true => Err(MembershipError::NoVoters),
            false => Ok(()),
        }
    }

    /// Appends the bytes.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for list in self.lists() {
            out.extend_from_slice(&(list.len() as u32).to_le_bytes());
            list.iter().for_each(|member| out.extend_from_slice(&member.to_le_bytes()));
        }
    }

    /// The membership in these bytes.
    pub(crate) fn decode(mut bytes: &[u8]) -> Result<Self, MembershipError> {
        let mut left = MEMBERS_MAX;
        let mut list = || -> Result<BTreeSet<u64>, MembershipError> {
            let count = u32::from_le_bytes(take(&mut bytes)?) as usize;
            left = left.checked_sub(count).ok_or(MembershipError::TooMany)?;
            let mut members = BTreeSet::new();
            for _ in 0..count {
                let member = u64::from_le_bytes(take(&mut bytes)?);
                if member <= members.last().copied().unwrap_or(0) {
                    return Err(MembershipError::Order { member });
                }
                members.insert(member);
            }
            Ok(members)
        };
        let membership =
            Self { voters: list()?, outgoing: list()?, learners: list()?, next_learners: list()? };
        if !bytes.is_empty() {
            return Err(MembershipError::Length);
        }
        membership.check()?;
        Ok(membership)
    }

    fn lists(&self) -> [&BTreeSet<u64>; 4] {
        [&self.voters, &self.outgoing, &self.learners, &self.next_learners]
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], MembershipError> {
    let (taken, rest) = bytes.split_first_chunk().ok_or(MembershipError::Length)?;
    *bytes = rest;
    Ok(*taken)
}
