//! Readers of all topics that match a pattern: no message of a new topic is missed, deleted topics are removed, and
//! cursors and filters work in each topic.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use sennit_client::{
    Client, Error, ErrorCode, Filter, Header, Message, PatternReader, ReadFrom, ReadMessage,
    Reconnect, TopicConfig, TopicKind, TopicName, TopicPattern,
};

use crate::{
    bounds::{BOUND, within},
    broker::Broker,
};

async fn client(broker: &Broker) -> Client {
    let delays = Reconnect { delay_max: Duration::from_millis(100), ..Reconnect::default() };
    Client::builder(broker.listen.clone()).reconnect(delays).connect().await.unwrap()
}

fn topic(name: &str) -> TopicName {
    name.parse().unwrap()
}

fn pattern(text: &str) -> TopicPattern {
    text.parse().unwrap()
}

async fn make(client: &Client, name: &str) {
    let config = TopicConfig { partitions: 2, ..TopicConfig::of_kind(TopicKind::Stream) };
    client.create_topic(&topic(name), config).await.unwrap();
}

async fn publish(client: &Client, name: &str, numbers: std::ops::Range<u32>) {
    let publisher = client.publisher(&topic(name)).open().await.unwrap();
    for n in numbers {
        let key = format!("k{}", n % 7).into();
        let message = Message {
            key,
            headers: vec![Header::text("n", n.to_string())],
            ..Message::new(format!("{name} {n}"))
        };
        publisher.publish(message).await.unwrap().await.unwrap();
    }
}

async fn next(reader: &mut PatternReader) -> ReadMessage {
    let next = tokio::time::timeout(BOUND, reader.next()).await;
    next.expect("it goes on").expect("it goes on").unwrap()
}

async fn take(reader: &mut PatternReader, count: usize) -> BTreeSet<String> {
    let mut came = BTreeSet::new();
    for _ in 0..count {
        let message = next(reader).await;
        let text = String::from_utf8(message.payload().to_vec()).unwrap();
        assert!(text.starts_with(&format!("{} ", message.topic())), "{text} in {message:?}");
        assert!(came.insert(text), "{message:?} came twice");
    }
    came
}

fn all(name: &str, numbers: std::ops::Range<u32>) -> BTreeSet<String> {
    numbers.map(|n| format!("{name} {n}")).collect()
}

fn run(test: impl Future<Output = ()>) {
    within("what the pattern means is read", test);
}

#[test]
fn nothing_is_missed_of_topics_that_are_made_while_others_publish() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start_with(folder.path(), &["--shards", "2"]);
    run(async {
        let client = client(&broker).await;
        make(&client, "orders.eu").await;
        make(&client, "bills.eu").await;
        publish(&client, "orders.eu", 0..10).await;
        let builder = client.pattern_reader(&pattern("orders.>")).from(ReadFrom::Latest);
        let mut reader = builder.start().await.unwrap();
        let (topics, each) = (40, 12);
        let publishing = tokio::task::spawn_local({
            let client = client.clone();
            async move {
                for n in 0..topics {
                    let name = format!("orders.made.n{n}");
                    // Some are made by their publisher, which publishes at once.
                    match n % 2 {
                        0 => make(&client, &name).await,
                        _ => {
                            let publisher = client.publisher(&topic(&name));
                            let publisher = publisher.create_if_missing(true);
                            publisher.open().await.unwrap();
                        }
                    }
                    publish(&client, &name, 0..each).await;
                    publish(&client, "orders.eu", 10 + n..11 + n).await;
                    publish(&client, "bills.eu", n..n + 1).await;
                }
            }
        });
        let mut came: BTreeMap<(String, Vec<u8>), u32> = BTreeMap::new();
        let mut texts = BTreeSet::new();
        for _ in 0..topics * (each + 1) {
            let message = next(&mut reader).await;
            let text = String::from_utf8(message.payload().to_vec()).unwrap();
            let number: u32 = text.rsplit(' ').next().unwrap().parse().unwrap();
            let place = (message.topic().to_string(), message.key().to_vec());
            let before = came.insert(place, number);
            assert!(before.is_none_or(|before| before < number), "{text} behind {before:?}");
            texts.insert(text);
        }
        publishing.await.unwrap();
        let made = (0..topics).flat_map(|n| all(&format!("orders.made.n{n}"), 0..each));
        let expected: BTreeSet<_> = made.chain(all("orders.eu", 10..10 + topics)).collect();
        assert!(texts == expected, "{:?}", texts.symmetric_difference(&expected));
        assert_eq!(reader.topics().count(), 1 + topics as usize);
        client.close().await;
    });
}

