//! A long backlog moves to packs, is read back from there, and leaves nothing behind.

use std::{os::unix::fs::FileExt, path::PathBuf};

use sennit_model::{Offset, OffsetRange, PartitionIndex, TopicId};
use sennit_protocol::{Gap, GapReason, Reply, Request, Taken, Verdict, control};
use sennit_server::Config;
use tempfile::TempDir;

use crate::{
    http::get,
    reading::{begin, read, reader},
    world::{Broker, Peer, config, publish, until},
};

/// Messages of the backlog, in batches.
const BATCHES: u64 = 70;
const BATCH: usize = 16;

fn gauge(broker: &Broker, name: &str) -> u64 {
    let (_, metrics) = get(broker, "/metrics");
    let line = metrics.lines().find(|line| line.starts_with(&format!("{name}{{"))).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

fn wait_until(broker: &Broker, what: &str, is_so: impl Fn(&Broker) -> bool) {
    until(what, || is_so(broker));
}

/// Publishes the backlog to `orders`, waits until most of it lies in packs, and stops.
fn leave_in_packs(settings: &Config) -> (TopicId, Vec<String>) {
    let broker = Broker::start(settings.clone());
    let mut peer = broker.greeted();
    let topic = peer.create_topic("orders", 1);
    let texts: Vec<String> =
        (0..BATCHES * BATCH as u64).map(|n| format!("{n} {}", "x".repeat(64 << 10))).collect();
    let batches: Vec<Vec<&str>> =
        texts.chunks(BATCH).map(|batch| batch.iter().map(String::as_str).collect()).collect();
    for (batch, sequence) in batches.iter().zip((0..).step_by(BATCH)) {
        peer.send(&Request::Publish(publish(topic, 0, sequence, batch)));
        peer.confirmed_up_to(sequence + BATCH as u64);
    }
    wait_until(&broker, "nothing was moved", |broker| gauge(broker, "sennit_packs") > 1);
    assert!(gauge(&broker, "sennit_pack_live_bytes") > 0);
    broker.stop();
    (topic, texts)
}

fn first_pack(folder: &TempDir) -> PathBuf {
    let lane = std::fs::read_dir(folder.path().join("lane-0")).unwrap();
    let paths = lane.map(|entry| entry.unwrap().path());
    let is_pack = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "pack");
    paths.filter(is_pack).min().unwrap()
}

