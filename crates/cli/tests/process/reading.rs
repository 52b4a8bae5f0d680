//! Readers get all messages in order and without a gap, while the broker is killed and others consume the same
//! messages.

use std::{collections::BTreeMap, process::Output, time::Duration};

use sennit_client::{
    Client, Error, ErrorCode, GroupName, Message, Offset, PartitionIndex, ReadFrom, Reader,
    Received, Reconnect, TopicConfig, TopicKind, TopicName,
};

use crate::{
    bounds::{BOUND, until_async, within},
    broker::Broker,
};

const PARTITIONS: u32 = 3;

fn lines(output: &[u8]) -> Vec<String> {
    String::from_utf8(output.to_vec()).unwrap().lines().map(str::to_owned).collect()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn read_prints_from_where_it_is_told_and_takes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    let text: String = (0..1000).map(|n| format!("{n}\n")).collect();
    broker.ok(&["publish", "lines", "--create"], text.as_bytes());
    let all: Vec<_> = (0..1000).map(|n| n.to_string()).collect();
    for (flags, expected) in [
        (&[][..], &all[..]),
        (&["--from", "990"], &all[990..]),
        (&["--from", "-3"], &all[997..]),
        (&["--from", "latest"], &[]),
        (&["--from", "1h", "--count", "2"], &all[..2]),
        (&["--from", "5", "--count", "3", "--follow"], &all[5..8]),
        (&["--from", "2020-01-01T00:00:00Z"], &all),
        (&["--from", "2100-01-01T00:00:00Z"], &[]),
    ] {
        let read = [&["read", "lines"][..], flags].concat();
        assert_eq!(lines(&broker.ok(&read, b"")), expected, "{flags:?}");
    }
    let one = broker.ok(&["read", "lines", "--json", "--from", "7", "--count", "1"], b"");
    let one: serde_json::Value = serde_json::from_slice(&one).unwrap();
    assert_eq!((&one["offset"], &one["payload"]), (&7.into(), &"7".into()));

    // All of it is there for the group; a reader is told what that has settled.
    broker.ok(&["consume", "lines"], b"");
    let output = broker.run(&["read", "lines", "--from", "0"], b"");
    assert_eq!((output.status.code(), lines(&output.stdout)), (Some(0), vec![]));
    let gap = "gap: offsets 0..1000 of partition 0 are kept no more (retention)\n";
    assert_eq!(said(&output), gap);
    let output = broker.run(&["read", "nothing"], b"");
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
}

async fn client(broker: &str) -> Client {
    let delays = Reconnect { delay_max: Duration::from_millis(100), ..Reconnect::default() };
    Client::builder(broker).reconnect(delays).connect().await.unwrap()
}

/// Reads until each partition's last message has come: those that say so. Each message is the one
/// that follows the last of its partition.
async fn read_all(mut reader: Reader) -> BTreeMap<u32, Vec<String>> {
    let mut came: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    let mut next: Vec<u64> = reader.ranges().iter().map(|range| range.first.0).collect();
    let mut ended = 0;
    while ended < PARTITIONS {
        let received = tokio::time::timeout(Duration::from_secs(60), reader.receive_run()).await;
        let run = match received.expect("it goes on").expect("it goes on").unwrap() {
            Received::Delivered(run) => run,
            Received::Gap(gap) => panic!("{gap}"),
        };
        let partition = run.partition().0;
        assert_eq!(run.first_offset().0, next[partition as usize]);
        next[partition as usize] += u64::from(run.count());
        let texts = came.entry(partition).or_default();
        for message in run.messages() {
            let text = String::from_utf8(message.payload().to_vec()).unwrap();
            ended += u32::from(text == "the end");
            texts.push(text);
        }
    }
    reader.close().await.unwrap();
    came
}

