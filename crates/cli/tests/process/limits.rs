//! Limits of topics on the command line: a full topic refuses or drops, and the publisher is told.

use serde_json::Value;

use crate::broker::Broker;

fn json(broker: &Broker, arguments: &[&str], input: &[u8]) -> Value {
    serde_json::from_slice(&broker.ok(arguments, input)).unwrap()
}

#[test]
fn a_full_topic_drops_its_oldest_messages_and_the_publisher_is_told_how_many() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    let create = ["topic", "create", "jobs", "--limit-messages", "3", "--when-full", "drop-oldest"];
    broker.ok(&create, b"");
    let told = json(&broker, &["publish", "jobs", "--json"], b"a\nb\nc\n");
    assert_eq!(told["dropped"], 0);
    let told = json(&broker, &["publish", "jobs", "--json"], b"d\ne\n");
    assert_eq!((told["confirmed"].as_u64(), told["dropped"].as_u64()), (Some(2), Some(2)));
    let rest = broker.ok(&["consume", "jobs", "--count", "3"], b"");
    assert_eq!(String::from_utf8(rest).unwrap(), "c\nd\ne\n");
    let described = json(&broker, &["topic", "describe", "jobs", "--json"], b"");
    assert_eq!(described["limit"]["when_full"], "drop-oldest");
}

#[test]
fn a_full_topic_refuses_a_publisher_that_gives_up_and_takes_the_message_once_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["topic", "create", "jobs", "--limit-messages", "1"], b"");
    broker.ok(&["publish", "jobs", "a"], b"");
    let refused = broker.run(&["publish", "jobs", "b", "--patience", "300ms"], b"");
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains("limit.messages is 1, and the partition holds 1"), "{text}");
    broker.ok(&["topic", "alter", "jobs", "--limit-messages", "2"], b"");
    broker.ok(&["publish", "jobs", "b"], b"");
    let other = broker.run(&["topic", "create", "jobs", "--limit-messages", "9"], b"");
    let text = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(text.contains("limit.messages 2, not 9"), "{text}");
    broker.ok(&["topic", "alter", "jobs", "--limit-messages", "none"], b"");
    let described = json(&broker, &["topic", "describe", "jobs", "--json"], b"");
    assert_eq!(described["limit"], Value::Null);
}

#[test]
fn a_new_queue_has_the_group_settings_of_its_command_line_and_an_existing_one_must_have_them() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    let create = ["topic", "create", "mail", "--attempts", "5", "--retry-backoff", "1s..5m"];
    broker.ok(&create, b"");
    broker.ok(&create, b"");
    let told = json(&broker, &["group", "describe", "mail", "default", "--json"], b"");
    assert_eq!((told["attempts_max"].as_u64(), told["lease_ms"].as_u64()), (Some(5), Some(30_000)));
    let other = broker.run(&["topic", "create", "mail", "--attempts", "6"], b"");
    assert_eq!(other.status.code(), Some(4));
    let text = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(text.contains("attempts_max 5, not 6"), "{text}");
    let stream = broker.run(&["topic", "create", "log", "--kind", "stream", "--lease", "1m"], b"");
    assert_eq!(stream.status.code(), Some(2));
}

#[test]
fn a_value_that_was_published_before_is_a_duplicate_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut broker = Broker::start(folder.path());
    let create = ["topic", "create", "payments", "--dedup-header", "order-id"];
    broker.ok(&create, b"");
    let publish = ["publish", "payments", "paid", "--header", "order-id=7", "--json"];
    assert_eq!(json(&broker, &publish, b"")["duplicates"], 0);
    assert_eq!(json(&broker, &publish, b"")["duplicates"], 1);
    broker.kill();
    broker.start_again();
    let told = json(&broker, &publish, b"");
    let first = &told["partitions"][0]["first_offset"];
    assert_eq!((told["duplicates"].as_u64(), first.as_u64()), (Some(1), Some(0)));
    let described = json(&broker, &["topic", "describe", "payments", "--json"], b"");
    assert_eq!(described["partition"][0]["end"], 1);
    assert_eq!(described["dedup"]["window_ms"], 300_000);
    let wrong = broker.run(&["topic", "create", "other", "--dedup-window", "1h"], b"");
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn a_topic_says_how_live_connections_follow_it() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    let described = |topic: &str| json(&broker, &["topic", "describe", topic, "--json"], b"");
    broker.ok(&["topic", "create", "plain"], b"");
    assert_eq!(
        described("plain")["live"],
        serde_json::json!({"presence": false, "when_behind": "recover"})
    );
    broker.ok(&["topic", "create", "prices", "--when-behind", "conflate"], b"");
    broker.ok(&["topic", "alter", "prices", "--presence", "on"], b"");
    assert_eq!(
        described("prices")["live"],
        serde_json::json!({"presence": true, "when_behind": "conflate"})
    );
    let shown = broker.ok(&["topic", "describe", "prices"], b"");
    assert!(String::from_utf8_lossy(&shown).contains("presence on, conflate"));
    let wrong = broker.run(&["topic", "alter", "prices", "--when-behind", "skip"], b"");
    assert_eq!(wrong.status.code(), Some(2));
}
