//! `stream-fan-out`: the number of readers that the same stream can have, live or with cursors of their own.

use super::{
    Measurement, Method,
    stream::{Streaming, show_offered},
};
use crate::fan_out::FanOut;

/// Options of `stream-fan-out`. Readers and rates may be lists; every combination is a row.
#[derive(Clone, Debug, clap::Args)]
pub struct StreamFanOut {
    /// Clients that read, each everything
    #[arg(long, value_name = "N", default_value = "1,2,4,8,16,32", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    readers: Vec<u32>,
    /// Messages per second of all producers; 0 for as many as go
    #[arg(long, value_name = "N", default_value = "100000", value_delimiter = ',')]
    rate: Vec<f64>,
    /// Each reader has a named cursor and commits it
    #[arg(long)]
    cursor: bool,
    /// With --cursor: after so many messages
    #[arg(long, value_name = "N", default_value_t = 1000)]
    commit_every: u64,
    /// Messages that are published before readers begin; they read only those, from the earliest on,
    /// as fast as they go
    #[arg(long, value_name = "N", conflicts_with_all = ["rate", "cursor"])]
    preload: Option<u64>,
    /// With --preload: how often each reader reads all of them
    #[arg(long, value_name = "N", default_value_t = 1, requires = "preload")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    rounds: u64,
    #[command(flatten)]
    streaming: Streaming,
}

impl StreamFanOut {
    /// A row for each combination.
    #[must_use]
    pub fn rows(&self, partitions: u32) -> Vec<Measurement> {
        let row = |rate: f64, readers: u32| {
            let mut fan_out = FanOut {
                commit_every: self.cursor.then_some(self.commit_every),
                rounds: self.rounds,
                ..self.streaming.fan_out(rate, readers, partitions)
            };
            let load = &mut fan_out.load;
            load.preload = self.preload.map(|all| all.div_ceil(u64::from(load.producers)));
            let method = match self.preload {
                Some(all) => format!("{all} that lie there"),
                None if self.cursor => format!("cursors, {}", show_offered(rate)),
                None => format!("live, {}", show_offered(rate)),
            };
            let row = format!("{readers} readers, {method}");
            Measurement { row, method: Method::FanOut(Box::new(fan_out)) }
        };
        // Preloaded messages have one row, because the rates do not matter.
        let rates = match self.preload {
            Some(_) => [0.0_f64].iter(),
            None => self.rate.iter(),
        };
        rates
            .flat_map(|&rate| self.readers.iter().map(move |&readers| row(rate, readers)))
            .collect()
    }
}
