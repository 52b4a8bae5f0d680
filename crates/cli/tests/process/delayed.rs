//! `sennit delayed` lists, cancels and reschedules messages, also over a kill.

use serde_json::Value;

use crate::{bounds::until, broker::Broker};

fn broker() -> (tempfile::TempDir, Broker) {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(&folder.path().join("data"));
    broker.ok(&["topic", "create", "jobs"], b"");
    (folder, broker)
}

fn publish(broker: &Broker, payload: &str, delay: &str) {
    broker.ok(&["publish", "jobs", payload, "--delay", delay], b"");
}

/// The offsets that `sennit delayed list jobs` prints with these options, in its order.
fn listed(broker: &Broker, options: &[&str]) -> Vec<u64> {
    let said = broker.ok(&[&["delayed", "list", "jobs", "--json"], options].concat(), b"");
    let said = String::from_utf8(said).unwrap();
    let offset = |line: &str| {
        let run: Value = serde_json::from_str(line).unwrap();
        run["offset"].as_u64().unwrap()
    };
    said.lines().map(offset).collect()
}

fn refused(broker: &Broker, arguments: &[&str]) -> String {
    let output = broker.run(&[&["delayed"], arguments].concat(), b"");
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn delayed_messages_are_listed_cancelled_and_rescheduled_and_a_kill_changes_nothing() {
    let (_folder, mut broker) = broker();
    for (payload, delay) in [("a", "2h"), ("b", "1h"), ("c", "3h"), ("d", "4h")] {
        publish(&broker, payload, delay);
    }
    assert_eq!(listed(&broker, &[]), [1, 0, 2, 3]);
    assert_eq!(listed(&broker, &["--limit", "2"]), [1, 0]);
    broker.ok(&["delayed", "cancel", "jobs", "1", "3"], b"");
    broker.ok(&["delayed", "reschedule", "jobs", "2", "--at", "2030-01-01"], b"");
    broker.ok(&["delayed", "reschedule", "jobs", "0", "--in", "5d"], b"");
    broker.kill();
    broker.start_again();
    assert_eq!(listed(&broker, &[]), [0, 2]);
    let said = broker.ok(&["delayed", "list", "jobs"], b"");
    let said = String::from_utf8(said).unwrap();
    assert!(said.ends_with("2030-01-01T00:00:00Z\t0\t2\t1\n"), "{said}");
    broker.ok(&["delayed", "reschedule", "jobs", "2", "--now"], b"");
    until("the message is ready", || broker.ok(&["consume", "jobs"], b"") == b"c\n");
    assert_eq!(listed(&broker, &[]), [0]);
}

#[test]
fn what_cannot_be_changed_says_why() {
    let (_folder, broker) = broker();
    broker.ok(&["publish", "jobs", "ready"], b"");
    publish(&broker, "later", "1h");
    let said = refused(&broker, &["cancel", "jobs", "1", "0"]);
    assert!(
        said.contains("message 0 is not delayed: its delay is over, or it never had one"),
        "{said}"
    );
    let said = refused(&broker, &["cancel", "jobs", "7"]);
    assert!(said.contains("the partition has no message 7"), "{said}");
    let said = refused(&broker, &["reschedule", "jobs", "1", "--in", "36500d", "--partition", "3"]);
    assert!(said.contains("has 1 partitions, none is 3"), "{said}");
    let said = refused(&broker, &["list", "nothing"]);
    assert!(said.contains("there is no topic"), "{said}");
    assert_eq!(listed(&broker, &[]), [1]);
}

#[test]
fn a_listing_of_several_partitions_goes_on_over_pages_by_due_time() {
    let (_folder, broker) = broker();
    broker.ok(&["topic", "create", "many", "--partitions", "3"], b"");
    let lines: String = (0..1200).map(|n| format!("{n}\n")).collect();
    broker.ok(&["publish", "many", "--delay", "1h"], lines.as_bytes());
    broker.ok(&["publish", "many", "--delay", "30m", "first"], b"");
    let list = |options: &[&str]| {
        let said = broker.ok(&[&["delayed", "list", "many", "--json"], options].concat(), b"");
        let runs = String::from_utf8(said).unwrap();
        let run = |line: &str| serde_json::from_str::<Value>(line).unwrap();
        runs.lines().map(run).collect::<Vec<_>>()
    };
    let all = list(&["--limit", "5000"]);
    let messages: u64 = all.iter().map(|run| run["messages"].as_u64().unwrap()).sum();
    assert_eq!(messages, 1201);
    assert!(all.is_sorted_by_key(|run| run["due_ms"].as_u64().unwrap()));
    assert_eq!(all[0]["messages"], 1);
    let of_one = list(&["--limit", "5000", "--partition", "1"]);
    assert!(of_one.iter().all(|run| run["partition"] == 1));
}
