//! A measured row, as JSON and as cells of a table.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    comparison_results::{self, ComparisonResults},
    fair_results::FairResults,
    http_stream_results::{self, HttpStreamResults},
    kill_results::{self, KillResults},
    latency::Percentiles,
    live_results::{self, FanOutCells, LiveResults},
    parked_reader_results::{self, ParkedReaderResults},
    probe::Probe,
    sequence_check::MessageErrors,
    stalled_results::{self, StalledResults},
    usage::Usage,
};

/// A row. Figures without a meaning for its workload are absent, never zero.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it; bench/README.md has the table")]
pub struct Row {
    pub workload: String,
    pub target: String,
    pub durability: String,
    pub row: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offered_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirmed_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivered_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acked_per_s: Option<f64>,
    #[serde(flatten)]
    pub message_errors: MessageErrors,
    pub errors: u64,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub error_texts: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publish_to_confirm_us: Option<Percentiles>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publish_to_deliver_us: Option<Percentiles>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publish_to_settle_us: Option<Percentiles>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker_cpu_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker_rss_average_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker_rss_peak_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker_bytes_written: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker_syncs: Option<u64>,
    pub seconds: f64,
    pub config: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    #[serde(flatten, skip_serializing_if = "Option::is_none", default)]
    pub probe: Option<Probe>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs: Option<Spread>,
    #[serde(flatten, skip_serializing_if = "Option::is_none", default)]
    pub restart: Option<RestartResults>,
    #[serde(flatten, skip_serializing_if = "Option::is_none", default)]
    pub checkpoint: Option<CheckpointResults>,
    #[serde(flatten, skip_serializing_if = "Option::is_none", default)]
    pub catch_up: Option<CatchUpResults>,
    #[serde(flatten, skip_serializing_if = "Option::is_none", default)]
    pub fan_out: Option<FanOutResults>,
    #[serde(flatten, skip_serializing_if = "Option::is_none", default)]
    pub answered: Option<HttpStreamResults>,
    #[serde(flatten, skip_serializing_if = "Option::is_none", default)]
    pub waited: Option<ParkedReaderResults>,
    #[serde(flatten, skip_serializing_if = "Option::is_none", default)]
    pub comparison: Option<ComparisonResults>,
    #[serde(flatten, skip_serializing_if = "Option::is_none", default)]
    pub fair: Option<FairResults>,
    #[serde(flatten, skip_serializing_if = "Option::is_none", default)]
    pub stalled: Option<StalledResults>,
    #[serde(flatten, skip_serializing_if = "Option::is_none", default)]
    pub live: Option<LiveResults>,
    #[serde(flatten, skip_serializing_if = "Option::is_none", default)]
    pub kills: Option<KillResults>,
}

/// The results of a row with many readers.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct FanOutResults {
    /// The number of readers, with the slow one.
    pub readers: u32,
    /// Processor seconds of the readers' processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readers_cpu_s: Option<f64>,
    /// Messages per second that a bare program sends through as many loopback sockets, without a check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bare_per_s: Option<f64>,
    /// The same, with the checks of the row's readers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bare_checked_per_s: Option<f64>,
    /// The ratio of `delivered_per_s` to `bare_per_s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of_bare: Option<f64>,
    /// The ratio of `delivered_per_s` to `bare_checked_per_s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of_bare_checked: Option<f64>,
    /// The latency of a bare program that writes each message to as many sockets at the same rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bare_deliver_us: Option<Percentiles>,
    /// Messages per second of the slow reader within the window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow_delivered_per_s: Option<f64>,
}

/// The results of a row of `restart`. Times count from the start of the process, after kill -9.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct RestartResults {
    /// The time until `/readyz` reports success.
    pub ready_s: f64,
    /// The time until a consumer that reconnects by itself has its first message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_delivery_s: Option<f64>,
    /// The limit of `ready_s`.
    pub limit_s: f64,
    /// Bytes of replayed records.
    pub replayed_bytes: u64,
    /// The number of replayed records.
    pub replayed_records: u64,
    /// `ready_s` for each GiB of the replay, without the second that the rest of the start may take.
    pub replay_s_per_gib: f64,
    /// Bytes of the data directory after the kill.
    pub data_bytes: u64,
    /// The expected number of messages or topics.
    pub expected: u64,
    /// The number of compared messages.
    pub sampled: u64,
    /// Seconds that the creation of topics took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub create_s: Option<f64>,
    /// Seconds that the publishes took.
    pub publish_s: f64,
    /// Seconds that a list of all topics took before the kill.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list_s: Option<f64>,
    /// Seconds that the sample took.
    pub sample_s: f64,
}

