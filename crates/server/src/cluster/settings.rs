//! The settings of the links: where this node listens, and where the other nodes are. It knows no sockets.

use std::{net::SocketAddr, str::FromStr};

use crate::runtime::error::ServeError;

/// Highest id of a node.
const NODE_MAX: u16 = 4095;

/// The other nodes of a cluster, and where this one listens for them.
#[derive(Clone, Debug)]
pub struct ClusterSettings {
    /// Where it listens for other nodes.
    pub listen: SocketAddr,
    /// The other nodes. Those with a higher id are dialled.
    pub peers: Vec<PeerAddress>,
    /// The number of the cluster to which a new data directory belongs; a random one if there is none. An existing
    /// directory keeps its own.
    pub cluster_id: Option<u64>,
}

/// Another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerAddress {
    /// Its id, 1 to 4095.
    pub node: u16,
    /// Where it listens for other nodes, as `host:port`.
    pub address: String,
}

/// Why a text names no peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a peer is given as ID=HOST:PORT with an id of 1 to {NODE_MAX}, as in 2=10.0.0.2:4439")]
pub struct PeerAddressError;

impl FromStr for PeerAddress {
    type Err = PeerAddressError;

    fn from_str(text: &str) -> Result<Self, PeerAddressError> {
        let (node, address) = text.split_once('=').ok_or(PeerAddressError)?;
        let node = node.parse().ok().filter(|node| (1..=NODE_MAX).contains(node));
        let (host, port) = address.rsplit_once(':').ok_or(PeerAddressError)?;
        match (node, port.parse::<u16>()) {
            (Some(node), Ok(_)) if !host.is_empty() => {
                Ok(Self { node, address: address.to_owned() })
            }
            _ => Err(PeerAddressError),
        }
    }
}

impl ClusterSettings {
    /// Refuses peers that cannot be, and addresses beyond this machine as long as links have no TLS.
    pub(crate) fn check(&self, own: Option<u16>, insecure: bool) -> Result<(), ServeError> {
        let mut seen: Vec<u16> = own.into_iter().collect();
        for PeerAddress { node, .. } in &self.peers {
            if seen.contains(node) {
                return Err(ServeError::Peers { node: *node });
            }
            seen.push(*node);
        }
        let is_loopback = |address: &str| {
            let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
            let literal = address.parse().map(|address: SocketAddr| address.ip().is_loopback());
            literal.unwrap_or(host == "localhost")
        };
        let listen = self.listen.to_string();
        let addresses = self.peers.iter().map(|peer| &peer.address).chain([&listen]);
        match addresses.into_iter().find(|address| !is_loopback(address)) {
            Some(address) if !insecure => Err(ServeError::OpenLinks { address: address.clone() }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(peers: &[&str], listen: &str) -> ClusterSettings {
        let peers = peers.iter().map(|peer| peer.parse().unwrap()).collect();
        ClusterSettings { listen: listen.parse().unwrap(), peers, cluster_id: None }
    }

    #[test]
    fn a_peer_is_an_id_and_an_address() {
        let peer = |node, address: &str| PeerAddress { node, address: address.to_owned() };
        assert_eq!("2=a.example:4439".parse(), Ok(peer(2, "a.example:4439")));
        assert_eq!("4095=[::1]:1".parse(), Ok(peer(4095, "[::1]:1")));
        for text in ["", "2", "2=", "2=a", "2=:1", "0=a:1", "4096=a:1", "x=a:1", "2=a:65536"] {
            assert_eq!(text.parse::<PeerAddress>(), Err(PeerAddressError), "{text}");
        }
    }

    #[test]
    fn a_peer_is_named_once_and_is_another_node() {
        let check = |peers: &[&str]| settings(peers, "127.0.0.1:0").check(Some(1), false);
        assert!(check(&["2=localhost:1", "3=127.0.0.1:2"]).is_ok());
        for peers in [["2=127.0.0.1:1", "2=127.0.0.1:2"], ["2=127.0.0.1:1", "1=127.0.0.1:2"]] {
            assert!(matches!(check(&peers), Err(ServeError::Peers { .. })), "{peers:?}");
        }
    }

    #[test]
    fn links_without_tls_stay_on_this_machine_unless_anybody_may_do_anything() {
        for (peer, listen) in [
            ("2=10.0.0.2:4439", "127.0.0.1:4439"),
            ("2=a.example:4439", "127.0.0.1:4439"),
            ("2=127.0.0.1:4440", "0.0.0.0:4439"),
        ] {
            let settings = settings(&[peer], listen);
            let refused = settings.check(Some(1), false);
            assert!(matches!(refused, Err(ServeError::OpenLinks { .. })), "{peer} {listen}");
            assert!(settings.check(Some(1), true).is_ok());
        }
    }
}
