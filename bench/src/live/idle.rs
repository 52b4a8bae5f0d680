//! Live connections on which nothing happens: what each costs.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde::Serialize;

use super::brokers::own_broker;
use crate::{
    child::Worker,
    children::pause,
    clock::now_ns,
    load::{Bench, Load},
    parked::{kernel_bytes, make_room, settled_rss},
    parked_reader_results::ParkedReaderResults,
    plan::{LiveEncoding, Role, Subscribe},
    row::Row,
    usage::{cpu_s, metric},
};

/// Time within which the broker counts all connections.
const COUNTED_WITHIN: Duration = Duration::from_secs(30);

/// Live connections that wait.
#[derive(Clone, Debug, Serialize)]
pub struct IdleConnections {
    /// The number of connections.
    pub connections: u32,
    /// Whether each is subscribed to one topic, the same for all.
    pub is_subscribed: bool,
    /// The encoding that they speak.
    pub encoding: LiveEncoding,
    /// Seconds in which nothing happens.
    pub idle_s: f64,
}

impl IdleConnections {
    /// Measures one row.
    ///
    /// # Errors
    /// There are not enough descriptors, or the broker does not serve all connections.
    pub fn run(&self, bench: &Bench<'_>, row: &str) -> Result<Row> {
        let needed = make_room(self.connections.into())?;
        let own = own_broker(bench, needed)?;
        let broker = own.as_ref().unwrap_or(bench.broker);
        let here = Bench { broker, ..bench.clone() };
        let load = Load { retain_bytes: Some(1 << 30), ..Load::new() };
        let run_topic = here.run_topic(&load)?;
        let role = |connections| {
            Role::Subscribe(Subscribe {
                http: broker.http.clone(),
                subscribers: connections,
                stalled: 0,
                threads: 1,
                encoding: self.encoding,
                is_subscribed: self.is_subscribed,
                produce: None,
                lag: None,
                resubscribes: false,
                checks_sequences: false,
                drain_s: 0.0,
            })
        };
        // Whatever the door needs for itself is there before the measurement.
        drop(Worker::start(&run_topic.plan(load.size, role(1)))?);
        let (rss_before, kernel_before) = (settled_rss(broker.pid), kernel_bytes()?);
        (here.progress)("connect", 0, None);
        let worker = Worker::start(&run_topic.plan(load.size, role(self.connections)))?;
        let counted = self.until_counted(&broker.http)?;
        let (rss, kernel) = (settled_rss(broker.pid), kernel_bytes()?);
        let cpu_before = broker.pid.and_then(cpu_s);
        pause(Duration::from_secs_f64(self.idle_s))?;
        let cpu = cpu_before.zip(broker.pid.and_then(cpu_s)).map(|(before, after)| after - before);
        let all_stay = counted.is_none_or(|counted| {
            metric(&broker.http, "sennit_live_connections").is_some_and(|now| now >= counted)
        });
        ensure!(all_stay, "the broker has closed connections");
        drop(worker);
        let each =
            |before: u64, after: u64| after.saturating_sub(before) / u64::from(self.connections);
        let mut result = Row {
            seconds: self.idle_s,
            config: serde_json::to_value(self)?,
            waited: Some(ParkedReaderResults {
                parked: self.connections,
                counted,
                rss_each_bytes: rss_before.zip(rss).map(|(before, after)| each(before, after)),
                kernel_each_bytes: each(kernel_before, kernel),
                idle_cpu: cpu.map(|cpu| cpu / self.idle_s),
                append_to_last_us: None,
            }),
            ..Row::default()
        };
        bench.name(&mut result, row);
        Ok(result)
    }

    /// Waits until the broker counts all connections. Returns the number, if the broker counts them.
    fn until_counted(&self, http: &str) -> Result<Option<u64>> {
        let until_ns = now_ns() + COUNTED_WITHIN.as_nanos() as u64;
        loop {
            let Some(counted) = metric(http, "sennit_live_connections") else { return Ok(None) };
            if counted >= u64::from(self.connections) {
                return Ok(Some(counted));
            }
            ensure!(now_ns() < until_ns, "{counted} of {} are connected", self.connections);
            pause(Duration::from_millis(100))?;
        }
    }
}
