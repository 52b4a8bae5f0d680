//! One stream with many readers: every reader gets every message, and is verified separately.

use anyhow::{Context, Result, ensure};
use sennit_model::{Durability, limits::MEMORY_SHARD_BYTES};
use serde_json::{Value, json};

use crate::{
    bare_fan_out, bare_fan_out_latency,
    child::Worker,
    clock::now_ns,
    latency::Latencies,
    load::{Bench, Load, RunResults, send_all, share, window_of},
    plan::{Preloaded, Read, ReaderReport, Role, Slow, WorkerCommand},
    row::{FanOutResults, Row},
    run_topic::RunTopic,
    sequence_check::compare,
    stamp::{STAMP_BYTES, message_bytes},
    usage::UsageWatch,
};

/// Default number of bytes that a partition keeps: more than a run publishes, so that a slow reader can catch up.
pub const RETAIN_BYTES: u64 = 16 << 30;

/// A load with many readers.
#[derive(Clone, Debug)]
pub struct FanOut {
    /// The load. It has no consumers.
    pub load: Load,
    /// The number of readers, each with a connection.
    pub readers: u32,
    /// The number of processes that share the readers.
    pub reader_processes: u32,
    /// The credit of each reader in messages.
    pub credit_messages: u32,
    /// The credit of each reader in bytes; with `None` the client chooses.
    pub credit_bytes: Option<u64>,
    /// Each reader commits a cursor of its own after this number of messages.
    pub commit_every: Option<u64>,
    /// Whether rate and latency leave out the first reader.
    pub leaves_out_first: bool,
    /// The number of times that each reader reads the preloaded messages, if it reads only those.
    pub rounds: u64,
    /// Messages per second that the first reader takes while the load runs; 0 for none.
    pub slow_rate: Option<f64>,
}

impl FanOut {
    /// `readers` readers that read the messages of `load` live.
    #[must_use]
    pub fn new(load: Load, readers: u32) -> Self {
        Self {
            load: Load { consumers: 0, ..load },
            readers,
            reader_processes: 1,
            credit_messages: 65_536,
            credit_bytes: None,
            commit_every: None,
            leaves_out_first: false,
            rounds: 1,
            slow_rate: None,
        }
    }

    /// The preloaded messages.
    fn preloaded(&self) -> Option<Preloaded> {
        let messages = self.load.preload? * u64::from(self.load.producers);
        Some(Preloaded { messages, rounds: self.rounds })
    }

    /// Checks that memory holds all preloaded messages: readers would wait forever for freed ones.
    fn check_that_preload_is_kept(&self) -> Result<()> {
        let Load { size, partitions, durability, .. } = self.load;
        let Some(Preloaded { messages, .. }) = self.preloaded() else { return Ok(()) };
        let bytes = message_bytes(size) as u64;
        let kept = MEMORY_SHARD_BYTES * u64::from(partitions) / bytes;
        ensure!(
            durability != Durability::Memory || messages <= kept,
            "{messages} messages of {size} bytes are more than is kept in memory, at most {kept}"
        );
        Ok(())
    }

