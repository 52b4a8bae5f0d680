//! Measures a live fan-out: producers publish to a topic, and all subscribers get every message.

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use super::{
    bare::{self, Bare},
    bare_redis::RedisWay,
    brokers::{BeforeRedis, RowBrokers},
    redis::RedisChoice,
};
use crate::{
    bare_fan_out_latency,
    broker::Broker,
    child::Worker,
    clock::now_ns,
    live_results::{LiveResults, RedisResults},
    load::{Bench, Load, RunResults, send_all, window_of},
    parked::make_room,
    plan::{LiveEncoding, Plan, Produce, Role, Subscribe, Window, WorkerCommand},
    row::{FanOutResults, Row},
    stalled_results::{LoadFigures, StalledResults, Turn},
    stamp::JSON_STAMP_BYTES,
    usage::UsageWatch,
};

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
    /// The greatest number of messages that producers without a rate are ahead of the slowest subscriber; `None` if they
    /// wait for no subscriber.
    pub lag: Option<u64>,
    /// The Redis by which the messages come from the broker to which producers publish to that of subscribers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis: Option<RedisChoice>,
    /// The number of nodes of the cluster by which they come from one node to another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<usize>,
    /// Of each hundred subscribers, so many more that take nothing, in turns with the load without them; 0 for none.
    pub stalled_percent: u32,
    /// The number of turns.
    pub turns: u32,
}

/// The costs of a row with a Redis, while they are measured.
struct RedisWatch<'r> {
    before: &'r BeforeRedis,
    broker: UsageWatch,
    redis: UsageWatch,
    /// Publications to the Redis before.
    published: u64,
}

impl<'r> RedisWatch<'r> {
    fn begin(before: &'r BeforeRedis, window: Window) -> Result<Self> {
        let BeforeRedis { broker, redis } = before;
        Ok(Self {
            before,
            broker: UsageWatch::begin(broker.pid, &broker.http, window),
            // A Redis has no metrics over HTTP.
            redis: UsageWatch::begin(redis.pid, "", window),
            published: redis.published()?,
        })
    }

