//! The leader of a topic is killed under those who use it through other nodes: consumers, readers, and clients of HTTP
//! streams that wait. They see a pause.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Stdio},
    thread::{self, JoinHandle},
};

use serde_json::Value;

use crate::{
    asking,
    backup::get,
    bounds::{Watch, joined, until},
    broker::Broker,
    cluster_nodes::{own_address, three, until_led},
};

/// A command of the binary that runs beside the test, and what it prints.
struct Beside {
    child: Child,
    lines: Option<JoinHandle<Vec<String>>>,
}

impl Beside {
    fn start(broker: &Broker, arguments: &[&str]) -> Self {
        let mut command = broker.command(arguments);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let lines = thread::spawn(move || said.lines().map(Result::unwrap).collect());
        Self { child, lines: Some(lines) }
    }

    /// All that it has printed by its end.
    fn lines(mut self) -> Vec<String> {
        let _watch = Watch::over(&self.child, "a command beside the test");
        let lines = joined("the command ends", self.lines.take().unwrap());
        assert!(self.child.wait().unwrap().success());
        lines
    }
}

/// Three nodes, of which the first in the answer leads the group of topic `t`, of one partition.
fn nodes(folder: &tempfile::TempDir, is_stream: bool) -> [Broker; 3] {
    let addresses = std::array::from_fn(|_| own_address());
    let mut brokers = three(folder.path(), &addresses);
    let led = until_led(&brokers.each_ref());
    let of_catalogue = &brokers[led[0] as usize - 1];
    if is_stream {
        let created = asking::ask(&of_catalogue.http, "PUT", "t", &[TEXT], "").unwrap();
        assert_eq!(created.status, 201, "{}", created.head);
    } else {
        of_catalogue.ok(&["topic", "create", "t"], b"");
    }
    let mut described = Vec::new();
    for broker in &brokers {
        until("a node knows the topic", || {
            let output = broker.run(&["topic", "describe", "t", "--json"], b"");
            described.clone_from(&output.stdout);
            output.status.success()
        });
    }
    // The only partition lies on the shard that follows from the number of the topic.
    let described: Value = serde_json::from_slice(&described).unwrap();
    let led = until_led(&brokers.each_ref());
    let shard = described["id"].as_u64().unwrap() as usize % led.len();
    brokers.swap(0, led[shard] as usize - 1);
    brokers
}

/// Connections that a node has parked.
fn parked(broker: &Broker) -> usize {
    let metrics = get(&broker.http, "/metrics");
    let of_cores = metrics.lines().filter_map(|line| line.strip_prefix("sennit_http_parked{"));
    let counts = of_cores.map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap());
    counts.sum()
}

const TEXT: (&str, &str) = ("content-type", "text/plain");

#[test]
fn a_consumer_and_a_reader_go_on_when_the_leader_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let [mut leader, other, third] = nodes(&folder, false);
    let consumer = Beside::start(&other, &["consume", "t", "--follow", "--count", "6"]);
    let reader = Beside::start(&third, &["read", "t", "--follow", "--count", "6"]);
    let publish = |broker: &Broker, name: &str| {
        let bodies: Vec<_> = (0..2).map(|number| format!("{name}-{number}")).collect();
        let mut arguments = vec!["publish", "t"];
        arguments.extend(bodies.iter().map(String::as_str));
        broker.ok(&arguments, b"");
        bodies
    };
    let mut expected = publish(&leader, "before");
    expected.extend(publish(&third, "through-another"));
    leader.kill();
    // No node leads yet: this waits.
    expected.extend(publish(&other, "after"));
    assert_eq!(reader.lines(), expected);
    let mut consumed = consumer.lines();
    consumed.dedup();
    assert_eq!(consumed, expected);
}

#[test]
fn a_reader_of_a_stream_that_waits_hears_what_is_appended_after_the_leader_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let [mut leader, other, third] = nodes(&folder, true);
    let http = other.http.clone();
    let waits = thread::spawn(move || {
        asking::ask(&http, "GET", "t?offset=-1&live=long-poll", &[], "").unwrap()
    });
    until("the connection is parked", || parked(&other) == 1);
    leader.kill();
    let appended = asking::ask(&third.http, "POST", "t", &[TEXT], "after").unwrap();
    assert_eq!(appended.status, 204, "{}", appended.head);
    let heard = joined("the reader hears", waits);
    assert_eq!((heard.status, &heard.body[..]), (200, &b"after"[..]), "{}", heard.head);
}
