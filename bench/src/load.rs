//! One run of load: a topic, worker processes, a period of time, and the resulting row.

use std::time::Duration;

use anyhow::{Result, ensure};
use sennit_model::{Durability, limits::CREDIT_BYTES_MAX};
use serde::Serialize;

use crate::{
    broker::Broker,
    child::Worker,
    clock::now_ns,
    identity::judge,
    latency::Latencies,
    merge::Merged,
    options::Options,
    plan::{Consume, Echo, Order, Produce, Report, Role, Window},
    row::Row,
    run_topic::{RunTopic, Wanted},
    stamp::STAMP_BYTES,
    usage::{Usage, Watch},
};

/// Between the order to start and the start: every worker is awake by then.
const START_DELAY_NS: u64 = 200_000_000;

/// How often a parent looks from one worker to the next.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What a run of load is.
#[derive(Clone, Debug, Serialize)]
pub struct Load {
    /// Producers, each with a connection.
    pub producers: u32,
    /// Processes that they are spread over.
    pub producer_processes: u32,
    /// Consumers, each with a connection.
    pub consumers: u32,
    /// Processes that they are spread over.
    pub consumer_processes: u32,
    /// Bytes of a payload, its stamp included.
    pub size: usize,
    /// Messages of a batch; `None` where the client gathers by itself.
    pub batch: Option<u32>,
    /// Messages that each producer may have unconfirmed.
    pub window: usize,
    /// Messages that each consumer may hold.
    pub credit: u32,
    /// Messages per second, on a schedule; `None` for as many as go.
    pub rate: Option<f64>,
    /// Messages of each producer; `None` for as many as the time allows.
    pub messages: Option<u64>,
    /// Seconds before the window.
    pub warmup_s: f64,
    /// Seconds of the window, if there is no number of messages.
    pub duration_s: f64,
    /// Seconds that consumers may take after the last confirm.
    pub drain_s: f64,
    /// Messages per producer that are published before consumers begin; then only those are taken.
    pub preload: Option<u64>,
    /// Partitions of the topic.
    pub partitions: u32,
    /// Bytes that each partition keeps of a stream without groups; `None` for a queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retain_bytes: Option<u64>,
    /// That of the topic; a row says it.
    #[serde(skip)]
    pub durability: Durability,
}

impl Load {
    /// One of everything, as fast as it goes, for ten seconds.
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
            durability: Durability::Durable,
        }
    }
}

impl Default for Load {
    fn default() -> Self {
        Self::new()
    }
}

/// What a run needs besides its load.
#[derive(Clone)]
pub struct Bench<'a> {
    /// What the run was told.
    pub options: &'a Options,
    /// The broker.
    pub broker: &'a Broker,
    /// The topic to use instead of a fresh one.
    pub topic: Option<String>,
    /// The workload's name.
    pub workload: &'static str,
    /// Told what is going on, and the messages of how many there are to be.
    pub progress: &'a dyn Fn(&str, u64, Option<u64>),
}

/// The share of part `index` of `parts` of `all`: where it begins and how many.
pub(crate) fn share(all: u32, parts: u32, index: u32) -> (u32, u32) {
    let at = |index: u32| (u64::from(all) * u64::from(index) / u64::from(parts)) as u32;
    (at(index), at(index + 1) - at(index))
}

