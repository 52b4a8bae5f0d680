//! What a node knows of itself and of its peers, for all threads: each number is written by one core.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed},
};

use sennit_protocol::peer::Greeting;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::settings::PeerAddress;
use crate::runtime::count::Count;

/// What a node says of itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    /// The random number of the cluster.
    pub(crate) cluster: u64,
    pub(crate) node: u16,
    /// The random number of the data directory.
    pub(crate) incarnation: u64,
    /// How many times a broker has begun to serve it.
    pub(crate) start_epoch: u64,
    pub(crate) cores: u32,
    pub(crate) shards: u32,
}

/// The life of a peer that was heard last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    /// The random number of its data directory.
    pub(crate) incarnation: u64,
    /// How many times a broker has begun to serve it.
    pub(crate) start_epoch: u64,
}

/// A link, as the core that has it sees it.
#[derive(Debug, Default)]
pub(crate) struct LinkState {
    /// Whether it is there.
    pub(crate) is_up: AtomicBool,
    /// The last time from a ping to its pong, in µs.
    pub(crate) round_trip_us: Count,
    /// How far the peer's clock is ahead, in ms, at the last pong.
    pub(crate) skew_ms: AtomicI64,
    /// Bytes that wait to be sent.
    pub(crate) unsent_bytes: Count,
    /// How often it broke.
    pub(crate) breaks: Count,
    /// Frames for groups that this node does not have.
    pub(crate) unclaimed_frames: Count,
}

/// Another node.
#[derive(Debug)]
pub(crate) struct PeerState {
    pub(crate) node: u16,
    pub(crate) address: String,
    /// One for each core of this node; as many of them are used as the peer has cores.
    pub(crate) links: Vec<LinkState>,
    /// 0 before the first greeting.
    incarnation: AtomicU64,
    start_epoch: AtomicU64,
    /// The number of its cores; 0 before the first greeting.
    cores: watch::Sender<u32>,
    /// Why the last link was refused, by either side.
    refusal: Mutex<Option<String>>,
}

/// This node and its peers.
#[derive(Debug)]
pub(crate) struct ClusterState {
    pub(crate) own: Identity,
    pub(crate) peers: Vec<PeerState>,
}

impl ClusterState {
    /// Of a node that has not heard anything.
    pub(crate) fn new(own: Identity, peers: &[PeerAddress]) -> Self {
        let peer = |PeerAddress { node, address }: &PeerAddress| PeerState {
            node: *node,
            address: address.clone(),
            links: (0..own.cores).map(|_| LinkState::default()).collect(),
            incarnation: AtomicU64::new(0),
            start_epoch: AtomicU64::new(0),
            cores: watch::Sender::new(0),
            refusal: Mutex::default(),
        };
        Self { own, peers: peers.iter().map(peer).collect() }
    }

    /// The peer with this id.
    pub(crate) fn peer(&self, node: u16) -> Option<&PeerState> {
        self.peers.iter().find(|peer| peer.node == node)
    }

    /// All of it, for people and programs.
    pub(crate) fn describe(&self) -> Value {
        let Identity { cluster, node, start_epoch, cores, .. } = self.own;
        let peers: Vec<_> = self.peers.iter().map(PeerState::describe).collect();
        // A number of 64 bits is text: not every reader of JSON takes it otherwise.
        json!({
            "cluster": cluster.to_string(),
            "node": node,
            "start_epoch": start_epoch,
            "cores": cores,
            "peers": peers,
        })
    }
}

impl PeerState {
    /// The life that was heard last.
    pub(crate) fn life(&self) -> Option<Life> {
        let incarnation = self.incarnation.load(Relaxed);
        let start_epoch = self.start_epoch.load(Relaxed);
        (incarnation != 0).then_some(Life { incarnation, start_epoch })
    }

    /// Its greeting was accepted.
    pub(crate) fn accepted(&self, greeting: &Greeting) {
        self.incarnation.store(greeting.incarnation, Relaxed);
        self.start_epoch.store(greeting.start_epoch, Relaxed);
        self.set_refusal(None);
        self.cores.send_if_modified(|cores| std::mem::replace(cores, greeting.cores) != *cores);
    }

    /// Notes why a link was refused; whether that is news.
    pub(crate) fn set_refusal(&self, reason: Option<&str>) -> bool {
        let mut refusal = self.refusal.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = refusal.as_deref() != reason;
        if is_news {
            *refusal = reason.map(str::to_owned);
        }
        is_news
    }

