//! Brokers that are the nodes of one new cluster, in processes of their own on this machine.

use std::{
    net::Ipv4Addr,
    sync::atomic::{AtomicU8, Ordering::Relaxed},
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use serde::Deserialize;

use crate::{
    broker::Broker,
    children::pause,
    options::Options,
    usage::{cpu_s, json, rss_bytes},
};

/// Port at which nodes listen for each other.
const CLUSTER_PORT: u16 = 4439;

/// Time within which every group has the wanted leader, and every node hears the others.
const LED_TIMEOUT: Duration = Duration::from_secs(120);

/// The time between two looks at a node.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The nodes of a cluster, by their ids, which count from 1.
pub struct Nodes {
    brokers: Vec<Broker>,
}

/// The status of the cluster, as a node tells it.
#[derive(Deserialize)]
struct Status {
    groups: Vec<GroupStatus>,
}

#[derive(Deserialize)]
struct GroupStatus {
    leader: Option<usize>,
    replicas: Vec<ReplicaStatus>,
}

#[derive(Deserialize)]
struct ReplicaStatus {
    lag_entries: u64,
    heard: bool,
}

impl Nodes {
    /// Starts `count` nodes with `flags`, and waits until the first leads the first group.
    ///
    /// # Errors
    /// A node does not start, or the cluster does not come up.
    pub fn start(options: &Options, count: usize, flags: &[&str]) -> Result<Self> {
        let addresses: Vec<String> = (0..count).map(|_| own_address()).collect();
        let brokers = (0..count).map(|index| {
            let id = (index + 1).to_string();
            let peers = addresses.iter().enumerate().filter(|(peer, _)| *peer != index);
            let peers: Vec<_> =
                peers.map(|(peer, address)| format!("{}={address}", peer + 1)).collect();
            let peers = peers.join(",");
            let own = ["--node-id", &id, "--peers", &peers];
            let own = [&own[..], &["--cluster-listen", &addresses[index], "--cluster-id", "1"]];
            let data = options.data.as_ref().map(|data| data.join(format!("node-{id}")));
            Broker::start(&Options { data, ..options.clone() }, &[&own.concat(), flags].concat())
        });
        let nodes = Self { brokers: brokers.collect::<Result<_>>()? };
        nodes.until_first_leads()?;
        Ok(nodes)
    }

    /// The node with this index.
    #[must_use]
    pub fn node(&self, index: usize) -> &Broker {
        &self.brokers[index]
    }

    /// Kills the node with this index, and waits for the end of its process.
    ///
    /// # Errors
    /// As [`Broker::kill`].
    pub fn kill(&mut self, index: usize) -> Result<()> {
        self.brokers[index].kill()
    }

    /// Starts a node again that was killed, and waits until it is ready.
    ///
    /// # Errors
    /// It does not become ready.
    pub fn start_again(&mut self, index: usize) -> Result<()> {
        self.brokers[index].start_again()?.ready()?;
        Ok(())
    }

    /// Waits until the first node leads the first group, and the others have all of its log.
    ///
    /// # Errors
    /// It does not come to that, or the run is being ended.
    pub fn until_first_leads(&self) -> Result<()> {
        let begun = Instant::now();
        while !self.first_leads() {
            ensure!(begun.elapsed() < LED_TIMEOUT, "no cluster came up within {LED_TIMEOUT:?}");
            pause(LOOK_EVERY)?;
        }
        Ok(())
    }

    /// Whether the first node leads the first group, and the others have all of its log.
    #[must_use]
    pub fn first_leads(&self) -> bool {
        let status: Option<Status> = json(&self.brokers[0].http, "/v1/admin/cluster");
        let first = status.as_ref().and_then(|status| status.groups.first());
        first.is_some_and(|group| {
            let others = self.brokers.len() - 1;
            let has_all = |replica: &&ReplicaStatus| replica.heard && replica.lag_entries == 0;
            group.leader == Some(1) && group.replicas.iter().filter(has_all).count() == others
        })
    }

    /// Processor seconds of all nodes.
    #[must_use]
    pub fn cpu_s(&self) -> Option<f64> {
        self.brokers.iter().map(|broker| broker.pid.and_then(cpu_s)).sum()
    }

    /// Resident bytes of all nodes.
    #[must_use]
    pub fn rss_bytes(&self) -> Option<u64> {
        self.brokers.iter().map(|broker| broker.pid.and_then(rss_bytes)).sum()
    }
}

/// An address of the loopback that no other node has, of this run or of another: nodes know each other's before they start.
fn own_address() -> String {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    let address = Ipv4Addr::new(127, high, low, NEXT.fetch_add(1, Relaxed));
    format!("{address}:{CLUSTER_PORT}")
}
