//! The brokers of a row: one for all; with a Redis between them one to which producers publish and one at which clients
//! are subscribed, so that every delivery crosses the Redis; or the nodes of a cluster, of which the same is true of two.

use anyhow::Result;

use super::redis::{Redis, RedisChoice, check_options};
use crate::{
    broker::Broker,
    load::{Bench, Load},
    nodes::Nodes,
    options::Options,
    run_topic::RunTopic,
};

/// The topic on a broker of the row's own: the channel is part of each frame.
const TOPIC: &str = "bench.live";

/// The brokers of a row.
pub struct RowBrokers {
    /// The one at which clients are subscribed, if it is the row's own.
    subscribed: Option<Broker>,
    /// The broker and the Redis before it, in a row with a Redis.
    before: Option<BeforeRedis>,
    /// The nodes of a cluster, in a row with some. Producers publish to the first, clients are subscribed at the second.
    nodes: Option<Nodes>,
}

/// The broker to which producers publish, and the Redis behind it.
pub struct BeforeRedis {
    /// The broker.
    pub broker: Broker,
    /// The Redis.
    pub redis: Redis,
}

/// The topic of a row, at each of its brokers.
pub struct RowTopic {
    /// Where producers publish.
    pub published: RunTopic,
    _subscribed: Option<RunTopic>,
}

impl RowBrokers {
    /// Starts what the options and the choice of a Redis say, with room for so many connections.
    ///
    /// # Errors
    /// A broker or the Redis does not start, or the options do not go together.
    pub fn start(
        bench: &Bench<'_>,
        connections: u64,
        choice: Option<&RedisChoice>,
        nodes: Option<usize>,
    ) -> Result<Self> {
        if let Some(count) = nodes {
            let flags = with_room(connections);
            let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
            let nodes = Nodes::start(bench.options, count, &flags)?;
            return Ok(Self { subscribed: None, before: None, nodes: Some(nodes) });
        }
        let Some(choice) = choice else {
            let subscribed = own_broker(bench, connections)?;
            return Ok(Self { subscribed, before: None, nodes: None });
        };
        check_options(bench.options)?;
        let redis = Redis::of(choice)?;
        let shares = ["--live-redis", &redis.url];
        let subscribed = start(bench.options, connections, &shares)?;
        // Each has a folder.
        let data = bench.options.data.as_ref().map(|data| data.join("publisher"));
        let options = Options { data, ..bench.options.clone() };
        let broker = Broker::start(&options, &shares)?;
        let before = Some(BeforeRedis { broker, redis });
        Ok(Self { subscribed: Some(subscribed), before, nodes: None })
    }

    /// The broker at which clients are subscribed.
    pub fn subscribed<'b>(&'b self, bench: &Bench<'b>) -> &'b Broker {
        let node = self.nodes.as_ref().map(|nodes| nodes.node(1));
        self.subscribed.as_ref().or(node).unwrap_or(bench.broker)
    }

    /// The broker to which producers publish.
    pub fn published<'b>(&'b self, bench: &Bench<'b>) -> &'b Broker {
        if let Some(nodes) = &self.nodes {
            return nodes.node(0);
        }
        self.before.as_ref().map_or_else(|| self.subscribed(bench), |before| &before.broker)
    }

    /// The broker and the Redis before the broker of subscribers, in a row with a Redis.
    pub fn before(&self) -> Option<&BeforeRedis> {
        self.before.as_ref()
    }

    /// Creates the topic, at both if there are two.
    ///
    /// # Errors
    /// A broker cannot be reached.
    pub fn topic(&self, bench: &Bench<'_>, load: &Load) -> Result<RowTopic> {
        let is_shared = self.before.as_ref().is_some_and(|before| before.redis.pid.is_none());
        let topic = match (&bench.topic, &self.subscribed) {
            (Some(named), _) => Some(named.clone()),
            (None, None) if self.nodes.is_some() => Some(TOPIC.to_owned()),
            (None, None) => None,
            // Others may use that Redis.
            (None, Some(_)) if is_shared => Some(format!("{TOPIC}.{}", std::process::id())),
            (None, Some(_)) => Some(TOPIC.to_owned()),
        };
        let at = |broker| Bench { broker, topic: topic.clone(), ..bench.clone() }.run_topic(load);
        let published = at(self.published(bench))?;
        let subscribed = self.before.as_ref().map(|_| at(self.subscribed(bench))).transpose()?;
        Ok(RowTopic { published, _subscribed: subscribed })
    }
}

/// A broker for this row with room for so many connections, if the options say that there is one.
pub fn own_broker(bench: &Bench<'_>, connections: u64) -> Result<Option<Broker>> {
    bench.options.serve.then(|| start(bench.options, connections, &[])).transpose()
}

fn start(options: &Options, connections: u64, more: &[&str]) -> Result<Broker> {
    let flags = with_room(connections);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    Broker::start(options, &[&flags, more].concat())
}

/// The flags of a broker with room for so many connections.
fn with_room(connections: u64) -> Vec<String> {
    let places = ["--http-connections", "--http-connections-per-address", "--live-connections"];
    let flags = places.map(|flag| [flag.to_owned(), connections.to_string()]);
    flags.into_iter().flatten().collect()
}
