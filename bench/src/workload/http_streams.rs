//! `http-streams`: requests of the Durable Streams protocol to any server of it, beside a null server, with one
//! request in flight for each connection.

use super::{Measurement, Method, show_count};
use crate::{
    http::{self, Server, Target},
    options::Options,
    plan::HttpMode,
};

/// Options of `http-streams`. Each of targets, modes, connections and streams may be a list; every
/// combination is a row.
#[derive(Clone, Debug, clap::Args)]
pub struct HttpStreams {
    /// What is asked
    #[arg(long, value_enum, default_value = "append", value_delimiter = ',')]
    mode: Vec<HttpMode>,
    /// Connections, each with one request on the way; pairs of them where one waits for what the
    /// other appends
    #[arg(short, long, value_name = "N", default_value = "128", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=65_536))]
    connections: Vec<u32>,
    /// Streams that the connections go round; where somebody waits, each pair has its own
    #[arg(short, long, value_name = "N", default_value = "128", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    streams: Vec<u64>,
    /// Bytes of an append
    #[arg(short = 'b', long, value_name = "BYTES", default_value_t = 100)]
    size: usize,
    /// A server that runs already: [NAME=]http://HOST:PORT[/PREFIX], streams below /v1/stream unless
    /// there is a prefix, or null, the server that does nothing; without it the broker at --http, or
    /// with --serve one for each --storage
    #[arg(long, value_name = "[NAME=]URL", value_delimiter = ',')]
    target: Vec<Target>,
    /// With --serve: storage modes
    #[arg(long, value_name = "MODE", default_value = "file-durable", value_delimiter = ',')]
    storage: Vec<String>,
    /// Measure a server that does nothing too, in a process of its own, in turns with each row
    #[arg(long)]
    null: bool,
    /// Measure a server too that does nothing but write and sync what came together before it answers
    #[arg(long)]
    synced_null: bool,
    /// With --null or --synced-null: turns that share the seconds, and of whose ratios the median counts
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    turns: u32,
    /// Threads of those servers
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64))]
    null_threads: u32,
    /// Threads of the load
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: u32,
    /// Appends that each stream has before it is read
    #[arg(long, value_name = "N", default_value_t = 10)]
    prefill: u64,
    /// Seconds before what happens counts
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    warmup: f64,
    /// Seconds that count
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    duration: f64,
}

impl HttpStreams {
    /// A row for each combination; targets side by side.
    #[must_use]
    pub fn rows(&self, options: &Options) -> Vec<Measurement> {
        let targets = self.targets(options);
        let mut rows = Vec::new();
        for &mode in &self.mode {
            for &connections in &self.connections {
                let streams = match mode {
                    // Such a load creates its streams, or has one for each pair.
                    HttpMode::Create | HttpMode::LongPoll | HttpMode::Sse => &self.streams[..1],
                    _ => &self.streams[..],
                };
                for &streams in streams {
                    for target in &targets {
                        rows.push(self.row(target.clone(), mode, connections, streams));
                    }
                }
            }
        }
        rows
    }

    fn targets(&self, options: &Options) -> Vec<Target> {
        if options.serve {
            return self.storage.iter().cloned().map(Target::Own).collect();
        }
        if self.target.is_empty() {
            let (name, address) = ("sennit".into(), options.http.clone());
            return vec![Target::There(Server { name, address, prefix: "/v1/stream".into() })];
        }
        self.target.clone()
    }

    fn row(&self, target: Target, mode: HttpMode, connections: u32, streams: u64) -> Measurement {
        let target_name = target.name().to_owned();
        let what = match mode {
            HttpMode::Append => format!("append {} B", self.size),
            HttpMode::Head => "head".into(),
            HttpMode::Create => "create".into(),
            HttpMode::Read => format!("read {} x {} B", self.prefill, self.size),
            HttpMode::LongPoll => format!("long-poll {} B", self.size),
            HttpMode::Sse => format!("sse {} B", self.size),
        };
        let over = match mode {
            HttpMode::Create => format!("{connections} connections"),
            HttpMode::LongPoll | HttpMode::Sse => format!("{connections} pairs"),
            _ => format!("{connections} connections, {} streams", show_count(streams)),
        };
        let load = http::HttpStreams {
            target,
            mode,
            connections,
            streams,
            size: self.size,
            prefill: self.prefill,
            threads: self.threads,
            beside_null: self.null,
            beside_synced_null: self.synced_null,
            turns: self.turns,
            null_threads: self.null_threads,
            warmup_s: self.warmup,
            duration_s: self.duration,
        };
        Measurement {
            row: format!("{target_name}: {what}, {over}"),
            method: Method::Http(Box::new(load)),
        }
    }
}
