//! Commands that know the addresses of three nodes: each goes on at another node when its own is killed, and asks again
//! where nobody leads for a while.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Write},
    process::{Command, Output, Stdio},
    thread,
};

use rustix::process::Signal;
use sennit_client::{Client, GroupName, Settled, TopicName};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    asking,
    bounds::{Watch, joined, until, until_async, within},
    broker::{Broker, run, sennit},
    cluster_nodes::{own_address, status, three, until_led},
    histories::proxy::{Flow, Link, Network},
};

const TEXT: (&str, &str) = ("content-type", "text/plain");

/// Three nodes, and a link to each of their ports: the commands know these links.
struct Cluster {
    brokers: [Broker; 3],
    native: [Link; 3],
    http: [Link; 3],
    _network: Network,
    _folder: TempDir,
}

impl Cluster {
    fn begin() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let addresses = std::array::from_fn(|_| own_address());
        let brokers = three(folder.path(), &addresses);
        until_led(&brokers.each_ref());
        let network = Network::new();
        let native = brokers.each_ref().map(|broker| network.link(&broker.listen));
        let http = brokers.each_ref().map(|broker| network.link(&broker.http));
        Self { brokers, native, http, _network: network, _folder: folder }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let list = |links: &[Link; 3]| links.each_ref().map(|link| link.address.clone()).join(",");
        let mut command = sennit(arguments);
        command.env("SENNIT_SERVER", list(&self.native)).env("SENNIT_HTTP", list(&self.http));
        command
    }

    /// A node that lives.
    fn other_than(&self, node: usize) -> &Broker {
        &self.brokers[(node + 1) % 3]
    }
}

/// Waits until one of these links has carried a connection, and says which.
fn until_used(links: &[Link; 3]) -> usize {
    let mut used = None;
    until("a node was connected to", || {
        used = links.iter().position(|link| link.connections() > 0);
        used.is_some()
    });
    used.expect("one was")
}

fn said(output: &Output) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(&output.stderr)
}

#[test]
fn a_publish_goes_on_at_another_node_when_its_own_is_killed() {
    const BEFORE: u32 = 5000;
    const ALL: u32 = 8000;
    let mut cluster = Cluster::begin();
    cluster.brokers[0].ok(&["topic", "create", "numbers", "--kind", "stream"], b"");
    let mut publish = cluster.command(&["publish", "numbers", "--json"]);
    let publish = publish.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = publish.spawn().unwrap();
    let _watch = Watch::over(&child, "the publish");
    let mut input = child.stdin.take().unwrap();
    let lines = |numbers: std::ops::Range<u32>| -> String {
        numbers.map(|number| format!("{number}\n")).collect()
    };
    input.write_all(lines(0..BEFORE).as_bytes()).unwrap();
    let own = until_used(&cluster.native);
    // In the middle: some are confirmed.
    until("a message is there", || {
        let first = ["read", "numbers", "--from", "earliest", "--count", "1"];
        !cluster.other_than(own).ok(&first, b"").is_empty()
    });
    cluster.brokers[own].kill();
    input.write_all(lines(BEFORE..ALL).as_bytes()).unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["confirmed"], ALL);
    let read = cluster.other_than(own).ok(&["read", "numbers", "--from", "earliest"], b"");
    assert!(read == lines(0..ALL).as_bytes(), "other lines were read");
}

