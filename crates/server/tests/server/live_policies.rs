//! What becomes of live connections that read slowly, by the settings of their topics, over real sockets.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use sennit_centrifuge::{DisconnectCode, Encoding, FromServer, PushKind};
use sennit_model::{
    BatchBuilder, LiveSettings, Message, PartitionId, PartitionIndex, ProducerId, ProducerStamp,
    Retention, TopicConfig, TopicId, TopicKind, WhenBehind,
};
use sennit_protocol::{Publish, Reply, Request as NativeRequest, control};
use sennit_server::Config;
use sennit_websocket::CloseCode;
use serde_json::json;

use crate::{
    browser::Browser,
    http_parked::Dice,
    live_client::{LiveClient, recovering, text_of},
    reading::reader,
    world::{Broker, Peer, config, ended, until},
    wse_client::WseClient,
};

/// The settings of a topic.
fn settings(peer: &mut Peer, name: &str) -> TopicConfig {
    let describe = control::DescribeTopic { name: name.into() };
    match peer.ask(&NativeRequest::DescribeTopic(describe)) {
        Reply::TopicDescription(topic) => TopicConfig::try_from(&topic.config.unwrap()).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// The settings of a stream whose live subscribers that are behind have this become of them.
fn behind(when_behind: WhenBehind) -> Option<control::TopicConfig> {
    let live = LiveSettings { presence: false, when_behind };
    let config = TopicConfig { live, ..TopicConfig::of_kind(TopicKind::Stream) };
    Some(control::TopicConfig::from(&config))
}

fn topic_of(peer: &mut Peer, name: &str, when_behind: WhenBehind) -> TopicId {
    let config = behind(when_behind);
    let create = control::CreateTopic { name: name.into(), config, beside: None };
    match peer.ask(&NativeRequest::CreateTopic(create)) {
        Reply::Done(done) => TopicId(done.topic_id),
        other => panic!("{other:?}"),
    }
}

/// Publishes messages, each with its key, and waits for the confirm.
fn publish(peer: &mut Peer, topic: TopicId, first: u64, keyed: &[(&str, String)]) {
    let mut builder = BatchBuilder::new();
    for (key, text) in keyed {
        let key = Bytes::copy_from_slice(key.as_bytes());
        builder.push(&Message { key, ..Message::new(text.clone()) }).unwrap();
    }
    let partition = PartitionId { topic, index: PartitionIndex(0) };
    let producer = ProducerStamp { id: ProducerId(7), epoch: 0, first_sequence: first };
    let batch = builder.take().unwrap();
    peer.send(&NativeRequest::Publish(Publish::new(partition, producer, &batch)));
    peer.confirmed_up_to(first + keyed.len() as u64);
}

/// The value of a metric, over all cores.
pub fn metric(broker: &Broker, name: &str) -> u64 {
    let page = Browser::of(broker).get("/metrics");
    let lines = page.body.lines().filter(|line| line.starts_with(name));
    lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
}

/// The key of a message of a round: one of a few, and in the first rounds once another.
fn some_key(dice: &mut Dice, round: usize, at: u64) -> &'static str {
    match (round, at) {
        (0..3, 0) => "seldom",
        _ => ["", "a", "b", "c", "dd", "eee"][dice.below(6) as usize],
    }
}

/// A broker that asks nobody whether it is there.
fn patient() -> (Broker, tempfile::TempDir) {
    let folder = tempfile::TempDir::new().unwrap();
    let live_ping_interval = Duration::from_secs(3600);
    (Broker::start(Config { live_ping_interval, ..config(folder.path()) }), folder)
}

#[test]
fn a_channel_that_a_client_creates_has_presence_and_a_topic_what_it_was_told() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    let mut client = LiveClient::of(&broker);
    client.subscribe("lobby");
    assert_eq!(settings(&mut peer, "lobby").live, LiveSettings::OF_CHANNEL);
    client.publish("said", "hello").unwrap();
    assert!(settings(&mut peer, "said").live.presence);
    peer.create_topic("orders", 1);
    assert_eq!(settings(&mut peer, "orders").live, LiveSettings::default());
    broker.stop();
}

#[test]
fn a_channel_that_a_client_creates_keeps_messages_as_long_as_the_broker_is_told() {
    let folder = tempfile::TempDir::new().unwrap();
    let live_channels_keep = Some(Duration::from_secs(60));
    let broker = Broker::start(Config { live_channels_keep, ..config(folder.path()) });
    LiveClient::of(&broker).subscribe("lobby");
    let retention = settings(&mut broker.greeted(), "lobby").retention;
    assert_eq!(retention, Retention { age: live_channels_keep, ..Retention::FOREVER });
    broker.stop();
}

