//! `burst`: many clients publish and consume as fast as possible.

use super::Measurement;
use crate::load::Load;

/// Options of `burst`.
#[derive(Clone, Debug, clap::Args)]
pub struct Burst {
    /// Messages of each client
    #[arg(long, value_name = "N", default_value_t = 500_000)]
    messages: u64,
    /// Clients that publish, and as many that consume
    #[arg(long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    clients: u32,
    /// Bytes of a payload
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    size: usize,
    /// Messages that a consumer may hold
    #[arg(long, value_name = "N", default_value_t = 16_384)]
    credit: u32,
    /// Messages that a producer may have unconfirmed
    #[arg(long, value_name = "N", default_value_t = 8192)]
    window: usize,
    /// Seconds that consumers may take after the last confirm
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    drain: f64,
    /// Publish with confirms, as is always done
    #[arg(long)]
    confirmed: bool,
}

impl Burst {
    /// Its only row.
    #[must_use]
    pub fn rows(&self, partitions: u32) -> Vec<Measurement> {
        let load = Load {
            producers: self.clients,
            consumers: self.clients,
            messages: Some(self.messages),
            size: self.size,
            credit: self.credit,
            window: self.window,
            drain_s: self.drain,
            partitions,
            ..Load::new()
        };
        vec![Measurement::load(format!("{} clients, {} B", self.clients, self.size), load)]
    }
}
