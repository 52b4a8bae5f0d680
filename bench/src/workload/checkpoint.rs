//! `checkpoint`: the write amplification, and the latency of confirms during checkpoints and moves.

use super::{Measurement, Method, show_rate};
use crate::{load::Load, pauses::Pauses, write_amplification::WriteAmplification};

/// Options of `checkpoint`.
#[derive(Clone, Debug, clap::Args)]
pub struct Checkpoint {
    /// Messages per second of the rows that count what is written; may be a list
    #[arg(long, value_name = "N", default_value = "100000", value_delimiter = ',')]
    rate: Vec<f64>,
    /// Messages per second of the row that measures confirms
    #[arg(long, value_name = "N", default_value_t = 20_000.0)]
    confirm_rate: f64,
    /// Seconds before what happens counts: the stream is full by then
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    warmup: f64,
    /// Seconds that count
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    duration: f64,
    /// Bytes that the stream keeps: twice what a journal of 8 segments grows to before it is emptied
    /// in a hurry, so that nothing is trimmed before it has moved
    #[arg(long, value_name = "BYTES", default_value_t = 2 << 30)]
    retain: u64,
    /// Windows of each kind of the row that measures confirms
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=99))]
    windows: u32,
    /// Seconds of each of them
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    window: f64,
    /// Topics of one message each that checkpoints have to write there
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    topics: u64,
    /// Bytes of a payload
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    size: usize,
}

impl Checkpoint {
    /// A queue and a stream for each rate, and confirms.
    #[must_use]
    pub fn rows(&self, partitions: u32) -> Vec<Measurement> {
        let load = Load { size: self.size, partitions, ..Load::new() };
        let mut rows: Vec<_> =
            self.rate.iter().flat_map(|&rate| self.amplification(rate, &load)).collect();
        let pauses = Pauses {
            load: Load {
                consumers: 0,
                rate: Some(self.confirm_rate),
                warmup_s: 1.0,
                duration_s: self.window,
                retain_bytes: Some(256 << 20),
                ..load
            },
            windows: self.windows,
            topics: self.topics,
            limit: 3.0,
        };
        let row = format!("confirms beside both, {}", show_rate(self.confirm_rate));
        rows.push(Measurement { row, method: Method::Pauses(pauses) });
        rows
    }

    fn amplification(&self, rate: f64, load: &Load) -> [Measurement; 2] {
        let queue = Load {
            rate: Some(rate),
            warmup_s: self.warmup,
            duration_s: self.duration,
            ..load.clone()
        };
        let stream = Load { consumers: 0, retain_bytes: Some(self.retain), ..queue.clone() };
        let shown = show_rate(rate);
        [
            Measurement {
                row: format!("queue, published and acked, {shown}"),
                method: Method::WriteAmplification(WriteAmplification {
                    load: queue,
                    limit: 1.1,
                    moves: false,
                }),
            },
            Measurement {
                row: format!("stream that keeps {} MiB, {shown}", self.retain >> 20),
                method: Method::WriteAmplification(WriteAmplification {
                    load: stream,
                    limit: 2.2,
                    moves: true,
                }),
            },
        ]
    }
}