impl Bench<'_> {
    pub(crate) fn run_topic(&self, load: &Load) -> Result<RunTopic> {
        RunTopic::prepare(Wanted {
            server: &self.broker.server,
            name: self.topic.as_deref(),
            workload: self.workload,
            partitions: load.partitions,
            retain_bytes: load.retain_bytes,
            durability: load.durability,
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
                });
                Worker::start(&run_topic.plan(load.size, role))
            })
            .collect()
    }

    fn start_consumers(&self, run_topic: &RunTopic, load: &Load) -> Result<Vec<Worker>> {
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

    /// Runs `load` and says what came of it, under the name `row`.
    ///
    /// # Errors
    /// The broker cannot be reached or a worker cannot work. What goes wrong with messages is in
    /// the row.
    pub fn run(&self, row: &str, load: &Load) -> Result<Row> {
        Ok(self.measure(row, load)?.0)
    }

    /// As [`Self::run`], with all that the broker used in the window.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn measure(&self, row: &str, load: &Load) -> Result<(Row, Usage)> {
        ensure!(load.size >= STAMP_BYTES, "a payload has at least {STAMP_BYTES} bytes");
        ensure!(load.producers > 0, "somebody has to publish");
        let run_topic = self.run_topic(load)?;
        let mut measured = Measured::default();
        let mut producers = self.start_producers(&run_topic, load)?;
        if load.preload.is_some() {
            measured.preload(self, &mut producers, load)?;
            producers.clear();
        }
        let mut consumers = self.start_consumers(&run_topic, load)?;
        let window = window_of(load, now_ns());
        let watch = Watch::begin(self.broker.pid, &self.broker.http, window);
        order_all(&mut consumers, Order::Start(window))?;
        order_all(&mut producers, Order::Start(window))?;
        let offered = load.rate.map(|rate| rate * (load.warmup_s + load.duration_s));
        let each = load.messages.map(|each| each * u64::from(load.producers));
        let total = each.or(offered.map(|offered| offered as u64));
        for report in self.reports(&mut producers, row, total)? {
            measured.add(report);
        }
        let expect = measured.confirmed_in_all();
        let drain_ns = (load.drain_s * 1e9) as u64;
        let finish = Order::Finish { expect, deadline_ns: now_ns() + drain_ns };
        order_all(&mut consumers, finish)?;
        for report in self.reports(&mut consumers, row, Some(expect))? {
            measured.add(report);
        }
        let usage = watch.end();
        let mut made = measured.row(load, window);
        made.set_usage(usage);
        if load.consumers > 0 && made.is_clean() {
            let unsettled = run_topic.unsettled()?;
            if unsettled > 0 {
                made.errors += unsettled;
                made.error_texts.push(format!("{unsettled} acked messages were not settled"));
            }
        }
        self.name(&mut made, row);
        made.config = serde_json::to_value(load)?;
        Ok((made, usage))
    }

    /// Runs a client that goes round, under the name `row`.
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
        let watch = Watch::begin(self.broker.pid, &self.broker.http, window);
        order_all(&mut workers, Order::Start(window))?;
        let mut measured = Measured::default();
        for report in self.reports(&mut workers, row, Some(echo.warmup + echo.messages))? {
            measured.add(report);
        }
        let usage = watch.end();
        let mut made = measured.row(&load, window);
        // One after the other: the rounds a second are the figure, not four rates.
        (made.published_per_s, made.acked_per_s) = (None, None);
        made.set_usage(usage);
        self.name(&mut made, row);
        made.config = serde_json::json!({ "size": size, "echo": echo });
        Ok(made)
    }

    /// Says in a row what it is of.
    pub fn name(&self, made: &mut Row, row: &str) {
        made.workload = self.workload.into();
        made.target = "sennit".into();
        made.durability = "durable".into();
        made.row = row.into();
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

/// Gives all of them an order.
pub(crate) fn order_all(workers: &mut [Worker], order: Order) -> Result<()> {
    workers.iter_mut().try_for_each(|worker| worker.order(order))
}

/// When a run of `load` that is ordered at `now_ns` is what.
pub(crate) fn window_of(load: &Load, now_ns: u64) -> Window {
    // What lies there already is taken from the moment that somebody is told to.
    let delay_ns = if load.preload.is_some() { 0 } else { START_DELAY_NS };
    let start_ns = now_ns + delay_ns;
    if load.messages.or(load.preload).is_some() {
        return Window { start_ns, from_ns: 0, until_ns: u64::MAX };
    }
    let from_ns = start_ns + (load.warmup_s * 1e9) as u64;
    Window { start_ns, from_ns, until_ns: from_ns + (load.duration_s * 1e9) as u64 }
}

/// What the workers of a run have told.
#[derive(Default)]
pub(crate) struct Measured {
    merged: Merged,
    /// For each producer what it published and had confirmed.
    pub(crate) sent: Vec<(u32, u64, u64)>,
}

impl Measured {
    pub(crate) fn add(&mut self, report: Report) {
        self.sent.extend(report.sent.iter().copied());
        self.merged.add(report);
    }

    /// Has `producers` publish before the run. What they say counts for identity and errors only.
    pub(crate) fn preload(
        &mut self,
        bench: &Bench<'_>,
        producers: &mut [Worker],
        load: &Load,
    ) -> Result<()> {
        let unmeasured = Window { start_ns: now_ns(), from_ns: 0, until_ns: u64::MAX };
        order_all(producers, Order::Start(unmeasured))?;
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
        let verdict = match load.consumers {
            0 => crate::identity::Verdict::default(),
            _ => judge(&self.sent, self.merged.sightings()),
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
            verdict,
            errors: unconfirmed.max(report.errors.len() as u64),
            error_texts: report.errors,
            publish_to_confirm_us: percentiles(&report.publish_to_confirm),
            publish_to_deliver_us: match load.preload {
                // It would say how long the backlog lay there.
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
        let mut measured = Measured::default();
        measured.add(Report { confirmed: 100, sent: vec![(0, 103, 100)], ..Report::default() });
        let row = measured.row(&Load { consumers: 0, ..Load::new() }, window);
        assert_eq!(row.confirmed_per_s, Some(50.0));
        assert_eq!((row.errors, row.verdict.missing), (3, 0));
        assert_eq!(row.delivered_per_s, None);
    }
}
