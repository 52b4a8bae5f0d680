//! `parked-readers`: waiting HTTP connections, their costs, and the time until they get an append.

use super::{Measurement, Method, show_count};
use crate::{parked::WaitingReaders, plan::HttpMode};

/// Options of `parked-readers`. Readers and streams may be lists; every combination is a row.
#[derive(Clone, Debug, clap::Args)]
pub struct ParkedReaders {
    /// Readers, each a connection that waits; the broker and the load need a descriptor for each
    #[arg(long, value_name = "N", default_value = "10000", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    readers: Vec<u32>,
    /// Streams that they go round
    #[arg(short, long, value_name = "N", default_value = "1", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    streams: Vec<u64>,
    /// They wait for server-sent events, and not by long-poll
    #[arg(long)]
    sse: bool,
    /// Appends, each to one stream, one after the other
    #[arg(long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rounds: u64,
    /// Bytes of an append, 32 at least
    #[arg(short = 'b', long, value_name = "BYTES", default_value_t = 100)]
    size: usize,
    /// With --serve: the storage mode
    #[arg(long, value_name = "MODE", default_value = "file-durable")]
    storage: String,
    /// Seconds in which nothing happens, before the appends
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    idle: f64,
    /// Milliseconds before each append
    #[arg(long, value_name = "MS", default_value_t = 300)]
    pause: u64,
}

impl ParkedReaders {
    /// A row for each combination.
    #[must_use]
    pub fn rows(&self) -> Vec<Measurement> {
        let mode = if self.sse { HttpMode::Sse } else { HttpMode::LongPoll };
        let method = if self.sse { "sse" } else { "long-poll" };
        let mut rows = Vec::new();
        for &readers in &self.readers {
            for &streams in &self.streams {
                let over =
                    format!("{} of {} streams", show_count(readers.into()), show_count(streams));
                let parked = WaitingReaders {
                    readers,
                    streams,
                    mode,
                    storage: self.storage.clone(),
                    rounds: self.rounds,
                    size: self.size,
                    idle_s: self.idle,
                    pause_ms: self.pause,
                };
                let row = format!("{method}: {over}, {} B", self.size);
                rows.push(Measurement { row, method: Method::WaitingReaders(Box::new(parked)) });
            }
        }
        rows
    }
}