#[test]
fn a_deleted_topic_leaves_and_joins_again_when_it_is_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    run(async {
        let client = client(&broker).await;
        for name in ["a.x", "a.y", "a.y.z"] {
            make(&client, name).await;
            publish(&client, name, 0..3).await;
        }
        let mut reader = client.pattern_reader(&pattern("a.*")).start().await.unwrap();
        let expected: BTreeSet<_> = [all("a.x", 0..3), all("a.y", 0..3)].concat_all();
        assert_eq!(take(&mut reader, 6).await, expected);
        client.delete_topic(&topic("a.x")).await.unwrap();
        make(&client, "a.x").await;
        publish(&client, "a.x", 5..9).await;
        publish(&client, "a.y", 3..4).await;
        let expected = [all("a.x", 5..9), all("a.y", 3..4)].concat_all();
        assert_eq!(take(&mut reader, 5).await, expected);
        assert_eq!(reader.topics().count(), 2);
        client.close().await;
    });
}

trait ConcatAll {
    fn concat_all(self) -> BTreeSet<String>;
}

impl<const N: usize> ConcatAll for [BTreeSet<String>; N] {
    fn concat_all(self) -> BTreeSet<String> {
        self.into_iter().flatten().collect()
    }
}

#[test]
fn a_pattern_is_read_on_across_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let mut broker = Broker::start(folder.path());
    run(async {
        let reading = client(&broker).await;
        make(&reading, "a.x").await;
        publish(&reading, "a.x", 0..3).await;
        let mut reader = reading.pattern_reader(&pattern("a.*")).start().await.unwrap();
        assert_eq!(take(&mut reader, 3).await, all("a.x", 0..3));
        broker.kill();
        broker.start_again();
        // Made before the reader is back, perhaps: it compares.
        let publishing = client(&broker).await;
        make(&publishing, "a.y").await;
        publish(&publishing, "a.y", 0..5).await;
        publish(&publishing, "a.x", 3..5).await;
        let expected = [all("a.y", 0..5), all("a.x", 3..5)].concat_all();
        assert_eq!(take(&mut reader, 7).await, expected);
        reading.close().await;
    });
}

#[test]
fn a_filter_and_a_cursor_hold_in_each_topic() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    run(async {
        let client = client(&broker).await;
        for name in ["a.x", "a.y"] {
            make(&client, name).await;
            publish(&client, name, 0..10).await;
        }
        let (pattern, cursor) = (pattern("a.*"), "audit".parse().unwrap());
        let filter: Filter = "header.n >= 7".parse().unwrap();
        let begin = || client.pattern_reader(&pattern).cursor(&cursor).filter(&filter);
        let mut reader = begin().until_end(true).start().await.unwrap();
        let expected = [all("a.x", 7..10), all("a.y", 7..10)].concat_all();
        assert_eq!(take(&mut reader, 6).await, expected);
        assert!(reader.next().await.is_none());
        reader.commit().await.unwrap();
        let refused = begin().start().await.err();
        assert_eq!(refused.as_ref().and_then(Error::code), Some(ErrorCode::CursorHeld));
        drop(reader);
        publish(&client, "a.y", 10..12).await;
        let mut reader = begin().take_over(true).until_end(true).start().await.unwrap();
        assert_eq!(take(&mut reader, 2).await, all("a.y", 10..12));
        assert!(reader.next().await.is_none());
        client.close().await;
    });
}

async fn committed(client: &Client, name: &str) -> u64 {
    let cursors = client.list_cursors(&topic(name)).await.unwrap();
    cursors.iter().flat_map(|cursor| &cursor.positions).map(|(_, offset)| offset.0).sum()
}

