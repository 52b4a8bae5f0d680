//! `round-trip`: the latency from publish to delivery, with one message in flight and under load.

use super::{Measurement, Method, show_rate};
use crate::{load::Load, plan::Echo};

/// Options of `round-trip`.
#[derive(Clone, Debug, clap::Args)]
pub struct RoundTrip {
    /// Messages of the row with one in flight
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    messages: u64,
    /// Messages per second of the rows under load: light, moderate and so on; 0 is as many as go
    #[arg(long, value_name = "N", default_value = "1000,20000,0", value_delimiter = ',')]
    rates: Vec<f64>,
    /// Bytes of a payload
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    size: usize,
    /// Seconds of each row under load
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    duration: f64,
    /// Seconds before what happens counts
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    warmup: f64,
}

impl RoundTrip {
    /// One in flight, then a row for each rate.
    #[must_use]
    pub fn rows(&self, partitions: u32) -> Vec<Measurement> {
        let echo = Echo {
            messages: self.messages,
            warmup: (self.messages / 10).min(1000),
            confirm_ack: false,
        };
        let mut rows = vec![Measurement {
            row: "one in flight".into(),
            method: Method::Rounds { size: self.size, echo },
        }];
        rows.extend(self.rates.iter().map(|&rate| {
            let rate = (rate > 0.0).then_some(rate);
            let load = Load {
                rate,
                size: self.size,
                duration_s: self.duration,
                warmup_s: self.warmup,
                partitions,
                ..Load::new()
            };
            let row = rate.map_or_else(|| "saturated".into(), show_rate);
            Measurement::load(row, load)
        }));
        rows
    }
}
