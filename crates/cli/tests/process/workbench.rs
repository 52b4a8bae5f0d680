//! The workbench on the command line: what a group still has and its dead letters are shown, counted, published
//! again, moved and cancelled; and a kill in the middle of a redrive loses nothing and doubles nothing.

use std::process::Stdio;

use serde_json::Value;

use crate::{
    bounds::{Watch, until, within},
    broker::Broker,
};

fn lines(range: std::ops::Range<u32>) -> Vec<u8> {
    range.flat_map(|number| format!("{number}\n").into_bytes()).collect()
}

fn value(printed: &[u8]) -> Value {
    serde_json::from_slice(printed).unwrap()
}

fn values(printed: &[u8]) -> Vec<Value> {
    let lines = std::str::from_utf8(printed).unwrap().lines();
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn words(text: &str) -> Vec<&str> {
    text.split(' ').collect()
}

fn ok(broker: &Broker, command: &str) -> Vec<u8> {
    broker.ok(&words(command), b"")
}

/// What a command prints as JSON, in one line.
fn told(broker: &Broker, command: &str) -> Value {
    value(&broker.ok(&[&words(command)[..], &["--json"]].concat(), b""))
}

/// The payloads that a command shows.
fn shown(broker: &Broker, command: &str) -> Vec<String> {
    let printed = broker.ok(&[&words(command)[..], &["--json"]].concat(), b"");
    let payload = |value: &Value| value["payload"].as_str().unwrap().to_owned();
    values(&printed).iter().map(payload).collect()
}

/// Publishes and buries messages with a reason.
fn bury(broker: &Broker, payloads: &[&str], reason: &str) {
    broker.ok(&[&["publish", "jobs", "--create"], payloads].concat(), b"");
    broker.ok(&["consume", "jobs", "--verdict", "dead-letter", "--reason", reason], b"");
    let letters = || told(broker, "topic describe jobs.dead-letter");
    let end = |value: &Value| value["partition"][0]["end"].as_u64().unwrap_or(0);
    let jobs = end(&told(broker, "topic describe jobs"));
    until("all are dead letters", || end(&letters()) >= jobs);
}

fn broker() -> (tempfile::TempDir, Broker) {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(&folder.path().join("data"));
    (folder, broker)
}

#[test]
fn dead_letters_are_shown_counted_and_redriven_to_where_they_come_from() {
    let (_folder, broker) = broker();
    bury(&broker, &["a", "b"], "no such customer");
    bury(&broker, &["c"], "timed out");
    assert_eq!(shown(&broker, "dead-letters jobs peek"), ["a", "b", "c"]);
    assert_eq!(shown(&broker, "dead-letters jobs.dead-letter search --reason timed"), ["c"]);
    assert_eq!(shown(&broker, "dead-letters jobs search --text b"), ["b"]);
    let counted = told(&broker, "dead-letters jobs count");
    assert_eq!(counted["rows"][0]["name"], "no such customer");
    assert_eq!(
        (&counted["rows"][0]["count"], &counted["rows"][1]["count"]),
        (&2.into(), &1.into())
    );
    let letter = values(&ok(&broker, "dead-letters jobs peek --limit 1 --json")).remove(0);
    assert_eq!((&letter["failed_attempts"], &letter["state"]), (&1.into(), &"ready".into()));
    let dry = told(&broker, "dead-letters jobs redrive --reason timed --dry-run");
    assert_eq!((&dry["done"], &dry["dry_run"]), (&1.into(), &true.into()));
    assert_eq!(shown(&broker, "dead-letters jobs peek").len(), 3);
    let done = told(&broker, "dead-letters jobs redrive --reason timed");
    assert_eq!(done["done"], 1);
    assert_eq!(ok(&broker, "consume jobs"), b"c\n");
    assert!(
        ok(&broker, "dead-letters jobs redrive --limit 1")
            .starts_with(b"1 message redriven; redrive ")
    );
    let again = values(&ok(&broker, "consume jobs --json"));
    assert_eq!((&again[0]["payload"], &again[0]["attempt"]), (&"a".into(), &1.into()));
    assert_eq!(told(&broker, "dead-letters jobs purge")["done"], 1);
    assert_eq!(shown(&broker, "dead-letters jobs peek"), [""; 0]);
}

#[test]
fn a_live_backlog_is_shown_counted_cancelled_and_purged_and_a_lease_is_left_alone() {
    let (_folder, broker) = broker();
    ok(&broker, "topic create orders --fair-key tenant");
    ok(&broker, "publish orders one two --header tenant=acme");
    ok(&broker, "publish orders later --header tenant=slow --delay 1h");
    within("a consumer holds a message", async {
        let client = sennit_client::Client::connect(broker.listen.clone()).await.unwrap();
        let (topic, group) = ("orders".parse().unwrap(), sennit_client::GroupName::default_group());
        let consumer = client.consumer(&topic, &group).credit_messages(1);
        let mut consumer = consumer.subscribe().await.unwrap();
        let held = consumer.next().await.unwrap().unwrap();
        let states: Vec<_> = values(&ok(&broker, "messages orders peek --json"))
            .iter()
            .map(|value| value["state"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(states, ["leased", "ready", "delayed"]);
        let counted = told(&broker, "messages orders count --by key");
        assert_eq!(
            (&counted["rows"][0]["name"], &counted["rows"][0]["count"]),
            (&"acme".into(), &2.into())
        );
        let cancelled = told(&broker, "messages orders cancel --key slow");
        assert_eq!(cancelled["done"], 1);
        let purged = ok(&broker, "messages orders purge");
        assert_eq!(purged, b"1 message purged; 1 leased, left alone\n");
        held.ack_confirmed().await.unwrap();
        client.close().await;
    });
    assert_eq!(shown(&broker, "messages orders peek"), [""; 0]);
}

#[test]
fn messages_are_moved_to_another_topic_wherever_that_lies() {
    let (_folder, broker) = broker();
    // Neighbours in number lie on different shards, where there are several.
    for topic in ["orders", "near", "far"] {
        ok(&broker, &format!("topic create {topic}"));
    }
    ok(&broker, "publish orders a b c d");
    assert_eq!(told(&broker, "messages orders move --offsets 0..2 --to near")["done"], 2);
    assert_eq!(told(&broker, "messages orders move --offsets 3 --to far")["done"], 1);
    assert_eq!(ok(&broker, "consume near"), b"a\nb\n");
    assert_eq!(ok(&broker, "consume far"), b"d\n");
    assert_eq!(ok(&broker, "consume orders"), b"c\n");
}

#[test]
fn a_dead_letter_is_changed_and_a_redrive_is_undone() {
    let (_folder, broker) = broker();
    bury(&broker, &["bad", "worse"], "no such customer");
    let edit = "dead-letters jobs edit 0 --payload good --set-header by=hand";
    assert_eq!(told(&broker, edit)["done"], 1);
    let mended = values(&ok(&broker, "consume jobs --json")).remove(0);
    assert_eq!(mended["payload"], "good");
    assert!(mended["headers"].as_array().unwrap().iter().any(|header| header["value"] == "hand"));
    let redrive = told(&broker, "dead-letters jobs redrive")["redrive"].as_u64().unwrap();
    assert_eq!(shown(&broker, "messages jobs peek"), ["worse"]);
    let undo = format!("dead-letters jobs undo --redrive {redrive}");
    assert_eq!(told(&broker, &undo)["done"], 1);
    assert_eq!(shown(&broker, "dead-letters jobs peek"), ["worse"]);
    assert_eq!(ok(&broker, "consume jobs"), b"");
    assert_eq!(told(&broker, &undo)["done"], 0);
}

#[test]
fn what_the_workbench_cannot_do_is_refused_with_what_would_be_right() {
    let (_folder, broker) = broker();
    ok(&broker, "topic create orders");
    ok(&broker, "publish orders.dead-letter bare --create");
    for (command, code, said) in [
        ("dead-letters nothing peek", 3, "nothing.dead-letter"),
        ("messages orders peek --group none", 3, "none"),
        ("messages orders peek --partition 7", 3, "partition"),
        ("messages orders cancel", 2, "--offsets"),
        ("messages orders move --to orders", 2, "another"),
        ("messages orders move --to nothing", 3, "nothing"),
        ("messages orders peek --filter header.", 2, "filter"),
        ("messages __ds/configuration purge", 2, "__ds/"),
    ] {
        let output = broker.run(&words(command), b"");
        let talk = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{command}: {talk}");
        assert!(talk.contains(said), "{command}: {talk}");
    }
    let homeless = told(&broker, "dead-letters orders redrive");
    assert_eq!((&homeless["done"], &homeless["homeless"]), (&0.into(), &1.into()));
    assert_eq!(told(&broker, "dead-letters orders redrive --to orders")["done"], 1);
    assert_eq!(ok(&broker, "consume orders"), b"bare\n");
}

#[test]
fn a_kill_in_the_middle_of_a_redrive_loses_nothing_and_doubles_nothing() {
    let (_folder, mut broker) = broker();
    broker.ok(&["publish", "jobs", "--create"], &lines(0..2000));
    ok(&broker, "consume jobs --verdict dead-letter --reason broken");
    let end = |broker: &Broker, topic: &str| {
        let described = told(broker, &format!("topic describe {topic}"));
        described["partition"][0]["end"].as_u64().unwrap()
    };
    until("all are dead letters", || end(&broker, "jobs.dead-letter") == 2000);
    let redrive = broker
        .command(&["dead-letters", "jobs", "redrive", "--rate", "1000/s", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let _watch = Watch::over(&redrive, "the redrive");
    for _ in 0..2 {
        let before = end(&broker, "jobs");
        until("more is redriven", || end(&broker, "jobs") != before);
        broker.kill();
        broker.start_again();
    }
    let output = redrive.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(shown(&broker, "dead-letters jobs peek"), [""; 0]);
    assert!(ok(&broker, "consume jobs") == lines(0..2000), "each is there once and in order");
}
