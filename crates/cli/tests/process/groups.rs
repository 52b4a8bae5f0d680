//! Groups on the command line: parked messages and their reasons, retries, and groups that hold messages which
//! others have settled.

use sennit_client::{Client, GroupName, TopicName};
use serde_json::Value;

use crate::{bounds::within, broker::Broker};

/// Consumes `count` messages of a group, and gives each up as dead.
async fn give_up(broker: &Broker, topic: &str, count: usize) {
    let client = Client::connect(broker.listen.clone()).await.unwrap();
    let topic: TopicName = topic.parse().unwrap();
    let mut consumer =
        client.consumer(&topic, &GroupName::default_group()).subscribe().await.unwrap();
    for _ in 0..count {
        let delivery = consumer.next().await.unwrap().unwrap();
        delivery.dead_letter("no such customer");
    }
    client.close().await;
}

fn json(broker: &Broker, arguments: &[&str]) -> Value {
    serde_json::from_slice(&broker.ok(arguments, b"")).unwrap()
}

fn text(broker: &Broker, arguments: &[&str]) -> String {
    String::from_utf8(broker.ok(arguments, b"")).unwrap()
}

#[test]
fn parked_messages_are_shown_with_their_reason_and_come_again_when_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["topic", "create", "orders.dead-letter"], b"");
    broker.ok(&["publish", "orders.dead-letter"], b"a\nb\nc\n");
    within("three messages are given up", give_up(&broker, "orders.dead-letter", 3));
    let describe = ["group", "describe", "orders.dead-letter", "default"];
    let shown = text(&broker, &describe);
    assert!(shown.contains("\t1\tno such customer\n"), "{shown}");
    let retry = ["group", "retry", "orders.dead-letter", "default", "--json", "--offsets", "1"];
    assert_eq!(json(&broker, &retry)["messages"], 1);
    let again = text(&broker, &["consume", "orders.dead-letter", "--count", "1"]);
    assert_eq!(again, "b\n");
    let told = json(&broker, &[&describe[..], &["--json"]].concat());
    assert_eq!((told["parked"].as_u64(), told["ready"].as_u64()), (Some(2), Some(0)));
    assert_eq!(json(&broker, &retry[..5])["messages"], 2);
    let rest = text(&broker, &["consume", "orders.dead-letter", "--count", "2"]);
    assert_eq!(rest, "a\nc\n");
}

#[test]
fn a_group_that_is_altered_keeps_what_was_not_named() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["topic", "create", "orders"], b"");
    broker.ok(&["group", "create", "orders", "billing", "--attempts", "7"], b"");
    broker.ok(&["group", "alter", "orders", "billing", "--lease", "45s"], b"");
    let told = json(&broker, &["group", "describe", "orders", "billing", "--json"]);
    assert_eq!((told["lease_ms"].as_u64(), told["attempts_max"].as_u64()), (Some(45_000), Some(7)));
    let nothing = broker.run(&["group", "alter", "orders", "billing"], b"");
    assert_eq!(nothing.status.code(), Some(2));
    let invalid = broker.run(&["group", "alter", "orders", "billing", "--attempts", "0"], b"");
    assert!(!invalid.status.success());
}

#[test]
fn the_group_that_nobody_uses_is_named_by_the_description_of_its_topic() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["topic", "create", "orders"], b"");
    broker.ok(&["group", "create", "orders", "billing"], b"");
    broker.ok(&["publish", "orders"], b"a\nb\n");
    let describe = ["topic", "describe", "orders"];
    assert!(!text(&broker, &describe).contains("held by"));
    broker.ok(&["consume", "orders", "--group", "billing", "--count", "2"], b"");
    let shown = text(&broker, &describe);
    let line = shown.lines().find(|line| line.starts_with("held by default\t")).expect(&shown);
    assert!(line.ends_with("and has no consumer"), "{line}");
    let told = json(&broker, &["topic", "describe", "orders", "--json"]);
    let group = |name: &str| {
        let groups = told["group"].as_array().expect("there are groups");
        groups.iter().find(|group| group["group"] == name).expect("it is there").clone()
    };
    assert!(group("default")["holds_since_ms"].is_u64(), "{told}");
    assert!(group("billing")["holds_since_ms"].is_null(), "{told}");
}
