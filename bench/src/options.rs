//! The options of all workloads.

use std::path::PathBuf;

/// Options of every workload.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Options of every workload")]
pub struct Options {
    /// The broker's address; of a cluster several nodes' addresses with commas between
    #[arg(long, value_name = "ADDRESSES", default_value = "127.0.0.1:4438", env = "SENNIT_SERVER")]
    #[arg(global = true)]
    pub server: String,
    /// Where the broker's metrics are: syncs are counted there
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:4437", global = true)]
    pub http: String,
    /// Start a broker for this run, in a process of its own
    #[arg(long, global = true)]
    pub serve: bool,
    /// With --serve: the broker speaks TLS, and so do clients of the native protocol and live
    /// connections. Its metrics are not read
    #[arg(long, global = true, requires = "serve")]
    pub serve_tls: bool,
    /// With --serve: the broker asks for credentials, and clients of the native protocol show its admin
    /// key. Its metrics are not read
    #[arg(long, global = true, requires = "serve")]
    pub serve_auth: bool,
    /// Speak TLS with the broker that runs, trusted by this fingerprint: clients of the native
    /// protocol and live connections
    #[arg(long, value_name = "FINGERPRINT", env = "SENNIT_TLS_FINGERPRINT", global = true)]
    pub tls_fingerprint: Option<String>,
    /// With --serve: its data, kept afterwards; the default is a fresh folder below
    /// ./bench-results that is removed
    #[arg(long, value_name = "DIR", global = true)]
    pub data: Option<PathBuf>,
    /// With --serve: how many shards it has
    #[arg(long, value_name = "N", global = true)]
    pub shards: Option<u32>,
    /// The process of a broker that runs already, so that its costs are counted
    #[arg(long, value_name = "PID", global = true)]
    pub pid: Option<u32>,
    /// Measure the disk and the loopback too, without a broker
    #[arg(long, global = true)]
    pub probe: bool,
    /// Repeat each row and print the median with the least and the most
    #[arg(long, value_name = "N", default_value_t = 1, global = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=99))]
    pub runs: u32,
    /// Write each row as a JSON object on a line of this file; - is standard output
    #[arg(long, value_name = "FILE", global = true)]
    pub json: Option<PathBuf>,
    /// Use this topic, which must be empty, instead of fresh ones
    #[arg(long, value_name = "NAME", global = true)]
    pub topic: Option<String>,
    /// Partitions of the topics
    #[arg(long, value_name = "N", global = true)]
    pub partitions: Option<u32>,
}
