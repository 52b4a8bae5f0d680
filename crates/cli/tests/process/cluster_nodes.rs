//! Nodes of a cluster with static peers, on addresses of this machine.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicU16, Ordering::Relaxed},
};

use serde_json::Value;

use crate::{bounds::until, broker::Broker};

pub const CLUSTER: &str = "4242";

/// Length of the segments of nodes that do little: a node writes over each slot before it uses it, and with segments of
/// 64 MiB three nodes write more than tests have time for.
const SEGMENT_BYTES: u64 = 8 << 20;

/// The flags of a node that listens on `own`, with its peers.
pub fn flags(node: &str, own: &str, peers: &str, cluster: &str) -> Vec<String> {
    let flags = ["--node-id", node, "--peers", peers, "--cluster-listen", own];
    let rest = ["--cluster-id", cluster, "--shards", "2"];
    flags.iter().chain(&rest).map(|&flag| flag.to_owned()).collect()
}

pub fn start(data: &Path, flags: &[String]) -> Broker {
    Broker::start_with(data, &flags.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Makes a data directory of a node, with two shards of segments of this length.
pub fn segments_of_node(data: &Path, node: &str, segment_bytes: u64) {
    fs::create_dir_all(data).unwrap();
    let text = format!(
        "sennit data directory\nformat = 2\nshards = 2\nsegment_bytes = {segment_bytes}\n\
         incarnation = 4{node}\ncluster = {CLUSTER}\nnode = {node}\nstart_epoch = 0\n"
    );
    fs::write(data.join("FORMAT"), text).unwrap();
}

/// An address of the loopback that no other test uses, of this process or of another: nodes know each other's before they
/// start.
pub fn own_address() -> String {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let [.., high, low] = std::process::id().to_be_bytes();
    let next = NEXT.fetch_add(1, Relaxed);
    format!("127.{high}.{low}.{}:{}", next % 254 + 1, 4439 + next / 254)
}

/// The output of `cluster status` once the node lets callers in, and its exit code.
pub fn status(broker: &Broker) -> (Value, Option<i32>) {
    let mut said = None;
    until("the node says what it knows of the cluster", || {
        let output = broker.run(&["cluster", "status", "--json"], b"");
        said = serde_json::from_slice(&output.stdout).ok().zip(Some(output.status.code()));
        said.is_some()
    });
    said.expect("it was said")
}

/// Nodes 1 to 3 on these addresses, with their data in `folder`.
pub fn three(folder: &Path, addresses: &[String; 3]) -> [Broker; 3] {
    for node in ["1", "2", "3"] {
        segments_of_node(&folder.join(node), node, SEGMENT_BYTES);
    }
    three_with(folder, addresses, &[])
}

/// The same, each with more flags, on directories that need not be there.
pub fn three_with(folder: &Path, addresses: &[String; 3], more: &[&str]) -> [Broker; 3] {
    std::array::from_fn(|index| {
        let peers = (0..3).filter(|peer| *peer != index);
        let peers: Vec<_> = peers.map(|peer| format!("{}={}", peer + 1, addresses[peer])).collect();
        let node = (index + 1).to_string();
        let mut flags = flags(&node, &addresses[index], &peers.join(","), CLUSTER);
        flags.extend(more.iter().map(|&flag| flag.to_owned()));
        start(&folder.join(&node), &flags)
    })
}

/// The node that each group of a node has as its leader, once it knows one of all.
pub fn leaders(broker: &Broker) -> Option<Vec<u64>> {
    let (status, _) = status(broker);
    let groups = status["groups"].as_array().expect("it has groups");
    groups.iter().map(|group| group["leader"].as_u64()).collect()
}

/// Waits until these nodes agree who leads each group, and returns that.
pub fn until_led(brokers: &[&Broker]) -> Vec<u64> {
    let mut agreed = Vec::new();
    until("all groups are led", || {
        let all: Option<Vec<_>> = brokers.iter().map(|broker| leaders(broker)).collect();
        let Some(all) = all else { return false };
        agreed.clone_from(&all[0]);
        all.iter().all(|leaders| *leaders == agreed)
    });
    agreed
}

/// Three nodes whose groups are led and who let callers in, each with more flags.
pub fn cluster(folder: &Path, more: &[&str]) -> [Broker; 3] {
    let addresses = std::array::from_fn(|_| own_address());
    let brokers = three_with(folder, &addresses, more);
    until_led(&brokers.each_ref());
    for broker in &brokers {
        until("the node lets callers in", || broker.run(&["topic", "list"], b"").status.success());
    }
    brokers
}

/// Where in `brokers` the node is that leads the catalogue.
pub fn leader_of_catalogue(brokers: &[Broker; 3]) -> usize {
    until_led(&brokers.each_ref())[0] as usize - 1
}

/// The others, when the node at `dead` is dead.
pub fn living(brokers: &[Broker; 3], dead: usize) -> Vec<&Broker> {
    brokers.iter().enumerate().filter(|(at, _)| *at != dead).map(|(_, one)| one).collect()
}

/// Waits until these nodes, of which each has an index, have all that a leader has in a group.
pub fn until_caught_up(leader: &Broker, group: usize, nodes: &[usize]) {
    until("the others have all of it", || {
        let (status, _) = status(leader);
        nodes.iter().all(|&node| lag_of(&status["groups"][group], node) == Some(0))
    });
}

/// How many entries a node, of this index, is behind the leader that says so of a group.
pub fn lag_of(group: &Value, node: usize) -> Option<u64> {
    let mut replicas = group["replicas"].as_array()?.iter();
    replicas.find(|replica| replica["node"] == node + 1)?["lag_entries"].as_u64()
}
