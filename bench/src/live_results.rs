//! The results of a row of live fan-out, beside those of every fan-out.

use serde::{Deserialize, Serialize};

/// The results of a row with subscribers over WebSocket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LiveResults {
    /// Bytes per second that all subscribers received together, with the heads of frames.
    pub delivered_bytes_per_s: f64,
    /// Messages of a read of a subscriber, on average.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages_per_read: Option<f64>,
    /// Messages that a subscriber has not got, and was told so, of all together; where nobody waits for subscribers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub told_missing: Option<u64>,
    /// How often subscribers were told so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gaps_told: Option<u64>,
    /// The results of a row whose messages went through a Redis.
    #[serde(flatten, skip_serializing_if = "Option::is_none", default)]
    pub redis: Option<RedisResults>,
}

/// The results of a broker to which producers publish, and of the Redis by which the messages come to the broker of
/// subscribers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RedisResults {
    /// Processor seconds of the broker to which producers publish.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publisher_cpu_s: Option<f64>,
    /// Its greatest number of resident bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publisher_rss_peak_bytes: Option<u64>,
    /// Processor seconds of the Redis, if it is the row's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis_cpu_s: Option<f64>,
    /// Its greatest number of resident bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis_rss_peak_bytes: Option<u64>,
    /// Messages of a publication to Redis, on average.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages_per_publication: Option<f64>,
}

/// The column heads of a table of such rows.
pub const HEADS: [&str; 22] = [
    "ROW",
    "PUBLISHED/S",
    "DELIVERED/S",
    "MiB/S",
    "OF BARE",
    "OF CHECKED",
    "CONFIRM p50",
    "p99",
    "DELIVER p50",
    "p95",
    "p99",
    "BARE p99",
    "MISS/DUP/ORD/BAD/ERR",
    "TOLD MISSING",
    "CPU s",
    "LOAD CPU s",
    "RSS MiB",
    "PUBLISHER CPU s",
    "RSS MiB",
    "REDIS CPU s",
    "RSS MiB",
    "MESSAGES OF A PUBLICATION",
];

/// The cells that such a row has in common with every fan-out, by what they say.
#[derive(Clone, Debug)]
pub struct FanOutCells {
    /// The row, and messages published and delivered per second.
    pub rates: [String; 3],
    /// The ratios to the bare program.
    pub of_bare: [String; 2],
    /// The latencies of confirms and deliveries, and of the bare program.
    pub latencies: [String; 6],
    /// What was wrong.
    pub errors: String,
    /// Processor seconds of the broker and of the load, and the broker's memory.
    pub costs: [String; 3],
}

impl LiveResults {
    /// The cells below [`HEADS`].
    #[must_use]
    pub fn cells(&self, of: FanOutCells) -> Vec<String> {
        let seconds = |of: Option<f64>| of.map_or_else(String::new, |of| format!("{of:.2}"));
        let mib = |of: Option<u64>| of.map_or_else(String::new, |of| (of >> 20).to_string());
        let redis = self.redis.unwrap_or_default();
        let mut cells = of.rates.to_vec();
        cells.push(format!("{:.0}", self.delivered_bytes_per_s / f64::from(1 << 20)));
        cells.extend(of.of_bare);
        cells.extend(of.latencies);
        cells.push(of.errors);
        cells.push(self.told_missing.map_or_else(String::new, |count| count.to_string()));
        cells.extend(of.costs);
        cells.extend([
            seconds(redis.publisher_cpu_s),
            mib(redis.publisher_rss_peak_bytes),
            seconds(redis.redis_cpu_s),
            mib(redis.redis_rss_peak_bytes),
            redis.messages_per_publication.map_or_else(String::new, |of| format!("{of:.0}")),
        ]);
        cells
    }
}
