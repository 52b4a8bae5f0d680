//! Topics of every durability in one broker that is killed: each keeps its promise, and no offset that a reader has
//! seen holds another message.

use std::{
    cell::Cell,
    collections::BTreeMap,
    rc::Rc,
    time::{Duration, Instant},
};

use sennit_client::{
    Client, Confirm, Durability, GapReason, Message, ReadFrom, Reader, Received, Reconnect,
    TopicConfig, TopicKind, TopicName,
};
use serde_json::Value;

use crate::{
    bounds::{until_async, within},
    broker::{Broker, node_count},
};

/// Before a kill by longer than this, everything ephemeral is written: far more than it takes.
const WRITTEN: Duration = Duration::from_secs(2);

async fn client(broker: &str) -> Client {
    let delays = Reconnect { delay_max: Duration::from_millis(100), ..Reconnect::default() };
    Client::builder(broker).reconnect(delays).connect().await.unwrap()
}

fn topic_of(durability: Durability) -> TopicName {
    durability.name().parse().unwrap()
}

/// A confirm: when it came, of what, and what it said.
type Confirmed = BTreeMap<u64, (Instant, String, Durability)>;

/// Publishes until told to stop, and counts the batches; then the end.
async fn publish(
    client: Client,
    topic: TopicName,
    batches: Rc<Cell<u64>>,
    stop: tokio::sync::watch::Receiver<bool>,
) -> Confirmed {
    let publisher = client.publisher(&topic).open().await.unwrap();
    let mut confirmed = Confirmed::new();
    for batch in 0_u64.. {
        let is_last = *stop.borrow();
        let texts = match is_last {
            true => vec!["the end".to_owned()],
            false => (0..20).map(|n| format!("{topic} {batch} {n}")).collect(),
        };
        let mut waiting = Vec::new();
        for text in texts {
            let pending = publisher.publish(Message::new(text.clone())).await.unwrap();
            waiting.push((text, pending));
        }
        for (text, pending) in waiting {
            let Confirm { offset, durability, .. } = pending.await.unwrap();
            let offset = offset.expect("it is remembered").0;
            let before = confirmed.insert(offset, (Instant::now(), text, durability));
            assert!(before.is_none(), "{topic} {offset} was confirmed twice: {before:?}");
        }
        if is_last {
            break;
        }
        batches.set(batch + 1);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    client.close().await;
    confirmed
}

/// Waits until all have published in the life that has begun: the first batch may have been confirmed
/// by the one before.
async fn all_publish(batches: &[Rc<Cell<u64>>]) {
    let enough: Vec<_> = batches.iter().map(|batches| batches.get() + 2).collect();
    until_async("all publish", async || {
        batches.iter().zip(&enough).all(|(batches, &enough)| batches.get() >= enough)
    })
    .await;
}

/// Reads until the end of all has come: what came, and the gaps.
async fn follow(mut reader: Reader) -> (BTreeMap<u64, String>, Vec<(u64, u64, GapReason)>) {
    let (mut came, mut gaps) = (BTreeMap::new(), Vec::new());
    loop {
        let received = tokio::time::timeout(Duration::from_secs(60), reader.receive_run()).await;
        match received.expect("it goes on").expect("it goes on").unwrap() {
            Received::Gap(gap) => gaps.push((gap.offsets.start.0, gap.offsets.end.0, gap.reason)),
            Received::Delivered(run) => {
                for (offset, message) in (run.first_offset().0..).zip(run.messages()) {
                    let text = String::from_utf8(message.payload().to_vec()).unwrap();
                    let is_end = text == "the end";
                    let before = came.entry(offset).or_insert_with(|| text.clone());
                    assert_eq!(*before, text, "offset {offset} was given twice");
                    if is_end {
                        reader.close().await.unwrap();
                        return (came, gaps);
                    }
                }
            }
        }
    }
}

#[test]
fn every_durability_keeps_its_promise_when_the_broker_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut broker = Broker::start_with(folder.path(), &["--shards", "2"]);
    let address = broker.listen.clone();
    within("all is read to the end", async {
        let first = client(&address).await;
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let (mut readers, mut publishers) = (Vec::new(), Vec::new());
        let batches = Durability::ALL.map(|_| Rc::default());
        for (durability, batches) in Durability::ALL.into_iter().zip(&batches) {
            let topic = topic_of(durability);
            let config = TopicConfig { durability, ..TopicConfig::of_kind(TopicKind::Stream) };
            first.create_topic(&topic, config).await.unwrap();
            let reader =
                client(&address).await.reader(&topic).from(ReadFrom::Earliest).start().await;
            readers.push(tokio::task::spawn_local(follow(reader.unwrap())));
            let publishing =
                publish(client(&address).await, topic, Rc::clone(batches), stopped.clone());
            publishers.push(tokio::task::spawn_local(publishing));
        }
        let mut kills = Vec::new();
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(600)).await;
            all_publish(&batches).await;
            kills.push(Instant::now());
            // Beside it the clients see what the old life has confirmed, before there is a new one.
            let again = tokio::task::spawn_blocking(move || {
                broker.kill();
                broker.start_again();
                broker
            });
            broker = again.await.unwrap();
        }
        let last_start = Instant::now();
        all_publish(&batches).await;
        stop.send(true).unwrap();
        for ((durability, reader), publisher) in
            Durability::ALL.into_iter().zip(readers).zip(publishers)
        {
            let (came, gaps) = reader.await.unwrap();
            let confirmed = publisher.await.unwrap();
            let late = client(&address).await.reader(&topic_of(durability)).start().await.unwrap();
            let (kept, _) = follow(late).await;
            for (offset, text) in &kept {
                assert_eq!(came.get(offset).unwrap_or(text), text, "{durability} {offset}");
            }
            for (offset, (at, text, reached)) in &confirmed {
                assert_eq!(came.get(offset).unwrap_or(text), text, "{durability} {offset}");
                let is_kept = kept.get(offset) == Some(text);
                match durability {
                    Durability::Durable | Durability::Speculative => {
                        assert!(
                            is_kept && *reached == Durability::Durable,
                            "{durability} {offset}"
                        );
                    }
                    Durability::Ephemeral => {
                        let just_before =
                            |kill: &Instant| *at <= *kill + WRITTEN && *kill <= *at + WRITTEN;
                        assert!(is_kept || kills.iter().any(just_before), "{offset} was written");
                    }
                    Durability::Memory => {
                        assert_eq!(*reached, Durability::Memory);
                        assert!(is_kept || *at < last_start, "{offset} is of this life");
                    }
                }
            }
            match durability {
                Durability::Durable => assert_eq!(gaps, []),
                // Each kill leaves a hole behind what it left, and it is told; the others of several nodes may have all of it.
                _ => {
                    assert!(node_count() > 1 || gaps.len() >= kills.len(), "{durability}: {gaps:?}")
                }
            }
            if durability == Durability::Memory {
                assert!(
                    gaps.iter()
                        .all(|(start, _, reason)| (*start, *reason) == (0, GapReason::RolledBack)),
                    "{gaps:?}"
                );
            }
        }
        first.close().await;
    });
}

