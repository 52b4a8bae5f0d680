//! The start of a replica: what its lane says becomes what the group's member begins with.

use sennit_replication::{EntryId, GROUP_BEGINS, Label, Member, Membership, Settings, Start, Vote};
use sennit_shard::{Replica, Shard};

use crate::{label, moment::Moment, quarantine};

/// The reason why a replica does not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// The shard's lane is not the log of a replica in a group.
    #[error("the lane is not the log of a replica in a group")]
    NoReplica,
    /// The lane says what no lane of a replica can say.
    #[error(transparent)]
    Group(#[from] sennit_replication::StartError),
}

/// The member of a group that the shard is, which follows nobody yet.
pub(crate) fn member(
    shard: &mut Shard,
    first_members: &Membership,
    now: Moment,
) -> Result<(Member, Replica), StartError> {
    let replica = shard.replica().filter(|replica| !replica.is_alone);
    let replica = replica.ok_or(StartError::NoReplica)?;
    shard.join_group(&label::members_of_group(first_members), now.time);
    let here = shard.here().ok_or(StartError::NoReplica)?;
    let membership = shard.membership().ok_or(StartError::NoReplica)?;
    let membership = label::members_of_shard(membership);
    let labels = shard.labels().ok_or(StartError::NoReplica)?;
    let before = labels.before();
    let start = Start {
        vote: Vote {
            term: here.term.max(GROUP_BEGINS.term),
            vote: Some(here.vote).filter(|vote| *vote != 0),
        },
        commit: here.commit,
        membership,
        before: EntryId { term: before.term, index: before.index },
        labels: all_labels(labels),
    };
    let settings = Settings { group: replica.group, replica: replica.id };
    let mut member = Member::new(settings, start)?;
    if let Some(found) = shard.quarantine() {
        member.enter_quarantine(quarantine::of_shard(found));
    }
    Ok((member, replica))
}

fn all_labels(labels: &sennit_shard::Labels) -> Vec<Label> {
    let indexes = labels.first_index()..=labels.last().index;
    indexes.filter_map(|index| label::of_shard(labels, index)).collect()
}
