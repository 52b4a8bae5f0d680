//! The results of rows that count in which order a fair group delivers.

use serde::{Deserialize, Serialize};

/// The results of a row of `fairness`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FairResults {
    /// Shares by weight.
    Shares(ShareResults),
    /// The wait of a quiet tenant.
    Quiet(QuietResults),
    /// The pace of a throttled tenant.
    Throttle(ThrottleResults),
    /// The latency of a tenant beside one that floods.
    Flood(FloodResults),
}

/// The shares of deliveries.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShareResults {
    /// The number of windows.
    pub windows: u64,
    /// Deliveries of a window.
    pub window: u64,
    /// The greatest deviation of a tenant's deliveries from its share, in percent of the share.
    pub deviation_percent: f64,
    /// The deliveries of each tenant in the window with that deviation, by weight.
    pub deliveries: Vec<u64>,
}

/// The wait of tenants that arrive behind others' backlogs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QuietResults {
    /// Messages that were ready before.
    pub pending: u64,
    /// Tenants with messages, without those that arrive.
    pub tenants: u32,
    /// The number of tenants that arrived.
    pub arrivals: u32,
    /// The greatest number of deliveries between a publish and its delivery.
    pub deliveries_before_max: u32,
    /// The mean.
    pub deliveries_before_mean: f64,
    /// The greatest number, divided by the deliveries of a round: one of each tenant.
    pub rounds_max: f64,
}

/// The pace of a throttled tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThrottleResults {
    /// The number of deliveries by its rate.
    pub expected: u64,
    /// The number of deliveries.
    pub delivered: u64,
    /// The deviation, in percent.
    pub deviation_percent: f64,
    /// The fewest deliveries of a second.
    pub second_min: u64,
    /// The most deliveries of a second.
    pub second_max: u64,
    /// The longest time between two deliveries, in milliseconds.
    pub gap_max_ms: u64,
    /// The number of tenants that wait meanwhile.
    pub waiting: u64,
}

/// The latency of a tenant beside one that floods: medians over the turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FloodResults {
    /// The p99 from publish to confirm without the flood, in microseconds.
    pub calm_confirm_p99_us: f64,
    /// The same with the flood.
    pub confirm_p99_us: f64,
    /// The second divided by the first, of one turn.
    pub confirm_ratio: f64,
    /// The p99 from publish to delivery without the flood, in microseconds.
    pub calm_deliver_p99_us: f64,
    /// The same with the flood.
    pub deliver_p99_us: f64,
    /// The second divided by the first, of one turn.
    pub deliver_ratio: f64,
    /// The greatest ratio that is no error.
    pub limit: f64,
    /// Appends of the flood per second that were done.
    pub taken_per_s: f64,
    /// Appends of the flood per second that were refused.
    pub refused_per_s: f64,
}

/// The column heads of a table of floods.
const FLOOD_HEADS: [&str; 10] = [
    "ROW",
    "CALM CONFIRM p99",
    "FLOODED",
    "RATIO",
    "CALM DELIVER p99",
    "FLOODED",
    "RATIO",
    "FLOOD TAKEN/S",
    "REFUSED/S",
    "MISS/DUP/ORD/BAD/ERR",
];

/// The column heads of a table of shares.
const SHARE_HEADS: [&str; 5] =
    ["ROW", "WINDOWS", "LARGEST DEVIATION %", "DELIVERIES BY WEIGHT", "MISS/DUP/ORD/BAD/ERR"];

/// The column heads of a table of quiet tenants.
const QUIET_HEADS: [&str; 7] =
    ["ROW", "PENDING", "TENANTS", "BEFORE max", "mean", "ROUNDS", "MISS/DUP/ORD/BAD/ERR"];

/// The column heads of a table of throttled tenants.
const THROTTLE_HEADS: [&str; 8] = [
    "ROW",
    "DELIVERED",
    "OF",
    "OFF BY %",
    "IN A SECOND",
    "LONGEST GAP ms",
    "WAITING",
    "MISS/DUP/ORD/BAD/ERR",
];

impl FairResults {
    /// The column heads.
    #[must_use]
    pub fn heads(&self) -> &'static [&'static str] {
        match self {
            Self::Shares(_) => &SHARE_HEADS,
            Self::Quiet(_) => &QUIET_HEADS,
            Self::Throttle(_) => &THROTTLE_HEADS,
            Self::Flood(_) => &FLOOD_HEADS,
        }
    }

    /// The cells below [`Self::heads`] of row `row` with its errors.
    #[must_use]
    pub fn cells(&self, row: &str, errors: String) -> Vec<String> {
        let row = row.to_owned();
        match self {
            Self::Shares(of) => {
                let deliveries: Vec<_> = of.deliveries.iter().map(u64::to_string).collect();
                let deviation = format!("{:.2}", of.deviation_percent);
                vec![row, of.windows.to_string(), deviation, deliveries.join(" "), errors]
            }
            Self::Quiet(of) => vec![
                row,
                of.pending.to_string(),
                of.tenants.to_string(),
                of.deliveries_before_max.to_string(),
                format!("{:.1}", of.deliveries_before_mean),
                format!("{:.2}", of.rounds_max),
                errors,
            ],
            Self::Throttle(of) => vec![
                row,
                of.delivered.to_string(),
                of.expected.to_string(),
                format!("{:.2}", of.deviation_percent),
                format!("{}..{}", of.second_min, of.second_max),
                of.gap_max_ms.to_string(),
                of.waiting.to_string(),
                errors,
            ],
            Self::Flood(of) => vec![
                row,
                format!("{:.0} us", of.calm_confirm_p99_us),
                format!("{:.0} us", of.confirm_p99_us),
                format!("{:.2}", of.confirm_ratio),
                format!("{:.0} us", of.calm_deliver_p99_us),
                format!("{:.0} us", of.deliver_p99_us),
                format!("{:.2}", of.deliver_ratio),
                format!("{:.0}", of.taken_per_s),
                format!("{:.0}", of.refused_per_s),
                errors,
            ],
        }
    }
}
