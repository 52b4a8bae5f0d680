//! The brokers of a row: one for all, or with a Redis between them one to which producers publish and one at which clients
//! are subscribed, so that every delivery crosses the Redis.

use anyhow::Result;

use super::redis::{Redis, RedisChoice, check_options};
use crate::{
    broker::Broker,
    load::{Bench, Load},
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
    ) -> Result<Self> {
        let Some(choice) = choice else {
            return Ok(Self { subscribed: own_broker(bench, connections)?, before: None });
        };
        check_options(bench.options)?;
        let redis = Redis::of(choice)?;
        let shares = ["--live-redis", &redis.url];
        let subscribed = start(bench.options, connections, &shares)?;
        // Each has a folder.
        let data = bench.options.data.as_ref().map(|data| data.join("publisher"));
        let options = Options { data, ..bench.options.clone() };
        let broker = Broker::start(&options, &shares)?;
        Ok(Self { subscribed: Some(subscribed), before: Some(BeforeRedis { broker, redis }) })
    }

    /// The broker at which clients are subscribed.
    pub fn subscribed<'b>(&'b self, bench: &Bench<'b>) -> &'b Broker {
        self.subscribed.as_ref().unwrap_or(bench.broker)
    }

    /// The broker to which producers publish.
    pub fn published<'b>(&'b self, bench: &Bench<'b>) -> &'b Broker {
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
    let connections = connections.to_string();
    let places = ["--http-connections", "--http-connections-per-address", "--live-connections"];
    let flags = places.map(|flag| [flag, &connections]).concat();
    Broker::start(options, &[&flags, more].concat())
}
