//! Compares the latency of confirms during checkpoints and moves with that of a broker without them.
//!
//! Two brokers with the same topics take the same load in turns. One has the shortest segments and a journal of
//! four of them, so that a checkpoint or a move is nearly always under way. The other has a segment so long that
//! none is due before the end, and each period checks that.

use anyhow::{Context, Result};
use serde_json::json;
use tokio::task::LocalSet;

use crate::{
    broker::Broker,
    load::{Bench, Load},
    many_topics::{Connections, fill},
    options::Options,
    row::{CheckpointResults, Row},
    write_amplification::cost,
};

/// The flags of the broker that nearly always writes a checkpoint or moves batches.
const BUSY: [&str; 4] = ["--segment-size", "20MiB", "--journal-segments", "4"];

/// The flags of the broker that never does.
const QUIET: [&str; 4] = ["--segment-size", "2GiB", "--journal-segments", "64"];

/// The load that both brokers take in turns.
#[derive(Clone, Debug)]
pub struct Pauses {
    /// The load of a window.
    pub load: Load,
    /// The number of windows of each broker.
    pub windows: u32,
    /// The number of topics with one message each, which a checkpoint writes.
    pub topics: u64,
    /// The limit of the ratio of the 99th percentiles.
    pub limit: f64,
}

impl Pauses {
    /// Measures windows in turns; the row is the busy window whose 99th percentile is the median.
    ///
    /// # Errors
    /// A broker does not start, or a worker fails.
    pub fn run(&self, bench: &Bench<'_>, row: &str) -> Result<Row> {
        let quiet = self.prepared(bench, "quiet", &QUIET)?;
        let busy = self.prepared(bench, "busy", &BUSY)?;
        let (mut quiet_rows, mut busy_rows) = (Vec::new(), Vec::new());
        for _ in 0..self.windows {
            quiet_rows.push(self.window(bench, &quiet, "quiet")?);
            busy_rows.push(self.window(bench, &busy, row)?);
        }
        let median = |rows: &mut Vec<Row>| {
            rows.sort_by_key(p99);
            rows[(rows.len() - 1) / 2].clone()
        };
        let (before, mut result) = (median(&mut quiet_rows), median(&mut busy_rows));
        let quiet_p99_us = p99(&before).context("nothing was confirmed")?;
        let busy_p99_us = p99(&result).context("nothing was confirmed")?;
        let said = |rows: &[Row], say: fn(&CheckpointResults) -> u64| -> Vec<u64> {
            rows.iter().filter_map(|row| row.checkpoint.as_ref()).map(say).collect()
        };
        let wants = [
            (
                said(&busy_rows, |cost| cost.checkpoints).iter().all(|&n| n > 0),
                "a busy window had no checkpoint",
            ),
            (
                said(&busy_rows, |cost| cost.moved_bytes).iter().all(|&n| n > 0),
                "in a busy window nothing moved",
            ),
            (
                said(&quiet_rows, |cost| cost.checkpoints).iter().all(|&n| n == 0),
                "a quiet window had a checkpoint",
            ),
            (
                said(&quiet_rows, |cost| cost.moved_bytes).iter().all(|&n| n == 0),
                "in a quiet window something moved",
            ),
        ];
        for (_, text) in wants.into_iter().filter(|(is_so, _)| !is_so) {
            result.errors += 1;
            result.error_texts.push(text.into());
        }
        for other in quiet_rows.iter().chain(&busy_rows).filter(|other| other.errors > 0) {
            result.errors += other.errors;
            result.error_texts.extend(other.error_texts.iter().cloned());
        }
        if let Some(cost) = &mut result.checkpoint {
            cost.quiet_p99_us = Some(quiet_p99_us);
            cost.p99_ratio = Some(busy_p99_us as f64 / quiet_p99_us.max(1) as f64);
            cost.p99_ratio_limit = Some(self.limit);
        }
        result.config = json!({
            "load": self.load,
            "windows": self.windows,
            "topics": self.topics,
            "busy": BUSY,
            "quiet": QUIET,
            "busy_p99_us": busy_rows.iter().filter_map(p99).collect::<Vec<_>>(),
            "quiet_p99_us": quiet_rows.iter().filter_map(p99).collect::<Vec<_>>(),
        });
        Ok(result)
    }

    /// Starts a broker and creates its topics.
    fn prepared(&self, bench: &Bench<'_>, name: &str, flags: &[&str]) -> Result<Broker> {
        let data = bench.options.data.as_ref().map(|data| data.join(name));
        let broker = Broker::start(&Options { data, ..bench.options.clone() }, flags)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        LocalSet::new().block_on(&runtime, async {
            let clients = Connections::open(&broker.server).await?;
            fill(&clients, self.topics, self.load.size, bench).await
        })?;
        Ok(broker)
    }

    fn window(&self, bench: &Bench<'_>, broker: &Broker, row: &str) -> Result<Row> {
        // One topic for all windows: earlier messages continue to be moved and trimmed.
        let topic = Some("bench.checkpoint".to_owned());
        let here = Bench { broker, topic, ..bench.clone() };
        let (result, usage) = here.measure(row, &self.load)?;
        Ok(Row { checkpoint: Some(cost(&result, &self.load, usage)), ..result })
    }
}

fn p99(row: &Row) -> Option<u64> {
    row.publish_to_confirm_us.map(|of| of.p99)
}
