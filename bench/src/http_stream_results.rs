//! The results of a row of `http-streams`: those of the server, and of the null server beside it.

use serde::{Deserialize, Serialize};

use crate::latency::Percentiles;

/// The results of a row of `http-streams`.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct HttpStreamResults {
    /// Successful answers per second.
    pub answered_per_s: f64,
    /// The time from a request to its answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_to_answer_us: Option<Percentiles>,
    /// The time from an append to the reader that waits for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub append_to_delivery_us: Option<Percentiles>,
    /// Processor seconds of the load's process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_cpu_s: Option<f64>,
    /// `answered_per_s` of the null server, in turns with this server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub null_per_s: Option<f64>,
    /// `request_to_answer_us` of the null server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub null_request_to_answer_us: Option<Percentiles>,
    /// The ratio of answers to those of the null server: the median over all turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of_null: Option<f64>,
    /// `answered_per_s` of the null server with a synced log, in turns with this server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub synced_null_per_s: Option<f64>,
    /// `request_to_answer_us` of the null server with a synced log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub synced_null_request_to_answer_us: Option<Percentiles>,
    /// The ratio of answers to those of the null server with a synced log: the median over all turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of_synced_null: Option<f64>,
}

/// The column heads of a table of answers.
pub const HEADS: [&str; 15] = [
    "ROW",
    "ANSWERED/S",
    "p50",
    "p99",
    "DELIVER p50",
    "p99",
    "NULL/S",
    "NULL p50",
    "OF NULL",
    "SYNCED NULL/S",
    "p50",
    "OF IT",
    "ERRORS",
    "CPU s",
    "LOAD CPU s",
];

impl HttpStreamResults {
    /// The cells below [`HEADS`] of row `row`: `least` and `most` are its answers per second over several runs,
    /// `errors` counts its errors, and the last cell has the server's processor seconds.
    #[must_use]
    pub fn cells(
        &self,
        row: &str,
        spread: Option<(f64, f64)>,
        errors: u64,
        server_cpu_s: Option<f64>,
    ) -> Vec<String> {
        let us = |of: Option<Percentiles>, pick: fn(Percentiles) -> u64| {
            of.map_or_else(String::new, |of| format!("{} us", pick(of)))
        };
        let number = |of: Option<f64>, digits: usize| {
            of.map_or_else(String::new, |of| format!("{of:.digits$}"))
        };
        let rate = self.answered_per_s;
        let answered = match spread {
            Some((least, most)) => format!("{rate:.0} ({least:.0}..{most:.0})"),
            None => format!("{rate:.0}"),
        };
        vec![
            row.to_owned(),
            answered,
            us(self.request_to_answer_us, |of| of.p50),
            us(self.request_to_answer_us, |of| of.p99),
            us(self.append_to_delivery_us, |of| of.p50),
            us(self.append_to_delivery_us, |of| of.p99),
            number(self.null_per_s, 0),
            us(self.null_request_to_answer_us, |of| of.p50),
            number(self.of_null, 2),
            number(self.synced_null_per_s, 0),
            us(self.synced_null_request_to_answer_us, |of| of.p50),
            number(self.of_synced_null, 2),
            errors.to_string(),
            number(server_cpu_s, 2),
            number(self.load_cpu_s, 2),
        ]
    }
}
