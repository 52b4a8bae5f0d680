//! A data directory of an earlier Sennit, opened by this one: every message is unchanged. `SENNIT_WRITE_GOLDEN=v1
//! cargo test -p sennit --test process golden` creates the directory of the present format; a committed one is
//! never created again.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use sennit_client::{
    Client, GroupConfig, GroupName, Header, Message, StartAt, TopicConfig, TopicKind, TopicName,
};
use serde_json::Value;

use crate::{
    backup::short_segments,
    bounds::{BOUND, within},
    broker::{Broker, run, sennit},
};

/// Long enough that nobody will see it due.
const DELAY: Duration = Duration::from_secs(90 * 365 * 24 * 3600);

/// Messages that are published at once.
const FEW: usize = 8;

/// The archive, and beside it what is in it: a line for each message, with its topic, partition,
/// offset, what became of it, and its payload.
pub fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// Whether the golden directory of this name is to be made.
pub fn is_to_be_made(name: &str) -> bool {
    std::env::var_os("SENNIT_WRITE_GOLDEN").is_some_and(|wanted| wanted == name)
}

/// Makes a data directory of a golden one.
pub fn restored(name: &str, data: &Path) {
    let mut restore = sennit(&["restore"]);
    restore.arg(golden(name)).arg("--data").arg(data);
    let output = run(restore, b"");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn name(text: &str) -> TopicName {
    text.parse().unwrap()
}

fn payload(topic: &str, number: u32) -> String {
    format!("{topic} {number} {}", "abcdefgh".repeat(20 + number as usize % 17))
}

/// What is known of the messages: topic, partition, offset -> state and payload.
type Known = BTreeMap<(String, u32, u64), (&'static str, String)>;

struct Author {
    client: Client,
    known: Known,
}

impl Author {
    /// Publishes a few at a time: in short segments a batch must not be long.
    async fn publish(&mut self, topic: &str, numbers: std::ops::Range<u32>) {
        let publisher = self.client.publisher(&name(topic)).open().await.unwrap();
        for few in numbers.collect::<Vec<_>>().chunks(FEW) {
            let mut pending = Vec::new();
            for &number in few {
                let text = payload(topic, number);
                let mut message = Message::new(text.clone());
                message.key = format!("key-{}", number % 10).into();
                message.headers = vec![Header::text("number", number.to_string())];
                let mut state = "ready";
                if number % 20 == 19 {
                    message.delay = Some(DELAY);
                    state = "delayed";
                }
                pending.push((publisher.publish(message).await.unwrap(), state, text));
            }
            for (pending, state, text) in pending {
                let confirm = pending.await.unwrap();
                let place = (topic.to_owned(), confirm.partition.0, confirm.offset.unwrap().0);
                assert!(self.known.insert(place, (state, text)).is_none());
            }
        }
    }

    /// Takes all that is ready in `orders` and acks, buries or leaves it.
    async fn settle(&mut self, count: usize) {
        let group = GroupName::default_group();
        let mut consumer = self.client.consumer(&name("orders"), &group).subscribe().await.unwrap();
        for _ in 0..count {
            let delivery = tokio::time::timeout(BOUND, consumer.next()).await.unwrap();
            let delivery = delivery.unwrap().unwrap();
            let place = ("orders".to_owned(), delivery.partition().0, delivery.offset().0);
            let known = self.known.get_mut(&place).unwrap();
            assert_eq!(known.0, "ready");
            match delivery.offset().0 % 5 {
                0 | 2 => continue,
                1 => {
                    delivery.dead_letter("out of stock");
                    known.0 = "dead";
                }
                _ => {
                    delivery.ack();
                    known.0 = "acked";
                }
            }
        }
        consumer.close().await.unwrap();
        // Until what was said without waiting for an answer is committed too.
        std::thread::sleep(Duration::from_millis(500));
    }
}

fn metric(broker: &Broker, name: &str) -> Vec<u64> {
    let text = crate::backup::get(&broker.http, "/metrics");
    let lines = text.lines().filter(|line| line.starts_with(&format!("{name}{{")));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect()
}

fn write_golden() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    short_segments(&data, 2, 16 << 10);
    let mut broker = Broker::start_with(&data, &["--journal-segments", "1"]);
    let known = within("the directory is written", async {
        let client = Client::connect(&broker.listen).await.unwrap();
        let queue = TopicConfig { partitions: 4, ..TopicConfig::of_kind(TopicKind::Queue) };
        let stream = TopicConfig { partitions: 2, ..TopicConfig::of_kind(TopicKind::Stream) };
        client.create_topic(&name("gone"), queue.clone()).await.unwrap();
        client.delete_topic(&name("gone")).await.unwrap();
        client.create_topic(&name("orders"), queue).await.unwrap();
        client.create_topic(&name("events"), stream).await.unwrap();
        let audit: GroupName = "audit".parse().unwrap();
        let config = GroupConfig {
            attempts_max: 7,
            lease: Duration::from_secs(90),
            ..GroupConfig::default()
        };
        client.create_group(&name("events"), &audit, config, StartAt::Earliest).await.unwrap();
        let mut author = Author { client, known: Known::new() };
        author.publish("orders", 0..20).await;
        author.publish("events", 0..8).await;
        author.settle(16).await;
        author.client.close().await;
        author.known
    });
    // What was committed last is marked as durable, and the next life begins a new segment.
    broker.kill();
    broker.start_again();
    let known = within("the directory is written", async {
        let client = Client::connect(&broker.listen).await.unwrap();
        let mut author = Author { client, known };
        author.publish("orders", 20..26).await;
        author.publish("events", 8..14).await;
        author.client.close().await;
        author.known
    });
    drop(broker);
    // Once more with a journal so short that the oldest segments move to packs.
    let broker = Broker::start_with(&data, &["--journal-segments", "1"]);
    broker.ok(&["publish", "filler", "--create"], b"filler\n");
    broker.ok(&["topic", "delete", "filler"], b"");
    let begun = Instant::now();
    while metric(&broker, "sennit_packs").contains(&0) {
        assert!(begun.elapsed() < BOUND, "nothing moves");
        broker.ok(&["publish", "filler", "--create"], b"filler\n");
        broker.ok(&["topic", "delete", "filler"], b"");
    }
    // What else may still move has moved by then; this writes a directory, and is no test.
    std::thread::sleep(Duration::from_secs(1));
    let file = golden("v1.backup");
    broker.ok(&["backup", "--overwrite", "--to", file.to_str().unwrap()], b"");
    let mut text = String::new();
    for ((topic, partition, offset), (state, payload)) in known {
        writeln!(text, "{topic}\t{partition}\t{offset}\t{state}\t{payload}").unwrap();
    }
    std::fs::write(golden("v1.messages"), text).unwrap();
}

/// A message as it was written down, or as it came.
type Line = (u64, u64, String);

fn came(broker: &Broker, topic: &str, group: &str) -> BTreeSet<Line> {
    let said = broker.ok(&["consume", topic, "--group", group, "--json"], b"");
    let lines = said.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let messages = lines.map(|line| {
        let value: Value = serde_json::from_slice(line).unwrap();
        let payload = value["payload"].as_str().unwrap().to_owned();
        if topic != "orders.dead-letter" {
            let number: u64 = payload.split(' ').nth(1).unwrap().parse().unwrap();
            assert_eq!(value["key"], format!("key-{}", number % 10));
            assert_eq!(value["headers"][0]["value"], number.to_string());
            assert_eq!(value["attempt"], 1);
        } else {
            let said = value["headers"].to_string();
            assert!(said.contains("sennit-reason") && said.contains("out of stock"), "{said}");
        }
        (value["partition"].as_u64().unwrap(), value["offset"].as_u64().unwrap(), payload)
    });
    messages.collect()
}

#[test]
fn a_golden_data_directory_is_opened_and_everything_is_where_it_was() {
    if is_to_be_made("v1") {
        write_golden();
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    restored("v1.backup", &data);
    // It has what a directory can have.
    for lane in ["lane-0", "lane-1"] {
        let names = std::fs::read_dir(data.join(lane)).unwrap();
        let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        let has = |end: &str| names.iter().any(|name| name.to_str().unwrap().ends_with(end));
        assert!(has(".journal") && has(".pack"), "{lane}: {names:?}");
    }
    let text = std::fs::read_to_string(golden("v1.messages")).unwrap();
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
    let written = |topic: &str, states: &[&str]| -> BTreeSet<Line> {
        let lines = lines.iter().filter(|line| line[0] == topic && states.contains(&line[3]));
        lines.map(|l| (l[1].parse().unwrap(), l[2].parse().unwrap(), l[4].to_owned())).collect()
    };

    let broker = Broker::start(&data);
    let topics = String::from_utf8(broker.ok(&["topic", "list"], b"")).unwrap();
    let topics: Vec<_> = topics.lines().map(|line| line.split('\t').collect::<Vec<_>>()).collect();
    let named: Vec<_> = topics.iter().map(|line| (line[0], line[1], line[2])).collect();
    let orders = ("orders", "queue", "4");
    assert_eq!(named, [("events", "stream", "2"), orders, ("orders.dead-letter", named[2].1, "4")]);

    let groups = broker.ok(&["group", "list", "orders", "--json"], b"");
    let groups: Value = serde_json::from_slice(&groups).unwrap();
    let group = groups.as_array().map_or(&groups, |groups| &groups[0]);
    let delayed = written("orders", &["delayed"]);
    assert_eq!(group["ready"], written("orders", &["ready"]).len());
    assert_eq!(group["delayed"], delayed.len());
    assert!(!delayed.is_empty());

    for (topic, group, states) in [("orders", "default", "ready"), ("events", "audit", "ready")] {
        let expected = written(topic, &[states]);
        assert!(expected.len() >= 10);
        assert_eq!(came(&broker, topic, group), expected, "{topic}");
    }
    // Dead letters lie in another topic, and in the order in which they died.
    let payloads = |lines: &BTreeSet<Line>| -> BTreeSet<String> {
        lines.iter().map(|line| line.2.clone()).collect()
    };
    let dead = came(&broker, "orders.dead-letter", "default");
    assert_eq!(payloads(&dead), payloads(&written("orders", &["dead"])));
    assert!(!dead.is_empty());
    assert!(!written("orders", &["acked"]).is_empty());
    // What is written now goes on where it stopped.
    let ends: BTreeMap<u32, u64> = lines
        .iter()
        .filter(|line| line[0] == "orders")
        .map(|line| (line[1].parse().unwrap(), line[2].parse::<u64>().unwrap() + 1))
        .collect();
    let said = broker.ok(&["topic", "describe", "orders", "--json"], b"");
    let said: Value = serde_json::from_slice(&said).unwrap();
    for (partition, end) in ends {
        assert_eq!(said["partition"][partition as usize]["end"], end);
    }
}