    /// Ends the measurement, with so many messages published in all.
    fn end(self, messages: u64) -> Result<RedisResults> {
        let publications = self.before.redis.published()? - self.published;
        let (broker, redis) = (self.broker.end(), self.redis.end());
        let each = messages as f64 / publications as f64;
        Ok(RedisResults {
            publisher_cpu_s: broker.cpu_s,
            publisher_rss_peak_bytes: broker.rss_peak_bytes,
            redis_cpu_s: redis.cpu_s,
            redis_rss_peak_bytes: redis.rss_peak_bytes,
            messages_per_publication: (publications > 0).then_some(each),
        })
    }
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
        // The bare program has both ends.
        let ends = if bench.options.probe { 2 } else { 1 };
        let needed = make_room(u64::from(self.subscribers) * ends + u64::from(stalled))?;
        let brokers = RowBrokers::start(bench, needed, self.redis.as_ref(), self.nodes)?;
        let subscribed = brokers.subscribed(bench);
        let topic = brokers.topic(bench, &self.load)?;
        let role = Role::Subscribe(self.role(subscribed, stalled));
        let plan = topic.published.plan(size, role);
        (bench.progress)("connect", 0, None);
        let mut workers = vec![Worker::start(&plan)?];
        let window = window_of(&self.load, now_ns());
        let watch = UsageWatch::begin(subscribed.pid, &subscribed.http, window);
        let before = brokers.before().map(|before| RedisWatch::begin(before, window));
        let before = before.transpose()?;
        send_all(&mut workers, WorkerCommand::Start(window))?;
        let seconds = self.load.warmup_s + self.load.duration_s;
        let offered = rate.map(|rate| (rate * seconds) as u64 * u64::from(self.subscribers));
        let report = bench.reports(&mut workers, row, offered)?.pop();
        let report = report.context("a worker reports once")?;
        drop(workers);
        let usage = watch.end();
        let live = report.live.unwrap_or_default();
        let cpu_s = report.cpu_s;
        let mut measured = RunResults::default();
        measured.add(report);
        let published = measured.confirmed_in_all();
        let redis = before.map(|before| before.end(published)).transpose()?;
        let mut result = measured.row(&self.load, window);
        result.set_usage(usage);
        result.message_errors = live.message_errors;
        let delivered = result.delivered_per_s.unwrap_or_default();
        let each = live.bytes as f64 / live.messages.max(1) as f64;
        let read = live.messages as f64 / live.reads.max(1) as f64;
        let is_open = self.resubscribes();
        result.live = Some(LiveResults {
            delivered_bytes_per_s: delivered * each,
            messages_per_read: (live.reads > 0).then_some(read),
            told_missing: is_open.then_some(live.told_missing),
            gaps_told: is_open.then_some(live.gaps_told),
            redis,
        });
        let mut figures = FanOutResults {
            readers: self.subscribers,
            readers_cpu_s: cpu_s,
            ..FanOutResults::default()
        };
        if bench.options.probe {
            let batch = redis.and_then(|redis| redis.messages_per_publication).unwrap_or(read);
            let way = brokers.before().map(|before| &before.redis.address);
            self.probe((&plan, way), batch, delivered, &mut figures).context("the probe")?;
        }
        result.fan_out = Some(figures);
        bench.name(&mut result, row);
        result.durability = self.load.durability.to_string();
        result.config = serde_json::to_value(self)?;
        if bench.options.serve_tls || bench.options.tls_fingerprint.is_some() {
            result.config["tls"] = true.into();
        }
        Ok(result)
    }

    /// Measures the bare program beside a row: as many in a write as the broker had on average.
    fn probe(
        &self,
        (plan, redis): (&Plan, Option<&String>),
        batch: f64,
        delivered_per_s: f64,
        figures: &mut FanOutResults,
    ) -> Result<()> {
        let encoding = self.encoding.into();
        if let Some(rate) = self.load.rate {
            let length = bare::frame(encoding, &plan.topic, plan.size).len();
            let late = bare_fan_out_latency::measure(self.subscribers, self.threads, length, rate);
            figures.bare_deliver_us = late?.percentiles();
            return Ok(());
        }
        let batch = (batch.round() as u64).max(1);
        let ahead = self.lag.unwrap_or(u64::from(u16::MAX)) / batch;
        let bare = Bare {
            sockets: self.subscribers,
            threads: self.threads,
            batch,
            encoding,
            channel: plan.topic.clone(),
            size: plan.size,
            redis: redis.map(|address| RedisWay { address: address.clone(), ahead }),
        };
        let rates = bare.measure()?;
        figures.bare_per_s = Some(rates.thrown_away_per_s);
        figures.bare_checked_per_s = Some(rates.checked_per_s);
        figures.of_bare = Some(delivered_per_s / rates.thrown_away_per_s);
        figures.of_bare_checked = Some(delivered_per_s / rates.checked_per_s);
        Ok(())
    }

    /// Whether producers wait for no subscriber, so that some may miss messages.
    fn resubscribes(&self) -> bool {
        self.lag.is_none() && self.load.rate.is_none()
    }

    fn role(&self, subscribed: &Broker, stalled: u32) -> Subscribe {
        let load = &self.load;
        Subscribe {
            http: subscribed.http.clone(),
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
            lag: self.lag.filter(|_| load.rate.is_none()),
            resubscribes: self.resubscribes(),
            checks_sequences: (self.redis.is_some() || self.nodes.is_some()) && load.producers == 1,
            drain_s: load.drain_s,
        }
    }
}

fn figures(row: &Row) -> LoadFigures {
    LoadFigures {
        delivered_per_s: row.delivered_per_s.unwrap_or_default(),
        p99_us: row.publish_to_deliver_us.map(|late| late.p99 as f64),
        rss_peak_bytes: row.broker_rss_peak_bytes,
    }
}
