//! Hooks that decide about failed attempts, in a broker that runs: when a message comes again, why it is a dead letter, and
//! where it goes; and what stands if the script fails or the broker is killed.

use std::process::Stdio;

use serde_json::Value;
use tempfile::TempDir;

use crate::{bounds::until, broker::Broker};

/// A broker with a topic whose failed messages wait for an hour, and this script.
fn world(script: &str) -> (TempDir, Broker) {
    let folder = TempDir::new().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["topic", "create", "jobs"], b"");
    broker.ok(&["group", "alter", "jobs", "default", "--retry-backoff", "1h"], b"");
    broker.ok(&["topic", "create", "slow", "--beside", "jobs"], b"");
    let path = folder.path().join("script.lua");
    std::fs::write(&path, script).unwrap();
    broker.ok(&["hook", "set", "jobs", path.to_str().unwrap()], b"");
    (folder, broker)
}

fn values(printed: &[u8]) -> Vec<Value> {
    let lines = std::str::from_utf8(printed).unwrap().lines();
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The reasons of the dead letters.
fn reasons(broker: &Broker) -> Vec<String> {
    // Without a dead letter there is no such topic.
    let letters = values(&broker.run(&["dead-letters", "jobs", "peek", "--json"], b"").stdout);
    letters.iter().map(|letter| letter["reason"].as_str().unwrap().to_owned()).collect()
}

/// The sum of a number of the hook's status over all cores of all nodes.
fn status(broker: &Broker, field: &str) -> u64 {
    let cores = values(&broker.each_ok(&["hook", "status", "jobs", "--json"]));
    cores.iter().map(|core| core[field].as_u64().unwrap()).sum()
}

const FAIL: [&str; 4] = ["consume", "jobs", "--verdict", "retry"];

#[test]
fn a_message_comes_again_when_the_hook_says_whatever_the_consumer_and_the_policy_say() {
    let (_folder, broker) =
        world("function on_failure(msg) return { retry_after_ms = msg.attempts } end");
    broker.ok(&["publish", "jobs", "x"], b"");
    let mut failed = 0;
    until("the third attempt", || {
        let fail = [&FAIL[..], &["--retry-after", "1h", "--json"]].concat();
        failed += values(&broker.ok(&fail, b"")).len();
        failed >= 3
    });
    until("the counts", || status(&broker, "attempts") >= 3);
    assert_eq!((status(&broker, "messages"), status(&broker, "failures")), (0, 0));
}

#[test]
fn a_dead_letter_has_the_reason_that_the_hook_has_given() {
    let script = "function on_failure(msg)
        if msg.headers.kind == 'bad' and msg.attempts == 1 and msg.reason == 'retried by the consumer'
            and msg.payload() == 'x' and msg.size == 1 and msg.key == 'k' and msg.age_ms >= 0
            and msg.topic == 'jobs' and msg.producer == nil
        then return { dead_letter = 'no such customer' } end
    end";
    let (_folder, broker) = world(script);
    broker.ok(&["publish", "jobs", "x", "--key", "k", "--header", "kind=bad"], b"");
    broker.ok(&["publish", "jobs", "y"], b"");
    broker.ok(&FAIL, b"");
    until("the dead letter", || reasons(&broker) == ["no such customer"]);
    let group = values(&broker.ok(&["group", "describe", "jobs", "default", "--json"], b""));
    assert_eq!(group[0]["delayed"], 1, "about the other one the policy decides");
}

#[test]
fn a_message_that_outlives_the_leases_of_its_consumers_is_a_dead_letter_by_the_hook() {
    let script = "function on_failure(msg)
        if msg.reason == 'the lease ended' and msg.attempts == 2 then return { dead_letter = 'poison' } end
        return { retry_after_ms = 0 }
    end";
    let (_folder, broker) = world(script);
    broker.ok(&["group", "alter", "jobs", "default", "--lease", "200ms"], b"");
    broker.ok(&["publish", "jobs", "x"], b"");
    // Each stops with its message, and says nothing more.
    let stop = ["consume", "jobs", "--follow", "--exec", "kill -STOP $PPID"];
    let mut stopped = Vec::new();
    for _ in 0..2 {
        let child = broker.command(&stop).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        stopped.push(child.unwrap());
    }
    until("the dead letter", || reasons(&broker) == ["poison"]);
    for mut child in stopped {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn routed_messages_land_in_the_other_topic_once_each_also_over_a_kill() {
    const MESSAGES: usize = 300;
    let (_folder, mut broker) = world("function on_failure(msg) return { route = 'slow' } end");
    let lines: String = (0..MESSAGES).map(|n| format!("{n}\n")).collect();
    broker.ok(&["publish", "jobs"], lines.as_bytes());
    let there = |broker: &Broker| {
        let read = broker.ok(&["read", "slow"], b"");
        String::from_utf8(read).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let fail = [&FAIL[..], &["--count", "1"]].concat();
    until("some are there", || {
        broker.ok(&fail, b"");
        there(&broker).len() >= 5
    });
    let consumer = broker.command(&FAIL).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut consumer = consumer.unwrap();
    until("more are there", || there(&broker).len() >= 20);
    broker.kill();
    consumer.kill().unwrap();
    consumer.wait().unwrap();
    broker.start_again();
    // Those that had failed and were not routed before the kill wait for the policy's hour.
    let waiting = |broker: &Broker| {
        let group = values(&broker.ok(&["group", "describe", "jobs", "default", "--json"], b""));
        let count = |field: &str| usize::try_from(group[0][field].as_u64().unwrap()).unwrap();
        (count("ready") + count("leased"), count("delayed"))
    };
    until("all have failed", || {
        broker.run(&FAIL, b"");
        let (ready, delayed) = waiting(&broker);
        ready == 0 && delayed + there(&broker).len() == MESSAGES
    });
    let mut landed = there(&broker);
    let count = landed.len();
    landed.sort();
    landed.dedup();
    assert_eq!(landed.len(), count, "none is there twice");
    let (_, delayed) = waiting(&broker);
    let left = broker.ok(&["messages", "jobs", "peek", "--limit", "1000", "--json"], b"");
    let left: Vec<_> = values(&left).iter().map(|left| left["payload"].to_string()).collect();
    assert_eq!(left.len(), delayed);
    assert!(left.iter().all(|left| !landed.iter().any(|there| left.trim_matches('"') == there)));
}

#[test]
fn a_script_that_fails_or_routes_to_nowhere_leaves_the_policy_and_says_so() {
    for (script, said) in [
        ("function on_failure(msg) error('broken') end", "line 1: broken"),
        ("function on_failure(msg) return { route = 'nowhere' } end", "there is no topic nowhere"),
        (
            "function on_failure(msg) return { route = 'jobs' } end",
            "is the topic that the message is in",
        ),
        ("function on_failure(msg) while true do end end", "HOOK_INSTRUCTIONS_MAX"),
    ] {
        let (_folder, broker) = world(script);
        let one = ["group", "alter", "jobs", "default", "--attempts", "1"];
        broker.ok(&one, b"");
        broker.ok(&["publish", "jobs", "x"], b"");
        broker.ok(&FAIL, b"");
        until("the dead letter", || reasons(&broker) == ["retried by the consumer"]);
        assert_eq!(status(&broker, "failures"), 1, "{script}");
        let cores = values(&broker.each_ok(&["hook", "status", "jobs", "--json"]));
        let failure =
            cores.iter().map(|core| core["last_failure"].as_str().unwrap()).collect::<String>();
        assert!(failure.contains(said), "{failure}");
    }
}

#[test]
fn a_dry_run_says_what_becomes_of_a_failed_attempt() {
    let script = "function on_failure(msg)
        if msg.attempts > 2 then return { dead_letter = msg.reason } end
        return { route = 'slow' }
    end";
    let (folder, broker) = world(script);
    broker.ok(&["publish", "jobs", "x"], b"");
    let file = folder.path().join("script.lua");
    let check = ["hook", "check", file.to_str().unwrap(), "--against", "jobs"];
    let tried = |more: &[&str]| {
        let arguments = [&check[..], &["--json"], more].concat();
        values(&broker.ok(&arguments, b"")).remove(0)
    };
    assert_eq!(tried(&[])["route"], "slow");
    let third = tried(&["--failure", "--attempts", "3", "--reason", "timed out"]);
    assert_eq!(third["dead_letter"], "timed out");
    let shown = broker.ok(&check, b"");
    assert_eq!(shown, b"0\t0\t\trouted\tslow\n");
}
