//! Which commands reach the engine: a refusal comes before the state is touched.

use sennit_engine::{Command, Effect, Origin, Refusal, StreamAnswer, StreamCommand};

use crate::{
    standing::Standing,
    uncommitted::{DECIDED_BYTES_MAX, PUBLISHED_BYTES_MAX},
};

/// Whether a command reaches the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It does.
    Admitted,
    /// It does not, and its sender is told why.
    Refused(Origin, Refusal),
    /// It does not, and it has no answer.
    Ignored,
}

/// The sorts of commands that have an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    /// It adds messages. Without the leader's lease it is tried: its confirm waits for the group.
    Publish,
    /// It settles messages, or takes part in a group. Without the lease it is tried too.
    Settle,
    /// It changes something else, or asks. Its answer may say how the state is, which takes the lease.
    Other,
}

/// Decides which commands reach the engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gate {
    pub(crate) standing: Standing,
    /// Whether the lane has failed.
    pub(crate) fenced: bool,
    pub(crate) storage_full: bool,
}

impl Gate {
    /// Says whether a command reaches the engine. Settlements, deletes and subscriptions continue on a full disk,
    /// because they free it. Settings of the broker reach every replica, as they are no part of what a leader decides.
    /// `uncommitted` is the number of bytes of a leader's entries that are not known to be committed.
    pub(crate) fn admission(self, command: &Command, uncommitted: u64) -> Admission {
        let (origin, sort) = match command {
            Command::Publish(publish) | Command::PublishAt(publish, _) => {
                (publish.origin, Sort::Publish)
            }
            Command::PublishAtomic(step) => (step.origin, Sort::Publish),
            Command::Settle(settle) => (settle.origin, Sort::Settle),
            Command::Subscribe(subscribe) => (subscribe.origin, Sort::Settle),
            Command::Read(read) => (read.origin, Sort::Other),
            Command::Catalogue(origin, _) | Command::Partition(origin, _, _) => {
                (*origin, Sort::Other)
            }
            Command::Stream(origin, _, StreamCommand::Open(_)) => (*origin, Sort::Publish),
            Command::Stream(origin, _, StreamCommand::Append(append)) => {
                (*origin, sort_of_append(append.content.is_some()))
            }
            Command::AppendTogether(origin, appends) => {
                let grows = appends.iter().any(|(_, append)| append.content.is_some());
                (*origin, sort_of_append(grows))
            }
            Command::SetThrottles(_) | Command::WatchFailures(_) if !self.fenced => {
                return Admission::Admitted;
            }
            Command::Stream(_, _, StreamCommand::StopReading)
            | Command::SetCredit { .. }
            | Command::Reader { .. }
            | Command::SetThrottles(_)
            | Command::WatchFailures(_)
            | Command::DecideFailures(_)
            | Command::Unsubscribe { .. }
            | Command::EndSession { .. } => {
                return match self.standing.decides() && !self.fenced {
                    true => Admission::Admitted,
                    false => Admission::Ignored,
                };
            }
            Command::Stream(origin, _, _) => (*origin, Sort::Other),
        };
        let refusal = self.refusal(sort, uncommitted);
        refusal.map_or(Admission::Admitted, |refusal| Admission::Refused(origin, refusal))
    }

    fn refusal(self, sort: Sort, uncommitted: u64) -> Option<Refusal> {
        let bytes_max = match sort {
            Sort::Publish => PUBLISHED_BYTES_MAX,
            Sort::Settle | Sort::Other => DECIDED_BYTES_MAX,
        };
        match self.standing.refusal() {
            _ if self.fenced => Some(Refusal::OutcomeUnknown),
            Some(refusal) => Some(refusal),
            None if self.storage_full && sort == Sort::Publish => Some(Refusal::StorageFull),
            None if self.is_in_group() && uncommitted >= bytes_max => Some(Refusal::NoLeader),
            None if sort == Sort::Other && !self.standing.may_say() => Some(Refusal::NoLeader),
            None => None,
        }
    }

    fn is_in_group(self) -> bool {
        self.standing != Standing::Alone
    }

    /// Takes back what the engine has said at once about its state, if only a leader with a lease may say it.
    pub(crate) fn take_back(self, effects: &mut [Effect]) {
        if self.standing.may_say() {
            return;
        }
        for effect in effects {
            let origin = match effect {
                Effect::Refused { origin, .. } | Effect::Stream(origin, _) => *origin,
                Effect::Settled(settled) => settled.origin,
                _ => continue,
            };
            *effect = Effect::Refused { origin, refusal: Refusal::NoLeader };
        }
    }
}