/// Publishes `batches` of messages to each partition, then each one's last.
async fn publish_all(
    client: &Client,
    topic: &TopicName,
    batches: u64,
) -> BTreeMap<u32, Vec<String>> {
    let mut publishers = Vec::new();
    for index in 0..PARTITIONS {
        let publisher = client.publisher(topic).partition(PartitionIndex(index));
        publishers.push(publisher.open().await.unwrap());
    }
    let mut published: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for batch in 0..=batches {
        let mut pending = Vec::new();
        for n in 0..if batch == batches { 1 } else { 40 } {
            for partition in 0..PARTITIONS {
                let filler = "x".repeat((batch * n % 3000) as usize);
                let text = match batch == batches {
                    true => "the end".to_owned(),
                    false => format!("{batch} {n} {filler}"),
                };
                published.entry(partition).or_default().push(text.clone());
                let message = Message::new(text);
                pending.push(publishers[partition as usize].publish(message).await.unwrap());
            }
        }
        for pending in pending {
            pending.await.unwrap();
        }
    }
    published
}

#[test]
fn readers_and_a_group_miss_nothing_while_the_broker_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut broker = Broker::start_with(folder.path(), &["--shards", "2"]);
    let address = broker.listen.clone();
    within("readers come to the end", async {
        let topic: TopicName = "lines".parse().unwrap();
        let group: GroupName = "workers".parse().unwrap();
        let first = client(&address).await;
        let stream = TopicConfig::of_kind(TopicKind::Stream);
        let config = TopicConfig { partitions: PARTITIONS, ..stream };
        first.create_topic(&topic, config).await.unwrap();
        let mut readers = Vec::new();
        for n in 0..8 {
            let client = client(&address).await;
            let from = if n % 2 == 0 { ReadFrom::Earliest } else { ReadFrom::Latest };
            // Some have windows that are always full.
            let bytes = if n < 4 { 100_000 } else { 8 << 20 };
            let reader = client.reader(&topic).from(from).credit_bytes(bytes).start();
            readers.push(tokio::task::spawn_local(read_all(reader.await.unwrap())));
        }
        let consumer = first.consumer(&topic, &group).create_group_if_missing(true).subscribe();
        let mut consumer = consumer.await.unwrap();
        let publishing = tokio::task::spawn_local({
            let (client, topic) = (client(&address).await, topic.clone());
            async move { publish_all(&client, &topic, 60).await }
        });
        let consuming = tokio::task::spawn_local(async move {
            let mut came: BTreeMap<(u32, u64), String> = BTreeMap::new();
            let mut ended = 0;
            while ended < PARTITIONS {
                let run = consumer.next_run().await.unwrap().unwrap();
                for (offset, message) in (run.first_offset().0..).zip(run.messages()) {
                    let text = String::from_utf8(message.payload().to_vec()).unwrap();
                    let place = (run.partition().0, offset);
                    let is_end = text == "the end";
                    ended += u32::from(came.insert(place, text).is_none() && is_end);
                }
                run.ack();
            }
            came
        });
        for _ in 0..4 {
            tokio::time::sleep(Duration::from_millis(700)).await;
            broker.kill();
            broker.start_again();
        }
        let published = publishing.await.unwrap();
        for reader in readers {
            assert!(reader.await.unwrap() == published, "a reader has other messages");
        }
        for ((partition, offset), text) in consuming.await.unwrap() {
            assert_eq!(text, published[&partition][offset as usize]);
        }
        // Later it is the same, from any offset.
        let late = client(&address).await;
        for at in [0, 777, 2399] {
            let builder = late.reader(&topic).from(ReadFrom::Offset(Offset(at)));
            let came = read_all(builder.start().await.unwrap()).await;
            for (partition, texts) in came {
                assert!(texts == published[&partition][at as usize..], "from {at}");
            }
        }
        late.close().await;
    });
}

