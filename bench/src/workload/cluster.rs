//! `cluster`: what replication costs, how long a leader's end is felt, and what nodes cost on which nothing happens.

use super::{Measurement, Method, show_count};
use crate::{
    comparison::Comparison,
    load::Load,
    replicated::{IdleNodes, LeaderKills, Replicated},
};

/// Bytes of payloads that a producer may have unconfirmed: beyond, a window is shorter than it was asked for.
const WINDOW_BYTES_MAX: usize = 64 << 20;

/// Options of `cluster`. Each combination of sizes and windows is a row beside one node, in turns.
#[derive(Clone, Debug, clap::Args)]
pub struct Cluster {
    /// Nodes of the cluster
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u8).range(2..=7))]
    nodes: u8,
    /// Bytes of a payload
    #[arg(long, value_name = "BYTES", default_value = "1024,262144,1048576")]
    #[arg(value_delimiter = ',')]
    size: Vec<usize>,
    /// Messages that the producer may have unconfirmed; 1 waits for each
    #[arg(long, value_name = "N", default_value = "1,1000,10000,50000", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    window: Vec<u32>,
    /// Bytes that each turn publishes, at most; with a window of 1, a hundredth of them
    #[arg(long, value_name = "BYTES", default_value_t = 256 << 20)]
    bytes: usize,
    /// How often both run, in turns
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=99))]
    turns: u32,
    /// Connect to a node that follows, instead of the one that leads
    #[arg(long)]
    via_follower: bool,
    /// How often the leader is killed under a client of another node; 0 leaves this row out
    #[arg(long, value_name = "N", default_value_t = 5)]
    kills: u32,
    /// Seconds for which nothing happens, in a row of its own; 0 leaves it out
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    idle: f64,
}

impl Cluster {
    /// A row for each combination, one with kills, and one without load.
    #[must_use]
    pub fn rows(&self) -> Vec<Measurement> {
        let nodes = usize::from(self.nodes);
        let mut rows = Vec::new();
        for &size in &self.size {
            let mut windows: Vec<usize> = self.window.iter().map(|&of| of as usize).collect();
            let window_max = (WINDOW_BYTES_MAX / size.max(1)).max(1);
            windows.iter_mut().for_each(|window| *window = (*window).min(window_max));
            windows.dedup();
            for window in windows {
                let bytes = if window == 1 { self.bytes / 100 } else { self.bytes };
                let load = Load {
                    consumers: 0,
                    size,
                    window,
                    batch: (window == 1).then_some(1),
                    messages: Some((bytes / size.max(1)).max(10) as u64),
                    ..Load::new()
                };
                let comparison = Comparison {
                    base_name: "one node",
                    base: load.clone(),
                    load,
                    turns: self.turns,
                    brings_brokers: true,
                };
                let via = usize::from(self.via_follower);
                let replicated = Replicated { nodes, via, comparison };
                let window = show_count(window as u64);
                let row = format!("{nodes} nodes, {size} B, window {window}");
                rows.push(Measurement { row, method: Method::Replicated(Box::new(replicated)) });
            }
        }
        if self.kills > 0 {
            let method = Method::LeaderKills(LeaderKills { nodes, kills: self.kills, size: 1024 });
            rows.push(Measurement { row: format!("{nodes} nodes, leader killed"), method });
        }
        if self.idle > 0.0 {
            let method = Method::IdleNodes(IdleNodes { nodes, seconds: self.idle });
            rows.push(Measurement { row: format!("{nodes} nodes, idle {} s", self.idle), method });
        }
        rows
    }
}
