//! `steady`: the latency at a fixed rate, and that of publishing and consuming alone.

use super::{Measurement, show_rate};
use crate::load::Load;

/// Options of `steady`.
#[derive(Clone, Debug, clap::Args)]
pub struct Steady {
    /// Clients that publish
    #[arg(long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    producers: u32,
    /// Clients that consume
    #[arg(long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    consumers: u32,
    /// Messages per second of all producers; 0 for as many as go; may be a list
    #[arg(long, value_name = "N", default_value = "100000", value_delimiter = ',')]
    rate: Vec<f64>,
    /// Seconds before what happens counts
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    warmup: f64,
    /// Seconds that count
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    duration: f64,
    /// Seconds that consumers may take after the last confirm
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    drain: f64,
    /// Bytes of a payload
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    size: usize,
    /// Messages that a consumer may hold
    #[arg(long, value_name = "N", default_value_t = 16_384)]
    credit: u32,
    /// Messages that a producer may have unconfirmed
    #[arg(long, value_name = "N", default_value_t = 1024)]
    window: usize,
    /// Publish with confirms, as is always done
    #[arg(long)]
    confirmed: bool,
    /// Which halves run
    #[arg(long, value_enum, default_value = "both")]
    mode: Mode,
    /// With --mode drain: messages that lie there when consumers begin
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    preload: u64,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Mode {
    /// Publish and consume at once
    Both,
    /// Publish, and nobody consumes
    PublishOnly,
    /// Consume what was published before
    Drain,
}

impl Steady {
    /// A row for each rate.
    #[must_use]
    pub fn rows(&self, partitions: u32) -> Vec<Measurement> {
        let load = Load {
            producers: self.producers,
            consumers: self.consumers,
            warmup_s: self.warmup,
            duration_s: self.duration,
            drain_s: self.drain,
            size: self.size,
            credit: self.credit,
            window: self.window,
            partitions,
            ..Load::new()
        };
        if matches!(self.mode, Mode::Drain) {
            let each = self.preload.div_ceil(u64::from(self.producers));
            let drain_s = self.drain.max(120.0);
            let load = Load { preload: Some(each), drain_s, window: 8192, ..load };
            return vec![Measurement::load(format!("drain {}", self.preload), load)];
        }
        let (consumers, name) = match self.mode {
            Mode::PublishOnly => (0, "publish-only"),
            _ => (self.consumers, "confirmed"),
        };
        self.rate
            .iter()
            .map(|&rate| {
                let rate = (rate > 0.0).then_some(rate);
                let shown = rate.map_or_else(|| "as many as go".into(), show_rate);
                let load = Load { consumers, rate, ..load.clone() };
                Measurement::load(format!("{name} {shown}"), load)
            })
            .collect()
    }
}
