//! The workloads by name. Each turns its options into rows to be measured.

pub mod burst;
pub mod catch_up;
pub mod checkpoint;
pub mod cluster;
pub mod consumers;
pub mod fair_keys;
pub mod fairness;
pub mod hooks;
pub mod http_streams;
pub mod idle_connections;
pub mod lifecycle;
pub mod live_fan_out;
pub mod parked_readers;
pub mod publish;
pub mod restart;
pub mod round_trip;
pub mod slow_consumer;
pub mod steady;
pub mod stream;
pub mod stream_fan_out;

use anyhow::Result;

use crate::{
    backlog::Backlog,
    catch_up::CatchUp,
    comparison::Comparison,
    fair_shares::FairShares,
    fan_out::FanOut,
    flooded_tenant::FloodedTenant,
    http::HttpStreams,
    live::{IdleConnections, LiveFanOut},
    load::{Bench, Load},
    many_topics::ManyTopics,
    parked::WaitingReaders,
    pauses::Pauses,
    plan::{self, Echo, KEY_HEADER},
    quiet_tenant::QuietTenant,
    replicated::{IdleNodes, LeaderKills, Replicated},
    row::Row,
    run_topic::TopicFields,
    throttled_tenant::ThrottledTenant,
    write_amplification::WriteAmplification,
};

/// A row to be measured.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// The row's name.
    pub row: String,
    /// The method.
    pub method: Method,
}

/// The method of a measurement.
#[derive(Clone, Debug)]
pub enum Method {
    /// Load with producers and consumers.
    Load(Box<Load>),
    /// A client that publishes, takes and acks one message at a time.
    Rounds {
        /// Bytes of a payload.
        size: usize,
        /// The rounds.
        echo: Echo,
    },
    /// A broker that is killed with messages in a queue.
    Backlog(Backlog),
    /// A broker that is killed with many topics.
    ManyTopics(ManyTopics),
    /// The bytes that the broker writes, as the kernel counts them.
    WriteAmplification(WriteAmplification),
    /// The latency of confirms during checkpoints and moves, and without them.
    Pauses(Pauses),
    /// Readers that each receive every message.
    FanOut(Box<FanOut>),
    /// A reader that reads a stream from the disk.
    CatchUp(CatchUp),
    /// Requests over HTTP.
    Http(Box<HttpStreams>),
    /// Waiting HTTP connections.
    WaitingReaders(Box<WaitingReaders>),
    /// Subscribers over WebSocket that each receive every message.
    LiveFanOut(Box<LiveFanOut>),
    /// Live connections on which nothing happens.
    IdleConnections(IdleConnections),
    /// Two loads in turns.
    Comparison(Box<Comparison>),
    /// A load on several nodes beside one.
    Replicated(Box<Replicated>),
    /// A leader that is killed.
    LeaderKills(LeaderKills),
    /// Nodes on which nothing happens.
    IdleNodes(IdleNodes),
    /// Deliveries by weight.
    FairShares(FairShares),
    /// The wait of a tenant that arrives behind others' backlogs.
    QuietTenant(QuietTenant),
    /// The pace of a throttled tenant.
    ThrottledTenant(ThrottledTenant),
    /// The latency of a tenant beside one that floods.
    FloodedTenant(Box<FloodedTenant>),
}

impl Measurement {
    /// A measurement by load.
    #[must_use]
    pub fn load(row: impl Into<String>, load: Load) -> Self {
        Self { row: row.into(), method: Method::Load(Box::new(load)) }
    }

    /// Measures the row once.
    ///
    /// # Errors
    /// The broker cannot be reached or a worker cannot work.
    pub fn run(&self, bench: &Bench<'_>) -> Result<Row> {
        match &self.method {
            Method::Load(load) => bench.run(&self.row, load),
            Method::Rounds { size, echo } => bench.run_rounds(&self.row, *size, echo),
            Method::Backlog(backlog) => backlog.run(bench, &self.row),
            Method::ManyTopics(topics) => topics.run(bench, &self.row),
            Method::WriteAmplification(amplification) => amplification.run(bench, &self.row),
            Method::Pauses(pauses) => pauses.run(bench, &self.row),
            Method::FanOut(fan_out) => fan_out.run(bench, &self.row),
            Method::CatchUp(catch_up) => catch_up.run(bench, &self.row),
            Method::Http(http) => http.run(bench, &self.row),
            Method::WaitingReaders(parked) => parked.run(bench, &self.row),
            Method::LiveFanOut(fan_out) => fan_out.run(bench, &self.row),
            Method::IdleConnections(idle) => idle.run(bench, &self.row),
            Method::Comparison(comparison) => comparison.run(bench, &self.row),
            Method::Replicated(replicated) => replicated.run(bench, &self.row),
            Method::LeaderKills(kills) => kills.run(bench, &self.row),
            Method::IdleNodes(idle) => idle.run(bench, &self.row),
            Method::FairShares(shares) => shares.run(bench, &self.row),
            Method::QuietTenant(quiet) => quiet.run(bench, &self.row),
            Method::ThrottledTenant(throttled) => throttled.run(bench, &self.row),
            Method::FloodedTenant(flooded) => flooded.run(bench, &self.row),
        }
    }
}

/// A load of messages with so many fair keys, in a topic that schedules by them.
pub(crate) fn fair_load(keys: u64) -> Load {
    Load {
        keys: Some(plan::FairKeys { count: keys, others: Vec::new() }),
        fields: Some(TopicFields { fair_key: KEY_HEADER.into(), weight: None }),
        drain_s: 300.0,
        ..Load::new()
    }
}

/// A number in short form: `500k`, `10M`.
pub(crate) fn show_count(count: u64) -> String {
    match count {
        0 => "0".into(),
        n if n % 1_000_000 == 0 => format!("{}M", n / 1_000_000),
        n if n % 1000 == 0 => format!("{}k", n / 1000),
        n => n.to_string(),
    }
}

/// A rate in short form: `50k/s`.
pub(crate) fn show_rate(rate: f64) -> String {
    if rate >= 1000.0 {
        format!("{}k/s", (rate / 100.0).round() / 10.0)
    } else {
        format!("{rate}/s")
    }
}
