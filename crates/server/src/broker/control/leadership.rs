//! The control of a node of a cluster: it serves at once, with what the other nodes know. What has to be done by one node alone is done
//! where the catalogue is led, and goes with it.

use std::rc::Rc;

use tokio::{sync::oneshot, task::spawn_local};

use super::Control;
use crate::{
    broker::{
        control_peers::ControlPeers,
        recovered_state::{Found, PartitionsHere},
        topic_listener::TopicListener,
    },
    runtime::{groups::Leader, inbox::Message, index::ShardIndex},
};

impl Control {
    /// Begins on a node of a cluster. It waits for nobody: the others may not be there yet.
    pub(super) fn begin_in_cluster(self: Rc<Self>, peers: Rc<ControlPeers>) {
        spawn_local(self.clone().report_news(peers.clone()));
        for listener in self.listeners.iter().filter(|listener| !listener.is_where_led()) {
            spawn_local(listener.clone().starts());
        }
        spawn_local(self.lead_when_elected(peers));
    }

    /// Does, whenever this node leads the catalogue, what is done where it is led.
    async fn lead_when_elected(self: Rc<Self>, peers: Rc<ControlPeers>) {
        let mut leaders = peers.groups.watch();
        let mut led = None;
        loop {
            let leads = match peers.groups.leader_of(ShardIndex::CATALOGUE) {
                Leader::Here { term } => Some(term),
                Leader::Node { .. } | Leader::Unknown => None,
            };
            if leads != led {
                if led.is_some() {
                    self.where_led().for_each(|listener| listener.rests());
                }
                if leads.is_some() {
                    self.take_up(&peers).await;
                }
                led = leads;
                continue;
            }
            if leaders.changed().await.is_err() {
                return;
            }
        }
    }

    /// Finishes what the leader before has left undone, and has those begin that are where the catalogue is led.
    async fn take_up(&self, peers: &ControlPeers) {
        // Questions to partitions, and reads of the broker's own streams, need their leaders.
        let mut leaders = peers.groups.watch();
        while !peers.groups.are_led() && leaders.changed().await.is_ok() {}
        let found = self.found_here().await;
        if let Err(error) = self.reconcile(&found.partitions).await {
            tracing::warn!(error = error.to_string(), "shards lag the catalogue");
        }
        self.release_streams(&found.held_streams, &found.forks).await;
        for listener in self.where_led() {
            listener.starts().await;
        }
    }

    fn where_led(&self) -> impl Iterator<Item = Rc<dyn TopicListener>> {
        self.listeners.iter().filter(|listener| listener.is_where_led()).cloned()
    }

    /// The partitions that the replicas of this node have by now, which may be behind those that lead: what is asked of those because of it can
    /// be asked in vain.
    async fn found_here(&self) -> Found {
        let mut found = Found::default();
        for inbox in self.core.cores.inboxes.iter() {
            let (sender, answer) = oneshot::channel();
            let _ = inbox.send(Message::call(move |here: &Rc<PartitionsHere>| {
                let _ = sender.send(here.found());
            }));
            // A core that has ended has none.
            if let Ok(of_core) = answer.await {
                found.append(of_core);
            }
        }
        found.partitions.sort_by_key(|found| found.id);
        found
    }
}
