//! The results of two loads that ran in turns.

use serde::{Deserialize, Serialize};

/// The results of a row that is compared with a base in the same run: medians over the turns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ComparisonResults {
    /// The name of the base.
    pub base: String,
    /// `confirmed_per_s` of the base.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_confirmed_per_s: Option<f64>,
    /// The ratio of confirms to those of the base.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publish_ratio: Option<f64>,
    /// `delivered_per_s` of the base.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_delivered_per_s: Option<f64>,
    /// The ratio of deliveries to those of the base.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consume_ratio: Option<f64>,
    /// The broker's processor time for each published message, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publish_cpu_us: Option<f64>,
    /// The difference from that of the base.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publish_cost_us: Option<f64>,
    /// The broker's processor time for each message that is consumed and acked, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consume_cpu_us: Option<f64>,
    /// The difference from that of the base.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consume_cost_us: Option<f64>,
    /// The broker's resident bytes while the backlog of the first turn lies there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss_bytes: Option<u64>,
    /// The same of the base.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_rss_bytes: Option<u64>,
}

/// The column heads of a table of comparisons.
pub const HEADS: [&str; 15] = [
    "ROW",
    "BASE",
    "CONFIRMED/S",
    "BASE",
    "OVERHEAD %",
    "DELIVERED/S",
    "BASE",
    "OVERHEAD %",
    "CPU us/PUBLISH",
    "MORE",
    "CPU us/CONSUME",
    "MORE",
    "RSS MiB",
    "BASE",
    "MISS/DUP/ORD/BAD/ERR",
];

impl ComparisonResults {
    /// The cells below [`HEADS`] of row `row`, with its confirms and deliveries per second and its errors.
    #[must_use]
    pub fn cells(
        &self,
        row: &str,
        confirmed_per_s: Option<f64>,
        delivered_per_s: Option<f64>,
        errors: String,
    ) -> Vec<String> {
        let rate = |of: Option<f64>| of.map_or_else(String::new, |of| format!("{of:.0}"));
        let overhead = |ratio: Option<f64>| {
            ratio.map_or_else(String::new, |ratio| format!("{:.1}", 100.0 * (1.0 - ratio)))
        };
        let us = |of: Option<f64>| of.map_or_else(String::new, |of| format!("{of:.2}"));
        let mib = |of: Option<u64>| of.map_or_else(String::new, |of| (of >> 20).to_string());
        vec![
            row.to_owned(),
            self.base.clone(),
            rate(confirmed_per_s),
            rate(self.base_confirmed_per_s),
            overhead(self.publish_ratio),
            rate(delivered_per_s),
            rate(self.base_delivered_per_s),
            overhead(self.consume_ratio),
            us(self.publish_cpu_us),
            us(self.publish_cost_us),
            us(self.consume_cpu_us),
            us(self.consume_cost_us),
            mib(self.rss_bytes),
            mib(self.base_rss_bytes),
            errors,
        ]
    }
}
