//! The configuration on a node of a cluster: each node follows the stream of changes, and has a change once it has read it there. A node
//! that makes changes decides them on the ground of all that it has read, and appends them at the offset up to which it has read; if
//! another node has appended there first, nothing is appended, and it reads on and decides again. So the stream orders the
//! decisions of all nodes, whoever leads, and a change that is confirmed is in force at the node that made it.

use std::{rc::Rc, time::Duration};

use sennit_engine::{Refusal, StreamRefusal};
use sennit_model::Offset;
use tokio::time::{Instant, sleep, timeout_at};

use super::{
    Answer, Configuration, ConfigurationChange, ConfigurationRefusal, KeptConfiguration,
    WaitingWrite, beginning::Beginning, entries::Draft, refusal_of, store::Found,
};
use crate::broker::{
    control_request::ControlRefusal, leader_requests::LEADER_PATIENCE,
    stream_request::StreamFailure,
};

/// How long to wait before the stream is read again where it could not be.
const AGAIN: Duration = Duration::from_millis(100);

/// How long a node that knows no topic waits for a leader before it begins without a configuration.
const LEADERLESS: Duration = Duration::from_secs(3);

/// How long to wait for a stream that is not there.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

impl Configuration {
    /// Follows the stream as long as the core's thread lives.
    pub(super) async fn follow(self: Rc<Self>) {
        let started = Instant::now();
        let (mut at, mut beginning) = (None, Some(Beginning::default()));
        loop {
            match self.store.read_on(at, beginning.is_none()).await {
                Ok(read) => {
                    at = Some(read.next);
                    match &mut beginning {
                        Some(begins) => {
                            read.found.into_iter().for_each(|found| begins.take(found));
                        }
                        None => self.take_up(read.found).await,
                    }
                    if read.is_up_to_date
                        && let Some(begins) = beginning.take()
                    {
                        self.begin(begins).await;
                    }
                    self.followed.send_replace(read.next);
                    // The changes of all nodes make the stream grow.
                    self.has_more.notify_one();
                }
                Err(failure) => match failure.refusal() {
                    // No configuration was ever kept.
                    Some(StreamRefusal::Unknown) => {
                        if let Some(begins) = beginning.take() {
                            self.begin(begins).await;
                        }
                        at = Some(Offset(0));
                        let _ =
                            timeout_at(Instant::now() + LOOK_AGAIN, self.appeared.notified()).await;
                    }
                    // It was written again meanwhile.
                    Some(StreamRefusal::NotKept { .. }) => {
                        (at, beginning) = (None, Some(Beginning::default()));
                    }
                    _ => {
                        // A state that is made anew has no topics, and says nothing by that.
                        let knows_nothing = self.core.look(|core| {
                            core.whole_catalogue().is_some_and(|all| all.topic_count() == 0)
                        });
                        if knows_nothing
                            && started.elapsed() > LEADERLESS
                            && let Some(begins) = beginning.take()
                        {
                            tracing::warn!(%failure, "the other nodes are not there: this one begins without a configuration");
                            self.begin(begins).await;
                            // The stored entry replaces it.
                            (at, beginning) = (None, None);
                        }
                        sleep(AGAIN).await;
                    }
                },
            }
        }
    }

    /// Puts changes in force that were read behind what is in force.
    async fn take_up(&self, found: Vec<Found>) {
        let mut changes: Vec<ConfigurationChange> = Vec::new();
        for found in found {
            let revision = changes.last().map(|change| change.revision);
            let revision = revision.unwrap_or_else(|| self.entries.borrow().revision());
            match found {
                // One that is not newer is an entry that was written again.
                Found::Kept(KeptConfiguration::Change(change)) if change.revision > revision => {
                    changes.push(change);
                }
                Found::Kept(_) => {}
                Found::Missing(count) => {
                    tracing::error!(count, "changes of the configuration are missing here");
                    self.entries.borrow_mut().skip_to(revision.saturating_add(count));
                }
            }
        }
        if !changes.is_empty() {
            self.put_in_force(changes).await;
        }
    }

    /// Decides changes and has them appended; they are in force here then.
    pub(super) async fn write_in_cluster(
        &self,
        writes: &[WaitingWrite],
    ) -> (Result<(), ConfigurationRefusal>, Vec<Answer>) {
        let deadline = Instant::now() + LEADER_PATIENCE;
        let mut answers = Vec::new();
        let refusal = loop {
            match self.try_write(writes, &mut answers, deadline).await {
                Ok(true) => return (Ok(()), answers),
                Ok(false) if Instant::now() < deadline => {}
                Ok(false) => break no_leader(),
                Err(failure) => {
                    tracing::debug!(%failure, "changes of the configuration are refused");
                    break refusal_of(failure);
                }
            }
        };
        let refused = writes.iter().map(|_| Err(refusal.clone())).collect();
        (Err(refusal), refused)
    }

    /// False if another node has changed something meanwhile: nothing is appended then.
    async fn try_write(
        &self,
        writes: &[WaitingWrite],
        answers: &mut Vec<Answer>,
        deadline: Instant,
    ) -> Result<bool, StreamFailure> {
        // Changes that other nodes made before are known first.
        let end = self.store.end().await?;
        if !self.has_followed(end, deadline).await {
            return Ok(false);
        }
        let (at, changes) = {
            let entries = self.entries.borrow();
            let mut draft = Draft::of(&entries, self.authority.revision());
            *answers = writes.iter().map(|waiting| draft.decide(&waiting.write)).collect();
            (*self.followed.borrow(), draft.changes)
        };
        if changes.is_empty() {
            return Ok(true);
        }
        let Some(next) = self.store.append_at(at, &changes).await? else {
            return Ok(false);
        };
        if self.has_followed(next, deadline).await {
            return Ok(true);
        }
        Err(ControlRefusal::Engine(Refusal::OutcomeUnknown).into())
    }

    /// Has all in force here that was confirmed at whatever node before.
    pub(crate) async fn catch_up(&self) -> Result<(), ConfigurationRefusal> {
        if self.core.cores.groups.is_none() {
            return Ok(());
        }
        let deadline = Instant::now() + LEADER_PATIENCE;
        let end = self.store.end().await.map_err(refusal_of)?;
        match self.has_followed(end, deadline).await {
            true => Ok(()),
            false => Err(no_leader()),
        }
    }

    async fn has_followed(&self, end: Offset, deadline: Instant) -> bool {
        let mut followed = self.followed.subscribe();
        let waits = followed.wait_for(|followed| *followed >= end);
        timeout_at(deadline, waits).await.is_ok_and(|waited| waited.is_ok())
    }
}

fn no_leader() -> ConfigurationRefusal {
    ConfigurationRefusal::Broker(Box::new(ControlRefusal::Engine(Refusal::NoLeader)))
}