/// The results of a row of `checkpoint`.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct CheckpointResults {
    /// Bytes written to disks, as the kernel counts them, for each confirmed byte of encoded messages, without the
    /// heads of their batches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_amplification: Option<f64>,
    /// The limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_amplification_limit: Option<f64>,
    /// Confirmed bytes in the window.
    pub confirmed_bytes: u64,
    /// Bytes written to the journal in the window, as the broker counts them.
    pub journal_bytes: u64,
    /// The number of checkpoints that ended in the window.
    pub checkpoints: u64,
    /// Bytes that moved to packs in the window.
    pub moved_bytes: u64,
    /// The 99th percentile from publish to confirm of the broker without checkpoints and moves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quiet_p99_us: Option<u64>,
    /// The ratio of the row's 99th percentile to `quiet_p99_us`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ratio: Option<f64>,
    /// The limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ratio_limit: Option<f64>,
}

/// The results of a row of `catch-up`.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct CatchUpResults {
    /// Bytes of the encoded messages that the reader has read.
    pub bytes: u64,
    /// Bytes per second of the reader.
    pub bytes_per_s: f64,
    /// Bytes of all slots and packs.
    pub file_bytes: u64,
    /// Bytes per second of reading them around the page cache, one after the other.
    pub disk_bytes_per_s: f64,
    /// Bytes per second of as many bytes over one bare loopback connection.
    pub loopback_bytes_per_s: f64,
    /// The ratio of `bytes_per_s` to the slower of the two.
    pub ratio: f64,
}

/// The spread of the runs of a median row, in its headline figure.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Spread {
    /// The number of runs.
    pub count: u32,
    /// The minimum.
    pub min: f64,
    /// The maximum.
    pub max: f64,
}

/// The column heads of a table of rows.
const HEADS: [&str; 12] = [
    "ROW",
    "PUBLISHED/S",
    "CONFIRMED/S",
    "DELIVERED/S",
    "CONFIRM p50",
    "p99",
    "DELIVER p50",
    "p99",
    "MISS/DUP/ORD/BAD/ERR",
    "CPU s",
    "RSS MiB",
    "SYNCS",
];

/// The column heads of a table of restarts.
const RESTART_HEADS: [&str; 11] = [
    "ROW",
    "READY s",
    "LIMIT s",
    "FIRST DELIVERY s",
    "REPLAYED MiB",
    "s/GiB",
    "DATA MiB",
    "CREATE s",
    "PUBLISH s",
    "LIST s",
    "MISS/DUP/BAD/ERR OF SAMPLE",
];

/// The column heads of a table of checkpoints.
const CHECKPOINT_HEADS: [&str; 12] = [
    "ROW",
    "CONFIRMED/S",
    "WRITTEN/PUBLISHED",
    "LIMIT",
    "JOURNAL MiB",
    "MOVED MiB",
    "CHECKPOINTS",
    "CONFIRM p50",
    "p99",
    "QUIET p99",
    "RATIO",
    "MISS/DUP/ORD/BAD/ERR",
];

/// The column heads of a table of readers.
const FAN_OUT_HEADS: [&str; 16] = [
    "ROW",
    "PUBLISHED/S",
    "DELIVERED/S",
    "OF BARE",
    "OF CHECKED",
    "CONFIRM p50",
    "p99",
    "DELIVER p50",
    "p99",
    "BARE p99",
    "SLOW/S",
    "MISS/DUP/ORD/BAD/ERR",
    "CPU s",
    "READERS' CPU s",
    "RSS MiB",
    "SYNCS",
];
/// The column heads of a table of catching up.
const CATCH_UP_HEADS: [&str; 7] =
    ["ROW", "DELIVERED/S", "MiB/S", "DISK MiB/S", "LOOPBACK MiB/S", "RATIO", "MISS/DUP/BAD/ERR"];

