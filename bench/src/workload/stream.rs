//! `stream`: a few readers of a stream at a fixed rate: the latency of confirms and deliveries.

use sennit_model::Durability;

use super::{Measurement, Method, show_rate};
use crate::{
    fan_out::{FanOut, RETAIN_BYTES},
    load::Load,
};

/// What the workloads of streams have in common.
#[derive(Clone, Debug, clap::Args)]
pub struct Streaming {
    /// Clients that publish
    #[arg(long, value_name = "N", default_value_t = 4)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    producers: u32,
    /// Messages that a producer may have unconfirmed
    #[arg(long, value_name = "N", default_value_t = 4096)]
    window: usize,
    /// Bytes of a payload
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    size: usize,
    /// Messages that a reader may have on the way or untaken
    #[arg(long, value_name = "N", default_value_t = 65_536)]
    credit: u32,
    /// Bytes that a reader may have on the way or untaken; the client's own choice unless given
    #[arg(long, value_name = "BYTES")]
    credit_bytes: Option<u64>,
    /// What the topic's confirms promise: durable, speculative, ephemeral or memory
    #[arg(long, value_name = "WHICH", default_value = "durable")]
    durability: Durability,
    /// Seconds before what happens counts
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    warmup: f64,
    /// Seconds that count
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    duration: f64,
    /// Seconds that readers may take after the last confirm
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    drain: f64,
    /// Processes that the readers are spread over
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=256))]
    reader_processes: u32,
}

impl Streaming {
    /// `readers` at `rate`; 0 for as many as go.
    pub(crate) fn fan_out(&self, rate: f64, readers: u32, partitions: u32) -> FanOut {
        let load = Load {
            producers: self.producers,
            window: self.window,
            size: self.size,
            rate: (rate > 0.0).then_some(rate),
            warmup_s: self.warmup,
            duration_s: self.duration,
            drain_s: self.drain,
            partitions,
            retain_bytes: Some(RETAIN_BYTES),
            durability: self.durability,
            ..Load::new()
        };
        FanOut {
            credit_messages: self.credit,
            credit_bytes: self.credit_bytes,
            reader_processes: self.reader_processes,
            ..FanOut::new(load, readers)
        }
    }
}

/// A rate as the name of a row says it; 0 is as many as go.
pub(crate) fn show_offered(rate: f64) -> String {
    if rate > 0.0 { show_rate(rate) } else { "as many as go".into() }
}

/// Options of `stream`.
#[derive(Clone, Debug, clap::Args)]
pub struct Stream {
    /// Clients that read, each everything
    #[arg(long, value_name = "N", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    readers: u32,
    /// Messages per second of all producers; 0 for as many as go; may be a list
    #[arg(long, value_name = "N", default_value = "50000,150000,250000", value_delimiter = ',')]
    rate: Vec<f64>,
    #[command(flatten)]
    streaming: Streaming,
}

impl Stream {
    /// A row for each rate.
    #[must_use]
    pub fn rows(&self, partitions: u32) -> Vec<Measurement> {
        let row = |&rate| {
            let fan_out = self.streaming.fan_out(rate, self.readers, partitions);
            let row = format!("{} readers, {}", self.readers, show_offered(rate));
            Measurement { row, method: Method::FanOut(Box::new(fan_out)) }
        };
        self.rate.iter().map(row).collect()
    }
}