#[test]
fn a_durability_is_chosen_shown_and_said_of_each_message() {
    let folder = tempfile::tempdir().unwrap();
    let mut broker = Broker::start(folder.path());
    for durability in Durability::ALL {
        let name = durability.name();
        broker.ok(&["topic", "create", name, "--kind", "stream", "--durability", name], b"");
        let told = broker.ok(&["topic", "describe", name, "--json"], b"");
        let told: Value = serde_json::from_slice(&told).unwrap();
        assert_eq!(told["durability"], name);
        broker.ok(&["publish", name], b"one\ntwo\n");
    }
    let said = |broker: &Broker, name: &str, from: &str| -> Vec<Value> {
        let output = broker.ok(&["read", name, "--json", "--from", from], b"");
        output
            .split(|&byte| byte == b'\n')
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect()
    };
    assert_eq!(said(&broker, "memory", "earliest")[1]["durability"], "memory");
    assert_eq!(said(&broker, "durable", "earliest")[1]["durability"], "durable");
    // Altering what is not named leaves it, and a durability is not altered.
    broker.ok(&["topic", "alter", "memory", "--retain", "1MiB"], b"");
    let refused = broker.run(&["topic", "create", "ephemeral", "--kind", "stream"], b"");
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(why.contains("exists with durability ephemeral, not durable"), "{why}");
    // A stop that is asked for leaves no hole; in memory nothing outlives it.
    assert_eq!(broker.terminate(), Some(0));
    broker.start_again();
    for durability in Durability::ALL {
        let name = durability.name();
        broker.ok(&["publish", name], b"three\n");
        let lines = said(&broker, name, "1");
        let last = lines.last().unwrap();
        assert_eq!((&last["offset"], &last["payload"]), (&2.into(), &"three".into()), "{name}");
        match durability {
            // Another of several nodes may have it in its memory.
            Durability::Memory if node_count() == 1 || lines[0]["gap"] != Value::Null => {
                assert_eq!(lines[0]["gap"], "rolled-back");
            }
            _ => assert_eq!(lines[0]["payload"], "two"),
        }
        assert_eq!(lines.len(), 2, "{name}");
    }
}
