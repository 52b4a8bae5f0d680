//! One run of load: a topic, worker processes, a period of time, and the resulting row.

use std::time::Duration;

use anyhow::{Result, ensure};
use sennit_model::{Durability, limits::CREDIT_BYTES_MAX};
use serde::Serialize;

use crate::{
    broker::Broker,
    child::Worker,
    clock::now_ns,
    latency::Latencies,
    merge::MergedReports,
    options::Options,
    plan::{Consume, Echo, FairKeys, Produce, Report, Role, Window, WorkerCommand},
    row::Row,
    run_topic::{RunTopic, RunTopicConfig, TopicFields},
    sequence_check::compare,
    stamp::STAMP_BYTES,
    usage::{Usage, UsageWatch},
};

/// The time between the start command and the start, in nanoseconds: every worker is awake by then.
pub(crate) const START_DELAY_NS: u64 = 200_000_000;

/// The time that a parent waits for one worker before it checks the next.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The parameters of a load.
#[derive(Clone, Debug, Serialize)]
pub struct Load {
    /// The number of producers, each with a connection.
    pub producers: u32,
    /// The number of processes that share the producers.
    pub producer_processes: u32,
    /// The number of consumers, each with a connection.
    pub consumers: u32,
    /// The number of processes that share the consumers.
    pub consumer_processes: u32,
    /// The length of a payload with its stamp, in bytes.
    pub size: usize,
    /// Messages of a batch; with `None` the client chooses.
    pub batch: Option<u32>,
    /// The greatest number of unconfirmed messages of each producer.
    pub window: usize,
    /// The credit of each consumer in messages.
    pub credit: u32,
    /// Messages per second, on a schedule; `None` for as many as possible.
    pub rate: Option<f64>,
    /// Messages of each producer; `None` for as many as the time allows.
    pub messages: Option<u64>,
    /// Seconds before the window.
    pub warmup_s: f64,
    /// Seconds of the window, if `messages` is `None`.
    pub duration_s: f64,
    /// Seconds within which consumers finish after the last confirm.
    pub drain_s: f64,
    /// Messages of each producer that are published before consumers start. Consumers take only those.
    pub preload: Option<u64>,
    /// Partitions of the topic.
    pub partitions: u32,
    /// Bytes that each partition keeps of a stream without groups; `None` for a queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retain_bytes: Option<u64>,
    /// The fair keys of messages; `None` where messages have no headers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<FairKeys>,
    /// The headers that the topic names; `None` for delivery by offset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fields: Option<TopicFields>,
    /// The script of the topic's hook.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// The durability of the topic, which the row reports.
    #[serde(skip)]
    pub durability: Durability,
}

impl Load {
    /// One producer and one consumer at full speed, for ten seconds.
    #[must_use]
    pub fn new() -> Self {
        Self {
            producers: 1,
            producer_processes: 1,
            consumers: 1,
            consumer_processes: 1,
            size: 1024,
            batch: None,
            window: 8192,
            credit: 16_384,
            rate: None,
            messages: None,
            warmup_s: 0.0,
            duration_s: 10.0,
            drain_s: 10.0,
            preload: None,
            partitions: 1,
            retain_bytes: None,
            keys: None,
            fields: None,
            script: None,
            durability: Durability::Durable,
        }
    }
}

impl Default for Load {
    fn default() -> Self {
        Self::new()
    }
}

/// The context of a run.
#[derive(Clone)]
pub struct Bench<'a> {
    /// The options of the run.
    pub options: &'a Options,
    /// The broker.
    pub broker: &'a Broker,
    /// The topic to use instead of a fresh one.
    pub topic: Option<String>,
    /// The workload's name.
    pub workload: &'static str,
    /// A callback for progress: the name of the step, and the number of finished and of all messages.
    pub progress: &'a dyn Fn(&str, u64, Option<u64>),
}

/// The share of part `index` of `parts` of `all`: its start and its length.
pub(crate) fn share(all: u32, parts: u32, index: u32) -> (u32, u32) {
    let at = |index: u32| (u64::from(all) * u64::from(index) / u64::from(parts)) as u32;
    (at(index), at(index + 1) - at(index))
}

