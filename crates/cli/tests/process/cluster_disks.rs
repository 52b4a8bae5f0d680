//! Three nodes of which one has no room on its disk, or one that syncs nothing: the others go on.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    time::Instant,
};

use crate::{
    backup::get,
    bounds::{BOUND, until},
    broker::Broker,
    cluster_nodes::{
        CLUSTER, flags, lag_of, leaders, own_address, segments_of_node, start, status, three,
        until_caught_up, until_led,
    },
    full_disk::SmallDisk,
    skipped::skipped,
};

const DISK_BYTES: u64 = 24 << 20;

const SEGMENT_BYTES: u64 = 1 << 20;

/// Holds back the syncs of a node's lanes while this lives.
struct HeldSyncs(Child);

impl HeldSyncs {
    /// None where the system does not allow it.
    fn of(broker: &Broker) -> Option<Self> {
        let lanes = lanes(broker.pid());
        assert!(!lanes.is_empty(), "the node has lanes");
        let mut strace = Command::new("strace");
        // Longer than any test.
        strace.args(["-e", "trace=fdatasync", "-e", "inject=fdatasync:delay_enter=3000000000"]);
        strace.args(["-o", "/dev/null"]);
        for thread in &lanes {
            strace.args(["-p", thread]);
        }
        let started = strace.stderr(Stdio::piped()).spawn();
        let Ok(mut child) = started.inspect_err(|error| skipped(&format!("strace: {error}")))
        else {
            return None;
        };
        let mut said = BufReader::new(child.stderr.take().expect("it was piped"));
        let held = Self(child);
        for _ in &lanes {
            let mut line = String::new();
            said.read_line(&mut line).expect("it says what it does");
            if !line.contains("attached") {
                skipped(&format!("strace may not follow a thread: {}", line.trim()));
                return None;
            }
        }
        Some(held)
    }
}

impl Drop for HeldSyncs {
    fn drop(&mut self) {
        // It may have ended. The threads go on.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The threads of a process that write its lanes.
fn lanes(process: u32) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).expect("it runs");
    let threads = threads.map(|thread| thread.expect("it is listed"));
    let is_lane = |thread: &fs::DirEntry| {
        let name = fs::read_to_string(thread.path().join("comm"));
        name.is_ok_and(|name| name.starts_with("lane-"))
    };
    let names = threads.filter(is_lane).map(|thread| thread.file_name());
    names.map(|name| name.into_string().expect("it is a number")).collect()
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
        segments_of_node(&data, &node, SEGMENT_BYTES);
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

#[test]
fn a_follower_that_syncs_nothing_does_not_set_the_pace() {
    const ROUNDS: usize = 20;
    let folder = tempfile::tempdir().unwrap();
    let addresses = std::array::from_fn(|_| own_address());
    let mut brokers = three(folder.path(), &addresses);
    create_topic(&brokers);
    until("the third node leads nothing", || {
        brokers.each_ref().into_iter().all(|broker| leaders(broker) == Some(vec![1, 2]))
    });
    let lags = |brokers: &[Broker; 3]| {
        let of = |group: usize| lag_of(&status(&brokers[group]).0["groups"][group], 2);
        of(0).unwrap_or(0) + of(1).unwrap_or(0)
    };
    for (group, leader) in brokers[..2].iter().enumerate() {
        until_caught_up(leader, group, &[2]);
    }
    let Some(held) = HeldSyncs::of(&brokers[2]) else { return };
    // A core writes what is little by itself, unless its lane's thread is at work: this gives it work for good.
    let mut expected = vec!["y".repeat(100_000)];
    publish(&brokers[0], &expected);
    let mut lag = 0;
    for round in 0..ROUNDS {
        let lines: Vec<_> = (0..50).map(|number| format!("{round} {number}")).collect();
        // All of them are confirmed, by two nodes.
        publish(&brokers[round % 3], &lines);
        expected.extend(lines);
        let before = lag;
        until("the third node is further behind", || {
            lag = lags(&brokers);
            lag > before
        });
    }
    drop(held);
    for (group, leader) in brokers[..2].iter().enumerate() {
        until_caught_up(leader, group, &[2]);
    }
    let leader = brokers.iter().position(|broker| {
        let (status, _) = status(broker);
        status["groups"].as_array().unwrap().iter().any(|group| group["role"] == "leader")
    });
    brokers[leader.expect("a node leads")].kill();
    assert_eq!(read(&brokers[2]), expected);
}
