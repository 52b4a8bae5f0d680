//! `consumers`: how fast the consumers of one group take and ack a backlog together, by their number.

use super::{Measurement, Method, fair_load};
use crate::{comparison::Comparison, load::Load};

/// Options of `consumers`. The consumers of a fair group run in turns with as many of a group that
/// delivers by offset.
#[derive(Clone, Debug, clap::Args)]
pub struct Consumers {
    /// Clients that consume; may be a list
    #[arg(long, value_name = "N", default_value = "1,10,100,1000", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    consumers: Vec<u32>,
    /// Messages of a turn
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    messages: u64,
    /// Fair keys of the messages
    #[arg(long, value_name = "N", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    keys: u64,
    /// Bytes of a payload
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    size: usize,
    /// Messages that all consumers may hold together, at least 16 each
    #[arg(long, value_name = "N", default_value_t = 16_384)]
    credit: u32,
    /// How often both run, in turns
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=99))]
    turns: u32,
}

impl Consumers {
    /// A row for each number of consumers.
    #[must_use]
    pub fn rows(&self, partitions: u32) -> Vec<Measurement> {
        let row = |&consumers: &u32| {
            let load = Load {
                consumers,
                credit: (self.credit / consumers).max(16),
                size: self.size,
                messages: Some(self.messages),
                partitions,
                ..fair_load(self.keys)
            };
            let comparison = Comparison::beside_fifo(load, self.turns);
            let row = format!("{consumers} consumers, {} B", self.size);
            Measurement { row, method: Method::Comparison(Box::new(comparison)) }
        };
        self.consumers.iter().map(row).collect()
    }
}
