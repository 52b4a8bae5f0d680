//! The results of a live fan-out beside clients that take nothing, in turns with the same load without them.

use serde::{Deserialize, Serialize};

/// The results of a row with clients that take nothing: medians over the turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StalledResults {
    /// The number of clients that take nothing, beside the others.
    pub stalled: u32,
    /// The number of turns.
    pub turns: u32,
    /// `delivered_per_s` without them.
    pub base_delivered_per_s: f64,
    /// The ratio of deliveries to those without them, of one turn each.
    pub deliver_ratio: f64,
    /// The p99 of `publish_to_deliver_us`, and the same without them, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
    /// The same without them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_p99_us: Option<f64>,
    /// The ratio of both, of one turn each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ratio: Option<f64>,
    /// `broker_rss_peak_bytes` without them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_rss_peak_bytes: Option<u64>,
}

/// The column heads of a table of such rows.
pub const HEADS: [&str; 11] = [
    "ROW",
    "STALLED",
    "DELIVERED/S",
    "WITHOUT",
    "RATIO",
    "DELIVER p99",
    "WITHOUT",
    "RATIO",
    "RSS MiB",
    "WITHOUT",
    "MISS/DUP/ORD/BAD/ERR",
];

/// What a load of one turn has come to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadFigures {
    /// Deliveries per second.
    pub delivered_per_s: f64,
    /// The p99 of their latency, in microseconds.
    pub p99_us: Option<f64>,
    /// The broker's greatest number of resident bytes.
    pub rss_peak_bytes: Option<u64>,
}

/// A turn: with clients that take nothing, and without.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Turn {
    /// With them.
    pub with: LoadFigures,
    /// Without them.
    pub without: LoadFigures,
}

impl StalledResults {
    /// The medians of these turns.
    #[must_use]
    pub fn of(stalled: u32, turns: &[Turn]) -> Self {
        let over = |figure: &dyn Fn(&Turn) -> Option<f64>| {
            let mut all: Vec<f64> = turns.iter().filter_map(figure).collect();
            all.sort_by(f64::total_cmp);
            all.get(all.len().saturating_sub(1) / 2).copied()
        };
        let rate = |load: LoadFigures| load.delivered_per_s;
        Self {
            stalled,
            turns: u32::try_from(turns.len()).unwrap_or(u32::MAX),
            base_delivered_per_s: over(&|turn| Some(rate(turn.without))).unwrap_or_default(),
            deliver_ratio: over(&|turn| Some(rate(turn.with) / rate(turn.without)))
                .unwrap_or_default(),
            p99_us: over(&|turn| turn.with.p99_us),
            base_p99_us: over(&|turn| turn.without.p99_us),
            p99_ratio: over(&|turn| Some(turn.with.p99_us? / turn.without.p99_us?)),
            base_rss_peak_bytes: over(&|turn| Some(turn.without.rss_peak_bytes? as f64))
                .map(|bytes| bytes as u64),
        }
    }

    /// The cells below [`HEADS`] of row `row`, with its deliveries per second, the broker's memory and its errors.
    #[must_use]
    pub fn cells(
        &self,
        row: &str,
        delivered_per_s: Option<f64>,
        rss_peak_bytes: Option<u64>,
        errors: String,
    ) -> Vec<String> {
        let mib = |of: Option<u64>| of.map_or_else(String::new, |of| (of >> 20).to_string());
        let us = |of: Option<f64>| of.map_or_else(String::new, |us| format!("{us:.0} us"));
        vec![
            row.to_owned(),
            self.stalled.to_string(),
            delivered_per_s.map_or_else(String::new, |rate| format!("{rate:.0}")),
            format!("{:.0}", self.base_delivered_per_s),
            format!("{:.3}", self.deliver_ratio),
            us(self.p99_us),
            us(self.base_p99_us),
            self.p99_ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
            mib(rss_peak_bytes),
            mib(self.base_rss_peak_bytes),
            errors,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_that_of_one_turn_and_the_median_over_all() {
        let load = |delivered_per_s| LoadFigures {
            delivered_per_s,
            p99_us: None,
            rss_peak_bytes: Some(1 << 20),
        };
        let turn = |with, without| Turn { with: load(with), without: load(without) };
        let turns = [turn(90.0, 100.0), turn(40.0, 50.0), turn(10.0, 10.0)];
        let results = StalledResults::of(3, &turns);
        assert_eq!((results.stalled, results.turns), (3, 3));
        assert_eq!((results.base_delivered_per_s, results.deliver_ratio), (50.0, 0.9));
        assert_eq!(results.p99_ratio, None);
        assert_eq!(results.base_rss_peak_bytes, Some(1 << 20));
        assert_eq!(results.cells("row", Some(40.0), None, String::new()).len(), HEADS.len());
    }
}
