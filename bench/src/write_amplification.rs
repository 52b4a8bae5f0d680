//! The write amplification: bytes that the broker writes, according to the kernel, for each published byte.

use anyhow::Result;

use crate::{
    broker::Broker,
    load::{Bench, Load},
    row::{Checkpointed, Row},
    stamp::message_bytes,
    usage::Usage,
};

/// A load whose writes are counted, on a broker of its own.
#[derive(Clone, Debug)]
pub struct Amplification {
    /// The load.
    pub load: Load,
    /// The most bytes that should be written for one.
    pub limit: f64,
    /// Whether messages have to move meanwhile.
    pub moves: bool,
}

impl Amplification {
    /// Measures it.
    ///
    /// # Errors
    /// The broker does not start, or a worker cannot work.
    pub fn run(&self, bench: &Bench<'_>, row: &str) -> Result<Row> {
        let broker = Broker::start(bench.options, &[])?;
        let here = Bench { broker: &broker, ..bench.clone() };
        let (mut made, usage) = here.measure(row, &self.load)?;
        let mut cost = cost(&made, &self.load, usage);
        cost.write_amplification =
            usage.bytes_written.map(|bytes| bytes as f64 / cost.confirmed_bytes.max(1) as f64);
        cost.write_amplification_limit = Some(self.limit);
        made.checkpoint = Some(cost);
        let wants = [
            (cost.write_amplification.is_some(), "the kernel does not say what was written"),
            (cost.checkpoints > 0, "no checkpoint ended in the window"),
            (cost.moved_bytes > 0 || !self.moves, "nothing moved in the window"),
            (cost.moved_bytes == 0 || self.moves, "messages moved that were settled at once"),
        ];
        for (_, text) in wants.into_iter().filter(|(is_so, _)| !is_so) {
            made.errors += 1;
            made.error_texts.push(text.into());
        }
        Ok(made)
    }
}

/// What `usage` says of the window of `made`.
pub fn cost(made: &Row, load: &Load, usage: Usage) -> Checkpointed {
    let each = message_bytes(load.size) as f64;
    let confirmed = made.confirmed_per_s.unwrap_or_default() * made.seconds;
    Checkpointed {
        confirmed_bytes: (confirmed * each) as u64,
        journal_bytes: usage.journal_bytes.unwrap_or_default(),
        checkpoints: usage.checkpoints.unwrap_or_default(),
        moved_bytes: usage.moved_bytes.unwrap_or_default(),
        ..Checkpointed::default()
    }
}
