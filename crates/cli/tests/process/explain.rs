//! `sennit explain` and `sennit group keys` say why messages wait, with the reason that is true; and a consumer ends
//! when a pause holds back all that is ready.

use std::time::Duration;

use sennit_client::{Client, Consumer, Delivery, GroupName, TopicName};
use serde_json::Value;

use crate::{
    bounds::{until, within},
    broker::Broker,
};

fn broker() -> (tempfile::TempDir, Broker) {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(&folder.path().join("data"));
    broker.ok(&["topic", "create", "jobs", "--fair-key", "tenant"], b"");
    (folder, broker)
}

fn publish(broker: &Broker, key: &str, payloads: &[&str], options: &[&str]) {
    let tenant = format!("tenant={key}");
    let header = ["publish", "jobs", "--header", tenant.as_str()];
    broker.ok(&[&header[..], options, payloads].concat(), b"");
}

fn set_key(broker: &Broker, arguments: &[&str]) {
    broker.ok(&[&["group", "key", "set", "jobs", "default"], arguments].concat(), b"");
}

/// The sentences of `sennit explain jobs` with these arguments.
fn said(broker: &Broker, arguments: &[&str]) -> String {
    String::from_utf8(broker.ok(&[&["explain", "jobs"], arguments].concat(), b"")).unwrap()
}

/// The answer as JSON, of one partition.
fn explained(broker: &Broker, arguments: &[&str]) -> Value {
    let arguments = [&["explain", "jobs", "--json"], arguments].concat();
    serde_json::from_slice(&broker.ok(&arguments, b"")).unwrap()
}

fn reason(broker: &Broker, offset: &str) -> Value {
    explained(broker, &[offset])["reason"].clone()
}

async fn consumer(client: &Client, messages: u32) -> Consumer {
    let (topic, group): (TopicName, _) = ("jobs".parse().unwrap(), GroupName::default_group());
    client.consumer(&topic, &group).credit_messages(messages).subscribe().await.unwrap()
}

async fn next(consumer: &mut Consumer) -> Delivery {
    consumer.next().await.unwrap().unwrap()
}

#[test]
fn a_message_waits_for_the_first_of_pause_and_consumer() {
    let (_folder, broker) = broker();
    publish(&broker, "acme", &["a", "b"], &[]);
    assert_eq!(
        said(&broker, &["1"]),
        "offset 1 (key acme) waits because the group has no consumer\n"
    );
    broker.ok(&["group", "pause", "jobs", "default"], b"");
    assert_eq!(reason(&broker, "1")["name"], "group-paused");
    broker.ok(&["topic", "pause", "jobs"], b"");
    assert_eq!(
        said(&broker, &["--key", "acme"]),
        "key acme: offset 0 waits because the topic is paused\n"
    );
    let keys = broker.ok(&["group", "keys", "jobs", "default"], b"");
    let keys = String::from_utf8(keys).unwrap();
    assert!(keys.starts_with("acme\t2\t0\t") && keys.ends_with("\ttopic is paused\n"), "{keys}");
}

#[test]
fn a_message_that_is_not_ready_says_what_it_is() {
    let (_folder, broker) = broker();
    publish(&broker, "acme", &["later"], &["--delay", "1h"]);
    publish(&broker, "acme", &["done", "again", "held"], &[]);
    within("a consumer holds, settles and retries messages", async {
        let client = Client::connect(broker.listen.clone()).await.unwrap();
        let mut consumer = consumer(&client, 10).await;
        next(&mut consumer).await.ack_confirmed().await.unwrap();
        let later = Duration::from_secs(3600);
        next(&mut consumer).await.retry_after_confirmed(later).await.unwrap();
        let held = next(&mut consumer).await;
        let retrying = reason(&broker, "2");
        assert_eq!((&retrying["name"], &retrying["failed"]), (&"retrying".into(), &1.into()));
        let told = said(&broker, &["0"]);
        assert!(
            told.starts_with("offset 0 (key acme) is delayed by its publisher until "),
            "{told}"
        );
        assert_eq!(
            said(&broker, &["1"]),
            "offset 1 (key acme) is settled: the group is done with it\n"
        );
        let leased = reason(&broker, "3");
        assert_eq!((&leased["name"], &leased["attempt"]), (&"leased".into(), &1.into()));
        assert!(leased["session"].is_u64() && leased["until_ms"].is_u64(), "{leased}");
        assert_eq!(explained(&broker, &["--key", "acme"])["reason"]["name"], "no-message");
        held.ack();
        client.close().await;
    });
}