#[test]
fn a_pattern_reader_commits_by_itself_and_what_was_not_given_comes_again() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    run(async {
        let client = client(&broker).await;
        for name in ["a.x", "a.y"] {
            make(&client, name).await;
            publish(&client, name, 0..10).await;
        }
        let (pattern, cursor) = (pattern("a.*"), "audit".parse().unwrap());
        let every = Duration::from_millis(20);
        let begin = || client.pattern_reader(&pattern).cursor(&cursor).auto_commit(every);
        // Closed amid a run: the rest of that is not committed.
        let mut reader = begin().start().await.unwrap();
        let first = take(&mut reader, 3).await;
        reader.close().await.unwrap();
        assert_eq!(committed(&client, "a.x").await + committed(&client, "a.y").await, 3);
        let mut reader = begin().start().await.unwrap();
        let rest = take(&mut reader, 17).await;
        assert_eq!([first, rest].concat_all(), [all("a.x", 0..10), all("a.y", 0..10)].concat_all());
        // While it waits for more, it commits what was given; so it need not be closed.
        let waited = tokio::time::timeout(BOUND, async {
            while committed(&client, "a.x").await + committed(&client, "a.y").await < 20 {
                let more = tokio::time::timeout(every, reader.next()).await;
                assert!(more.is_err(), "{more:?}");
            }
        });
        waited.await.expect("everything is committed");
        drop(reader);
        let mut reader = begin().take_over(true).until_end(true).start().await.unwrap();
        assert!(reader.next().await.is_none());
        client.close().await;
    });
}

#[test]
fn read_takes_a_pattern_and_refuses_what_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    for name in ["a.x", "a.y", "b.x"] {
        broker.ok(&["publish", name, "--create"], name.as_bytes());
    }
    let read = broker.ok(&["read", "a.*"], b"");
    let lines: BTreeSet<_> = std::str::from_utf8(&read).unwrap().lines().collect();
    assert_eq!(lines, BTreeSet::from(["a.x", "a.y"]));
    let json = broker.ok(&["read", "a.>", "--json", "--filter", "not exists key", "-n", "1"], b"");
    let line: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(line["topic"], line["payload"]);
    assert_eq!(broker.ok(&["read", "c.*"], b""), b"");
    broker.ok(&["read", "a.*", "--cursor", "audit"], b"");
    assert_eq!(broker.ok(&["cursor", "list", "a.y"], b""), b"audit\t0\t1\n");
    assert_eq!(broker.run(&["read", "a*"], b"").status.code(), Some(2));
}

/// Does something for each number, some dozens at a time.
async fn for_each_number<F: Future<Output = ()> + 'static>(
    numbers: std::ops::Range<u32>,
    act: impl Fn(u32) -> F,
) {
    let mut under_way = tokio::task::JoinSet::new();
    for n in numbers {
        if under_way.len() >= 48 {
            under_way.join_next().await.unwrap().unwrap();
        }
        under_way.spawn_local(act(n));
    }
    while let Some(done) = under_way.join_next().await {
        done.unwrap();
    }
}

#[test]
fn a_pattern_over_thousands_of_topics_reads_each_of_them_and_those_that_appear() {
    const THERE: u32 = 3000;
    const LATER: u32 = 200;
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start_with(folder.path(), &["--shards", "2"]);
    run(async {
        let client = client(&broker).await;
        let make_one = |n: u32| {
            let client = client.clone();
            async move {
                let name = format!("events.{n}");
                let publisher = client.publisher(&topic(&name)).create_if_missing(true);
                let publisher = publisher.open().await.unwrap();
                let message = Message::new(format!("{name} 0"));
                publisher.publish(message).await.unwrap().await.unwrap();
            }
        };
        for_each_number(0..THERE, make_one).await;
        let mut reader = client.pattern_reader(&pattern("events.>")).start().await.unwrap();
        assert_eq!(reader.topics().count(), THERE as usize);
        let there: BTreeSet<_> = (0..THERE).map(|n| format!("events.{n} 0")).collect();
        assert!(take(&mut reader, THERE as usize).await == there);
        for_each_number(THERE..THERE + LATER, make_one).await;
        let later: BTreeSet<_> = (THERE..THERE + LATER).map(|n| format!("events.{n} 0")).collect();
        assert!(take(&mut reader, LATER as usize).await == later);
        assert_eq!(reader.topics().count(), (THERE + LATER) as usize);
        client.close().await;
    });
}