impl Bench<'_> {
    pub(crate) fn run_topic(&self, load: &Load) -> Result<RunTopic> {
        RunTopic::prepare(RunTopicConfig {
            server: &self.broker.server,
            name: self.topic.as_deref(),
            workload: self.workload,
            partitions: load.partitions,
            retain_bytes: load.retain_bytes,
            durability: load.durability,
            fields: load.fields.as_ref(),
            script: load.script.as_deref(),
            keys: load.keys.as_ref(),
        })
    }

    pub(crate) fn start_producers(&self, run_topic: &RunTopic, load: &Load) -> Result<Vec<Worker>> {
        let processes = load.producer_processes.clamp(1, load.producers);
        (0..processes)
            .map(|process| {
                let (first, count) = share(load.producers, processes, process);
                let part = f64::from(count) / f64::from(load.producers);
                let role = Role::Produce(Produce {
                    first,
                    count,
                    batch: load.batch,
                    window: load.window,
                    rate: load.rate.map(|rate| rate * part),
                    messages: load.preload.or(load.messages),
                    is_json: false,
                });
                Worker::start(&run_topic.plan(load.size, role))
            })
            .collect()
    }

    pub(crate) fn start_consumers(&self, run_topic: &RunTopic, load: &Load) -> Result<Vec<Worker>> {
        if load.consumers == 0 {
            return Ok(Vec::new());
        }
        let processes = load.consumer_processes.clamp(1, load.consumers);
        (0..processes)
            .map(|process| {
                let (first, count) = share(load.consumers, processes, process);
                let role = Role::Consume(Consume {
                    first,
                    count,
                    credit_messages: load.credit,
                    credit_bytes: CREDIT_BYTES_MAX.min(64 << 20),
                });
                Worker::start(&run_topic.plan(load.size, role))
            })
            .collect()
    }

    /// Runs `load`. Returns its row with the name `row`.
    ///
    /// # Errors
    /// The broker cannot be reached or a worker fails. The row has the errors of messages.
    pub fn run(&self, row: &str, load: &Load) -> Result<Row> {
        Ok(self.measure(row, load)?.0)
    }

    /// As [`Self::run`], with the broker's usage in the window.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn measure(&self, row: &str, load: &Load) -> Result<(Row, Usage)> {
        ensure!(load.size >= STAMP_BYTES, "a payload has at least {STAMP_BYTES} bytes");
        ensure!(load.producers > 0, "somebody has to publish");
        let run_topic = self.run_topic(load)?;
        let mut measured = RunResults::default();
        let mut producers = self.start_producers(&run_topic, load)?;
        if load.preload.is_some() {
            measured.preload(self, &mut producers, load)?;
            producers.clear();
        }
        let mut consumers = self.start_consumers(&run_topic, load)?;
        let window = window_of(load, now_ns());
        let watch = UsageWatch::begin(self.broker.pid, &self.broker.http, window);
        send_all(&mut consumers, WorkerCommand::Start(window))?;
        send_all(&mut producers, WorkerCommand::Start(window))?;
        let offered = load.rate.map(|rate| rate * (load.warmup_s + load.duration_s));
        let each = load.messages.map(|each| each * u64::from(load.producers));
        let total = each.or(offered.map(|offered| offered as u64));
        for report in self.reports(&mut producers, row, total)? {
            measured.add(report);
        }
        let expect = measured.confirmed_in_all();
        let drain_ns = (load.drain_s * 1e9) as u64;
        let finish = WorkerCommand::Finish { expect, deadline_ns: now_ns() + drain_ns };
        send_all(&mut consumers, finish)?;
        for report in self.reports(&mut consumers, row, Some(expect))? {
            measured.add(report);
        }
        let usage = watch.end();
        let mut result = measured.row(load, window);
        result.set_usage(usage);
        if load.consumers > 0 && result.is_clean() {
            let unsettled = run_topic.unsettled()?;
            if unsettled > 0 {
                result.errors += unsettled;
                result.error_texts.push(format!("{unsettled} acked messages were not settled"));
            }
        }
        self.name(&mut result, row);
        result.config = serde_json::to_value(load)?;
        Ok((result, usage))
    }

    /// Runs a client that publishes, takes and acks one message at a time. Returns its row with the name `row`.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn run_rounds(&self, row: &str, size: usize, echo: &Echo) -> Result<Row> {
        ensure!(size >= STAMP_BYTES, "a payload has at least {STAMP_BYTES} bytes");
        let load = Load { size, ..Load::new() };
        let run_topic = self.run_topic(&load)?;
        let plan = run_topic.plan(load.size, Role::Echo(echo.clone()));
        let mut workers = vec![Worker::start(&plan)?];
        let start_ns = now_ns() + START_DELAY_NS;
        let window = Window { start_ns, from_ns: start_ns, until_ns: u64::MAX };
        let watch = UsageWatch::begin(self.broker.pid, &self.broker.http, window);
        send_all(&mut workers, WorkerCommand::Start(window))?;
        let mut measured = RunResults::default();
        for report in self.reports(&mut workers, row, Some(echo.warmup + echo.messages))? {
            measured.add(report);
        }
        let usage = watch.end();
        let mut result = measured.row(&load, window);
        // Rounds run one after the other: only the deliveries and confirms per second are figures.
        (result.published_per_s, result.acked_per_s) = (None, None);
        result.set_usage(usage);
        self.name(&mut result, row);
        result.config = serde_json::json!({ "size": size, "echo": echo });
        Ok(result)
    }

    /// Sets the names in a row.
    pub fn name(&self, result: &mut Row, row: &str) {
        result.workload = self.workload.into();
        result.target = "sennit".into();
        result.durability = "durable".into();
        result.row = row.into();
    }

    /// Waits until all workers have reported.
    pub(crate) fn reports(
        &self,
        workers: &mut [Worker],
        what: &str,
        total: Option<u64>,
    ) -> Result<Vec<Report>> {
        let mut done: Vec<Option<Report>> = workers.iter().map(|_| None).collect();
        let mut counts = vec![0; workers.len()];
        while done.iter().any(Option::is_none) {
            for (index, worker) in workers.iter_mut().enumerate() {
                if done[index].is_none() {
                    done[index] = worker.report(LOOK_EVERY, &mut |count| counts[index] = count)?;
                }
            }
            (self.progress)(what, counts.iter().sum(), total);
        }
        Ok(done.into_iter().flatten().collect())
    }
}