impl Row {
    /// The column heads of the row's table.
    #[must_use]
    pub fn heads(&self) -> &'static [&'static str] {
        if self.comparison.is_some() {
            return &comparison_results::HEADS;
        }
        if self.kills.is_some() {
            return &kill_results::HEADS;
        }
        if self.stalled.is_some() {
            return &stalled_results::HEADS;
        }
        if let Some(fair) = &self.fair {
            return fair.heads();
        }
        if self.waited.is_some() {
            return &parked_reader_results::HEADS;
        }
        if self.answered.is_some() {
            return &http_stream_results::HEADS;
        }
        if self.live.is_some() {
            return &live_results::HEADS;
        }
        match (&self.restart, &self.checkpoint, &self.catch_up, &self.fan_out) {
            (Some(_), ..) => &RESTART_HEADS,
            (_, Some(_), ..) => &CHECKPOINT_HEADS,
            (_, _, Some(_), _) => &CATCH_UP_HEADS,
            (.., Some(_)) => &FAN_OUT_HEADS,
            _ => &HEADS,
        }
    }

    /// Sets the broker's usage.
    pub fn set_usage(&mut self, usage: Usage) {
        self.broker_cpu_s = usage.cpu_s;
        self.broker_rss_average_bytes = usage.rss_average_bytes;
        self.broker_rss_peak_bytes = usage.rss_peak_bytes;
        self.broker_bytes_written = usage.bytes_written;
        self.broker_syncs = usage.syncs;
    }

    /// The figure that orders runs: deliveries if there are any, otherwise confirms or answers.
    #[must_use]
    pub fn headline(&self) -> f64 {
        let answers = self.answered.map(|answered| answered.answered_per_s);
        self.delivered_per_s.or(self.confirmed_per_s).or(answers).unwrap_or_default()
    }

    /// Whether every message was delivered once, unchanged and in order, without other errors.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.message_errors == MessageErrors::default() && self.errors == 0
    }

    /// The median of several runs of the same row, with their spread.
    ///
    /// # Panics
    /// If there is no run.
    #[must_use]
    pub fn median(mut runs: Vec<Self>) -> Self {
        assert!(!runs.is_empty(), "a median is of at least one run");
        runs.sort_by(|a, b| a.headline().total_cmp(&b.headline()));
        let spread = Spread {
            count: u32::try_from(runs.len()).unwrap_or(u32::MAX),
            min: runs[0].headline(),
            max: runs[runs.len() - 1].headline(),
        };
        // The median row keeps the errors of all runs.
        let mut wrong = MessageErrors::default();
        for run in &runs {
            wrong.add(&run.message_errors);
        }
        let errors = runs.iter().map(|run| run.errors).sum();
        let texts = runs.iter().flat_map(|run| run.error_texts.clone()).collect();
        let middle = (runs.len() - 1) / 2;
        let median = runs.swap_remove(middle);
        let runs = (spread.count > 1).then_some(spread);
        Self { message_errors: wrong, errors, error_texts: texts, runs, ..median }
    }

    /// The cells below [`Self::heads`].
    #[must_use]
    pub fn cells(&self) -> Vec<String> {
        if let Some(comparison) = &self.comparison {
            let (confirmed, delivered) = (self.confirmed_per_s, self.delivered_per_s);
            return comparison.cells(&self.row, confirmed, delivered, self.error_cell());
        }
        if let Some(kills) = &self.kills {
            return kills.cells(&self.row, self.confirmed_per_s, self.errors);
        }
        if let Some(stalled) = &self.stalled {
            let (rate, rss) = (self.delivered_per_s, self.broker_rss_peak_bytes);
            return stalled.cells(&self.row, rate, rss, self.error_cell());
        }
        if let Some(fair) = &self.fair {
            return fair.cells(&self.row, self.error_cell());
        }
        if let Some(waited) = &self.waited {
            let (rate, deliver_us) = (self.delivered_per_s, self.publish_to_deliver_us);
            return waited.cells(&self.row, rate, deliver_us, self.errors);
        }
        if let Some(answered) = &self.answered {
            let spread = self.runs.map(|runs| (runs.min, runs.max));
            return answered.cells(&self.row, spread, self.errors, self.broker_cpu_s);
        }
        if let (Some(live), Some(fan_out)) = (&self.live, &self.fan_out) {
            return live.cells(self.live_cells(fan_out));
        }
        match (&self.restart, &self.checkpoint, &self.catch_up, &self.fan_out) {
            (Some(restart), ..) => self.restart_cells(restart),
            (_, Some(checkpoint), ..) => self.checkpoint_cells(checkpoint),
            (_, _, Some(caught_up), _) => self.catch_up_cells(caught_up),
            (.., Some(fan_out)) => self.fan_out_cells(fan_out),
            _ => self.load_cells(),
        }
    }

    /// Counts of lost, doubled, reordered and damaged messages, and of other errors.
    fn error_cell(&self) -> String {
        let MessageErrors { missing, duplicates, out_of_order, corrupt } = self.message_errors;
        format!("{missing}/{duplicates}/{out_of_order}/{corrupt}/{}", self.errors)
    }

    /// The cells of a load, without confirms per second, and with the readers' figures.
    fn fan_out_cells(&self, fan_out: &FanOutResults) -> Vec<String> {
        let rate = |rate: Option<f64>| rate.map_or_else(String::new, |rate| format!("{rate:.0}"));
        let part = |part: Option<f64>| part.map_or_else(String::new, |part| format!("{part:.2}"));
        let mut cells = self.load_cells();
        cells.remove(2);
        cells.splice(3..3, [part(fan_out.of_bare), part(fan_out.of_bare_checked)]);
        let late = fan_out.bare_deliver_us.map(|late| format!("{} us", late.p99));
        cells.splice(9..9, [late.unwrap_or_default(), rate(fan_out.slow_delivered_per_s)]);
        cells.insert(13, fan_out.readers_cpu_s.map_or_else(String::new, |cpu| format!("{cpu:.2}")));
        cells
    }

    /// The cells that a row of live fan-out has in common with others.
    fn live_cells(&self, fan_out: &FanOutResults) -> FanOutCells {
        let mut cells = self.fan_out_cells(fan_out);
        let mut cell = |at: usize| std::mem::take(&mut cells[at]);
        let p95 = self.publish_to_deliver_us.map(|of| format!("{} us", of.p95));
        FanOutCells {
            rates: [cell(0), cell(1), cell(2)],
            of_bare: [cell(3), cell(4)],
            latencies: [cell(5), cell(6), cell(7), p95.unwrap_or_default(), cell(8), cell(9)],
            errors: cell(11),
            costs: [cell(12), cell(13), cell(14)],
        }
    }

    fn restart_cells(&self, restart: &RestartResults) -> Vec<String> {
        let message_errors = &self.message_errors;
        let (missing, duplicates, corrupt) =
            (message_errors.missing, message_errors.duplicates, message_errors.corrupt);
        let (errors, sampled) = (self.errors, restart.sampled);
        let seconds = |of: Option<f64>| of.map_or_else(String::new, |of| format!("{of:.2}"));
        vec![
            self.row.clone(),
            seconds(Some(restart.ready_s)),
            seconds(Some(restart.limit_s)),
            seconds(restart.first_delivery_s),
            (restart.replayed_bytes >> 20).to_string(),
            seconds(Some(restart.replay_s_per_gib)),
            (restart.data_bytes >> 20).to_string(),
            seconds(restart.create_s),
            seconds(Some(restart.publish_s)),
            seconds(restart.list_s),
            format!("{missing}/{duplicates}/{corrupt}/{errors} of {sampled}"),
        ]
    }

    fn checkpoint_cells(&self, checkpoint: &CheckpointResults) -> Vec<String> {
        let ratio = |of: Option<f64>| of.map_or_else(String::new, |of| format!("{of:.2}"));
        let us = |of: Option<u64>| of.map_or_else(String::new, |of| format!("{of} us"));
        let confirm = self.publish_to_confirm_us;
        let limit = checkpoint.write_amplification_limit.or(checkpoint.p99_ratio_limit);
        vec![
            self.row.clone(),
            self.confirmed_per_s.map_or_else(String::new, |rate| format!("{rate:.0}")),
            ratio(checkpoint.write_amplification),
            ratio(limit),
            (checkpoint.journal_bytes >> 20).to_string(),
            (checkpoint.moved_bytes >> 20).to_string(),
            checkpoint.checkpoints.to_string(),
            us(confirm.map(|of| of.p50)),
            us(confirm.map(|of| of.p99)),
            us(checkpoint.quiet_p99_us),
            ratio(checkpoint.p99_ratio),
            self.error_cell(),
        ]
    }

    fn catch_up_cells(&self, caught_up: &CatchUpResults) -> Vec<String> {
        let MessageErrors { missing, duplicates, corrupt, .. } = self.message_errors;
        let mib = |bytes: f64| format!("{:.0}", bytes / f64::from(1 << 20));
        vec![
            self.row.clone(),
            self.delivered_per_s.map_or_else(String::new, |rate| format!("{rate:.0}")),
            mib(caught_up.bytes_per_s),
            mib(caught_up.disk_bytes_per_s),
            mib(caught_up.loopback_bytes_per_s),
            format!("{:.2}", caught_up.ratio),
            format!("{missing}/{duplicates}/{corrupt}/{}", self.errors),
        ]
    }

    fn load_cells(&self) -> Vec<String> {
        let rate = |rate: Option<f64>| rate.map_or_else(String::new, |rate| format!("{rate:.0}"));
        let us = |of: Option<Percentiles>, pick: fn(Percentiles) -> u64| {
            of.map_or_else(String::new, |of| format!("{} us", pick(of)))
        };
        let number = |of: Option<u64>| of.map_or_else(String::new, |of| of.to_string());
        let delivered = match self.runs {
            Some(spread) if self.delivered_per_s.is_some() => {
                let (min, max) = (spread.min, spread.max);
                format!("{} ({min:.0}..{max:.0})", rate(self.delivered_per_s))
            }
            _ => rate(self.delivered_per_s),
        };
        vec![
            self.row.clone(),
            rate(self.published_per_s),
            rate(self.confirmed_per_s),
            delivered,
            us(self.publish_to_confirm_us, |of| of.p50),
            us(self.publish_to_confirm_us, |of| of.p99),
            us(self.publish_to_deliver_us, |of| of.p50),
            us(self.publish_to_deliver_us, |of| of.p99),
            self.error_cell(),
            self.broker_cpu_s.map_or_else(String::new, |cpu| format!("{cpu:.2}")),
            number(self.broker_rss_peak_bytes.map(|bytes| bytes >> 20)),
            number(self.broker_syncs),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fair_results::{FloodResults, QuietResults, ShareResults, ThrottleResults};

    fn run(confirmed: f64, missing: u64) -> Row {
        let message_errors = MessageErrors { missing, ..MessageErrors::default() };
        Row { confirmed_per_s: Some(confirmed), message_errors, ..Row::default() }
    }

    #[test]
    fn the_median_row_is_one_of_the_runs_and_hides_no_loss() {
        let median = Row::median(vec![run(30.0, 0), run(10.0, 1), run(20.0, 0)]);
        assert_eq!(median.confirmed_per_s, Some(20.0));
        assert_eq!(median.message_errors.missing, 1);
        let spread = median.runs.unwrap();
        assert_eq!((spread.count, spread.min, spread.max), (3, 10.0, 30.0));
    }

    #[test]
    fn what_was_not_measured_is_absent_from_the_json() {
        let json = serde_json::to_value(run(5.0, 0)).unwrap();
        assert_eq!(json["missing"], 0);
        assert_eq!(json["confirmed_per_s"], 5.0);
        for absent in ["delivered_per_s", "publish_to_deliver_us", "broker_syncs", "runs"] {
            assert!(json.get(absent).is_none(), "{absent}");
        }
    }

    #[test]
    fn a_row_has_a_cell_below_each_head() {
        let (restart, checkpoint) =
            (Some(RestartResults::default()), Some(CheckpointResults::default()));
        let fair = |fair: FairResults| Row { fair: Some(fair), ..run(5.0, 0) };
        let (catch_up, fan_out) = (Some(CatchUpResults::default()), Some(FanOutResults::default()));
        for row in [
            run(5.0, 0),
            Row { restart, ..run(5.0, 0) },
            Row { checkpoint, ..run(5.0, 0) },
            Row { catch_up, ..run(5.0, 0) },
            Row { fan_out, ..run(5.0, 0) },
            Row { fan_out, live: Some(LiveResults::default()), ..run(5.0, 0) },
            Row { answered: Some(HttpStreamResults::default()), ..run(5.0, 0) },
            Row { waited: Some(ParkedReaderResults::default()), ..run(5.0, 0) },
            Row { comparison: Some(ComparisonResults::default()), ..run(5.0, 0) },
            Row { kills: Some(KillResults::default()), ..run(5.0, 0) },
            fair(FairResults::Shares(ShareResults::default())),
            fair(FairResults::Quiet(QuietResults::default())),
            fair(FairResults::Throttle(ThrottleResults::default())),
            fair(FairResults::Flood(FloodResults::default())),
        ] {
            assert_eq!(row.cells().len(), row.heads().len());
        }
    }
}
