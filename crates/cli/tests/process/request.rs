//! Requests and replies through the command line: a reply finds its request, a late one is dropped, and inboxes go
//! with their clients.

use std::process::{Child, Stdio};

use serde_json::Value;

use crate::{bounds::until, broker::Broker};

fn start(shards: &str) -> (tempfile::TempDir, Broker) {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start_with(folder.path(), &["--shards", shards]);
    broker.ok(&["topic", "create", "upper"], b"");
    broker.ok(&["topic", "create", "lower"], b"");
    (folder, broker)
}

/// Replies to requests until it is dropped, also by a test that fails.
struct Replier(Child);

impl Drop for Replier {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn replier(broker: &Broker, topic: &str, command: &str) -> Replier {
    let arguments = ["reply", topic, "--exec", command, "--jobs", "2"];
    Replier(broker.command(&arguments).stderr(Stdio::null()).spawn().unwrap())
}

fn text(printed: Vec<u8>) -> String {
    String::from_utf8(printed).unwrap()
}

fn inboxes(broker: &Broker) -> usize {
    let topics = text(broker.ok(&["topic", "list"], b""));
    topics.lines().filter(|line| line.starts_with("inbox.")).count()
}

fn unsettled(broker: &Broker, topic: &str) -> u64 {
    let said = broker.ok(&["group", "describe", topic, "default", "--json"], b"");
    let group: Value = serde_json::from_slice(&said).unwrap();
    ["ready", "leased", "delayed"].iter().map(|count| group[*count].as_u64().unwrap()).sum()
}

#[test]
fn a_request_is_answered_with_what_the_command_prints() {
    // With one shard the reply and the ack are one step.
    for shards in ["1", "2"] {
        let (_folder, broker) = start(shards);
        let repliers = [("upper", "tr a-z A-Z"), ("lower", "tr A-Z a-z")];
        let repliers = repliers.map(|(topic, command)| replier(&broker, topic, command));
        for _ in 0..3 {
            let reply = broker.ok(&["request", "upper", "Hello", "--timeout", "1m"], b"");
            assert_eq!(text(reply), "HELLO\n");
        }
        let reply = broker.ok(&["request", "lower", "--timeout", "1m", "--raw"], b"Hello");
        assert_eq!(text(reply), "hello");
        let reply = broker.ok(&["request", "lower", "X", "--timeout", "1m", "--json"], b"");
        let reply: Value = serde_json::from_slice(&reply).unwrap();
        assert_eq!(reply["payload"], "x");
        drop(repliers);
        assert_eq!((unsettled(&broker, "upper"), unsettled(&broker, "lower")), (0, 0));
        assert_eq!(inboxes(&broker), 0);
    }
}

#[test]
fn without_a_reply_in_time_the_exit_code_is_6_and_a_late_reply_is_dropped() {
    let (folder, broker) = start("2");
    let go = folder.path().join("go");
    let output = broker.run(&["request", "upper", "x", "--timeout", "50ms"], b"");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(said.contains("upper: no reply came within 50ms"), "{said}");
    // It has expired: nobody works on it.
    until("the request has expired", || unsettled(&broker, "upper") == 0);
    // The folder goes if the test fails.
    let (there, folder) = (go.display(), folder.path().display());
    let command = format!("while [ -e {folder} -a ! -e {there} ]; do sleep 0.01; done; cat");
    let replier = replier(&broker, "upper", &command);
    let output = broker.run(&["request", "upper", "y", "--timeout", "2s"], b"");
    assert_eq!(output.status.code(), Some(6));
    assert_eq!(inboxes(&broker), 0);
    std::fs::write(&go, "").unwrap();
    until("the late request is acked", || unsettled(&broker, "upper") == 0);
    let reply = broker.ok(&["request", "upper", "z", "--timeout", "1m"], b"");
    assert_eq!(text(reply), "z\n");
    drop(replier);
}

#[test]
fn a_message_that_asks_for_no_reply_is_acked_and_an_unknown_topic_is_said() {
    let (_folder, broker) = start("2");
    broker.ok(&["publish", "upper", "plain"], b"");
    let replier = replier(&broker, "upper", "cat");
    until("it is acked", || unsettled(&broker, "upper") == 0);
    drop(replier);
    let output = broker.run(&["request", "nowhere", "x"], b"");
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn replies_go_on_after_the_broker_is_killed() {
    let (_folder, mut broker) = start("2");
    let replier = replier(&broker, "upper", "tr a-z A-Z");
    for _ in 0..3 {
        let reply = broker.ok(&["request", "upper", "again", "--timeout", "1m"], b"");
        assert_eq!(text(reply), "AGAIN\n");
        broker.kill();
        broker.start_again();
    }
    drop(replier);
}