/// Sends a command to all workers.
pub(crate) fn send_all(workers: &mut [Worker], command: WorkerCommand) -> Result<()> {
    workers.iter_mut().try_for_each(|worker| worker.send(command))
}

/// The window of a run of `load` whose start command is sent at `now_ns`.
pub(crate) fn window_of(load: &Load, now_ns: u64) -> Window {
    // Consumers of preloaded messages start immediately.
    let delay_ns = if load.preload.is_some() { 0 } else { START_DELAY_NS };
    let start_ns = now_ns + delay_ns;
    if load.messages.or(load.preload).is_some() {
        return Window { start_ns, from_ns: 0, until_ns: u64::MAX };
    }
    let from_ns = start_ns + (load.warmup_s * 1e9) as u64;
    Window { start_ns, from_ns, until_ns: from_ns + (load.duration_s * 1e9) as u64 }
}

/// The sum of the reports of a run's workers.
#[derive(Default)]
pub(crate) struct RunResults {
    merged: MergedReports,
    /// The producer, its published and its confirmed messages.
    pub(crate) sent: Vec<(u32, u64, u64)>,
}

impl RunResults {
    /// Results of consumers, for messages that producers have sent before.
    pub(crate) fn of_sent(sent: Vec<(u32, u64, u64)>) -> Self {
        Self { merged: MergedReports::default(), sent }
    }

