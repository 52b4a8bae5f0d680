//! kill -9 in the middle of a publish.

use std::{io::Write, process::Stdio, time::Duration};

use serde_json::Value;

use crate::{
    bounds::{Watch, joined, until},
    broker::Broker,
};

fn lines(range: std::ops::Range<u32>) -> Vec<u8> {
    range.flat_map(|number| format!("{number}\n").into_bytes()).collect()
}

fn end_of(broker: &Broker, topic: &str) -> u64 {
    let said = broker.ok(&["topic", "describe", topic, "--json"], b"");
    let value: Value = serde_json::from_slice(&said).unwrap();
    value["partition"][0]["end"].as_u64().unwrap()
}

#[test]
fn every_confirmed_line_is_in_the_log_once_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let mut broker = Broker::start(folder.path());
    broker.ok(&["topic", "create", "numbers"], b"");
    let mut publish = broker
        .command(&["publish", "numbers", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let _watch = Watch::over(&publish, "the publisher");
    let mut input = publish.stdin.take().unwrap();
    // Lines keep coming while the broker dies and returns twice.
    let writer = std::thread::spawn(move || {
        for start in (0..300_000).step_by(1000) {
            input.write_all(&lines(start..start + 1000)).unwrap();
            // So slowly that some are still to come when the broker has returned.
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    for _ in 0..2 {
        let before = end_of(&broker, "numbers");
        until("more is published", || end_of(&broker, "numbers") != before);
        broker.kill();
        broker.start_again();
    }
    joined("all lines are taken", writer);
    let output = publish.wait_with_output().unwrap();
    assert!(output.status.success());
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["confirmed"], 300_000);
    let came = broker.ok(&["consume", "numbers"], b"");
    assert!(came == lines(0..300_000), "what came is not what was confirmed, once and in order");
}

#[test]
fn acked_messages_do_not_come_back_after_a_kill_and_others_do() {
    let folder = tempfile::tempdir().unwrap();
    let mut broker = Broker::start(folder.path());
    broker.ok(&["publish", "numbers", "--create"], &lines(0..1000));
    assert_eq!(broker.ok(&["consume", "numbers", "--count", "400"], b""), lines(0..400));
    broker.kill();
    broker.start_again();
    assert_eq!(broker.ok(&["consume", "numbers"], b""), lines(400..1000));
}
