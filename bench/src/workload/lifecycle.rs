//! `lifecycle`: publish, take and ack, one after the other, and with a backlog.

use super::{Measurement, Method};
use crate::{load::Load, plan::Echo};

/// Options of `lifecycle`.
#[derive(Clone, Debug, clap::Args)]
pub struct Lifecycle {
    /// Messages of the serial row
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    messages: u64,
    /// Messages of the preloaded row
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    preload: u64,
    /// Bytes of a payload
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    size: usize,
    /// Messages that the consumer may hold
    #[arg(long, value_name = "N", default_value_t = 16_384)]
    credit: u32,
}

impl Lifecycle {
    /// Serial, then preloaded.
    #[must_use]
    pub fn rows(&self, partitions: u32) -> Vec<Measurement> {
        let echo = Echo {
            messages: self.messages,
            warmup: (self.messages / 10).min(1000),
            confirm_ack: true,
        };
        let serial =
            Measurement { row: "serial".into(), method: Method::Rounds { size: self.size, echo } };
        let load = Load {
            size: self.size,
            credit: self.credit,
            preload: Some(self.preload),
            drain_s: 300.0,
            partitions,
            ..Load::new()
        };
        vec![serial, Measurement::load("preloaded, streaming acks", load)]
    }
}
