//! The verdicts for printed messages: they are delivered again, at once or after a delay, or go to the dead-letter
//! topic with a reason.

use std::process::Output;

use serde_json::Value;

use crate::broker::Broker;

fn broker() -> (tempfile::TempDir, Broker) {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["publish", "q", "one", "two", "--create"], b"");
    (folder, broker)
}

fn values(printed: &[u8]) -> Vec<Value> {
    let lines = std::str::from_utf8(printed).unwrap().lines();
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_verdict_of_retry_is_said_once_of_each_message() {
    let (_folder, broker) = broker();
    assert_eq!(broker.ok(&["consume", "q", "--verdict", "retry"], b""), b"one\ntwo\n");
    let again = values(&broker.ok(&["consume", "q", "--json"], b""));
    // What came again to the same consumer was handed back: that is a delivery too.
    assert!(again.iter().all(|value| value["attempt"].as_u64() > Some(1)), "{again:?}");
    assert_eq!(again.len(), 2);
}

#[test]
fn a_message_rests_before_it_comes_again() {
    let (_folder, broker) = broker();
    let rest = ["--verdict", "retry", "--retry-after", "1h", "--count", "1"];
    assert_eq!(broker.ok(&[&["consume", "q"], &rest[..]].concat(), b""), b"one\n");
    assert_eq!(broker.ok(&["consume", "q"], b""), b"two\n");
    let group = broker.ok(&["group", "describe", "q", "default", "--json"], b"");
    assert_eq!(values(&group)[0]["delayed"], 1);
}

#[test]
fn a_dead_letter_carries_the_reason() {
    let (_folder, broker) = broker();
    let verdict = ["--verdict", "dead-letter", "--reason", "no such customer", "--count", "1"];
    assert_eq!(broker.ok(&[&["consume", "q"], &verdict[..]].concat(), b""), b"one\n");
    assert_eq!(broker.ok(&["consume", "q"], b""), b"two\n");
    let dead = values(&broker.ok(&["consume", "q.dead-letter", "--json"], b""));
    assert_eq!(dead[0]["payload"], "one");
    let headers = dead[0]["headers"].as_array().unwrap();
    assert!(headers.iter().any(|header| header["value"] == "no such customer"), "{headers:?}");
}

#[test]
fn what_means_nothing_with_a_verdict_is_refused() {
    let (_folder, broker) = broker();
    for arguments in [
        &["--reason", "why"][..],
        &["--retry-after", "1s"],
        &["--verdict", "dead-letter", "--retry-after", "1s"],
        &["--verdict", "retry", "--no-ack"],
        &["--on-failure", "retry"],
        &["--jobs", "2"],
        &["--exec", "true", "--verdict", "retry"],
        &["--exec", "true", "--json"],
    ] {
        let output: Output = broker.run(&[&["consume", "q"], arguments].concat(), b"");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{arguments:?}");
    }
    assert_eq!(broker.ok(&["consume", "q"], b""), b"one\ntwo\n");
}
