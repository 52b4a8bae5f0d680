//! One target of a row, and its results in each of its turns.

use anyhow::{Context, Result};

use super::{HttpStreams, Server, worker};
use crate::{
    child::Worker,
    latency::{Latencies, Percentiles},
    load::{Bench, send_all},
    plan::{HttpLoad, HttpMode, WorkerCommand},
    usage::{Usage, UsageWatch},
};

/// A server under load.
pub struct TargetResults {
    pub server: Server,
    pub load: HttpLoad,
    /// The null server, which runs until this is dropped.
    pub null: Option<Worker>,
    /// Its process, if its costs are measured.
    pub pid: Option<u32>,
    answers: Latencies,
    deliveries: Latencies,
    pub requests: u64,
    pub answered: u64,
    pub delivered: u64,
    pub errors: Vec<String>,
    /// Processor seconds of the load's process.
    pub load_cpu_s: Option<f64>,
    pub usage: Option<Usage>,
    /// The answers per second in each turn.
    rates: Vec<f64>,
}

impl TargetResults {
    pub fn new(server: Server, load: HttpLoad) -> Self {
        Self {
            server,
            load,
            null: None,
            pid: None,
            answers: Latencies::new(),
            deliveries: Latencies::new(),
            requests: 0,
            answered: 0,
            delivered: 0,
            errors: Vec::new(),
            load_cpu_s: None,
            usage: None,
            rates: Vec::new(),
        }
    }

    /// Runs the load for one of `turns` turns.
    ///
    /// # Errors
    /// The server cannot be reached or ends a connection.
    pub fn turn(
        &mut self,
        bench: &Bench<'_>,
        row: &str,
        of: &HttpStreams,
        turns: u32,
    ) -> Result<()> {
        let mut load = self.load.clone();
        if load.mode == HttpMode::Create {
            // An earlier turn has created the streams.
            load.run = format!("{}-{}", load.run, self.rates.len());
        }
        let mut workers = vec![worker(&self.server.address, &load)?];
        let window = of.window(turns);
        let watch = match self.null {
            None => Some(UsageWatch::begin(self.pid, &self.server.address, window)),
            Some(_) => None,
        };
        send_all(&mut workers, WorkerCommand::Start(window))?;
        let reports = bench.reports(&mut workers, row, None)?;
        let report = reports.into_iter().next().context("a worker reports once")?;
        if let Some(usage) = watch.map(UsageWatch::end) {
            self.usage = Some(self.usage.map_or(usage, |before| before.and(usage)));
        }
        let seconds = (window.until_ns - window.from_ns) as f64 / 1e9;
        self.rates.push(report.confirmed as f64 / seconds);
        self.requests += report.published;
        self.answered += report.confirmed;
        self.delivered += report.delivered;
        self.errors.extend(report.errors);
        self.answers.add(&report.publish_to_confirm);
        self.deliveries.add(&report.publish_to_deliver);
        let cpu_s = report.cpu_s.map(|cpu_s| self.load_cpu_s.unwrap_or_default() + cpu_s);
        self.load_cpu_s = cpu_s;
        Ok(())
    }

    /// The time from a request to its answer.
    pub fn request_to_answer(&mut self) -> Option<Percentiles> {
        self.answers.percentiles()
    }

    /// The time from an append to the reader that waits for it.
    pub fn append_to_delivery(&mut self) -> Option<Percentiles> {
        self.deliveries.percentiles()
    }

    /// The ratio of its answers to those of `other` in the same turn: the median over all turns.
    pub fn share_of(&self, other: &Self) -> Option<f64> {
        let rates = self.rates.iter().zip(&other.rates);
        let mut shares: Vec<_> = rates.map(|(ours, theirs)| ours / theirs.max(1e-9)).collect();
        shares.sort_by(f64::total_cmp);
        let middle = shares.get(shares.len() / 2).copied()?;
        match shares.len() % 2 {
            0 => Some(f64::midpoint(middle, shares[shares.len() / 2 - 1])),
            _ => Some(middle),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::PREFIX;

    fn side(rates: &[f64]) -> TargetResults {
        let server =
            Server { name: "s".into(), address: "127.0.0.1:1".into(), prefix: PREFIX.into() };
        let load = crate::http::tests::load(HttpMode::Append, 1, 1);
        TargetResults { rates: rates.to_vec(), ..TargetResults::new(server, load) }
    }

    #[test]
    fn a_share_is_the_middle_of_what_each_turn_says() {
        let (ours, theirs) = (side(&[50.0, 90.0, 30.0]), side(&[100.0, 100.0, 300.0]));
        assert_eq!(ours.share_of(&theirs), Some(0.5));
        assert_eq!(side(&[1.0, 3.0]).share_of(&side(&[2.0, 2.0])), Some(1.0));
        assert_eq!(side(&[]).share_of(&theirs), None);
    }
}
