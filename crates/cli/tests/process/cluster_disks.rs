//! Three nodes of which one has no room on its disk: the others go on.

use std::{path::Path, time::Instant};

use crate::{
    backup::get,
    bounds::{BOUND, until},
    broker::Broker,
    cluster_nodes::{CLUSTER, flags, own_address, start, until_led},
    full_disk::SmallDisk,
};

const DISK_BYTES: u64 = 24 << 20;

const SEGMENT_BYTES: u64 = 1 << 20;

/// Makes a data directory of a node, with two shards of short segments.
fn short_segments_of_node(data: &Path, node: &str) {
    std::fs::create_dir_all(data).unwrap();
    let text = format!(
        "sennit data directory\nformat = 2\nshards = 2\nsegment_bytes = {SEGMENT_BYTES}\n\
         incarnation = 4{node}\ncluster = {CLUSTER}\nnode = {node}\nstart_epoch = 1\n"
    );
    std::fs::write(data.join("FORMAT"), text).unwrap();
}

/// Makes a topic of one partition, and waits until each node knows it.
fn create_topic(brokers: &[Broker; 3]) {
    let led = until_led(&brokers.each_ref());
    brokers[led[0] as usize - 1].ok(&["topic", "create", "t", "--kind", "stream"], b"");
    for broker in brokers {
        until("a node knows the topic", || {
            broker.run(&["topic", "describe", "t"], b"").status.success()
        });
    }
}

fn publish(broker: &Broker, lines: &[String]) {
    broker.ok(&["publish", "t"], lines.join("\n").as_bytes());
}

/// All messages of the topic, as a node gives them.
fn read(broker: &Broker) -> Vec<String> {
    let printed = broker.ok(&["read", "t", "--from", "earliest"], b"");
    String::from_utf8(printed).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn a_node_whose_disk_is_full_does_not_stop_the_others() {
    let Some(disk) = SmallDisk::of(DISK_BYTES) else { return };
    let folder = tempfile::tempdir().unwrap();
    let own: [String; 3] = std::array::from_fn(|_| own_address());
    let brokers: [Broker; 3] = std::array::from_fn(|index| {
        let peers = (0..3).filter(|peer| *peer != index);
        let peers: Vec<_> = peers.map(|peer| format!("{}={}", peer + 1, own[peer])).collect();
        let node = (index + 1).to_string();
        let data = match index {
            2 => disk.path.join("data"),
            _ => folder.path().join(&node),
        };
        short_segments_of_node(&data, &node);
        start(&data, &flags(&node, &own[index], &peers.join(","), CLUSTER))
    });
    create_topic(&brokers);
    let line = "y".repeat(60_000);
    let (mut expected, begun) = (Vec::new(), Instant::now());
    while expected.len() as u64 * 60_000 < 2 * DISK_BYTES {
        assert!(begun.elapsed() < BOUND, "{} messages were confirmed", expected.len());
        let lines: Vec<_> = (0..20).map(|at| format!("{} {line}", expected.len() + at)).collect();
        publish(&brokers[expected.len() / 20 % 2], &lines);
        expected.extend(lines);
    }
    let metrics = get(&brokers[2].http, "/metrics");
    let full = |line: &str| line.starts_with("sennit_storage_full{") && line.ends_with(" 1");
    assert!(metrics.lines().any(full), "the disk of the third was to be full: {metrics}");
    for broker in &brokers[..2] {
        assert!(read(broker) == expected, "other messages came");
    }
}
