//! The results of kills of the leader of a cluster.

use serde::{Deserialize, Serialize};

use crate::latency::Percentiles;

/// The results of a row with kills.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct KillResults {
    /// The number of kills.
    pub kills: u32,
    /// The longest time between two confirms around each kill.
    pub gap_us: Option<Percentiles>,
    /// Publishes whose outcome the client did not learn.
    pub outcomes_unknown: u64,
}

/// The column heads of a table of kills.
pub const HEADS: [&str; 8] =
    ["ROW", "KILLS", "CONFIRMED/S", "GAP p50 ms", "p99 ms", "MAX ms", "OUTCOMES UNKNOWN", "ERRORS"];

impl KillResults {
    /// The cells below [`HEADS`] of row `row`, with its confirms per second and its errors.
    #[must_use]
    pub fn cells(&self, row: &str, confirmed_per_s: Option<f64>, errors: u64) -> Vec<String> {
        let ms = |pick: fn(Percentiles) -> u64| {
            let us = self.gap_us.map(pick);
            us.map_or_else(String::new, |us| (us / 1000).to_string())
        };
        vec![
            row.to_owned(),
            self.kills.to_string(),
            confirmed_per_s.map_or_else(String::new, |rate| format!("{rate:.0}")),
            ms(|of| of.p50),
            ms(|of| of.p99),
            ms(|of| of.max),
            self.outcomes_unknown.to_string(),
            errors.to_string(),
        ]
    }
}
