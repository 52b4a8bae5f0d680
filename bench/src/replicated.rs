//! Loads on a cluster: beside one node in turns, while its leader is killed, and while nothing happens.

use std::{
    cell::Cell,
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use sennit_client::{Message, TopicConfig, TopicKind};
use sennit_model::TopicName;
use serde_json::json;
use tokio::{
    task::LocalSet,
    time::{sleep, timeout},
};

use crate::{
    broker::Broker,
    children::{pause, unless_ended},
    comparison::Comparison,
    connect::builder,
    kill_results::KillResults,
    latency::Latencies,
    load::Bench,
    nodes::Nodes,
    row::Row,
};

/// One group: its leader is the first node, and one of the others takes its place when that is killed.
const FLAGS: [&str; 2] = ["--shards", "1"];

/// How long confirms go on before a leader is killed, and after the next ones have come.
const BESIDE_KILL: Duration = Duration::from_secs(2);

/// The time between two looks at the nodes.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Time within which confirms go on after a kill.
const GAP_MAX: Duration = Duration::from_secs(60);

/// A load on several nodes, beside the same on one, in turns.
#[derive(Clone, Debug)]
pub struct Replicated {
    /// The number of nodes.
    pub nodes: usize,
    /// The node to which clients connect: 0 is the leader.
    pub via: usize,
    /// The load, on both.
    pub comparison: Comparison,
}

/// Kills of the leader under a client that publishes through another node.
#[derive(Clone, Debug)]
pub struct LeaderKills {
    /// The number of nodes.
    pub nodes: usize,
    /// The number of kills.
    pub kills: u32,
    /// The length of a payload in bytes.
    pub size: usize,
}

/// Nodes on which nothing happens.
#[derive(Clone, Debug)]
pub struct IdleNodes {
    /// The number of nodes.
    pub nodes: usize,
    /// For how many seconds.
    pub seconds: f64,
}

impl Replicated {
    /// Measures both in turns.
    ///
    /// # Errors
    /// A node does not start, or a worker fails.
    pub fn run(&self, bench: &Bench<'_>, row: &str) -> Result<Row> {
        let one = Broker::start(bench.options, &FLAGS)?;
        let nodes = Nodes::start(bench.options, self.nodes, &FLAGS)?;
        // Its process is one of several: what it costs is not what they cost.
        let mut via = nodes.node(self.via).reached();
        via.pid = None;
        let base = Bench { broker: &one, ..bench.clone() };
        let mut result =
            self.comparison.run_on(&base, &Bench { broker: &via, ..bench.clone() }, row)?;
        result.config["nodes"] = self.nodes.into();
        result.config["via"] = self.via.into();
        Ok(result)
    }
}

impl LeaderKills {
    /// Kills the leader again and again, and measures how long no confirm comes.
    ///
    /// # Errors
    /// A node does not start, or confirms do not go on.
    pub fn run(&self, bench: &Bench<'_>, row: &str) -> Result<Row> {
        let mut nodes = Nodes::start(bench.options, self.nodes, &FLAGS)?;
        // The last one is never killed.
        let server = nodes.node(self.nodes - 1).server.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let confirms = Rc::new(Confirms::default());
        let (mut gaps, begun) = (Latencies::new(), Instant::now());
        LocalSet::new().block_on(&runtime, async {
            let publishing = tokio::task::spawn_local(publish(server, self.size, confirms.clone()));
            for kill in 0..self.kills {
                (bench.progress)(row, kill.into(), Some(self.kills.into()));
                sleep(BESIDE_KILL).await;
                confirms.longest.set(Duration::ZERO);
                let before = confirms.count.get();
                nodes.kill(0)?;
                let go_on = async {
                    while confirms.longest.get().is_zero() || confirms.count.get() <= before + 1 {
                        sleep(Duration::from_millis(1)).await;
                    }
                    sleep(BESIDE_KILL).await;
                    Ok(())
                };
                let waited = timeout(GAP_MAX, unless_ended(go_on)).await;
                waited.context("no confirm came after a kill")??;
                let gap = confirms.longest.get();
                gaps.record(0, u64::try_from(gap.as_nanos()).unwrap_or(u64::MAX));
                nodes.start_again(0)?;
                // It leads again, without a kill.
                until_first_leads(&nodes).await?;
            }
            publishing.abort();
            anyhow::Ok(())
        })?;
        let seconds = begun.elapsed().as_secs_f64();
        let mut result = Row {
            confirmed_per_s: Some(confirms.count.get() as f64 / seconds),
            seconds,
            errors: confirms.errors.get(),
            error_texts: confirms.error_text.take().into_iter().collect(),
            kills: Some(KillResults {
                kills: self.kills,
                gap_us: gaps.percentiles(),
                outcomes_unknown: confirms.unknown.get(),
            }),
            config: json!({ "nodes": self.nodes, "kills": self.kills, "size": self.size }),
            ..Row::default()
        };
        bench.name(&mut result, row);
        Ok(result)
    }
}

async fn until_first_leads(nodes: &Nodes) -> Result<()> {
    // Publishing goes on meanwhile.
    while !nodes.first_leads() {
        let look_again = async {
            sleep(LOOK_EVERY).await;
            Ok(())
        };
        unless_ended(look_again).await?;
    }
    Ok(())
}

impl IdleNodes {
    /// Measures what the nodes cost.
    ///
    /// # Errors
    /// A node does not start.
    pub fn run(&self, bench: &Bench<'_>, row: &str) -> Result<Row> {
        let nodes = Nodes::start(bench.options, self.nodes, &FLAGS)?;
        pause(BESIDE_KILL)?;
        let before = nodes.cpu_s();
        pause(Duration::from_secs_f64(self.seconds))?;
        let used = before.zip(nodes.cpu_s()).map(|(before, after)| after - before);
        let mut result = Row {
            broker_cpu_s: used,
            broker_rss_peak_bytes: nodes.rss_bytes(),
            seconds: self.seconds,
            config: json!({ "nodes": self.nodes, "seconds": self.seconds }),
            ..Row::default()
        };
        bench.name(&mut result, row);
        Ok(result)
    }
}

/// The confirms of a client.
#[derive(Default)]
struct Confirms {
    count: Cell<u64>,
    last: Cell<Option<Instant>>,
    /// The longest time between two since this was set to zero.
    longest: Cell<Duration>,
    unknown: Cell<u64>,
    errors: Cell<u64>,
    error_text: Cell<Option<String>>,
}

impl Confirms {
    fn note(&self) {
        let now = Instant::now();
        if let Some(last) = self.last.replace(Some(now)) {
            self.longest.set(self.longest.get().max(now - last));
        }
        self.count.set(self.count.get() + 1);
    }

    fn fail(&self, error: &sennit_client::Error) {
        if matches!(error, sennit_client::Error::OutcomeUnknown) {
            return self.unknown.set(self.unknown.get() + 1);
        }
        self.errors.set(self.errors.get() + 1);
        self.error_text.set(Some(error.to_string()));
    }
}

/// Publishes one message after the other, as long as the task lives.
async fn publish(server: String, size: usize, confirms: Rc<Confirms>) -> Result<()> {
    let client = builder(&server).connect().await?;
    let topic: TopicName = "bench.kills".parse()?;
    client.create_topic(&topic, TopicConfig::of_kind(TopicKind::Stream)).await?;
    let publisher = client.publisher(&topic).open().await?;
    let payload = bytes::Bytes::from(vec![7; size]);
    loop {
        let confirmed = async { publisher.publish(Message::new(payload.clone())).await?.await };
        match confirmed.await {
            Ok(_) => confirms.note(),
            Err(error) => {
                confirms.fail(&error);
                sleep(Duration::from_millis(10)).await;
            }
        }
    }
}
