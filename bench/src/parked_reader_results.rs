//! The results of a row of `parked-readers`: the costs of each reader, and the time until the last one gets an
//! append.

use serde::{Deserialize, Serialize};

use crate::latency::Percentiles;

/// The results of a row of `parked-readers`.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct ParkedReaderResults {
    /// The number of readers.
    pub parked: u32,
    /// The number of readers that the broker counts as parked; `None` if it does not count them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted: Option<u64>,
    /// Additional resident bytes of the broker for each reader.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss_each_bytes: Option<u64>,
    /// Additional kernel bytes for each reader, for both ends of its connection.
    pub kernel_each_bytes: u64,
    /// Processor seconds per second that the idle broker uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_cpu: Option<f64>,
    /// The time from an append to the last reader that receives it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub append_to_last_us: Option<Percentiles>,
}

/// The column heads of a table of parked readers.
pub const HEADS: [&str; 10] = [
    "ROW",
    "RSS B EACH",
    "KERNEL B EACH",
    "IDLE CPU",
    "DELIVERED/S",
    "DELIVER p50",
    "p99",
    "LAST p50",
    "max",
    "ERRORS",
];

impl ParkedReaderResults {
    /// The cells below [`HEADS`] of row `row`, with its deliveries per second, their latency, and the number of
    /// errors.
    #[must_use]
    pub fn cells(
        &self,
        row: &str,
        delivered_per_s: Option<f64>,
        deliver_us: Option<Percentiles>,
        errors: u64,
    ) -> Vec<String> {
        let us = |of: Option<Percentiles>, pick: fn(Percentiles) -> u64| {
            of.map_or_else(String::new, |of| format!("{} us", pick(of)))
        };
        vec![
            row.to_owned(),
            self.rss_each_bytes.map_or_else(String::new, |bytes| bytes.to_string()),
            self.kernel_each_bytes.to_string(),
            self.idle_cpu.map_or_else(String::new, |cpu| format!("{cpu:.3}")),
            delivered_per_s.map_or_else(String::new, |rate| format!("{rate:.0}")),
            us(deliver_us, |of| of.p50),
            us(deliver_us, |of| of.p99),
            us(self.append_to_last_us, |of| of.p50),
            us(self.append_to_last_us, |of| of.max),
            errors.to_string(),
        ]
    }
}
