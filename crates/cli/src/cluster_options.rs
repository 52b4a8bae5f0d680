//! The options of `sennit serve` for a node with peers.

use std::net::SocketAddr;

use sennit_server::{ClusterSettings, PeerAddress};

/// The heading of these options in the help.
pub const HEADING: &str = "Three nodes";

/// Where this node listens for others, and where these are.
#[derive(Debug, clap::Args)]
pub struct ClusterOptions {
    /// The other nodes of the cluster, as ID=HOST:PORT with commas between them
    ///
    /// docs/operating/cluster.md says how three nodes are started, and what they promise.
    #[arg(long, help_heading = HEADING, value_name = "PEERS", value_delimiter = ',', requires = "node_id")]
    peers: Vec<PeerAddress>,
    /// Listen for other nodes on this address
    #[arg(long, help_heading = HEADING, value_name = "ADDRESS", default_value = "127.0.0.1:4439")]
    #[arg(requires = "peers")]
    cluster_listen: SocketAddr,
    /// The number of the cluster to which a new data directory belongs, the same on all nodes
    #[arg(long, help_heading = HEADING, value_name = "N", requires = "peers")]
    cluster_id: Option<u64>,
}

impl ClusterOptions {
    /// The settings of the links, if there are peers.
    pub fn settings(self) -> Option<ClusterSettings> {
        let Self { peers, cluster_listen, cluster_id } = self;
        (!peers.is_empty()).then_some(ClusterSettings { listen: cluster_listen, peers, cluster_id })
    }
}
