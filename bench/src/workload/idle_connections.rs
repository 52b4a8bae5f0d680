//! `idle-connections`: what a live connection costs on which nothing happens.

use super::{Measurement, Method, show_count};
use crate::{live::IdleConnections as Measured, plan::LiveEncoding};

/// Options of `idle-connections`. A list of connections makes a row for each.
#[derive(Clone, Debug, clap::Args)]
pub struct IdleConnections {
    /// Live connections; the broker and the load need a descriptor for each
    #[arg(long, value_name = "N", default_value = "15000", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: Vec<u32>,
    /// They are connected, and subscribed to nothing
    #[arg(long)]
    unsubscribed: bool,
    /// What they speak
    #[arg(long, value_name = "WHICH", default_value = "json")]
    encoding: LiveEncoding,
    /// Seconds in which nothing happens
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    idle: f64,
}

impl IdleConnections {
    /// A row for each number of connections.
    #[must_use]
    pub fn rows(&self) -> Vec<Measurement> {
        let row = |&connections: &u32| {
            let idle = Measured {
                connections,
                is_subscribed: !self.unsubscribed,
                encoding: self.encoding,
                idle_s: self.idle,
            };
            let what = if self.unsubscribed { "connected" } else { "subscribed to one topic" };
            let row = format!("{} connections, {what}", show_count(connections.into()));
            Measurement { row, method: Method::IdleConnections(idle) }
        };
        self.connections.iter().map(row).collect()
    }
}