#[test]
fn a_ready_message_says_which_rule_or_window_it_waits_for() {
    let (_folder, broker) = broker();
    set_key(&broker, &["limited", "--concurrency", "1"]);
    set_key(&broker, &["paused", "--pause"]);
    set_key(&broker, &["slow", "--throttle", "1/h", "--burst", "1"]);
    for key in ["limited", "paused", "slow"] {
        publish(&broker, key, &["a", "b"], &[]);
    }
    within("a consumer holds what the rules allow", async {
        let client = Client::connect(broker.listen.clone()).await.unwrap();
        let mut consumer = consumer(&client, 3).await;
        let mut held = vec![next(&mut consumer).await, next(&mut consumer).await];
        assert_eq!(
            said(&broker, &["1"]),
            "offset 1 (key limited) waits because consumers hold 1 messages of its key, and its rule allows 1\n"
        );
        assert_eq!(reason(&broker, "2")["name"], "key-paused");
        let told = said(&broker, &["--key", "slow"]);
        assert!(told.starts_with("key slow: offset 5 waits for a throttle until "), "{told}");
        // The third takes the last of the window.
        publish(&broker, "free", &["a", "b"], &[]);
        held.push(next(&mut consumer).await);
        assert_eq!(reason(&broker, "7")["name"], "no-credit");
        let keys = broker.ok(&["group", "keys", "jobs", "default", "--top", "9", "--json"], b"");
        let keys = String::from_utf8(keys).unwrap();
        let keys: Vec<Value> =
            keys.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let told: Vec<_> = keys
            .iter()
            .map(|key| {
                let count = |name: &str| key[name].as_u64().unwrap();
                let reason = key["reason"]["name"].as_str().unwrap();
                (key["fair_key"].as_str().unwrap(), count("ready"), count("in_flight"), reason)
            })
            .collect();
        assert_eq!(told[0], ("paused", 2, 0, "key-paused"));
        for told in &told[1..] {
            assert_eq!((told.1, told.2), (1, 1), "{told:?}");
        }
        assert_eq!(told.len(), 4);
        drop(held);
        client.close().await;
    });
    broker.ok(&["group", "alter", "jobs", "default", "--throttle", "1/h", "--burst", "1"], b"");
    within("the throttle of the group holds back all of it", async {
        let client = Client::connect(broker.listen.clone()).await.unwrap();
        let mut consumer = consumer(&client, 10).await;
        let first = next(&mut consumer).await;
        until("the group is throttled", || reason(&broker, "7")["name"] == "group-throttled");
        drop(first);
        client.close().await;
    });
}

#[test]
fn each_partition_that_has_the_message_explains_it_and_keys_are_merged() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["topic", "create", "jobs", "--fair-key", "tenant", "--partitions", "4"], b"");
    // By the keys that route, the messages of one tenant lie in several partitions.
    for key in ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"] {
        publish(&broker, "acme", &["a"], &["--key", key]);
    }
    let told = said(&broker, &["0"]);
    assert!(told.lines().count() > 1, "{told}");
    for line in told.lines() {
        let end = ", offset 0 (key acme) waits because the group has no consumer";
        assert!(line.starts_with("partition ") && line.ends_with(end), "{line}");
    }
    let keys = broker.ok(&["group", "keys", "jobs", "default"], b"");
    let keys = String::from_utf8(keys).unwrap();
    assert!(keys.starts_with("acme\t10\t0\t") && keys.lines().count() == 1, "{keys}");
}

#[test]
fn what_is_not_there_is_told_with_the_code_that_the_help_names() {
    let (_folder, broker) = broker();
    let code = |arguments: &[&str]| broker.run(arguments, b"").status.code();
    assert_eq!(code(&["explain", "jobs", "7"]), Some(3));
    assert_eq!(code(&["explain", "none", "7"]), Some(3));
    assert_eq!(code(&["explain", "jobs", "7", "--group", "none"]), Some(3));
    assert_eq!(code(&["explain", "jobs", "7", "--partition", "1"]), Some(3));
    assert_eq!(code(&["explain", "jobs"]), Some(2));
    assert_eq!(code(&["group", "keys", "jobs", "none"]), Some(3));
    assert_eq!(said(&broker, &["--key", "acme"]), "key acme: no message of it is ready\n");
}

#[test]
fn a_consumer_ends_when_a_pause_holds_back_all_that_is_ready() {
    let (_folder, broker) = broker();
    publish(&broker, "acme", &["a"], &[]);
    for (pause, resume, words) in [
        (&["topic", "pause", "jobs"][..], &["topic", "resume", "jobs"][..], "the topic is paused"),
        (
            &["group", "pause", "jobs", "default"],
            &["group", "resume", "jobs", "default"],
            "the group is paused",
        ),
        (
            &["group", "key", "set", "jobs", "default", "ac*", "--pause"],
            &["group", "key", "set", "jobs", "default", "ac*", "--resume"],
            "rules pause the keys of all 1 ready messages, acme",
        ),
    ] {
        broker.ok(pause, b"");
        for how in [&["consume", "jobs"][..], &["consume", "jobs", "--exec", "cat"]] {
            let output = broker.run(how, b"");
            let talk = String::from_utf8(output.stderr).unwrap();
            assert!(output.status.success() && output.stdout.is_empty(), "{talk}");
            assert!(talk.contains(words), "{talk}");
        }
        broker.ok(resume, b"");
    }
    assert_eq!(broker.ok(&["consume", "jobs"], b""), b"a\n");
}
