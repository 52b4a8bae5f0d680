//! `publish`: confirmed messages per second, by producers, sizes and batches.

use super::{Measurement, show_rate};
use crate::load::Load;

/// Options of `publish`. Each of producers, sizes, batches and windows may be a list; every
/// combination is a row.
#[derive(Clone, Debug, clap::Args)]
pub struct Publish {
    /// Clients that publish
    #[arg(long, value_name = "N", default_value = "1", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    producers: Vec<u32>,
    /// Bytes of a payload
    #[arg(long, value_name = "BYTES", default_value = "1024", value_delimiter = ',')]
    size: Vec<usize>,
    /// Messages of a batch; auto lets the client gather by itself
    #[arg(long, value_name = "N", default_value = "auto", value_delimiter = ',')]
    #[arg(value_parser = batch)]
    batch: Vec<BatchSize>,
    /// Messages of each producer, instead of a time
    #[arg(long, value_name = "N", conflicts_with = "duration")]
    messages: Option<u64>,
    /// Seconds that count
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    duration: f64,
    /// Seconds before what happens counts, if there is no number of messages
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    warmup: f64,
    /// Messages that a producer may have unconfirmed; 1 waits for each
    #[arg(long, value_name = "N", default_value = "8192", value_delimiter = ',')]
    window: Vec<usize>,
    /// Messages per second of all producers, on a schedule; without it as many as go
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// Processes that the producers are spread over
    #[arg(long, value_name = "N", default_value_t = 1)]
    processes: u32,
}

/// How many messages a batch has; `None` where the client decides.
#[derive(Clone, Copy, Debug)]
struct BatchSize(Option<u32>);

fn batch(text: &str) -> Result<BatchSize, String> {
    match text {
        "auto" => Ok(BatchSize(None)),
        _ => match text.parse() {
            Ok(count @ 1..=16_384) => Ok(BatchSize(Some(count))),
            _ => Err(format!("{text:?} is no batch: auto, or 1 to 16384")),
        },
    }
}

impl Publish {
    /// A row for each combination.
    #[must_use]
    pub fn rows(&self, partitions: Option<u32>) -> Vec<Measurement> {
        let mut rows = Vec::new();
        for &producers in &self.producers {
            for &size in &self.size {
                let windows = |batch: &BatchSize| {
                    let batch = *batch;
                    self.window.iter().map(move |&window| (batch, window))
                };
                for (BatchSize(batch), window) in self.batch.iter().flat_map(windows) {
                    let load = Load {
                        producers,
                        producer_processes: self.processes,
                        consumers: 0,
                        size,
                        batch,
                        window: window.max(batch.unwrap_or(1) as usize),
                        rate: self.rate,
                        messages: self.messages,
                        warmup_s: self.warmup,
                        duration_s: self.duration,
                        partitions: partitions.unwrap_or(1),
                        ..Load::new()
                    };
                    let batch = batch.map_or_else(|| "auto".into(), |count| count.to_string());
                    let rate =
                        self.rate.map_or_else(String::new, |rate| format!(", {}", show_rate(rate)));
                    let window = match self.window.len() {
                        1 => String::new(),
                        _ => format!(", window {window}"),
                    };
                    let row =
                        format!("{producers} producers, {size} B, batch {batch}{window}{rate}");
                    rows.push(Measurement::load(row, load));
                }
            }
        }
        rows
    }
}