    /// Measures the row.
    ///
    /// # Errors
    /// The broker cannot be reached or a worker fails.
    pub fn run(&self, bench: &Bench<'_>, row: &str) -> Result<Row> {
        let load = &self.load;
        ensure!(load.size >= STAMP_BYTES, "a payload has at least {STAMP_BYTES} bytes");
        self.check_that_preload_is_kept()?;
        let bare = || match bench.options.probe {
            true => bare_fan_out::measure(self.readers, load.size).context("the probe").map(Some),
            false => Ok(None),
        };
        // A preloaded message is late by the time since its publish, so that the rate does not matter.
        let paced = load.rate.filter(|_| bench.options.probe && load.preload.is_none());
        let mut bare_late = Latencies::new();
        let pace = |late: &mut Latencies| match paced {
            Some(rate) => {
                let threads = self.reader_processes;
                let measured =
                    bare_fan_out_latency::measure(self.readers, threads, load.size, rate);
                measured.context("the probe").map(|more| late.add(&more.buckets()))
            }
            None => Ok(()),
        };
        let run_topic = bench.run_topic(load)?;
        let mut measured = RunResults::default();
        let mut producers = bench.start_producers(&run_topic, load)?;
        if load.preload.is_some() {
            measured.preload(bench, &mut producers, load)?;
            producers.clear();
        }
        let mut readers = self.start_readers(&run_topic)?;
        let before = bare()?;
        pace(&mut bare_late)?;
        let window = window_of(load, now_ns());
        let watch = UsageWatch::begin(bench.broker.pid, &bench.broker.http, window);
        send_all(&mut readers, WorkerCommand::Start(window))?;
        send_all(&mut producers, WorkerCommand::Start(window))?;
        let offered = load.rate.map(|rate| (rate * (load.warmup_s + load.duration_s)) as u64);
        for report in bench.reports(&mut producers, row, offered)? {
            measured.add(report);
        }
        // The number for each reader, over all its rounds.
        let expect = measured.confirmed_in_all() * self.preloaded().map_or(1, |there| there.rounds);
        let deadline_ns = now_ns() + (load.drain_s * 1e9) as u64;
        send_all(&mut readers, WorkerCommand::Finish { expect, deadline_ns })?;
        let sent = measured.sent.clone();
        let (mut seen, mut errors, mut cpu_s) = (Vec::new(), Vec::new(), None);
        for report in bench.reports(&mut readers, row, Some(expect * u64::from(self.readers)))? {
            seen.extend(report.readers);
            errors.extend(report.errors);
            cpu_s = report.cpu_s.map(|used| used + cpu_s.unwrap_or_default()).or(cpu_s);
        }
        let usage = watch.end();
        pace(&mut bare_late)?;
        let bare = before.zip(bare()?).map(|(before, after)| before.and(after));
        let mut result = measured.row(load, window);
        if load.preload.is_some() {
            let last_ns = seen.iter().map(|reader| reader.last_ns).max().unwrap_or_default();
            result.seconds = last_ns.saturating_sub(window.start_ns) as f64 / 1e9;
        }
        result.set_usage(usage);
        self.add_readers(&mut result, &sent, &seen);
        result.errors += errors.len() as u64;
        result.error_texts.extend(errors);
        let figures = result.fan_out.get_or_insert_default();
        figures.readers_cpu_s = cpu_s;
        figures.bare_deliver_us = bare_late.percentiles();
        let delivered = result.delivered_per_s.unwrap_or_default();
        if let Some(bare) = bare {
            figures.bare_per_s = Some(bare.thrown_away_per_s);
            figures.bare_checked_per_s = Some(bare.checked_per_s);
            figures.of_bare = Some(delivered / bare.thrown_away_per_s);
            figures.of_bare_checked = Some(delivered / bare.checked_per_s);
        }
        bench.name(&mut result, row);
        result.durability = load.durability.to_string();
        result.config = self.config();
        Ok(result)
    }

    fn config(&self) -> Value {
        json!({
            "load": self.load,
            "readers": self.readers,
            "reader_processes": self.reader_processes,
            "credit_messages": self.credit_messages,
            "credit_bytes": self.credit_bytes,
            "commit_every": self.commit_every,
            "slow_rate": self.slow_rate,
            "rounds": self.rounds,
        })
    }

    fn start_readers(&self, run_topic: &RunTopic) -> Result<Vec<Worker>> {
        let processes = self.reader_processes.clamp(1, self.readers);
        (0..processes)
            .map(|process| {
                let (first, count) = share(self.readers, processes, process);
                let role = Role::Read(Read {
                    first,
                    count,
                    credit_messages: self.credit_messages,
                    credit_bytes: self.credit_bytes,
                    commit_every: self.commit_every,
                    slow: self.slow_rate.map(|rate| Slow { reader: 0, rate }),
                    preloaded: self.preloaded(),
                });
                Worker::start(&run_topic.plan(self.load.size, role))
            })
            .collect()
    }

