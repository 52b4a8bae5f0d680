//! The write amplification: bytes that the broker writes, according to the kernel, for each published byte.

use anyhow::Result;

use crate::{
    broker::Broker,
    load::{Bench, Load},
    row::{CheckpointResults, Row},
    stamp::message_bytes,
    usage::Usage,
};

/// A load on a broker of its own, whose writes are counted.
#[derive(Clone, Debug)]
pub struct WriteAmplification {
    /// The load.
    pub load: Load,
    /// The limit of written bytes for each published byte.
    pub limit: f64,
    /// Whether messages must move to packs during the load.
    pub moves: bool,
}

impl WriteAmplification {
    /// Measures the row.
    ///
    /// # Errors
    /// The broker does not start, or a worker fails.
    pub fn run(&self, bench: &Bench<'_>, row: &str) -> Result<Row> {
        let broker = Broker::start(bench.options, &[])?;
        let here = Bench { broker: &broker, ..bench.clone() };
        let (mut result, usage) = here.measure(row, &self.load)?;
        let mut cost = cost(&result, &self.load, usage);
        cost.write_amplification =
            usage.bytes_written.map(|bytes| bytes as f64 / cost.confirmed_bytes.max(1) as f64);
        cost.write_amplification_limit = Some(self.limit);
        result.checkpoint = Some(cost);
        let wants = [
            (cost.write_amplification.is_some(), "the kernel does not say what was written"),
            (cost.checkpoints > 0, "no checkpoint ended in the window"),
            (cost.moved_bytes > 0 || !self.moves, "nothing moved in the window"),
            (cost.moved_bytes == 0 || self.moves, "messages moved that were settled at once"),
        ];
        for (_, text) in wants.into_iter().filter(|(is_so, _)| !is_so) {
            result.errors += 1;
            result.error_texts.push(text.into());
        }
        Ok(result)
    }
}

/// The results of a row with this usage.
pub fn cost(result: &Row, load: &Load, usage: Usage) -> CheckpointResults {
    let each = message_bytes(load.size) as f64;
    let confirmed = result.confirmed_per_s.unwrap_or_default() * result.seconds;
    CheckpointResults {
        confirmed_bytes: (confirmed * each) as u64,
        journal_bytes: usage.journal_bytes.unwrap_or_default(),
        checkpoints: usage.checkpoints.unwrap_or_default(),
        moved_bytes: usage.moved_bytes.unwrap_or_default(),
        ..CheckpointResults::default()
    }
}
