//! `slow-consumer`: the costs of a slow reader for the others; the slow reader gets everything too.

use super::{
    Measurement, Method,
    stream::{Streaming, show_offered},
};
use crate::fan_out::FanOut;

/// Options of `slow-consumer`. Rate and latency of each row are of all readers but the first, which is
/// the slow one where there is one; missing messages are those of all.
#[derive(Clone, Debug, clap::Args)]
pub struct SlowConsumer {
    /// Clients that read, each everything
    #[arg(long, value_name = "N", default_value_t = 16)]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=4096))]
    readers: u32,
    /// Messages per second of all producers; may be a list
    #[arg(long, value_name = "N", default_value = "50000", value_delimiter = ',')]
    rate: Vec<f64>,
    /// Messages per second that the slow one takes, 0 for none; may be a list
    #[arg(long, value_name = "N", default_value = "1000,0", value_delimiter = ',')]
    slow: Vec<f64>,
    #[command(flatten)]
    streaming: Streaming,
}

impl SlowConsumer {
    /// For each rate a row without a slow reader, and one for each way to be slow.
    #[must_use]
    pub fn rows(&self, partitions: u32) -> Vec<Measurement> {
        let row = |rate: f64, slow_rate: Option<f64>| {
            let fan_out = FanOut {
                leaves_out_first: true,
                slow_rate,
                ..self.streaming.fan_out(rate, self.readers, partitions)
            };
            let beside = match slow_rate {
                None => "one more".to_owned(),
                Some(0.0) => "one that stalls".to_owned(),
                Some(slow) => format!("one that takes {}", show_offered(slow)),
            };
            let row =
                format!("{} readers beside {beside}, {}", self.readers - 1, show_offered(rate));
            Measurement { row, method: Method::FanOut(Box::new(fan_out)) }
        };
        let ways = || std::iter::once(None).chain(self.slow.iter().copied().map(Some));
        self.rate.iter().flat_map(|&rate| ways().map(move |slow| row(rate, slow))).collect()
    }
}
