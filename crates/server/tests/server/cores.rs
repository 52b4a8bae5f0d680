//! Brokers whose cores are not as many as their shards: clients notice nothing of it.

use std::path::Path;

use sennit_model::TopicId;
use sennit_protocol::{Request, Verdict};
use sennit_server::{Config, ServeError, restore, serve};
use tempfile::TempDir;

use crate::{
    archives::archive_of,
    browser::Browser,
    http::get,
    http_streams::{TEXT, ask, next},
    reading::{begin, published, read, reader, stream},
    world::{Broker, config, publish, until},
};

/// More than shards in any test, so that each shard has some.
const PARTITIONS: u32 = 6;

fn settings(data: &Path, shards: u32, cores: u32) -> Config {
    Config { shards: Some(shards), cores: Some(cores), ..config(data) }
}

/// A queue and a topic for readers, each with partitions on all shards.
#[derive(Clone, Copy)]
struct Topics {
    orders: TopicId,
    lines: TopicId,
}

impl Topics {
    fn create(broker: &Broker) -> Self {
        let mut peer = reader(broker);
        let orders = peer.create_topic("orders", PARTITIONS);
        Self { orders, lines: stream(&mut peer, "lines", PARTITIONS) }
    }
}

/// The value of a series in the metrics.
fn value(broker: &Broker, series: &str) -> Option<u64> {
    let (_, metrics) = get(broker, "/metrics");
    let line = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
    Some(line.parse().unwrap())
}

/// What is published to a topic in one round, a message for each partition.
fn texts(round: u64) -> impl Iterator<Item = (u32, String)> {
    (0..PARTITIONS).map(move |partition| (partition, format!("{round} {partition}")))
}

/// Has every shard and every core take part in a round of work; what earlier rounds have left is there.
fn work(broker: &Broker, topics: Topics, round: u64) {
    consume(broker, topics, round);
    read_everywhere(broker, topics, round);
    append(broker, round);
}

/// A consumer gets what is published in this round from all partitions, and nothing that was acked before.
fn consume(broker: &Broker, Topics { orders, .. }: Topics, round: u64) {
    let mut consumer = broker.greeted();
    let group = consumer.subscribe("orders", 1, 100);
    let mut publisher = broker.greeted();
    for (partition, text) in texts(round) {
        publisher.send(&Request::Publish(publish(orders, partition, round, &[&text])));
        publisher.confirmed_up_to(round + 1);
    }
    let (mut came, deliveries) = consumer.deliveries(PARTITIONS as usize);
    came.sort_unstable();
    assert!(came.iter().eq(texts(round).map(|(_, text)| text).collect::<Vec<_>>().iter()));
    for delivery in deliveries {
        consumer.settle((orders, group), &[delivery], Verdict::Ack);
    }
}

/// A reader on each core gets all that was published to all partitions, in this round and before.
fn read_everywhere(broker: &Broker, Topics { lines, .. }: Topics, round: u64) {
    let (shards, cores) = (broker.addresses.shards, broker.addresses.cores);
    // Connections are handed round the cores, and those that read several partitions stay.
    let mut readers: Vec<_> = (0..cores).map(|_| reader(broker)).collect();
    for reader in &mut readers {
        begin(reader, read("lines"));
    }
    let mut publisher = broker.greeted();
    for (partition, text) in texts(round) {
        published(&mut publisher, lines, partition, round, &[&text]);
    }
    let mut expected: Vec<_> = (0..=round).flat_map(texts).map(|(_, text)| text).collect();
    expected.sort_unstable();
    for reader in &mut readers {
        let (mut came, _) = reader.deliveries(expected.len());
        came.sort_unstable();
        assert_eq!(came, expected);
    }
    for core in 0..cores {
        let connections = value(broker, &format!("sennit_connections{{core=\"{core}\"}}"));
        assert!(connections >= Some(1), "core {core} has {connections:?}");
    }
    for shard in 0..shards {
        let series = format!("sennit_confirmed_messages_total{{shard=\"{shard}\"}}");
        until("a shard has confirmed nothing", || value(broker, &series) >= Some(1));
    }
    let beyond = [format!("{{core=\"{cores}\"}}"), format!("{{shard=\"{shards}\"}}")];
    let (_, metrics) = get(broker, "/metrics");
    assert!(!beyond.iter().any(|label| metrics.contains(label)), "{beyond:?}: {metrics}");
}

/// Streams on all shards are appended to and read, by one who waits and by one who comes later.
fn append(broker: &Broker, round: u64) {
    let cores = broker.addresses.cores;
    let mut waiting: Vec<_> = (0..cores).map(|_| Browser::of(broker)).collect();
    let mut writer = Browser::of(broker);
    for (number, text) in texts(round) {
        let name = format!("stream/{number}");
        let status = if round == 0 { 201 } else { 200 };
        let created = ask(&mut writer, "PUT", &name, TEXT, "");
        assert_eq!(created.status, status);
        let live = format!("{name}?offset={}&live=long-poll", next(&created));
        for browser in &mut waiting {
            browser.say(format!("GET /v1/stream/{live} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        }
        assert_eq!(ask(&mut writer, "POST", &name, TEXT, &text).status, 204);
        for browser in &mut waiting {
            assert_eq!(browser.hear(true).body, text);
        }
        let all: String = (0..=round).map(|round| format!("{round} {number}")).collect();
        assert_eq!(ask(&mut writer, "GET", &name, "", "").body, all);
    }
}

/// A broker of these works, stops, works on with what it has, and so does one with its backup.
fn works(shards: u32, cores: u32) {
    let folder = TempDir::new().unwrap();
    let (data, restored) = (folder.path().join("data"), folder.path().join("restored"));
    let broker = Broker::start(settings(&data, shards, cores));
    assert_eq!((broker.addresses.shards, broker.addresses.cores), (shards, cores));
    let topics = Topics::create(&broker);
    work(&broker, topics, 0);
    let archive = archive_of(&broker);
    broker.stop();
    restore(&archive[..], &restored, false).unwrap();
    for data in [data, restored] {
        let broker = Broker::start(settings(&data, shards, cores));
        work(&broker, topics, 1);
        broker.stop();
    }
}

#[test]
fn two_shards_on_one_core_work() {
    works(2, 1);
}

#[test]
fn three_shards_on_two_cores_work() {
    works(3, 2);
}

#[test]
fn a_core_without_a_shard_serves_connections() {
    works(2, 3);
}

#[test]
fn a_directory_opens_with_any_number_of_cores() {
    let folder = TempDir::new().unwrap();
    let first = Broker::start(settings(folder.path(), 3, 1));
    let topics = Topics::create(&first);
    work(&first, topics, 0);
    first.stop();
    for (cores, round) in [(3, 1), (2, 2), (5, 3)] {
        let broker = Broker::start(settings(folder.path(), 3, cores));
        assert_eq!((broker.addresses.shards, broker.addresses.cores), (3, cores));
        work(&broker, topics, round);
        broker.stop();
    }
    // One core for each shard, where nobody asks for another number.
    let broker = Broker::start(config(folder.path()));
    assert_eq!((broker.addresses.shards, broker.addresses.cores), (3, 3));
    broker.stop();
}

#[test]
fn a_number_of_cores_that_cannot_be_is_refused() {
    for cores in [0, 1025] {
        let folder = TempDir::new().unwrap();
        let settings = settings(folder.path(), 1, cores);
        let error = serve(settings, std::future::pending(), |_| panic!("it serves")).unwrap_err();
        assert!(matches!(error, ServeError::Cores { .. }), "{error}");
        assert!(error.to_string().contains("1 to 1024"), "{error}");
    }
}
