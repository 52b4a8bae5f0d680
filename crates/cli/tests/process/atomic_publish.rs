//! Atomic publishes through the command line: what a command prints is published in the step that acks its message,
//! also while broker and consumer are killed again and again.

use std::{
    collections::BTreeSet,
    process::{Child, Stdio},
};

use serde_json::Value;

use crate::{bounds::until, broker::Broker, torture::kills};

const INPUTS: usize = 150;

fn described(broker: &Broker, arguments: &[&str]) -> Option<Value> {
    let output = broker.run(arguments, b"");
    output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
}

/// The offset that the next message of a topic gets.
fn end_of(broker: &Broker, topic: &str) -> u64 {
    let topic = described(broker, &["topic", "describe", topic, "--json"]);
    topic.map_or(0, |topic| topic["partition"][0]["end"].as_u64().unwrap())
}

fn unsettled(broker: &Broker) -> u64 {
    let group = described(broker, &["group", "describe", "in", "default", "--json"]).unwrap();
    ["ready", "leased", "delayed"].iter().map(|count| group[*count].as_u64().unwrap()).sum()
}

fn lines(printed: Vec<u8>) -> Vec<String> {
    String::from_utf8(printed).unwrap().lines().map(ToOwned::to_owned).collect()
}

#[test]
fn what_a_command_prints_is_published_with_the_ack_of_its_message() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start_with(folder.path(), &["--shards", "2"]);
    broker.ok(&["topic", "create", "in"], b"");
    broker.ok(&["topic", "create", "between"], b"");
    broker.ok(&["topic", "create", "out", "--beside", "in"], b"");
    broker.ok(&["publish", "in", "one", "nothing", "two", "--key", "k"], b"");
    let work = "read line; [ \"$line\" = nothing ] || printf '%s!' \"$line\"";
    broker.ok(&["consume", "in", "--exec", work, "--publish-to", "out"], b"");
    assert_eq!(unsettled(&broker), 0);
    let printed = lines(broker.ok(&["consume", "out", "--json"], b""));
    let made: Vec<Value> = printed.iter().map(|it| serde_json::from_str(it).unwrap()).collect();
    let made: Vec<_> = made.iter().map(|it| (&it["payload"], &it["key"])).collect();
    let key = Value::from("k");
    assert_eq!(made, [(&"one!".into(), &key), (&"two!".into(), &key)]);
}

#[test]
fn topics_that_lie_apart_are_refused_with_the_way_to_have_them_together() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start_with(folder.path(), &["--shards", "2"]);
    broker.ok(&["topic", "create", "in"], b"");
    broker.ok(&["topic", "create", "apart"], b"");
    broker.ok(&["publish", "in", "x"], b"");
    let output = broker.run(&["consume", "in", "--exec", "cat", "--publish-to", "apart"], b"");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    for words in ["topics-apart", "is apart", "--beside OTHER"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert_eq!((unsettled(&broker), end_of(&broker, "apart")), (1, 0));
    let output = broker.run(&["topic", "create", "apart", "--beside", "in"], b"");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("does not lie beside \"in\""), "{said}");
    let output = broker.run(&["topic", "create", "out", "--beside", "nowhere"], b"");
    assert_eq!(output.status.code(), Some(3));
}

fn worker(broker: &Broker) -> Child {
    let arguments =
        ["consume", "in", "--follow", "--jobs", "3", "--exec", "cat", "--publish-to", "out"];
    broker.command(&arguments).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn after_each_kill_an_input_is_acked_exactly_if_its_output_exists() {
    let folder = tempfile::tempdir().unwrap();
    let mut broker = Broker::start_with(folder.path(), &["--shards", "2"]);
    broker.ok(&["topic", "create", "in", "--lease", "2s", "--attempts", "1000"], b"");
    broker.ok(&["topic", "create", "out", "--beside", "in", "--kind", "stream"], b"");
    let inputs: Vec<String> = (0..INPUTS).map(|input| format!("input {input}")).collect();
    broker.ok(&["publish", "in"], inputs.join("\n").as_bytes());
    let mut consumer = worker(&broker);
    for kill in kills(6) {
        let before = end_of(&broker, "out");
        let is_over = |broker: &Broker| end_of(broker, "out") >= INPUTS as u64;
        until("more is done", || end_of(&broker, "out") > before + 3 || is_over(&broker));
        if is_over(&broker) {
            break;
        }
        if kill % 3 == 2 {
            consumer.kill().unwrap();
            consumer.wait().unwrap();
            consumer = worker(&broker);
        } else {
            broker.kill();
            broker.start_again();
        }
    }
    until("all inputs are acked", || unsettled(&broker) == 0);
    consumer.kill().unwrap();
    consumer.wait().unwrap();
    let outputs = lines(broker.ok(&["read", "out", "--from", "earliest"], b""));
    let different: BTreeSet<&String> = outputs.iter().collect();
    assert_eq!((outputs.len(), different.len()), (INPUTS, INPUTS), "{outputs:?}");
    assert_eq!(different, inputs.iter().collect());
}