    pub(crate) fn add(&mut self, report: Report) {
        self.sent.extend(report.sent.iter().copied());
        self.merged.add(report);
    }

    /// Runs `producers` before the measurement. Their reports count only for message errors and other errors.
    pub(crate) fn preload(
        &mut self,
        bench: &Bench<'_>,
        producers: &mut [Worker],
        load: &Load,
    ) -> Result<()> {
        let unmeasured = Window { start_ns: now_ns(), from_ns: 0, until_ns: u64::MAX };
        send_all(producers, WorkerCommand::Start(unmeasured))?;
        let total = load.preload.map(|each| each * u64::from(load.producers));
        for report in bench.reports(producers, "preload", total)? {
            self.sent.extend(report.sent.iter().copied());
            self.merged.add(Report { errors: report.errors, ..Report::default() });
        }
        Ok(())
    }

    pub(crate) fn confirmed_in_all(&self) -> u64 {
        self.sent.iter().map(|(_, _, confirmed)| confirmed).sum()
    }

    pub(crate) fn row(self, load: &Load, window: Window) -> Row {
        let message_errors = match load.consumers {
            0 => crate::sequence_check::MessageErrors::default(),
            _ => compare(&self.sent, self.merged.received()),
        };
        let report = self.merged.report();
        let seconds = match (window.until_ns, report.span_ns) {
            (u64::MAX, Some((_, last))) => last.saturating_sub(window.start_ns) as f64 / 1e9,
            (u64::MAX, None) => 0.0,
            _ => (window.until_ns - window.from_ns) as f64 / 1e9,
        };
        let rate = |count: u64| (count > 0).then(|| count as f64 / seconds.max(1e-9));
        let percentiles = |buckets| {
            let mut latencies = Latencies::new();
            latencies.add(buckets);
            latencies.percentiles()
        };
        let unconfirmed: u64 =
            self.sent.iter().map(|(_, published, confirmed)| published - confirmed).sum();
        Row {
            offered_per_s: load.rate,
            published_per_s: rate(report.published),
            confirmed_per_s: rate(report.confirmed),
            delivered_per_s: rate(report.delivered),
            acked_per_s: rate(report.acked),
            message_errors,
            errors: unconfirmed.max(report.errors.len() as u64),
            error_texts: report.errors,
            publish_to_confirm_us: percentiles(&report.publish_to_confirm),
            publish_to_deliver_us: match load.preload {
                // The latency of a backlog would be the time since its publish.
                Some(_) => None,
                None => percentiles(&report.publish_to_deliver),
            },
            publish_to_settle_us: percentiles(&report.publish_to_settle),
            seconds,
            ..Row::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_whole_are_whole() {
        for (all, parts) in [(10, 1), (10, 3), (3, 3), (7, 2)] {
            let shares: Vec<_> = (0..parts).map(|index| share(all, parts, index)).collect();
            assert_eq!(shares.iter().map(|(_, count)| count).sum::<u32>(), all);
            for pair in shares.windows(2) {
                assert_eq!(pair[0].0 + pair[0].1, pair[1].0);
            }
        }
    }

    #[test]
    fn what_lies_there_is_taken_within_the_time_that_counts() {
        let preload = Load { preload: Some(10), ..Load::new() };
        assert_eq!(window_of(&preload, 1000).start_ns, 1000);
        assert!(window_of(&Load::new(), 1000).start_ns > 1000, "producers begin together");
    }

    #[test]
    fn rates_are_of_the_window_and_what_was_unconfirmed_is_an_error() {
        let window = Window { start_ns: 0, from_ns: 0, until_ns: 2_000_000_000 };
        let mut measured = RunResults::default();
        measured.add(Report { confirmed: 100, sent: vec![(0, 103, 100)], ..Report::default() });
        let row = measured.row(&Load { consumers: 0, ..Load::new() }, window);
        assert_eq!(row.confirmed_per_s, Some(50.0));
        assert_eq!((row.errors, row.message_errors.missing), (3, 0));
        assert_eq!(row.delivered_per_s, None);
    }
}
