//! A topic that keeps the latest message of each key, with a real broker: disk space comes free, and readers get
//! the latest message of each key, also after a kill.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{bounds::until, broker::Broker};

fn described(broker: &Broker) -> Value {
    let output = broker.ok(&["topic", "describe", "rates", "--json"], b"");
    serde_json::from_slice::<Value>(&output).unwrap()
}

/// How the topic is once what is wanted of it takes less than so many bytes.
fn shrunk(broker: &Broker, most: u64) -> Value {
    let mut held = Value::Null;
    until("the topic takes little", || {
        held = described(broker);
        held["partition"][0]["live_bytes"].as_u64().unwrap() < most
    });
    held
}

/// What a reader from the start comes by: messages, and the latest payload of each key.
fn read(broker: &Broker) -> (u64, BTreeMap<String, String>) {
    let output = broker.ok(&["read", "rates", "--json"], b"");
    let (mut count, mut latest, mut behind) = (0, BTreeMap::new(), -1);
    for line in output.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let object: Value = serde_json::from_slice(line).unwrap();
        assert!(object.get("gap").is_none(), "nothing is missing: {object}");
        let offset = object["offset"].as_i64().unwrap();
        assert!(offset > behind, "in order: {object}");
        behind = offset;
        count += 1;
        let text = |field: &str| object[field].as_str().unwrap().to_owned();
        latest.insert(text("key"), text("payload"));
    }
    (count, latest)
}

#[test]
fn the_disk_holds_little_but_the_latest_of_each_key_and_a_reader_gets_that() {
    let folder = tempfile::tempdir().unwrap();
    let mut broker = Broker::start(folder.path());
    broker.ok(&["topic", "create", "rates", "--retain", "latest-per-key"], b"");
    let refused = broker.run(&["publish", "rates", "no key"], b"");
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("every message needs one"));

    let filler = "x".repeat(80);
    let (keys, rounds) = (200, 300);
    for part in 0..2 {
        let line = |n: u64| format!("key {}={n} {filler}\n", n % keys);
        let half = keys * rounds / 2;
        let lines: String = (part * half..(part + 1) * half).map(line).collect();
        broker.ok(&["publish", "rates", "--key-before", "="], lines.as_bytes());
        if part == 0 {
            broker.kill();
            broker.start_again();
        }
    }
    broker.ok(&["publish", "rates", "--key", "key 7", ""], b"");
    let most = keys * rounds * 100 / 4;
    let held = shrunk(&broker, most);
    assert_eq!(held["retention"]["latest_per_key"], true);
    assert_eq!(held["partition"][0]["start"], 0);
    assert_eq!(held["partition"][0]["end"], keys * rounds + 1);
    broker.kill();
    broker.start_again();
    // What a pass had removed and not yet said durably is there again, until the next.
    shrunk(&broker, most);
    let (count, latest) = read(&broker);
    assert!(count < keys * rounds / 4, "{count} messages are there");
    for key in 0..keys {
        let n = keys * (rounds - 1) + key;
        let expected = if key == 7 { String::new() } else { format!("{n} {filler}") };
        assert_eq!(latest[&format!("key {key}")], expected);
    }
}
