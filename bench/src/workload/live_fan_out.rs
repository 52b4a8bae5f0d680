//! `live-fan-out`: subscribers over WebSocket, each with a connection, that all get every message of a topic.

use sennit_model::Durability;

use super::{Measurement, Method, show_count, show_rate};
use crate::{
    fan_out::RETAIN_BYTES,
    live::{LiveFanOut as Measured, RedisChoice},
    load::Load,
    plan::LiveEncoding,
};

/// Options of `live-fan-out`. Subscribers and rates may be lists; every combination is a row.
#[derive(Clone, Debug, clap::Args)]
pub struct LiveFanOut {
    /// Subscribers, each with a connection; the broker and the load need a descriptor for each
    #[arg(long, value_name = "N", default_value = "10,100,500,1000,2000,5000,9000")]
    #[arg(value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    subscribers: Vec<u32>,
    /// Messages published per second; 0 for as many as all subscribers take
    #[arg(long, value_name = "N", default_value = "0", value_delimiter = ',')]
    rate: Vec<f64>,
    /// Instead of --rate: messages delivered per second to all subscribers together
    #[arg(long, value_name = "N", value_delimiter = ',', conflicts_with = "rate")]
    deliveries: Vec<f64>,
    /// What subscribers speak
    #[arg(long, value_name = "WHICH", default_value = "json")]
    encoding: LiveEncoding,
    /// Bytes of a payload, which is JSON
    #[arg(long, value_name = "BYTES", default_value_t = 110)]
    size: usize,
    /// Without a rate: messages that producers may be ahead of the slowest subscriber; 0 for producers
    /// that wait for no subscriber: then those that are told to have missed something go on behind it
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = lag)]
    lag: u64,
    /// With --serve: two brokers with a Redis between them; producers publish to one, and clients are
    /// subscribed at the other. Without a URL the row starts a redis-server of its own, which keeps
    /// nothing
    #[arg(long, value_name = "URL", num_args = 0..=1, default_missing_value = "own")]
    redis: Option<RedisChoice>,
    /// Without --serve and --redis: so many nodes of a cluster; producers publish to the first, and
    /// clients are subscribed at the second
    #[arg(long, value_name = "N", conflicts_with = "redis")]
    #[arg(value_parser = clap::value_parser!(u8).range(2..=7))]
    nodes: Option<u8>,
    /// Bytes that the topic keeps
    #[arg(long, value_name = "BYTES", default_value_t = RETAIN_BYTES)]
    retain: u64,
    /// Clients that publish, by the native protocol
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    producers: u32,
    /// Messages that a producer may have unconfirmed
    #[arg(long, value_name = "N", default_value_t = 4096)]
    window: usize,
    /// What the topic's confirms promise: durable, speculative, ephemeral or memory
    #[arg(long, value_name = "WHICH", default_value = "memory")]
    durability: Durability,
    /// Threads that the subscribers are spread over
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: u32,
    /// Of each hundred subscribers, so many more that take nothing; the row then compares with the
    /// load without them, in turns
    #[arg(long, value_name = "N", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=100))]
    stalled_percent: u32,
    /// With those: turns of both loads
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    turns: u32,
    /// Seconds before what happens counts
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    warmup: f64,
    /// Seconds that count
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    duration: f64,
    /// Seconds that subscribers may take after the last confirm
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    drain: f64,
}

/// A lag, or none.
fn lag(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(lag @ (0 | 16..)) => Ok(lag),
        _ => Err("give 0, or 16 and more".to_owned()),
    }
}

impl LiveFanOut {
    /// A row for each combination.
    #[must_use]
    pub fn rows(&self) -> Vec<Measurement> {
        let by_deliveries = !self.deliveries.is_empty();
        let offered = if by_deliveries { &self.deliveries } else { &self.rate };
        let pairs = offered
            .iter()
            .flat_map(|&rate| self.subscribers.iter().map(move |&subscribers| (rate, subscribers)));
        pairs
            .map(|(rate, subscribers)| {
                let part = if by_deliveries { f64::from(subscribers) } else { 1.0 };
                let fan_out = self.fan_out(rate / part, subscribers);
                let method = match (rate > 0.0, by_deliveries) {
                    (false, _) if self.lag == 0 => "nobody waits for them".into(),
                    (false, _) => "as many as go".into(),
                    (_, true) => format!("{} delivered", show_rate(rate)),
                    _ => format!("{} published", show_rate(rate)),
                };
                let count = show_count(subscribers.into());
                let way = match self.nodes {
                    Some(_) => ", by another node",
                    None if self.redis.is_some() => ", by Redis",
                    None => "",
                };
                let row = format!("{count} subscribers, {method}{way}");
                Measurement { row, method: Method::LiveFanOut(Box::new(fan_out)) }
            })
            .collect()
    }

    fn fan_out(&self, rate: f64, subscribers: u32) -> Measured {
        let load = Load {
            producers: self.producers,
            consumers: 0,
            window: self.window,
            size: self.size,
            rate: (rate > 0.0).then_some(rate),
            warmup_s: self.warmup,
            duration_s: self.duration,
            drain_s: self.drain,
            retain_bytes: Some(self.retain),
            durability: self.durability,
            ..Load::new()
        };
        Measured {
            load,
            subscribers,
            threads: self.threads,
            encoding: self.encoding,
            lag: (self.lag > 0).then_some(self.lag),
            redis: self.redis.clone(),
            nodes: self.nodes.map(usize::from),
            stalled_percent: self.stalled_percent,
            turns: self.turns,
        }
    }
}
