//! The metrics of a node's replicas: each has the number of its group.

use std::{fmt::Error, sync::Arc};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
};

use super::group_links::group_of;
use crate::runtime::{
    groups::{GroupState, Groups, Leader},
    index::ShardIndex,
};

/// A metric of each replica: its name, what it says, and its value.
type OfReplicas = (&'static str, &'static str, fn(&Groups, ShardIndex) -> u64);

const GAUGES: [OfReplicas; 6] = [
    ("replica_leader", "Id of the node that leads the group; 0 if none is known", leader),
    ("replica_leads", "1 where this node leads the group", |groups, shard| {
        state(groups, shard).leads.value()
    }),
    ("replica_term", "Term of the group", |groups, shard| state(groups, shard).term.value()),
    ("replica_commit_lag", "Entries of the log that are not committed, as far as is known here", {
        |groups, shard| state(groups, shard).commit_lag.value()
    }),
    ("replica_held_commands", "Commands that wait for somebody to lead the group", {
        |groups, shard| state(groups, shard).held_commands.value()
    }),
    ("replica_quarantined", "1 where the replica has forgotten what it acknowledged", {
        |groups, shard| state(groups, shard).is_quarantined.value()
    }),
];

const COUNTERS: [OfReplicas; 3] = [
    ("replica_elections", "How often this node has begun to lead the group", |groups, shard| {
        state(groups, shard).elections.value()
    }),
    ("replica_rebuilds", "How often the state of the replica was made anew", |groups, shard| {
        state(groups, shard).rebuilds.value()
    }),
    ("replica_behind", "How often another replica needed what lies before the log", {
        |groups, shard| state(groups, shard).behind.value()
    }),
];

fn state(groups: &Groups, shard: ShardIndex) -> &GroupState {
    &groups.states[shard]
}

fn leader(groups: &Groups, shard: ShardIndex) -> u64 {
    match groups.leader_of(shard) {
        Leader::Unknown => 0,
        Leader::Here { .. } => groups.node.into(),
        Leader::Node { node, .. } => node.into(),
    }
}

/// Encodes them when somebody asks.
#[derive(Debug)]
pub(crate) struct ReplicaCollector(pub(crate) Arc<Groups>);

impl Collector for ReplicaCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let groups = &self.0;
        for (name, text, value) in GAUGES {
            let kind = ConstGauge::new(0_i64).metric_type();
            let mut encoded = encoder.encode_descriptor(name, text, None, kind)?;
            for shard in groups.states.indices() {
                let labels = [("group", group_of(shard).to_string())];
                let value = value(groups, shard).cast_signed();
                ConstGauge::new(value).encode(encoded.encode_family(&labels)?)?;
            }
        }
        for (name, text, value) in COUNTERS {
            let kind = ConstCounter::new(0_u64).metric_type();
            let mut encoded = encoder.encode_descriptor(name, text, None, kind)?;
            for shard in groups.states.indices() {
                let labels = [("group", group_of(shard).to_string())];
                ConstCounter::new(value(groups, shard)).encode(encoded.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
