//! `fair-keys`: the rates and the memory of a fair group by the number of its keys.

use super::{Measurement, Method, fair_load, show_count};
use crate::{comparison::Comparison, load::Load};

/// Options of `fair-keys`. Each row has two new brokers, one for the fair group and one for the
/// group without keys.
#[derive(Clone, Debug, clap::Args)]
pub struct FairKeys {
    /// Fair keys of the messages; may be a list
    #[arg(long, value_name = "N", default_value = "10,1000,10000,100000,1000000")]
    #[arg(value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    keys: Vec<u64>,
    /// Messages of a turn; at least two of each key
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    messages: u64,
    /// Bytes of a payload
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    size: usize,
    /// How often both run, in turns
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=99))]
    turns: u32,
}

impl FairKeys {
    /// A row for each number of keys.
    #[must_use]
    pub fn rows(&self, partitions: u32) -> Vec<Measurement> {
        let row = |&keys: &u64| {
            let messages = Some(self.messages.max(2 * keys));
            let load = Load { size: self.size, messages, partitions, ..fair_load(keys) };
            let comparison =
                Comparison { brings_brokers: true, ..Comparison::beside_fifo(load, self.turns) };
            let row = format!("{} fair keys, {} B", show_count(keys), self.size);
            Measurement { row, method: Method::Comparison(Box::new(comparison)) }
        };
        self.keys.iter().map(row).collect()
    }
}