#[test]
fn a_slow_reader_of_a_topic_that_disconnects_is_ended_with_a_code_and_recovers() {
    let (broker, _folder) = patient();
    let mut peer = reader(&broker);
    // The rule that counts is the one of now, for those who are subscribed too.
    let topic = topic_of(&mut peer, "news", WhenBehind::Recover);
    let mut stalled = LiveClient::of(&broker);
    let epoch = stalled.subscribe("news").epoch;
    let mut other = LiveClient::of(&broker);
    other.subscribe("news");
    let mut count = 0;
    let mut flood = |peer: &mut Peer| {
        for _ in 0..8 {
            publish(peer, topic, count, &vec![("", "x".repeat(16 << 10)); 8]);
            count += 8;
            assert_eq!(other.offsets("news", 8), (count - 7..=count).collect::<Vec<_>>());
        }
        count
    };
    // More than rings and sockets hold.
    for _ in 0..20 {
        flood(&mut peer);
    }
    let ended = "sennit_live_behind_disconnected_total";
    assert_eq!(metric(&broker, ended), 0);
    let config = behind(WhenBehind::Disconnect);
    let alter = control::AlterTopic { name: "news".into(), config };
    assert!(matches!(peer.ask(&NativeRequest::AlterTopic(alter)), Reply::Done(_)));
    let mut rounds = 0;
    while metric(&broker, ended) == 0 {
        rounds += 1;
        assert!(rounds < 100, "it is not ended");
        flood(&mut peer);
    }
    let count = flood(&mut peer);
    let mut had = 0;
    while let Some(FromServer::Push(push)) = stalled.next() {
        let PushKind::Publication(publication) = push.kind else { panic!("{push:?}") };
        assert_eq!(publication.offset, had + 1);
        had = publication.offset;
    }
    let closed = stalled.closed.clone().expect("a close");
    assert_eq!(closed.code, CloseCode::of(DisconnectCode::Slow.code()));
    assert!(had < count);
    let mut again = LiveClient::of(&broker);
    assert!(again.subscribed(recovering("news", (&epoch, had))).unwrap().recovered);
    let missed = (count - had) as usize;
    assert_eq!(again.offsets("news", missed), (had + 1..=count).collect::<Vec<_>>());
    broker.stop();
}

/// A client that reads now and then, with what it has had.
struct Watcher {
    client: LiveClient,
    count: usize,
    offset: u64,
    newest: BTreeMap<String, u64>,
}

impl Watcher {
    fn read(&mut self) {
        let (_, publication) = self.client.published();
        assert!(publication.offset > self.offset, "offsets rise");
        (self.count, self.offset) = (self.count + 1, publication.offset);
        let text = text_of(self.client.encoding, &publication.data);
        let mut parts = text.trim_matches('"').split(':');
        let (key, number) = (parts.next().unwrap().to_owned(), parts.next().unwrap());
        let number = number.parse().unwrap();
        let before = self.newest.insert(key, number);
        assert!(before.is_none_or(|before| before < number), "a key goes on, never back");
    }
}

#[test]
fn a_reader_of_any_pace_of_a_topic_that_conflates_ends_with_the_newest_of_each_key() {
    let seed = std::env::var("SENNIT_SEED").map_or(0x35c0, |seed| seed.parse().unwrap());
    eprintln!("SENNIT_SEED={seed}");
    let mut dice = Dice(seed);
    let (broker, _folder) = patient();
    let mut peer = reader(&broker);
    let topic = topic_of(&mut peer, "prices", WhenBehind::Conflate);
    let mut watchers = [Encoding::Json, Encoding::Protobuf, Encoding::Json].map(|encoding| {
        let mut client = LiveClient::connect(&broker, encoding, "");
        client.subscribe("prices");
        Watcher { client, count: 0, offset: 0, newest: BTreeMap::new() }
    });
    let mut end = 0_u64;
    let mut newest = BTreeMap::new();
    for round in 0..120 {
        let batch: Vec<_> = (0..dice.below(64) + 1)
            .map(|at| {
                let key = some_key(&mut dice, round, at);
                let number = end + at;
                newest.insert(key.to_owned(), number);
                (key, format!("{key}:{number}:{}", "x".repeat(dice.below(16 << 10) as usize)))
            })
            .collect();
        publish(&mut peer, topic, end, &batch);
        end += batch.len() as u64;
        // The first reads all, the others nothing for long, and then a little now and then.
        while watchers[0].offset < end {
            watchers[0].read();
        }
        for watcher in watchers.iter_mut().skip(1).filter(|_| round > 80) {
            for _ in 0..dice.below(100) {
                if watcher.offset < end {
                    watcher.read();
                }
            }
        }
    }
    for watcher in &mut watchers {
        while watcher.offset < end {
            watcher.read();
        }
        assert_eq!(watcher.newest, newest);
    }
    assert_eq!(watchers[0].count as u64, end, "who keeps up gets every message");
    assert!(watchers[1].count < watchers[0].count && watchers[2].count < watchers[0].count);
    let conflated = "sennit_live_behind_conflated_total";
    until("both are counted", || metric(&broker, conflated) >= 2);
    broker.stop();
}

