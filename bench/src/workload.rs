//! The workloads by name. Each turns its options into rows to be measured.

pub mod burst;
pub mod catch_up;
pub mod checkpoint;
pub mod http_streams;
pub mod lifecycle;
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
    fan_out::FanOut,
    http::HttpStreams,
    load::{Bench, Load},
    many_topics::ManyTopics,
    parked::Parked,
    pauses::Pauses,
    plan::Echo,
    row::Row,
    write_amplification::Amplification,
};

/// A row to be measured.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// Its name.
    pub row: String,
    /// How.
    pub how: How,
}

/// How a row is measured.
#[derive(Clone, Debug)]
pub enum How {
    /// By load.
    Load(Box<Load>),
    /// By a client that goes round.
    Rounds {
        /// Bytes of a payload.
        size: usize,
        /// The rounds.
        echo: Echo,
    },
    /// By a broker that is killed with messages in a queue.
    Backlog(Backlog),
    /// By a broker that is killed with many topics.
    ManyTopics(ManyTopics),
    /// By what the kernel says was written.
    Amplification(Amplification),
    /// By confirms beside checkpoints and moves, and without.
    Pauses(Pauses),
    /// By readers that each get everything.
    FanOut(Box<FanOut>),
    /// By a reader that goes through a stream on disk.
    CatchUp(CatchUp),
    /// By requests over HTTP.
    Http(Box<HttpStreams>),
    /// By connections over HTTP that wait.
    Parked(Box<Parked>),
}

impl Measurement {
    /// A row of load.
    #[must_use]
    pub fn load(row: impl Into<String>, load: Load) -> Self {
        Self { row: row.into(), how: How::Load(Box::new(load)) }
    }

    /// Measures it once.
    ///
    /// # Errors
    /// The broker cannot be reached or a worker cannot work.
    pub fn run(&self, bench: &Bench<'_>) -> Result<Row> {
        match &self.how {
            How::Load(load) => bench.run(&self.row, load),
            How::Rounds { size, echo } => bench.run_rounds(&self.row, *size, echo),
            How::Backlog(backlog) => backlog.run(bench, &self.row),
            How::ManyTopics(topics) => topics.run(bench, &self.row),
            How::Amplification(amplification) => amplification.run(bench, &self.row),
            How::Pauses(pauses) => pauses.run(bench, &self.row),
            How::FanOut(fan_out) => fan_out.run(bench, &self.row),
            How::CatchUp(catch_up) => catch_up.run(bench, &self.row),
            How::Http(http) => http.run(bench, &self.row),
            How::Parked(parked) => parked.run(bench, &self.row),
        }
    }
}

/// A number as people read it: `500k`, `10M`.
pub(crate) fn show_count(count: u64) -> String {
    match count {
        0 => "0".into(),
        n if n % 1_000_000 == 0 => format!("{}M", n / 1_000_000),
        n if n % 1000 == 0 => format!("{}k", n / 1000),
        n => n.to_string(),
    }
}

/// A rate as people read it: `50k/s`.
pub(crate) fn show_rate(rate: f64) -> String {
    if rate >= 1000.0 {
        format!("{}k/s", (rate / 100.0).round() / 10.0)
    } else {
        format!("{rate}/s")
    }
}