#[test]
fn a_cursor_goes_on_where_it_was_committed_across_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let mut broker = Broker::start(folder.path());
    broker.ok(&["topic", "create", "lines", "--kind", "stream"], b"");
    let text: String = (0..100).map(|n| format!("{n}\n")).collect();
    broker.ok(&["publish", "lines"], text.as_bytes());
    let numbers = |range: std::ops::Range<u32>| range.map(|n| n.to_string()).collect::<Vec<_>>();
    let audit = ["read", "lines", "--cursor", "audit"];
    let first = broker.ok(&[&audit[..], &["--count", "30"]].concat(), b"");
    assert_eq!(lines(&first), numbers(0..30));
    broker.kill();
    broker.start_again();
    assert_eq!(lines(&broker.ok(&audit, b"")), numbers(30..100));
    assert_eq!(lines(&broker.ok(&audit, b"")), numbers(0..0));
    assert_eq!(broker.ok(&["cursor", "list", "lines"], b""), b"audit\t0\t100\n");
    broker.ok(&["cursor", "set", "lines", "audit", "98"], b"");
    assert_eq!(lines(&broker.ok(&audit, b"")), numbers(98..100));
    broker.ok(&["cursor", "delete", "lines", "audit"], b"");
    let again = broker.run(&["cursor", "delete", "lines", "audit"], b"");
    assert_eq!(again.status.code(), Some(3), "{}", said(&again));
    let beyond = ["cursor", "set", "lines", "audit", "1", "--partition", "1"];
    assert_eq!(broker.run(&beyond, b"").status.code(), Some(3));
    // Through the client: what was given is committed, and no more.
    within("a cursor is committed", async {
        let client = client(&broker.listen).await;
        let (topic, name) = ("lines".parse().unwrap(), "billing".parse().unwrap());
        let mut reader = client.reader(&topic).cursor(&name).start().await.unwrap();
        for n in 0..10 {
            assert_eq!(reader.next().await.unwrap().unwrap().offset(), Offset(n));
        }
        reader.commit().await.unwrap();
        reader.next().await.unwrap().unwrap();
        let cursors = client.list_cursors(&topic).await.unwrap();
        assert_eq!(cursors[0].positions, [(PartitionIndex(0), Offset(10))]);
        // One at a time, unless it is taken over.
        let refused = client.reader(&topic).cursor(&name).start().await.err();
        let held =
            |error| matches!(error, Some(Error::Refused { code: ErrorCode::CursorHeld, .. }));
        assert!(held(refused));
        let again = client.reader(&topic).cursor(&name).take_over(true).start().await.unwrap();
        assert_eq!(again.ranges()[0].first, Offset(10));
        let ended = loop {
            match reader.next().await.unwrap() {
                Ok(message) => assert!(message.offset() > Offset(10)),
                Err(error) => break error,
            }
        };
        assert!(held(Some(ended)));
        assert!(reader.next().await.is_none());
        assert!(matches!(reader.commit().await, Err(Error::Closed)));
        // Nor is it set by hand meanwhile, unless that ends its reader.
        let set = broker.run(&["cursor", "set", "lines", "billing", "3"], b"");
        assert_eq!(set.status.code(), Some(4), "{}", said(&set));
        broker.ok(&["cursor", "set", "lines", "billing", "3", "--take-over"], b"");
        let positions = client.list_cursors(&topic).await.unwrap();
        let billing = positions.iter().find(|cursor| cursor.name == name).unwrap();
        assert_eq!(billing.positions, [(PartitionIndex(0), Offset(3))]);
        client.close().await;
    });
}

