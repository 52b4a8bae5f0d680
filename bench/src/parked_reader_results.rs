//! The results of a row of `parked-readers`: the costs of each reader, and the time until the last one gets an
//! append.

use serde::{Deserialize, Serialize};

use crate::latency::Percentiles;

/// What a row of parked readers says besides.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct ParkedReaderResults {
    /// How many there were.
    pub parked: u32,
    /// How many of them the broker counts as parked; none if it does not count them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted: Option<u64>,
    /// Resident bytes that the broker has more for each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss_each_bytes: Option<u64>,
    /// Bytes of the kernel that the machine has more for each, both ends of its connection.
    pub kernel_each_bytes: u64,
    /// Processor seconds a second that the broker uses while nothing happens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_cpu: Option<f64>,
    /// From an append to the last who waited for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub append_to_last_us: Option<Percentiles>,
}

/// The heads of a table of parked readers.
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
    /// The cells below [`HEADS`]: of row `row`, with what was delivered a second and how soon, and so many
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
