//! Names as a node of a cluster knows them: its replica of the catalogue has applied entries that are not committed, and may lack some that
//! are. Nobody is told of a name before both are out of the way.
//!
//! A replica that follows goes by what it has once that is committed as of the last change: what the group takes back is never seen, so
//! no number of a topic is remembered that another topic may get. A name that it does not know is unknown only if the leader, which
//! finishes the changes of that name first, knows none either. One that leads waits for the changes of the name that are under way, as a
//! broker alone does.

use sennit_engine::Refusal;
use sennit_model::{GroupName, TopicName};
use tokio::time::{Instant, timeout, timeout_at};

use super::Control;
use crate::{
    broker::{
        control_peers::ControlPeers,
        control_request::ControlRefusal,
        leader_requests::LEADER_PATIENCE,
        name_change::NameChange,
        stream_request::{Located, StreamFailure},
    },
    runtime::{groups::Leader, index::ShardIndex},
};

impl Control {
    /// Waits until this node knows what is decided of a topic's name, and of a group of it: what the catalogue says of it is so from here to the next wait.
    ///
    /// # Errors
    /// No node leads the catalogue, and there is nothing that this node could go by.
    pub(crate) async fn know(
        &self,
        name: &TopicName,
        group: Option<&GroupName>,
    ) -> Result<(), ControlRefusal> {
        let Some(peers) = &self.peers else { return Ok(()) };
        if let Leader::Here { .. } = peers.groups.leader_of(ShardIndex::CATALOGUE) {
            return self.settle(name).await;
        }
        self.wait_until_committed(peers).await?;
        if self.has(name, group) {
            return Ok(());
        }
        match Box::pin(self.change_names(NameChange::Settle { name: name.clone() })).await {
            Ok(_) => self.wait_until_committed(peers).await,
            Err(StreamFailure::Broker(refusal)) => Err(*refusal),
            Err(_) => Err(ControlRefusal::WrongAnswer),
        }
    }

    /// The same for the names of a request.
    pub(super) async fn know_all<'a>(
        &self,
        names: impl Iterator<Item = (&'a TopicName, Option<&'a GroupName>)>,
    ) -> Result<(), ControlRefusal> {
        if self.peers.is_some() {
            for (topic, group) in names {
                self.know(topic, group).await?;
            }
        }
        Ok(())
    }

    fn has(&self, name: &TopicName, group: Option<&GroupName>) -> bool {
        self.core.look(|core| {
            let topic = core.catalogue().topic_named(name);
            topic.is_some_and(|topic| group.is_none_or(|group| topic.group(group).is_some()))
        })
    }

    /// Where the topic of a name is, as far as is decided.
    ///
    /// # Errors
    /// As those of [`Self::know`].
    pub(crate) async fn locate_known(
        &self,
        name: &TopicName,
    ) -> Result<Option<Located>, ControlRefusal> {
        self.know(name, None).await?;
        self.locate(name)
    }

    /// Waits, where the catalogue is led, for the changes of a name that are under way. To say that there is no topic takes the
    /// leader's lease.
    pub(super) async fn settle(&self, name: &TopicName) -> Result<(), ControlRefusal> {
        self.wait_for_changes(name).await;
        let Some(peers) = &self.peers else { return Ok(()) };
        if self.locate(name)?.is_some() {
            return Ok(());
        }
        let mut entries = peers.groups.entries(ShardIndex::CATALOGUE);
        let waits = entries.wait_for(|entries| entries.may_give);
        match timeout(LEADER_PATIENCE, waits).await {
            Ok(_) => Ok(()),
            Err(_) => Err(Refusal::NoLeader.into()),
        }
    }

    /// Waits until all that has changed in the catalogue here is committed.
    pub(super) async fn wait_until_committed(
        &self,
        peers: &ControlPeers,
    ) -> Result<(), ControlRefusal> {
        let deadline = Instant::now() + LEADER_PATIENCE;
        let mut entries = peers.groups.entries(ShardIndex::CATALOGUE);
        loop {
            let change_count = self.core.look(|core| core.catalogue().change_count());
            // A state that was made anew has counted anew.
            let rebuilds = peers.groups.states[ShardIndex::CATALOGUE].rebuilds.value();
            let changes = (rebuilds, change_count);
            let seen = *entries.borrow_and_update();
            if !seen.is_poisoned && self.committed_changes.get() == changes {
                return Ok(());
            }
            // The last change lies in what is the last entry now, or before it.
            let waits = entries.wait_for(|entries| {
                !entries.is_poisoned && peers.committed(*entries) >= seen.last_index
            });
            if timeout_at(deadline, waits).await.is_err() {
                return Err(Refusal::NoLeader.into());
            }
            if !seen.is_poisoned {
                self.committed_changes.set(changes);
            }
        }
    }
}
