//! Lines in, the same lines out.

use std::{
    io::{BufRead, BufReader, Read},
    process::Stdio,
    sync::mpsc,
    thread,
};

use serde_json::Value;

use crate::{
    bounds::{BOUND, Watch, joined},
    broker::Broker,
};

fn numbers(count: u32) -> Vec<u8> {
    (0..count).flat_map(|number| format!("line {number}\n").into_bytes()).collect()
}

#[test]
fn a_hundred_thousand_lines_come_back_the_same_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let mut broker = Broker::start(&folder.path().join("data"));
    let file = folder.path().join("lines");
    let lines = numbers(100_000);
    std::fs::write(&file, &lines).unwrap();
    let said = broker
        .ok(&["publish", "lines", "--create", "--json", "--file", file.to_str().unwrap()], b"");
    let summary: Value = serde_json::from_slice(&said).unwrap();
    assert_eq!(summary["confirmed"], 100_000);
    assert_eq!(summary["partitions"][0]["last_offset"], 99_999);
    assert!(broker.ok(&["consume", "lines"], b"") == lines, "other lines came back");
    assert!(broker.ok(&["consume", "lines"], b"").is_empty(), "acked lines came again");
    assert_eq!(broker.terminate(), Some(0));
}

#[test]
fn what_was_looked_at_returns_and_a_count_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["topic", "create", "jobs"], b"");
    broker.ok(&["publish", "jobs"], &numbers(50));
    assert_eq!(broker.ok(&["consume", "jobs", "--no-ack", "--count", "2"], b""), numbers(2));
    assert_eq!(broker.ok(&["consume", "jobs", "--count", "7"], b""), numbers(7));
    let left = broker.ok(&["consume", "jobs"], b"");
    assert_eq!(left, numbers(50)[numbers(7).len()..]);
}

#[test]
fn a_count_is_kept_without_acks_wherever_and_whenever_the_messages_come() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["topic", "create", "jobs", "--partitions", "4"], b"");
    // All in one partition, whose share of the window is less than the count.
    broker.ok(&["publish", "jobs", "--key", "k"], &numbers(50));
    assert_eq!(broker.ok(&["consume", "jobs", "--no-ack", "--count", "10"], b""), numbers(10));
    broker.ok(&["topic", "create", "trickle"], b"");
    let mut command = broker.command(&["consume", "trickle", "--no-ack", "--follow", "-n", "5"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let _watch = Watch::over(&child, "the consumer");
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (said, lines_said) = mpsc::channel();
    let reading = thread::spawn(move || lines.try_for_each(|line| said.send(line.unwrap())));
    for number in 0..5 {
        let text = number.to_string();
        broker.ok(&["publish", "trickle", &text], b"");
        let line = lines_said.recv_timeout(BOUND).inspect_err(|_| child.kill().unwrap());
        assert_eq!(line, Ok(text));
    }
    assert_eq!(child.wait().unwrap().code(), Some(0));
    joined("all lines are read", reading).unwrap();
}

#[test]
fn json_says_where_a_message_lies_and_all_it_carries() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    let message = ["publish", "orders", "a", "--create", "--key", "k", "--header", "type=created"];
    broker.ok(&message, b"");
    let said = broker.ok(&["consume", "orders", "--json"], b"");
    let value: Value = serde_json::from_slice(&said).unwrap();
    assert_eq!((&value["topic"], &value["offset"]), (&"orders".into(), &0.into()));
    assert_eq!((&value["key"], &value["payload"]), (&"k".into(), &"a".into()));
    assert_eq!(value["headers"][0]["name"], "type");
    assert_eq!(value["attempt"], 1);
}

#[test]
fn topics_and_groups_are_made_listed_altered_and_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    let retained = ["--partitions", "3", "--retain", "7d", "--retain", "1GiB"];
    broker.ok(&[&["topic", "create", "events"][..], &retained].concat(), b"");
    broker.ok(&["group", "create", "events", "audit", "--lease", "2m", "--attempts", "5"], b"");
    let listed = String::from_utf8(broker.ok(&["topic", "list"], b"")).unwrap();
    assert_eq!(listed, "events\tstream\t3\t7d,1GiB\n");
    let groups = String::from_utf8(broker.ok(&["group", "list", "events"], b"")).unwrap();
    assert_eq!(groups, "audit\t0\t0\t0\t0\t2m\t5\t0\t-\t-\t-\t-\t-\n");
    broker.ok(&["topic", "alter", "events", "--retain", "forever"], b"");
    let said = broker.ok(&["topic", "describe", "events", "--json"], b"");
    let value: Value = serde_json::from_slice(&said).unwrap();
    assert_eq!((&value["partitions"], &value["kind"]), (&3.into(), &"stream".into()));
    assert_eq!(value["retention"]["age_ms"], Value::Null);
    broker.ok(&["group", "delete", "events", "audit"], b"");
    broker.ok(&["topic", "delete", "events"], b"");
    assert!(broker.ok(&["topic", "list"], b"").is_empty());
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["publish", "many", "--create"], &numbers(200_000));
    let mut child = broker
        .command(&["consume", "many"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _watch = Watch::over(&child, "the consumer");
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert_eq!(first, "line 0\n");
    let ended = child.wait().unwrap();
    let mut talk = String::new();
    child.stderr.take().unwrap().read_to_string(&mut talk).unwrap();
    assert!(ended.success(), "{talk}");
}

#[test]
fn follow_waits_for_what_is_published_later() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["topic", "create", "later"], b"");
    let mut child = broker
        .command(&["consume", "later", "--follow", "--count", "2"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let _watch = Watch::over(&child, "the consumer");
    broker.ok(&["publish", "later", "one", "two", "three"], b"");
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "one\ntwo\n");
    assert!(child.wait().unwrap().success());
    assert_eq!(broker.ok(&["consume", "later"], b""), b"three\n");
}
