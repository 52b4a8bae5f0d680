//! The leader of a topic is killed under those who use it through other nodes: consumers, readers, live subscribers, and
//! clients of HTTP streams that wait. They see a pause, and stay connected.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Lines, Write},
    net::TcpStream,
    ops::Range,
    process::{Child, ChildStdout, Stdio},
    thread,
};

use serde_json::Value;

use crate::{
    asking,
    backup::get,
    bounds::{BOUND, Watch, joined, until},
    broker::Broker,
    cluster_nodes::{own_address, three, until_led},
    histories::proxy::Network,
};

/// A command of the binary that runs beside the test, and what it prints. Dropping it kills it.
struct Beside {
    _watch: Watch,
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Beside {
    fn start(broker: &Broker, arguments: &[&str]) -> Self {
        let mut command = broker.command(arguments);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { _watch: Watch::over(&child, "a command beside the test"), child, lines }
    }

    fn next(&mut self) -> String {
        self.lines.next().expect("it goes on").unwrap()
    }

    /// The next lines, so many.
    fn take(&mut self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.next()).collect()
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
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
        // Readers find also what the consumer has acked.
        of_catalogue.ok(&["topic", "create", "t", "--kind", "stream"], b"");
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

/// The sum of a node's metric over its cores.
fn sum_of(broker: &Broker, metric: &str) -> usize {
    let metrics = get(&broker.http, "/metrics");
    let lines = metrics.lines().filter_map(|line| line.strip_prefix(metric));
    let lines = lines.filter(|rest| rest.starts_with(['{', ' ']));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()).sum()
}

/// Connections that a node has parked.
fn parked(broker: &Broker) -> usize {
    sum_of(broker, "sennit_http_parked")
}

/// The lines of a stream's events as they come, on one connection to a node.
fn events(broker: &Broker, path: &str) -> impl Iterator<Item = String> {
    let mut connection = TcpStream::connect(&broker.http).unwrap();
    connection.set_read_timeout(Some(BOUND)).unwrap();
    let request = format!("GET /v1/stream/{path} HTTP/1.1\r\nhost: {}\r\n\r\n", broker.http);
    connection.write_all(request.as_bytes()).unwrap();
    let mut lines = BufReader::new(connection).lines().map(Result::unwrap);
    let status = lines.next().expect("it answers");
    assert!(status.contains(" 200 "), "{status}");
    lines
}

const TEXT: (&str, &str) = ("content-type", "text/plain");

#[test]
fn a_consumer_and_a_reader_go_on_when_the_leader_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let [mut leader, other, third] = nodes(&folder, false);
    other.ok(&["group", "create", "t", "workers"], b"");
    let mut consumer = Beside::start(&other, &["consume", "t", "-g", "workers", "--follow"]);
    let mut reader = Beside::start(&third, &["read", "t", "--from", "earliest", "--follow"]);
    let publish = |broker: &Broker, name: &str| {
        let bodies: Vec<_> = (0..2).map(|number| format!("{name}-{number}")).collect();
        let mut arguments = vec!["publish", "t"];
        arguments.extend(bodies.iter().map(String::as_str));
        broker.ok(&arguments, b"");
        bodies
    };
    let mut expected = publish(&leader, "before");
    expected.extend(publish(&third, "through-another"));
    assert_eq!(reader.take(2), expected[..2]);
    leader.kill();
    // No node leads yet: this waits.
    expected.extend(publish(&other, "after"));
    assert_eq!(reader.take(expected.len() - 2), expected[2..]);
    // Messages that were not acked when the leader was killed come again.
    let mut missing = BTreeSet::from_iter(expected);
    while !missing.is_empty() {
        missing.remove(&consumer.next());
    }
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
    third.ok(&["stream", "append", "t"], b"after");
    let heard = joined("the reader hears", waits);
    assert_eq!((heard.status, &heard.body[..]), (200, &b"after"[..]), "{}", heard.head);
}

#[test]
fn a_reader_of_a_streams_events_stays_connected_and_hears_all_when_the_leader_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let [mut leader, other, third] = nodes(&folder, true);
    let mut events = events(&other, "t?offset=-1&live=sse");
    let append = |broker: &Broker, name: &str| {
        broker.ok(&["stream", "append", "t"], name.as_bytes());
    };
    let mut hears = |name: &str| {
        let line = events.by_ref().find(|line| line.starts_with("data:") && line.contains(name));
        line.expect("the connection stays open");
    };
    append(&leader, "before");
    hears("before");
    leader.kill();
    append(&third, "after");
    hears("after");
    leader.start_again();
    append(&leader, "through the one that returned");
    hears("through the one that returned");
}

#[test]
fn a_live_subscriber_stays_connected_and_hears_all_when_the_leader_is_killed() {
    const COUNT: usize = 300;
    let folder = tempfile::tempdir().unwrap();
    let [mut leader, other, third] = nodes(&folder, false);
    let network = Network::new();
    let link = network.link(&other.http);
    let arguments = ["live", "subscribe", "t", "--from", "earliest", "--http", &link.address];
    let mut subscriber = Beside::start(&other, &arguments);
    until("it is connected", || sum_of(&other, "sennit_live_subscriptions") == 1);
    let publish = |broker: &Broker, numbers: Range<usize>| {
        let lines: String = numbers.map(|number| format!("{number}\n")).collect();
        broker.ok(&["publish", "t"], lines.as_bytes());
    };
    publish(&third, 0..100);
    leader.kill();
    publish(&other, 100..200);
    leader.start_again();
    publish(&leader, 200..COUNT);
    let expected: Vec<_> = (0..COUNT).map(|number| number.to_string()).collect();
    assert_eq!(subscriber.take(COUNT), expected);
    assert_eq!(link.connections(), 1, "it had to connect again");
}