/// Takes back a refusal that has waited for the commit of all before it, if only a leader with a lease may say it: another
/// may lead by now, and have appended more.
pub(crate) fn take_back_refusal(standing: Standing, effect: &mut Effect) {
    if standing.may_say() {
        return;
    }
    let origin = match effect {
        Effect::Refused { origin, .. } => *origin,
        Effect::Stream(origin, answer) if is_refusal(answer) => *origin,
        _ => return,
    };
    *effect = Effect::Refused { origin, refusal: Refusal::NoLeader };
}

fn is_refusal(answer: &StreamAnswer) -> bool {
    matches!(answer, StreamAnswer::Refused(_) | StreamAnswer::RefusedTogether { .. })
}

fn sort_of_append(grows: bool) -> Sort {
    if grows { Sort::Publish } else { Sort::Settle }
}

#[cfg(test)]
mod tests {
    use sennit_engine::{PartitionCommand, SessionId};
    use sennit_model::{Offset, PartitionId};

    use super::*;

    const ORIGIN: Origin = Origin { session: SessionId(1), request: 1 };

    fn commands() -> [(Sort, Command); 3] {
        let partition = PartitionId::default();
        [
            (Sort::Publish, Command::AppendTogether(ORIGIN, Vec::new())),
            (Sort::Settle, Command::AppendTogether(ORIGIN, Vec::new())),
            (Sort::Other, Command::Partition(ORIGIN, partition, PartitionCommand::Describe)),
        ]
    }

    #[test]
    fn a_leader_with_much_that_is_not_committed_publishes_nothing_and_with_more_decides_nothing() {
        let standing = Standing::Leader { term: 2, may_give: true };
        let gate = Gate { standing, fenced: false, storage_full: false };
        let refused = |uncommitted: u64| {
            commands().map(|(sort, _)| gate.refusal(sort, uncommitted).is_some())
        };
        assert_eq!(refused(PUBLISHED_BYTES_MAX - 1), [false, false, false]);
        assert_eq!(refused(PUBLISHED_BYTES_MAX), [true, false, false]);
        assert_eq!(refused(DECIDED_BYTES_MAX - 1), [true, false, false]);
        assert_eq!(refused(DECIDED_BYTES_MAX), [true, true, true]);
        let alone = Gate { standing: Standing::Alone, ..gate };
        assert_eq!(
            alone.refusal(Sort::Publish, u64::MAX),
            None,
            "its lane is all that it waits for"
        );
    }

    #[test]
    fn a_leader_without_a_lease_refuses_nothing_by_its_state_after_a_commit_either() {
        let refused =
            |refusal: &Refusal| Effect::Refused { origin: ORIGIN, refusal: refusal.clone() };
        let mismatch = Refusal::OffsetMismatch { expected: Offset(3), next: Offset(2) };
        let after = |may_give, mut effect: Effect| {
            take_back_refusal(Standing::Leader { term: 2, may_give }, &mut effect);
            effect
        };
        assert_eq!(after(false, refused(&mismatch)), refused(&Refusal::NoLeader));
        assert_eq!(after(true, refused(&mismatch)), refused(&mismatch));
        let done = Effect::PublishedAt { origin: ORIGIN, first: Offset(2), count: 1 };
        assert_eq!(after(false, done.clone()), done, "the group has it");
    }

    #[test]
    fn a_leader_without_a_lease_tries_publishes_and_says_nothing() {
        let standing = Standing::Leader { term: 2, may_give: false };
        let gate = Gate { standing, fenced: false, storage_full: false };
        let [_, (_, append), (_, describe)] = commands();
        assert_eq!(gate.admission(&append, 0), Admission::Admitted);
        let refused = Admission::Refused(ORIGIN, Refusal::NoLeader);
        assert_eq!(gate.admission(&describe, 0), refused);
        let said = Effect::Refused { origin: ORIGIN, refusal: Refusal::UnknownTopic };
        let mut effects = [said.clone()];
        gate.take_back(&mut effects);
        assert_eq!(effects, [Effect::Refused { origin: ORIGIN, refusal: Refusal::NoLeader }]);
        let mut effects = [said.clone()];
        Gate { standing: Standing::Alone, ..gate }.take_back(&mut effects);
        assert_eq!(effects, [said]);
    }
}
