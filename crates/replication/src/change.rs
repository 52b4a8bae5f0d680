//! From one membership to the next, as raft's change of members. The entry of the log names the new members; each
//! replica works out the change by itself, because raft's own form of it is protobuf.

use raft::eraftpb::{ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2};
use raft::{Changer, ProgressTracker};

use crate::membership::Membership;
use crate::raft_form;

/// The change that makes these members of those in the tracker, if one step does it.
pub(crate) fn step(
    from: &Membership,
    to: &Membership,
    tracker: &ProgressTracker,
) -> Option<ConfChangeV2> {
    let mut change = ConfChangeV2::default();
    if !from.is_joint() {
        change.changes = singles(from, to).into();
    }
    if to.is_joint() {
        change.set_transition(ConfChangeTransition::Explicit);
    }
    let mut changer = Changer::new(tracker);
    let result = match (change.leave_joint(), change.enter_joint()) {
        (true, _) => changer.leave_joint(),
        (false, Some(auto_leave)) => changer.enter_joint(auto_leave, &change.changes),
        (false, None) => changer.simple(&change.changes),
    };
    let (configuration, _) = result.ok()?;
    let state = configuration.to_conf_state();
    (!state.auto_leave && raft_form::membership(&state) == *to).then_some(change)
}

/// What differs, each replica once.
fn singles(from: &Membership, to: &Membership) -> Vec<ConfChangeSingle> {
    let single = |replica: u64, kind: ConfChangeType| {
        let mut single = ConfChangeSingle { node_id: replica, ..ConfChangeSingle::default() };
        single.set_change_type(kind);
        single
    };
    let voters = to.voters.difference(&from.voters);
    let learners = to.learners.difference(&from.learners);
    let next_learners = to.next_learners.iter();
    let gone = from.voters.union(&from.learners).filter(|member| {
        ![&to.voters, &to.learners, &to.next_learners].iter().any(|list| list.contains(member))
    });
    let added = voters.map(|voter| single(*voter, ConfChangeType::AddNode));
    let learning = learners
        .chain(next_learners)
        .map(|learner| single(*learner, ConfChangeType::AddLearnerNode));
    let removed = gone.map(|member| single(*member, ConfChangeType::RemoveNode));
    added.chain(learning).chain(removed).collect()
}
