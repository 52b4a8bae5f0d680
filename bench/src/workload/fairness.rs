//! `fairness`: the cost of fair delivery beside delivery by offset, the shares by weight, the wait of a quiet tenant,
//! and the pace of a throttled one.

use super::{Measurement, Method, fair_load, show_count, show_rate};
use crate::{
    comparison::Comparison, fair_shares::FairShares, flooded_tenant::FloodedTenant, load::Load,
    quiet_tenant::QuietTenant, throttled_tenant::ThrottledTenant,
};

/// Options of `fairness`.
#[derive(Clone, Debug, clap::Args)]
pub struct Fairness {
    /// Which rows are measured; may be a list
    #[arg(long, value_enum, default_value = "overhead,shares,quiet", value_delimiter = ',')]
    rows: Vec<FairnessRow>,
    /// Bytes of a payload
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    size: usize,
    /// overhead: messages of a turn
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    messages: u64,
    /// overhead: fair keys of the messages
    #[arg(long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    keys: u64,
    /// overhead, flood: how often both run, in turns
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=99))]
    turns: u32,
    /// shares: messages of each of the five tenants, which have the weights 1 to 5
    #[arg(long, value_name = "N", default_value_t = 2000)]
    each: u64,
    /// shares: deliveries after which shares are compared
    #[arg(long, value_name = "N", default_value_t = 5000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    window: u64,
    /// quiet: messages of the noisy tenant
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    noisy: u64,
    /// quiet: other tenants with messages; may be a list
    #[arg(long, value_name = "N", default_value = "0,100", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    others: Vec<u32>,
    /// quiet: tenants that arrive, one after the other
    #[arg(long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    arrivals: u32,
    /// throttle: messages per second of the tenant
    #[arg(long, value_name = "N", default_value_t = 50.0)]
    rate: f64,
    /// throttle: seconds that count
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// throttle: tenants that wait for their own throttle meanwhile
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    waiting: u32,
    /// throttle: by how much more or fewer deliveries than the rate says are an error
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0)]
    off_by: f64,
    /// flood: messages per second of the tenant that is measured
    #[arg(long, value_name = "N", default_value_t = 1000.0)]
    steady_rate: f64,
    /// flood: appends per second that the other tenant tries; 0 for as many as go
    #[arg(long, value_name = "N", default_value_t = 10_000.0)]
    flood_rate: f64,
    /// flood: messages per second that it may publish; 0 for no quota
    #[arg(long, value_name = "N", default_value_t = 1000)]
    flood_quota: u64,
    /// flood: seconds of a turn that count
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    flood_seconds: f64,
}

/// A kind of row.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum FairnessRow {
    /// Publish and consume, fair beside by offset
    Overhead,
    /// Deliveries by weight
    Shares,
    /// Deliveries before the message of a tenant that arrives behind others' backlogs
    Quiet,
    /// Deliveries of a throttled tenant beside others that wait
    Throttle,
    /// Latency of a tenant beside one that floods the broker, beyond its quota; with --serve-auth
    Flood,
}

impl Fairness {
    /// The rows that are asked for.
    #[must_use]
    pub fn rows(&self, partitions: u32) -> Vec<Measurement> {
        self.rows.iter().flat_map(|row| self.rows_of(*row, partitions)).collect()
    }

    fn rows_of(&self, row: FairnessRow, partitions: u32) -> Vec<Measurement> {
        let size = self.size;
        match row {
            FairnessRow::Overhead => {
                let load = Load {
                    size,
                    messages: Some(self.messages),
                    partitions,
                    ..fair_load(self.keys)
                };
                let comparison = Comparison::beside_fifo(load, self.turns);
                let row = format!("{} fair keys, {size} B", show_count(self.keys));
                vec![Measurement { row, method: Method::Comparison(Box::new(comparison)) }]
            }
            FairnessRow::Shares => {
                let (each, window) = (self.each, self.window);
                let shares = FairShares { tenants: 5, each, window, size, limit_percent: 1.0 };
                let row = format!("weights 1 to 5, {} each", show_count(each));
                vec![Measurement { row, method: Method::FairShares(shares) }]
            }
            FairnessRow::Quiet => {
                let (noisy, arrivals) = (self.noisy, self.arrivals);
                let row = |&others: &u32| {
                    let quiet = QuietTenant { noisy, others, arrivals, size, limit_rounds: 2.0 };
                    let row = format!("behind {} and {others} others", show_count(noisy));
                    Measurement { row, method: Method::QuietTenant(quiet) }
                };
                self.others.iter().map(row).collect()
            }
            FairnessRow::Throttle => {
                let (rate, seconds, others) = (self.rate, self.seconds, self.waiting);
                let limit_percent = self.off_by;
                let throttled = ThrottledTenant { rate, seconds, others, size, limit_percent };
                let row = format!("{rate}/s burst 1, {} others wait", show_count(others.into()));
                vec![Measurement { row, method: Method::ThrottledTenant(throttled) }]
            }
            FairnessRow::Flood => {
                let (flood, quota) = (self.flood_rate, self.flood_quota);
                let load = Load {
                    size,
                    partitions,
                    rate: Some(self.steady_rate),
                    warmup_s: 1.0,
                    duration_s: self.flood_seconds,
                    ..Load::new()
                };
                let turns = self.turns;
                let flooded = FloodedTenant { load, flood, quota, turns, limit: 2.0 };
                let flood = if flood > 0.0 { show_rate(flood) } else { "as many as go".into() };
                let row =
                    format!("{} beside {flood}, quota {quota}/s", show_rate(self.steady_rate));
                vec![Measurement { row, method: Method::FloodedTenant(Box::new(flooded)) }]
            }
        }
    }
}
