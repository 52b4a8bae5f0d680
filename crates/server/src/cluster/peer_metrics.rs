//! The metrics of peers: each has the id of the peer.

use std::{fmt::Error, sync::Arc};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
};

use super::peer_state::{ClusterState, PeerState};

/// A metric of each peer: its name, what it says, and its value.
type OfPeers = (&'static str, &'static str, fn(&PeerState) -> i64);

const GAUGES: [OfPeers; 4] = [
    ("peer_links", "Links to the peer that are there", |peer| peer.links_up() as i64),
    ("peer_round_trip_us", "Microseconds from a ping of the peer to its pong", |peer| {
        peer.round_trip_us().cast_signed()
    }),
    (
        "peer_clock_skew_ms",
        "Milliseconds by which the clock of the peer is ahead",
        PeerState::skew_ms,
    ),
    ("peer_unsent_bytes", "Bytes that wait to be sent to the peer", |peer| {
        peer.sum(|link| &link.unsent_bytes).cast_signed()
    }),
];

const COUNTERS: [OfPeers; 2] = [
    ("peer_link_breaks", "Links to the peer that have ended", |peer| {
        peer.sum(|link| &link.breaks).cast_signed()
    }),
    (
        "peer_unclaimed_frames",
        "Frames of the peer for groups that this node does not have",
        |peer| peer.sum(|link| &link.unclaimed_frames).cast_signed(),
    ),
];

/// Encodes them when somebody asks.
#[derive(Debug)]
pub(crate) struct PeerCollector(pub(crate) Arc<ClusterState>);

impl Collector for PeerCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        for (name, text, value) in GAUGES {
            let kind = ConstGauge::new(0_i64).metric_type();
            let mut encoded = encoder.encode_descriptor(name, text, None, kind)?;
            for peer in &self.0.peers {
                let labels = [("peer", peer.node.to_string())];
                ConstGauge::new(value(peer)).encode(encoded.encode_family(&labels)?)?;
            }
        }
        for (name, text, value) in COUNTERS {
            let kind = ConstCounter::new(0_u64).metric_type();
            let mut encoded = encoder.encode_descriptor(name, text, None, kind)?;
            for peer in &self.0.peers {
                let labels = [("peer", peer.node.to_string())];
                let value = value(peer).cast_unsigned();
                ConstCounter::new(value).encode(encoded.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