#[test]
fn of_two_that_claim_a_cursor_at_once_exactly_one_reads() {
    const PARTITIONS: u32 = 8;
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start_with(folder.path(), &["--shards", "4"]);
    let partitions = ["--partitions", &PARTITIONS.to_string()];
    broker.ok(&[&["topic", "create", "lines", "--kind", "stream"], &partitions[..]].concat(), b"");
    within("one of two has the cursor", async {
        let clients = [client(&broker.listen).await, client(&broker.listen).await];
        let topic: TopicName = "lines".parse().unwrap();
        let mut both_began = 0;
        for round in 0..100 {
            let name = format!("cursor-{round}").parse().unwrap();
            let claim =
                |n: usize| clients[n].reader(&topic).from(ReadFrom::Latest).cursor(&name).start();
            let (first, second) = tokio::join!(claim(round % 2), claim(1 - round % 2));
            both_began += u32::from(first.is_ok() && second.is_ok());
            // One message for each partition: who has the cursor gets them all.
            for index in 0..PARTITIONS {
                let publisher = clients[0].publisher(&topic).partition(PartitionIndex(index));
                let publisher = publisher.open().await.unwrap();
                publisher.publish(Message::new("one")).await.unwrap().await.unwrap();
            }
            let mut have_it = 0;
            for begun in [first, second] {
                let mut came = 0;
                let error = match begun {
                    Ok(mut reader) => loop {
                        match reader.next().await.unwrap() {
                            Ok(_) if came + 1 == PARTITIONS => {
                                reader.close().await.unwrap();
                                break None;
                            }
                            Ok(_) => came += 1,
                            Err(error) => break Some(error),
                        }
                    },
                    Err(error) => Some(error),
                };
                match error {
                    None => have_it += 1,
                    Some(Error::Refused { code: ErrorCode::CursorHeld, .. }) => {}
                    Some(error) => panic!("{error}"),
                }
            }
            assert_eq!(have_it, 1, "round {round}");
        }
        assert!(both_began > 0, "they never met");
        for client in clients {
            client.close().await;
        }
    });
}

#[test]
fn a_reader_commits_by_itself_what_the_program_is_done_with() {
    let folder = tempfile::tempdir().unwrap();
    let mut broker = Broker::start(folder.path());
    broker.ok(&["topic", "create", "lines", "--kind", "stream"], b"");
    let text: String = (0..100).map(|n| format!("{n}\n")).collect();
    broker.ok(&["publish", "lines"], text.as_bytes());
    within("a reader commits by itself", async {
        let client = client(&broker.listen).await;
        let topic: TopicName = "lines".parse().unwrap();
        let name = "audit".parse().unwrap();
        let builder = || client.reader(&topic).cursor(&name);
        let mut reader = builder().auto_commit(10).start().await.unwrap();
        for _ in 0..11 {
            reader.next().await.unwrap().unwrap();
        }
        // Once the eleventh was asked for, ten were done with; the commit goes on by itself, also
        // to a broker that was started again, and no further than it began.
        broker.kill();
        broker.start_again();
        let at = async || client.list_cursors(&topic).await.unwrap();
        until_async("what was done with is committed", async || {
            at().await.first().is_some_and(|cursor| cursor.positions[0].1 == Offset(10))
        })
        .await;
        drop(reader);
        // By time, while the program waits for more; and what is kept back is not committed.
        let every = Duration::from_millis(10);
        let mut reader = builder().auto_commit(every).start().await.unwrap();
        reader.commit_no_further(PartitionIndex(0), Offset(95));
        for n in 10..100 {
            assert_eq!(reader.next().await.unwrap().unwrap().offset(), Offset(n));
        }
        let waiting = tokio::time::timeout(Duration::from_secs(60), async {
            tokio::select! {
                next = reader.next() => panic!("{:?}", next.is_some()),
                () = until_async("it is committed by time", async || {
                    at().await[0].positions[0].1 == Offset(95)
                }) => {}
            }
        });
        waiting.await.unwrap();
        reader.close().await.unwrap();
        // At the end, all that was given.
        let mut reader = builder().auto_commit(1000).start().await.unwrap();
        for n in 95..98 {
            assert_eq!(reader.next().await.unwrap().unwrap().offset(), Offset(n));
        }
        reader.close().await.unwrap();
        assert_eq!(at().await[0].positions[0].1, Offset(98));
        client.close().await;
    });
}