#[test]
fn a_consumer_goes_on_at_another_node_when_its_own_is_killed() {
    let mut cluster = Cluster::begin();
    cluster.brokers[0].ok(&["topic", "create", "jobs"], b"");
    let mut consume = cluster.command(&["consume", "jobs", "--follow"]);
    let mut child = consume.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let _watch = Watch::over(&child, "the consumer");
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let publish = |broker: &Broker, name: &str| {
        broker.ok(&["publish", "jobs", &format!("{name}-1"), &format!("{name}-2")], b"");
    };
    let mut consumes = |name: &str| {
        let mut missing: BTreeSet<_> = [1, 2].map(|number| format!("{name}-{number}")).into();
        while !missing.is_empty() {
            // Messages that were not acked when the node was killed come again.
            missing.remove(&lines.next().expect("it goes on"));
        }
    };
    publish(&cluster.brokers[0], "before");
    consumes("before");
    let own = until_used(&cluster.native);
    cluster.brokers[own].kill();
    publish(cluster.other_than(own), "after");
    consumes("after");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// A consumer is given a message by one node, goes to another, is given the next one there, and acks the first. The node before has
/// not noticed that it is gone.
async fn ack_through_another_node(cluster: &Cluster) -> Settled {
    let publish = |text| cluster.brokers[0].ok(&["publish", "jobs", text], b"");
    let before = cluster.native.each_ref().map(Link::connections);
    let used = || -> Vec<usize> {
        let links = cluster.native.iter().zip(before).enumerate();
        let used = links.filter(|(_, (link, before))| link.connections() > *before);
        used.map(|(node, _)| node).collect()
    };
    publish("first");
    let addresses = cluster.native.each_ref().map(|link| link.address.clone()).join(",");
    let (topic, group): (TopicName, _) = ("jobs".parse().unwrap(), GroupName::default_group());
    let client = Client::connect(addresses).await.unwrap();
    let mut consumer = client.consumer(&topic, &group).subscribe().await.unwrap();
    let first = consumer.next().await.unwrap().unwrap();
    let [own] = used()[..] else { panic!("it is connected to one node: {:?}", used()) };
    // The client hears nothing any more, and gives its node up long before that would miss it.
    cluster.native[own].set([Flow::Held; 2]);
    until_async("it goes to another node", async || used().len() > 1).await;
    publish("second");
    let second = consumer.next().await.unwrap().unwrap();
    let settled = first.ack_confirmed().await.unwrap();
    second.ack_confirmed().await.unwrap();
    cluster.native[own].set([Flow::Open; 2]);
    settled
}

#[test]
fn a_consumer_at_another_node_settles_what_it_was_given_though_its_own_node_has_not_missed_it() {
    let cluster = Cluster::begin();
    let nodes = cluster.brokers.each_ref();
    until("the nodes lead that are to lead", || until_led(&nodes) == [1, 2]);
    for broker in nodes {
        until("the node lets callers in", || broker.run(&["topic", "list"], b"").status.success());
    }
    cluster.brokers[0].ok(&["topic", "create", "jobs"], b"");
    let terms = || {
        let (status, _) = status(nodes[0]);
        let groups = status["groups"].as_array().unwrap().iter();
        groups.map(|group| group["term"].as_u64()).collect::<Vec<_>>()
    };
    loop {
        let before = terms();
        let settled = within("the consumer settles", ack_through_another_node(&cluster));
        // What a leader before has given is given again.
        if terms() == before {
            return assert_eq!((settled.applied, settled.stale), (1, 0));
        }
    }
}

#[test]
fn an_append_over_http_goes_on_at_another_node_when_its_own_is_killed() {
    let mut cluster = Cluster::begin();
    let created = asking::ask(&cluster.brokers[0].http, "PUT", "notes", &[TEXT], "").unwrap();
    assert_eq!(created.status, 201, "{}", created.head);
    // The first request of the command is on its way when the node is killed.
    cluster.http.iter().for_each(|link| link.set([Flow::Open, Flow::Held]));
    let append = cluster.command(&["stream", "append", "notes"]);
    let append = thread::spawn(move || run(append, b"text"));
    let own = until_used(&cluster.http);
    cluster.brokers[own].kill();
    cluster.http.iter().for_each(|link| link.set([Flow::Open; 2]));
    cluster.http[own].break_all();
    let output = joined("the append ends", append);
    assert!(output.status.success(), "{}", said(&output));
    let read = run(cluster.command(&["stream", "read", "notes"]), b"");
    assert_eq!(read.stdout, b"text", "{}", said(&read));
}

#[test]
fn an_append_over_http_is_sent_again_where_nobody_leads_for_a_while() {
    let cluster = Cluster::begin();
    let created = asking::ask(&cluster.brokers[0].http, "PUT", "notes", &[TEXT], "").unwrap();
    assert_eq!(created.status, 201, "{}", created.head);
    let [one, rest @ ..] = &cluster.brokers;
    rest.iter().for_each(|broker| broker.signal(Signal::STOP));
    until("nobody is known to lead", || {
        let (status, _) = status(one);
        status["groups"].as_array().unwrap().iter().all(|group| group["leader"].is_null())
    });
    let mut append = sennit(&["stream", "append", "notes"]);
    append.env("SENNIT_HTTP", &cluster.http[0].address);
    let append = thread::spawn(move || run(append, b"text"));
    until("the request is sent again", || cluster.http[0].connections() > 1);
    rest.iter().for_each(|broker| broker.signal(Signal::CONT));
    let output = joined("the append ends", append);
    assert!(output.status.success(), "{}", said(&output));
    let read = run(cluster.command(&["stream", "read", "notes"]), b"");
    assert_eq!(read.stdout, b"text", "{}", said(&read));
}