    /// Adds the readers' results to a row. Each reader must have received every message.
    fn add_readers(&self, row: &mut Row, sent: &[(u32, u64, u64)], seen: &[ReaderReport]) {
        let mut latencies = Latencies::new();
        let mut delivered = 0;
        let mut slow = None;
        for reader in seen {
            let found = compare(sent, std::slice::from_ref(&reader.received));
            row.message_errors.missing += found.missing;
            row.message_errors.duplicates += found.duplicates;
            row.message_errors.out_of_order += found.out_of_order;
            row.message_errors.corrupt += found.corrupt;
            let rate = reader.delivered as f64 / row.seconds.max(1e-9);
            if self.leaves_out_first && reader.number == 0 {
                slow = self.slow_rate.map(|_| rate);
                continue;
            }
            delivered += reader.delivered;
            latencies.add(&reader.publish_to_deliver);
        }
        row.delivered_per_s = Some(delivered as f64 / row.seconds.max(1e-9));
        // The latency of preloaded messages would be the time since their publish.
        row.publish_to_deliver_us =
            if self.load.preload.is_none() { latencies.percentiles() } else { None };
        row.fan_out = Some(FanOutResults {
            readers: self.readers,
            slow_delivered_per_s: slow,
            ..FanOutResults::default()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequence_check::{MessageErrors, SequenceCheck};

    fn reader(number: u32, sequences: impl IntoIterator<Item = u64>) -> ReaderReport {
        let mut check = SequenceCheck::new();
        let mut delivered = 0;
        for sequence in sequences {
            delivered += u64::from(check.record(number, 0, 0, sequence));
        }
        ReaderReport { number, delivered, received: check.received(), ..Default::default() }
    }

    fn row(fan_out: &FanOut, seen: &[ReaderReport]) -> Row {
        let mut row = Row { seconds: 1.0, ..Row::default() };
        fan_out.add_readers(&mut row, &[(0, 10, 10)], seen);
        row
    }

    #[test]
    fn more_than_memory_keeps_is_not_preloaded() {
        let check = |durability, each| {
            let load = Load { durability, producers: 4, preload: Some(each), ..Load::new() };
            FanOut::new(load, 16).check_that_preload_is_kept()
        };
        assert!(check(Durability::Memory, 60_000).is_ok());
        assert!(check(Durability::Durable, 1_000_000).is_ok());
        let error = check(Durability::Memory, 120_000).unwrap_err().to_string();
        assert!(error.starts_with("480000 messages of 1024 bytes are more"), "{error}");
    }

    #[test]
    fn the_same_message_for_two_readers_is_no_duplicate_and_counts_twice() {
        let row = row(&FanOut::new(Load::new(), 2), &[reader(0, 0..10), reader(1, 0..10)]);
        assert_eq!(row.message_errors, MessageErrors::default());
        assert_eq!(row.delivered_per_s, Some(20.0));
    }

    #[test]
    fn what_one_reader_lacks_no_other_makes_up_for() {
        let row = row(&FanOut::new(Load::new(), 2), &[reader(0, 0..9), reader(1, 0..10)]);
        assert_eq!(row.message_errors, MessageErrors { missing: 1, ..MessageErrors::default() });
    }

    #[test]
    fn the_slow_one_is_verified_and_left_out_of_the_others_figures() {
        let mut fan_out = FanOut::new(Load::new(), 2);
        (fan_out.leaves_out_first, fan_out.slow_rate) = (true, Some(0.0));
        let row = row(&fan_out, &[reader(0, 0..9), reader(1, 0..10)]);
        assert_eq!(row.message_errors.missing, 1);
        assert_eq!(row.delivered_per_s, Some(10.0));
        assert_eq!(row.fan_out.unwrap().slow_delivered_per_s, Some(9.0));
    }
}
