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
    row::{Checkpointed, Row},
    write_amplification::cost,
};

/// The broker that is always at it.
const BUSY: [&str; 4] = ["--segment-size", "20MiB", "--journal-segments", "4"];

/// The broker that never is.
const QUIET: [&str; 4] = ["--segment-size", "2GiB", "--journal-segments", "64"];

/// The load that both take in turns.
#[derive(Clone, Debug)]
pub struct Pauses {
    /// The load of a window.
    pub load: Load,
    /// Windows of each broker.
    pub windows: u32,
    /// Topics of one message each that a checkpoint has to write.
    pub topics: u64,
    /// The most that the 99th percentile should be of the quiet one.
    pub limit: f64,
}

impl Pauses {
    /// Measures windows in turns; the row is the busy window whose 99th percentile is the median.
    ///
    /// # Errors
    /// A broker does not start, or a worker cannot work.
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
        let (before, mut made) = (median(&mut quiet_rows), median(&mut busy_rows));
        let quiet_p99_us = p99(&before).context("nothing was confirmed")?;
        let busy_p99_us = p99(&made).context("nothing was confirmed")?;
        let said = |rows: &[Row], say: fn(&Checkpointed) -> u64| -> Vec<u64> {
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
            made.errors += 1;
            made.error_texts.push(text.into());
        }
        for other in quiet_rows.iter().chain(&busy_rows).filter(|other| other.errors > 0) {
            made.errors += other.errors;
            made.error_texts.extend(other.error_texts.iter().cloned());
        }
        if let Some(cost) = &mut made.checkpoint {
            cost.quiet_p99_us = Some(quiet_p99_us);
            cost.p99_ratio = Some(busy_p99_us as f64 / quiet_p99_us.max(1) as f64);
            cost.p99_ratio_limit = Some(self.limit);
        }
        made.config = json!({
            "load": self.load,
            "windows": self.windows,
            "topics": self.topics,
            "busy": BUSY,
            "quiet": QUIET,
            "busy_p99_us": busy_rows.iter().filter_map(p99).collect::<Vec<_>>(),
            "quiet_p99_us": quiet_rows.iter().filter_map(p99).collect::<Vec<_>>(),
        });
        Ok(made)
    }

    /// A broker with its topics.
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
        // One topic for all windows: what was published before goes on to move and to be trimmed.
        let topic = Some("bench.checkpoint".to_owned());
        let here = Bench { broker, topic, ..bench.clone() };
        let (made, usage) = here.measure(row, &self.load)?;
        Ok(Row { checkpoint: Some(cost(&made, &self.load, usage)), ..made })
    }
}

fn p99(row: &Row) -> Option<u64> {
    row.publish_to_confirm_us.map(|of| of.p99)
}
