//! The broker's own keys on the nodes of a cluster: all have the same, so that a credential that one node gives counts at each. The first node
//! that leads the catalogue makes them; a node that has none asks the others. A node that has others than the leader keeps them, and says
//! so: somebody has to decide which count.

use std::{future::ready, io, path::PathBuf, pin::Pin, rc::Rc, time::Duration};

use bytes::Bytes;
use sennit_model::{Offset, TopicId, TopicName};
use tokio::time::timeout;

use super::{
    control_peers::{ControlPeers, PeerRequests, PeerTopic, PendingAnswer},
    key_file::{self, Secrets},
    topic_listener::TopicListener,
};
use crate::{
    identity::authority::Authority,
    runtime::{groups::Leader, index::ShardIndex},
};

/// How long to wait before the others are asked again.
const AGAIN: Duration = Duration::from_millis(200);

/// See the file's page.
#[derive(Debug)]
pub(crate) struct ClusterSecrets {
    peers: Rc<ControlPeers>,
    authority: Authority,
    data: PathBuf,
}

impl TopicListener for ClusterSecrets {
    fn starts(self: Rc<Self>) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(async move {
            if self.of_others().await.is_none()
                && let Err(error) = key_file::read_or_create(&self.data)
            {
                tracing::error!(%error, "no API key is valid");
            }
            self.put_in_force();
        })
    }

    fn is_where_led(&self) -> bool {
        true
    }

    fn appeared(self: Rc<Self>, _name: &TopicName, _topic: TopicId, _from: Offset) {}

    fn gone(self: Rc<Self>, _name: &TopicName, _topic: TopicId) {}
}

impl PeerRequests for ClusterSecrets {
    /// Its keys, or nothing.
    fn answer_node(self: Rc<Self>, _body: Bytes) -> PendingAnswer {
        let own = self.own();
        let answer = own.map_or_else(Bytes::new, |secrets| Bytes::copy_from_slice(&secrets));
        Box::pin(ready(answer))
    }
}

impl ClusterSecrets {
    /// Those of the node with this data directory.
    pub(crate) fn new(peers: Rc<ControlPeers>, authority: Authority, data: PathBuf) -> Rc<Self> {
        Rc::new(Self { peers, authority, data })
    }

    /// Has the keys of the node that leads, as long as the core's thread lives.
    pub(crate) async fn follow(self: Rc<Self>) {
        let mut leaders = self.peers.groups.watch();
        loop {
            let leader = self.peers.groups.leader_of(ShardIndex::CATALOGUE);
            let has_them = match leader {
                Leader::Node { node, .. } => self.of_node(node).await.is_some(),
                Leader::Here { .. } | Leader::Unknown => self.put_in_force(),
            };
            let changed = leaders.changed();
            let changed = match has_them {
                true => changed.await,
                false => timeout(AGAIN, changed).await.unwrap_or(Ok(())),
            };
            if changed.is_err() {
                return;
            }
        }
    }

    /// Asks the other nodes, if this one has no keys.
    async fn of_others(&self) -> Option<Secrets> {
        if let Some(secrets) = self.own() {
            return Some(secrets);
        }
        let own = self.peers.groups.node;
        for &node in self.peers.groups.members.iter().filter(|&&node| node != own) {
            if let Some(secrets) = self.of_node(node).await {
                return Some(secrets);
            }
        }
        None
    }

    /// The keys of another node, which this one keeps if it has none.
    async fn of_node(&self, node: u16) -> Option<Secrets> {
        let answer = self.peers.ask(node, PeerTopic::Secrets, Bytes::new()).await.ok()?;
        let secrets: Secrets = answer[..].try_into().ok()?;
        match self.own() {
            None => self
                .keep(&secrets)
                .inspect_err(|error| tracing::error!(%error, "no API key is valid"))
                .ok()?,
            Some(own) if own != secrets => {
                tracing::error!(
                    node,
                    "another node has other keys in its file `{}`: what it gives is not valid here",
                    key_file::NAME
                );
            }
            Some(_) => {}
        }
        self.put_in_force();
        Some(secrets)
    }

    fn keep(&self, secrets: &Secrets) -> io::Result<()> {
        key_file::write(&self.data, secrets)
    }

    fn own(&self) -> Option<Secrets> {
        key_file::read(&self.data)
            .inspect_err(|error| tracing::error!(%error, "no API key is valid"))
            .ok()
            .flatten()
    }

    /// Has API keys be checked by what is in the file; false if there is none.
    fn put_in_force(&self) -> bool {
        let own = self.own();
        own.iter().for_each(|secrets| self.authority.set_master(key_file::master(secrets)));
        own.is_some()
    }
}
