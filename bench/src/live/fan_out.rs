//! Measures a live fan-out: producers publish to a topic, and all subscribers get every message.

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use super::bare;
use crate::{
    bare_fan_out_latency,
    broker::Broker,
    child::Worker,
    clock::now_ns,
    load::{Bench, Load, RunResults, send_all, window_of},
    parked::make_room,
    plan::{LiveEncoding, Produce, Role, Subscribe, WorkerCommand},
    row::{FanOutResults, Row},
    stalled_results::{LoadFigures, StalledResults, Turn},
    stamp::JSON_STAMP_BYTES,
    usage::UsageWatch,
};

/// The topic on a broker of the row's own: the channel is part of each frame.
const TOPIC: &str = "bench.live";

/// A load with live subscribers.
#[derive(Clone, Debug, Serialize)]
pub struct LiveFanOut {
    /// The load. It has no consumers.
    pub load: Load,
    /// The number of subscribers, each with a connection.
    pub subscribers: u32,
    /// The number of threads that share the subscribers.
    pub threads: u32,
    /// The encoding that they speak.
    pub encoding: LiveEncoding,
    /// The greatest number of messages that producers without a rate are ahead of the slowest subscriber.
    pub lag: u64,
    /// Of each hundred subscribers, so many more that take nothing, in turns with the load without them; 0 for none.
    pub stalled_percent: u32,
    /// The number of turns.
    pub turns: u32,
}

impl LiveFanOut {
    /// Measures the row.
    ///
    /// # Errors
    /// There are not enough descriptors, the broker cannot be reached, or the worker fails.
    pub fn run(&self, bench: &Bench<'_>, row: &str) -> Result<Row> {
        if self.stalled_percent == 0 {
            return self.measure(bench, row, 0);
        }
        let stalled = (self.subscribers * self.stalled_percent).div_ceil(100);
        let (mut turns, mut rows) = (Vec::new(), Vec::new());
        for turn in 0..self.turns {
            // Every other turn in reverse order.
            let first = if turn % 2 == 0 { 0 } else { stalled };
            let one = self.measure(bench, row, first)?;
            let other = self.measure(bench, row, stalled - first)?;
            let (mut with, without) = if first == 0 { (other, one) } else { (one, other) };
            turns.push(Turn { with: figures(&with), without: figures(&without) });
            // Errors of either count.
            with.message_errors.add(&without.message_errors);
            with.errors += without.errors;
            with.error_texts.extend(without.error_texts);
            rows.push(with);
        }
        let results = StalledResults::of(stalled, &turns);
        Ok(Row { stalled: Some(results), ..Row::median(rows) })
    }

    /// Measures the load once, beside so many that take nothing.
    fn measure(&self, bench: &Bench<'_>, row: &str, stalled: u32) -> Result<Row> {
        let Load { size, rate, .. } = self.load;
        ensure!(size >= JSON_STAMP_BYTES, "a payload has at least {JSON_STAMP_BYTES} bytes");
        refuse_tls(bench)?;
        // The bare program has both ends.
        let ends = if bench.options.probe { 2 } else { 1 };
        let needed = make_room(u64::from(self.subscribers) * ends + u64::from(stalled))?;
        let own = own_broker(bench, needed)?;
        let broker = own.as_ref().unwrap_or(bench.broker);
        let topic = bench.topic.clone().or_else(|| own.is_some().then(|| TOPIC.to_owned()));
        let here = Bench { broker, topic, ..bench.clone() };
        let run_topic = here.run_topic(&self.load)?;
        let plan = run_topic.plan(size, Role::Subscribe(self.role(&broker.http, stalled)));
        let frame = bare::frame(self.encoding.into(), &plan.topic, size);
        let paced = rate.filter(|_| bench.options.probe);
        (here.progress)("connect", 0, None);
        let mut workers = vec![Worker::start(&plan)?];
        let window = window_of(&self.load, now_ns());
        let watch = UsageWatch::begin(broker.pid, &broker.http, window);
        send_all(&mut workers, WorkerCommand::Start(window))?;
        let seconds = self.load.warmup_s + self.load.duration_s;
        let offered = rate.map(|rate| (rate * seconds) as u64 * u64::from(self.subscribers));
        let report = here.reports(&mut workers, row, offered)?.pop();
        let report = report.context("a worker reports once")?;
        drop(workers);
        let usage = watch.end();
        let live = report.live.unwrap_or_default();
        let cpu_s = report.cpu_s;
        let mut measured = RunResults::default();
        measured.add(report);
        let mut result = measured.row(&self.load, window);
        result.set_usage(usage);
        result.message_errors = live.message_errors;
        let batch = live.messages as f64 / live.reads.max(1) as f64;
        let mut figures = FanOutResults {
            readers: self.subscribers,
            readers_cpu_s: cpu_s,
            messages_per_read: (live.reads > 0).then_some(batch),
            ..FanOutResults::default()
        };
        if let Some(rate) = paced {
            let late =
                bare_fan_out_latency::measure(self.subscribers, self.threads, frame.len(), rate);
            let mut bare_late = late.context("the probe")?;
            figures.bare_deliver_us = bare_late.percentiles();
        } else if bench.options.probe {
            let bare = bare::Bare {
                sockets: self.subscribers,
                threads: self.threads,
                // As many as a write of the broker had on average.
                batch: (batch.round() as u64).max(1),
                encoding: self.encoding.into(),
                channel: plan.topic.clone(),
                size,
            };
            let rates = bare.measure().context("the probe")?;
            let delivered = result.delivered_per_s.unwrap_or_default();
            figures.bare_per_s = Some(rates.thrown_away_per_s);
            figures.bare_checked_per_s = Some(rates.checked_per_s);
            figures.of_bare = Some(delivered / rates.thrown_away_per_s);
            figures.of_bare_checked = Some(delivered / rates.checked_per_s);
        }
        result.fan_out = Some(figures);
        bench.name(&mut result, row);
        result.durability = self.load.durability.to_string();
        result.config = serde_json::to_value(self)?;
        Ok(result)
    }

    fn role(&self, http: &str, stalled: u32) -> Subscribe {
        let load = &self.load;
        Subscribe {
            http: http.to_owned(),
            subscribers: self.subscribers,
            stalled,
            threads: self.threads,
            encoding: self.encoding,
            is_subscribed: true,
            produce: Some(Produce {
                first: 0,
                count: load.producers,
                batch: load.batch,
                window: load.window,
                rate: load.rate,
                messages: None,
                is_json: true,
            }),
            lag: load.rate.is_none().then_some(self.lag),
            drain_s: load.drain_s,
        }
    }
}

fn figures(row: &Row) -> LoadFigures {
    LoadFigures {
        delivered_per_s: row.delivered_per_s.unwrap_or_default(),
        p99_us: row.publish_to_deliver_us.map(|late| late.p99 as f64),
    }
}

/// Live connections of this harness are plain.
pub fn refuse_tls(bench: &Bench<'_>) -> Result<()> {
    let is_tls = bench.options.serve_tls || bench.options.tls_fingerprint.is_some();
    ensure!(!is_tls, "subscribers of this workload speak no TLS");
    Ok(())
}

/// A broker for this row with so many connections, if the options say that there is one.
pub fn own_broker(bench: &Bench<'_>, connections: u64) -> Result<Option<Broker>> {
    let connections = connections.to_string();
    let start = || {
        let places = ["--http-connections", "--http-connections-per-address", "--live-connections"];
        let flags = places.map(|flag| [flag, &connections]).concat();
        Broker::start(bench.options, &flags)
    };
    bench.options.serve.then(start).transpose()
}