/// How many messages of `orders` are known to be unreadable.
fn damaged(peer: &mut Peer) -> u64 {
    let describe = control::DescribeTopic { name: "orders".into() };
    match peer.ask(&Request::DescribeTopic(describe)) {
        Reply::TopicDescription(topic) => topic.partitions[0].damaged,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_backlog_longer_than_the_journal_lies_in_packs_until_it_is_consumed() {
    let folder = TempDir::new().unwrap();
    let settings = Config { shards: Some(1), journal_segments: 1, ..config(folder.path()) };
    let (topic, texts) = leave_in_packs(&settings);

    let broker = Broker::start(settings);
    let mut peer = broker.greeted();
    let group = peer.subscribe("orders", 1, BATCHES as u32 * BATCH as u32 / 2);
    // A part at a time: the window is shorter than the backlog.
    for half in texts.chunks(texts.len() / 2) {
        let (came, deliveries) = peer.deliveries(half.len());
        assert!(came == half, "other messages came than were published");
        peer.settle((topic, group), &deliveries, Verdict::Ack);
    }
    // The queue's other group has settled nothing.
    assert!(gauge(&broker, "sennit_packs") > 1);
    let delete = control::DeleteTopic { name: "orders".into() };
    let reply = peer.ask(&Request::DeleteTopic(delete));
    assert!(matches!(reply, Reply::Done(_)), "{reply:?}");
    wait_until(&broker, "packs stay", |broker| gauge(broker, "sennit_packs") == 0);
    let is_pack =
        |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with("pack");
    wait_until(&broker, "files of packs stay", |_| {
        let lane = std::fs::read_dir(folder.path().join("lane-0")).unwrap();
        !lane.map(Result::unwrap).any(is_pack)
    });
    broker.stop();
}

#[test]
fn a_lost_pack_costs_what_lay_in_it_and_no_more() {
    let folder = TempDir::new().unwrap();
    let settings = Config { shards: Some(1), journal_segments: 1, ..config(folder.path()) };
    let (topic, texts) = leave_in_packs(&settings);
    std::fs::remove_file(first_pack(&folder)).unwrap();

    let broker = Broker::start(settings);
    let mut peer = broker.greeted();
    let other = peer.create_topic("other", 1);
    peer.send(&Request::Publish(publish(other, 0, 0, &["served"])));
    peer.confirmed_up_to(1);
    let group = peer.subscribe("orders", 1, BATCHES as u32 * BATCH as u32 / 2);
    let last = texts.last().unwrap();
    let mut came = Vec::new();
    while came.last() != Some(last) {
        let (more, deliveries) = peer.deliveries(1);
        came.extend(more);
        peer.settle((topic, group), &deliveries, Verdict::Ack);
    }
    let damaged = damaged(&mut peer);
    assert!(damaged > 0);
    assert_eq!(came.len() as u64 + damaged, texts.len() as u64);
    broker.stop();
}

#[test]
fn readers_get_what_lies_in_packs_and_in_the_journal_in_order() {
    let folder = TempDir::new().unwrap();
    let settings = Config { shards: Some(1), journal_segments: 1, ..config(folder.path()) };
    let (_, texts) = leave_in_packs(&settings);
    let broker = Broker::start(settings);
    let mut peers = [reader(&broker), reader(&broker)];
    for (peer, credit_messages) in peers.iter_mut().zip([10, 100]) {
        begin(peer, control::Read { credit_messages, ..read("orders") });
    }
    let (partition, mut came) = (PartitionIndex(0), [Vec::new(), Vec::new()]);
    while came.iter().any(|came| came.len() < texts.len()) {
        for (peer, came) in peers.iter_mut().zip(&mut came) {
            if came.len() < texts.len() {
                let (texts, deliveries) = peer.deliveries(1);
                assert_eq!(deliveries[0].head.first.0, came.len() as u64);
                came.extend(texts);
                let deliver = &deliveries[0];
                let (messages, bytes) = (deliver.head.count, deliver.messages.len() as u64);
                peer.send(&Request::Taken(Taken { subscription: 5, partition, messages, bytes }));
            }
        }
    }
    assert!(came.iter().all(|came| *came == texts));
    assert!(peers.iter().all(|peer| peer.gaps.is_empty()));
    broker.stop();
}

#[test]
fn a_flipped_bit_in_a_pack_costs_its_batch_and_no_more() {
    let folder = TempDir::new().unwrap();
    let settings = Config { shards: Some(1), journal_segments: 1, ..config(folder.path()) };
    let (topic, texts) = leave_in_packs(&settings);
    let pack = first_pack(&folder);
    let file = std::fs::File::options().read(true).write(true).open(pack).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 100_000).unwrap();
    file.write_all_at(&[byte[0] ^ 1], 100_000).unwrap();

    let broker = Broker::start(settings);
    let knows_gaps = control::Hello {
        features: vec!["gaps".into(), "of a later version".into()],
        ..<_>::default()
    };
    let (mut peer, granted) = broker.connect().greeted_with(knows_gaps.clone());
    assert_eq!(granted.features, ["gaps"]);
    let group = peer.subscribe("orders", 1, BATCHES as u32 * BATCH as u32 / 2);
    let mut came = Vec::new();
    while came.len() < texts.len() - BATCH {
        let (more, deliveries) = peer.deliveries(1);
        came.extend(more);
        peer.settle((topic, group), &deliveries, Verdict::Ack);
    }
    let lost: Vec<_> = texts.iter().filter(|text| !came.contains(text)).collect();
    assert_eq!(lost.len(), BATCH);
    assert!(came.iter().all(|text| texts.contains(text)));
    assert_eq!(damaged(&mut peer), BATCH as u64);
    let first = texts.iter().position(|text| text == lost[0]).unwrap() as u64;
    let offsets = OffsetRange::new(Offset(first), BATCH as u64);
    let (partition, reason) = (PartitionIndex(0), GapReason::Damaged);
    assert_eq!(peer.gaps, [Gap { subscription: 1, partition, offsets, reason }]);

    // Who comes later hears of it too, but not a client that knows no gaps.
    let (mut later, _) = broker.connect().greeted_with(knows_gaps);
    later.subscribe("orders", 7, 1);
    let mut old = broker.greeted();
    old.subscribe("orders", 7, 1);
    for peer in [&mut later, &mut old] {
        // Asked of the shard, so that it comes behind.
        assert_eq!(damaged(peer), BATCH as u64);
        assert_eq!(peer.ask(&Request::Ping), Reply::Pong);
    }
    assert_eq!(later.gaps, [Gap { subscription: 7, partition, offsets, reason }]);
    assert_eq!(old.gaps, []);
    let (status, ready) = get(&broker, "/readyz");
    assert_eq!(status, 200);
    assert!(ready.contains(r#""quarantined":{"batches":"#), "{ready}");
    broker.stop();
}
