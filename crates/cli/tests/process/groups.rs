//! Groups on the command line: parked messages and their reasons, retries, and groups that hold messages which
//! others have settled.

use sennit_client::{Client, GroupName, TopicName};
use serde_json::{Value, json};

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

fn described(broker: &Broker, arguments: &[&str]) -> Value {
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
    assert_eq!(described(&broker, &retry)["messages"], 1);
    let again = text(&broker, &["consume", "orders.dead-letter", "--count", "1"]);
    assert_eq!(again, "b\n");
    let told = described(&broker, &[&describe[..], &["--json"]].concat());
    assert_eq!((told["parked"].as_u64(), told["ready"].as_u64()), (Some(2), Some(0)));
    assert_eq!(described(&broker, &retry[..5])["messages"], 2);
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
    let told = described(&broker, &["group", "describe", "orders", "billing", "--json"]);
    assert_eq!((told["lease_ms"].as_u64(), told["attempts_max"].as_u64()), (Some(45_000), Some(7)));
    let nothing = broker.run(&["group", "alter", "orders", "billing"], b"");
    assert_eq!(nothing.status.code(), Some(2));
    let invalid = broker.run(&["group", "alter", "orders", "billing", "--attempts", "0"], b"");
    assert!(!invalid.status.success());
}

#[test]
fn a_message_that_failed_waits_as_the_retry_policy_of_its_group_says() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["topic", "create", "orders"], b"");
    let create = ["group", "create", "orders", "billing", "--retry-backoff", "1h..4h"];
    broker.ok(&[&create[..], &["--retry-jitter", "20%", "--retry-age", "2d"]].concat(), b"");
    let describe = ["group", "describe", "orders", "billing"];
    let shown = text(&broker, &describe);
    assert!(shown.ends_with("\t1h..4h jitter 20% age 2d\t-\t-\t-\n"), "{shown}");
    let told = || described(&broker, &[&describe[..], &["--json"]].concat());
    let counts = || {
        let told = told();
        (told["ready"].as_u64(), told["delayed"].as_u64())
    };
    let retry = ["consume", "orders", "--group", "billing", "--count", "1", "--verdict", "retry"];
    broker.ok(&["publish", "orders"], b"a\n");
    assert_eq!(text(&broker, &retry), "a\n");
    assert_eq!(counts(), (Some(0), Some(1)));
    let policy = json!({
        "first_ms": 3_600_000, "max_ms": 14_400_000, "delays_ms": [], "jitter_percent": 20,
        "age_max_ms": 172_800_000,
    });
    assert_eq!(told()["retry"], policy);
    let alter = ["group", "alter", "orders", "billing"];
    broker.ok(&[&alter[..], &["--retry-backoff", "none"]].concat(), b"");
    broker.ok(&["publish", "orders"], b"b\n");
    assert_eq!(text(&broker, &retry), "b\n");
    assert_eq!(counts(), (Some(1), Some(1)), "what waits keeps its delay");
    broker.ok(&[&alter[..], &["--retry-backoff", "1h,2h", "--retry-age", "none"]].concat(), b"");
    assert!(text(&broker, &describe).ends_with("\t1h,2h jitter 20%\t-\t-\t-\n"));
    let wrong = broker.run(&[&alter[..], &["--retry-backoff", "2h..1h"]].concat(), b"");
    assert_eq!(wrong.status.code(), Some(2));
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
    let told = described(&broker, &["topic", "describe", "orders", "--json"]);
    let group = |name: &str| {
        let groups = told["group"].as_array().expect("there are groups");
        groups.iter().find(|group| group["group"] == name).expect("it is there").clone()
    };
    assert!(group("default")["holds_since_ms"].is_u64(), "{told}");
    assert!(group("billing")["holds_since_ms"].is_null(), "{told}");
}
