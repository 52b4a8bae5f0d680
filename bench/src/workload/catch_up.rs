//! `catch-up`: the speed of a reader of a stream on the disk.

use super::{Measurement, Method, show_count};
use crate::catch_up;

/// Options of `catch-up`.
#[derive(Clone, Debug, clap::Args)]
pub struct CatchUp {
    /// Messages in the stream, of one partition
    #[arg(long, value_name = "N", default_value_t = 2_500_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    messages: u64,
    /// Bytes of a payload
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    size: usize,
}

impl CatchUp {
    /// One row.
    #[must_use]
    pub fn rows(&self) -> Vec<Measurement> {
        let Self { messages, size } = *self;
        let row = format!("{} messages, {size} B", show_count(messages));
        vec![Measurement { row, method: Method::CatchUp(catch_up::CatchUp { messages, size }) }]
    }
}
