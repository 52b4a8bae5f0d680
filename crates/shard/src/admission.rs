//! Which commands reach the engine: a refusal comes before the state is touched.

use sennit_engine::{Command, Origin, Refusal, StreamCommand};

use crate::standing::Standing;

/// Whether a command reaches the engine.
pub(crate) enum Admission {
    /// It does.
    Admitted,
    /// It does not, and its sender is told why.
    Refused(Origin, Refusal),
    /// It does not, and it has no answer.
    Ignored,
}

/// Decides which commands reach the engine.
pub(crate) struct Gate {
    pub(crate) standing: Standing,
    /// Whether the lane has failed.
    pub(crate) fenced: bool,
    pub(crate) storage_full: bool,
}

impl Gate {
    /// Says whether a command reaches the engine. Settlements, deletes and subscriptions continue on a full disk,
    /// because they free it. Settings of the broker reach every replica, as they are no part of what a leader decides.
    pub(crate) fn admission(&self, command: &Command) -> Admission {
        let (origin, grows) = match command {
            Command::Publish(publish) | Command::PublishAt(publish, _) => (publish.origin, true),
            Command::PublishAtomic(step) => (step.origin, true),
            Command::Settle(settle) => (settle.origin, false),
            Command::Subscribe(subscribe) => (subscribe.origin, false),
            Command::Read(read) => (read.origin, false),
            Command::Catalogue(origin, _) | Command::Partition(origin, _, _) => (*origin, false),
            Command::Stream(origin, _, StreamCommand::Open(_)) => (*origin, true),
            Command::Stream(origin, _, StreamCommand::Append(append)) => {
                (*origin, append.content.is_some())
            }
            Command::AppendTogether(origin, appends) => {
                (*origin, appends.iter().any(|(_, append)| append.content.is_some()))
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
            Command::Stream(origin, _, _) => (*origin, false),
        };
        let refusal = match self.standing.refusal() {
            _ if self.fenced => Some(Refusal::OutcomeUnknown),
            None if self.storage_full && grows => Some(Refusal::StorageFull),
            refusal => refusal,
        };
        refusal.map_or(Admission::Admitted, |refusal| Admission::Refused(origin, refusal))
    }
}