/// A client of WSE that reads now and then. It fails if it misses a message of which it was not told.
struct WseWatcher {
    client: WseClient,
    count: u64,
    newest: BTreeMap<String, u64>,
}

impl WseWatcher {
    fn offset(&self) -> u64 {
        self.client.positions["prices"].1
    }

    fn read(&mut self) {
        let before = self.offset();
        let heard = self.client.next().expect("the next message");
        if heard["t"] == "subscription_update" {
            assert!(self.offset() >= before, "a position goes on, never back: {heard}");
            return;
        }
        assert_eq!(heard["tp"], "prices", "{heard}");
        self.count += 1;
        let (key, number) =
            (heard["p"]["key"].as_str().unwrap(), heard["p"]["n"].as_u64().unwrap());
        let before = self.newest.insert(key.to_owned(), number);
        assert!(before.is_none_or(|before| before < number), "a key goes on, never back");
    }
}

#[test]
fn a_client_of_wse_of_a_topic_that_conflates_ends_with_the_newest_of_each_key_and_knows_where_it_is()
 {
    let seed = std::env::var("SENNIT_SEED").map_or(0x35c1, |seed| seed.parse().unwrap());
    eprintln!("SENNIT_SEED={seed}");
    let mut dice = Dice(seed);
    let (broker, _folder) = patient();
    let mut peer = reader(&broker);
    let topic = topic_of(&mut peer, "prices", WhenBehind::Conflate);
    let mut watchers = [(); 2].map(|()| {
        let mut client = WseClient::of(&broker);
        client.subscribe("prices");
        WseWatcher { client, count: 0, newest: BTreeMap::new() }
    });
    let mut end = 0_u64;
    let mut newest = BTreeMap::new();
    for round in 0..120 {
        let batch: Vec<_> = (0..dice.below(64) + 1)
            .map(|at| {
                let key = some_key(&mut dice, round, at);
                let n = end + at;
                newest.insert(key.to_owned(), n);
                let pad = "x".repeat(dice.below(16 << 10) as usize);
                (key, json!({"key": key, "n": n, "pad": pad}).to_string())
            })
            .collect();
        publish(&mut peer, topic, end, &batch);
        end += batch.len() as u64;
        // The first reads all, the other nothing for long, and then a little now and then.
        while watchers[0].offset() < end {
            watchers[0].read();
        }
        for _ in 0..if round > 80 { dice.below(100) } else { 0 } {
            if watchers[1].offset() < end {
                watchers[1].read();
            }
        }
    }
    for watcher in &mut watchers {
        while watcher.offset() < end {
            watcher.read();
        }
        assert_eq!(watcher.newest, newest);
    }
    assert_eq!(watchers[0].count, end, "who keeps up gets every message");
    assert!(watchers[1].count < end, "the other does not");
    until("it is counted", || metric(&broker, "sennit_live_behind_conflated_total") >= 1);
    broker.stop();
}

#[test]
fn a_broker_that_stops_tells_its_clients_over_a_while_and_waits_until_it_has() {
    let (broker, _folder) = Broker::fresh();
    let mut clients: Vec<_> = (0..200).map(|_| LiveClient::of(&broker)).collect();
    clients.iter_mut().for_each(|client| drop(client.subscribe("news")));
    // One that takes nothing delays nobody.
    let mut silent = LiveClient::open(&broker, Encoding::Json, &[]);
    let stopping = broker.begin_to_stop();
    for client in clients.iter_mut().chain([&mut silent]) {
        assert_eq!(client.close().code, CloseCode::of(DisconnectCode::Shutdown.code()));
    }
    ended(stopping);
}