#[test]
fn a_stream_is_appended_to_at_the_expected_offset_only_and_trimmed_by_whole_batches() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["topic", "create", "ledger", "--kind", "stream"], b"");
    let at = |offset: &str| {
        broker.run(&["publish", "ledger", "debit", "credit", "--expect-offset", offset], b"")
    };
    assert_eq!(at("0").status.code(), Some(0));
    let late = at("0");
    assert_eq!(late.status.code(), Some(4));
    assert!(said(&late).contains("the partition's next offset is 2"), "{}", said(&late));
    assert_eq!(at("2").status.code(), Some(0));
    assert_eq!(lines(&broker.ok(&["read", "ledger"], b"")).len(), 4);

    let trimmed = broker.run(&["topic", "trim", "ledger", "--before", "3"], b"");
    assert_eq!(trimmed.status.code(), Some(0), "{}", said(&trimmed));
    assert_eq!(said(&trimmed), "ledger: partition 0 starts at offset 2\n");
    let read = broker.run(&["read", "ledger", "--from", "0"], b"");
    assert_eq!(lines(&read.stdout), ["debit", "credit"]);
    assert_eq!(said(&read), "gap: offsets 0..2 of partition 0 are kept no more (retention)\n");
    let nowhere = broker.run(&["topic", "trim", "ledger", "--before", "3", "-p", "7"], b"");
    assert_eq!(nowhere.status.code(), Some(3), "{}", said(&nowhere));
}

#[test]
fn a_filter_is_the_brokers_work_and_a_cursor_moves_past_what_it_leaves_out() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["topic", "create", "orders", "--kind", "stream"], b"");
    for (region, texts) in [("eu", "a\nb\n"), ("us", "c\nd\n"), ("eu", "e\n"), ("us", "f\n")] {
        let header = format!("region={region}");
        broker.ok(&["publish", "orders", "--header", &header], texts.as_bytes());
    }
    let read = ["read", "orders", "--filter", "header.region = 'eu'"];
    assert_eq!(lines(&broker.ok(&read, b"")), ["a", "b", "e"]);
    let none = ["read", "orders", "--filter", "header.region = 'asia'"];
    assert_eq!(broker.ok(&none, b""), b"");
    let audit = [&read[..], &["--cursor", "audit"]].concat();
    assert_eq!(lines(&broker.ok(&audit, b"")), ["a", "b", "e"]);
    assert_eq!(broker.ok(&["cursor", "list", "orders"], b""), b"audit\t0\t6\n");
    let wrong = broker.run(&["read", "orders", "--filter", "header.region = eu"], b"");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(said(&wrong).contains("\n                ^ found `eu`\n"), "{}", said(&wrong));
}

#[test]
fn messages_of_a_key_come_in_order_from_eight_partitions_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start_with(folder.path(), &["--shards", "2"]);
    within("messages come in order", async {
        let client = client(&broker.listen).await;
        let topic: TopicName = "lines".parse().unwrap();
        let config = TopicConfig { partitions: 8, ..TopicConfig::of_kind(TopicKind::Stream) };
        client.create_topic(&topic, config).await.unwrap();
        let mut reader = client.reader(&topic).credit_messages(64).start().await.unwrap();
        let publisher = client.publisher(&topic).open().await.unwrap();
        let (keys, rounds) = (40, 250);
        let mut pending = Vec::new();
        for round in 0..rounds {
            for key in 0..keys {
                let key = format!("customer-{key}").into();
                let message = Message { key, ..Message::new(round.to_string()) };
                pending.push(publisher.publish(message).await.unwrap());
            }
        }
        let mut came: BTreeMap<Vec<u8>, (u32, u64)> = BTreeMap::new();
        let mut partitions = std::collections::BTreeSet::new();
        for _ in 0..keys * rounds {
            let next = tokio::time::timeout(BOUND, reader.next()).await;
            let message = next.expect("it goes on").unwrap().unwrap();
            partitions.insert(message.partition().0);
            let at = came.entry(message.key().to_vec()).or_insert((message.partition().0, 0));
            let expected = (message.partition().0, at.1.to_string().into_bytes());
            assert_eq!((at.0, message.payload().to_vec()), expected, "{message:?}");
            at.1 += 1;
        }
        assert!(came.values().all(|&(_, count)| count == rounds));
        assert!(partitions.len() > 4, "{partitions:?}");
        for pending in pending {
            pending.await.unwrap();
        }
        client.close().await;
    });
}