    /// Tells the number of its cores, 0 before the first greeting.
    pub(crate) fn watch_cores(&self) -> watch::Receiver<u32> {
        self.cores.subscribe()
    }

    /// The links that are to be there; none before the first greeting.
    fn used_links(&self) -> &[LinkState] {
        let used = (*self.cores.borrow() as usize).min(self.links.len());
        &self.links[..used]
    }

    /// How many links there are.
    pub(crate) fn links_up(&self) -> usize {
        self.links.iter().filter(|link| link.is_up.load(Relaxed)).count()
    }

    /// Whether all links to it are there.
    pub(crate) fn is_heard(&self) -> bool {
        let used = self.used_links();
        !used.is_empty() && used.iter().all(|link| link.is_up.load(Relaxed))
    }

    /// The longest of the last round trips of its links, in µs.
    pub(crate) fn round_trip_us(&self) -> u64 {
        self.links.iter().map(|link| link.round_trip_us.value()).max().unwrap_or_default()
    }

    /// How far its clock is ahead, in ms: the largest difference that a link has seen.
    pub(crate) fn skew_ms(&self) -> i64 {
        let skews = self.links.iter().map(|link| link.skew_ms.load(Relaxed));
        skews.max_by_key(|skew| skew.unsigned_abs()).unwrap_or_default()
    }

    /// The sum over its links.
    pub(crate) fn sum(&self, of: impl Fn(&LinkState) -> &Count) -> u64 {
        self.links.iter().map(|link| of(link).value()).sum()
    }

    fn describe(&self) -> Value {
        let refusal = self.refusal.lock().unwrap_or_else(PoisonError::into_inner).clone();
        json!({
            "node": self.node,
            "address": self.address,
            "heard": self.is_heard(),
            "start_epoch": self.life().map(|life| life.start_epoch),
            "links": self.used_links().len(),
            "links_up": self.links_up(),
            "round_trip_us": self.round_trip_us(),
            "skew_ms": self.skew_ms(),
            "unsent_bytes": self.sum(|link| &link.unsent_bytes),
            "breaks": self.sum(|link| &link.breaks),
            "refusal": refusal,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(own_cores: u32) -> ClusterState {
        let own = Identity {
            cluster: 1,
            node: 1,
            incarnation: 2,
            start_epoch: 3,
            cores: own_cores,
            shards: 1,
        };
        let address = "127.0.0.1:4439".to_owned();
        ClusterState::new(own, &[PeerAddress { node: 2, address }])
    }

    fn greeting(cores: u32) -> Greeting {
        Greeting {
            cluster: 1,
            node: 2,
            incarnation: 9,
            start_epoch: 4,
            protocol: (1, 1),
            features: Vec::new(),
            level: 1,
            clock_ms: 0,
            cores,
            link: 0,
            shards: 1,
        }
    }

    #[test]
    fn a_peer_is_heard_when_all_links_that_both_have_cores_for_are_there() {
        for (own_cores, cores, used) in [(1, 4, 1), (4, 2, 2), (3, 3, 3)] {
            let state = state(own_cores);
            let peer = &state.peers[0];
            assert!(!peer.is_heard(), "before the first greeting");
            peer.accepted(&greeting(cores));
            for link in 0..used {
                assert!(!peer.is_heard(), "{link} of {used} links");
                peer.links[link].is_up.store(true, Relaxed);
            }
            assert!(peer.is_heard());
            assert_eq!(peer.describe()["links"], used);
        }
    }

    #[test]
    fn a_refusal_is_news_once_and_gone_when_a_greeting_is_accepted() {
        let state = state(1);
        let peer = &state.peers[0];
        assert!(peer.set_refusal(Some("another cluster")));
        assert!(!peer.set_refusal(Some("another cluster")));
        assert_eq!(state.describe()["peers"][0]["refusal"], "another cluster");
        peer.accepted(&greeting(1));
        assert!(state.describe()["peers"][0]["refusal"].is_null());
        assert_eq!(peer.life(), Some(Life { incarnation: 9, start_epoch: 4 }));
    }

    #[test]
    fn the_largest_skew_is_told_with_its_sign() {
        let state = state(3);
        for (link, skew) in [20, -300, 100].into_iter().enumerate() {
            state.peers[0].links[link].skew_ms.store(skew, Relaxed);
        }
        assert_eq!(state.peers[0].skew_ms(), -300);
    }
}
