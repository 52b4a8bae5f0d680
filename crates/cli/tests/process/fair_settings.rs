//! The settings of fair groups on the command line: they are set, described, kept and removed, and wrong ones are
//! refused.

use serde_json::{Value, json};

use crate::broker::Broker;

fn described(broker: &Broker, arguments: &[&str]) -> Value {
    serde_json::from_slice(&broker.ok(arguments, b"")).unwrap()
}

fn text(broker: &Broker, arguments: &[&str]) -> String {
    String::from_utf8(broker.ok(arguments, b"")).unwrap()
}

fn code(broker: &Broker, arguments: &[&str]) -> Option<i32> {
    broker.run(arguments, b"").status.code()
}

#[test]
fn a_topic_keeps_the_headers_that_alter_does_not_name_also_over_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut broker = Broker::start(folder.path());
    broker.ok(&["topic", "create", "jobs", "--fair-key", "tenant", "--weight", "w"], b"");
    broker.ok(&["topic", "alter", "jobs", "--ttl", "1h", "--cost", "header:size"], b"");
    broker.ok(&["topic", "pause", "jobs"], b"");
    broker.ok(&["topic", "alter", "jobs", "--weight", "none"], b"");
    broker.kill();
    broker.start_again();
    let told = described(&broker, &["topic", "describe", "jobs", "--json"]);
    let fields = json!({
        "fair_key": "tenant", "weight": null, "priority": null, "throttle_keys": null,
        "delay": null, "cost": "header:size",
    });
    assert_eq!((&told["fields"], &told["paused"]), (&fields, &json!(true)));
    assert_eq!(told["time_to_live_ms"], 3_600_000);
    let shown = text(&broker, &["topic", "describe", "jobs"]);
    for line in ["fair key\theader tenant\n", "cost\theader:size\n", "paused\tyes\n"] {
        assert!(shown.contains(line), "{shown}");
    }
    broker.ok(&["topic", "resume", "jobs"], b"");
    broker.ok(&["topic", "alter", "jobs", "--fair-key", "none", "--cost", "none"], b"");
    let told = described(&broker, &["topic", "describe", "jobs", "--json"]);
    assert_eq!((&told["fields"], &told["paused"]), (&Value::Null, &json!(false)));
}

#[test]
fn a_group_keeps_its_rules_and_a_rule_what_is_not_named() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["topic", "create", "jobs", "--fair-key", "tenant"], b"");
    let set = |arguments: &[&str]| {
        broker.ok(&[&["group", "key", "set", "jobs", "default"], arguments].concat(), b"");
    };
    set(&["noisy", "--concurrency", "2", "--throttle", "10/s", "--burst", "5"]);
    set(&["tenant-*", "--weight", "3"]);
    set(&["noisy", "--pause"]);
    broker.ok(&["group", "alter", "jobs", "default", "--throttle", "50/s"], b"");
    broker.ok(&["group", "pause", "jobs", "default"], b"");
    let list = ["group", "key", "list", "jobs", "default"];
    let rules = "noisy\t-\t2\t10/s burst 5\tpaused\ntenant-*\t3\t-\t-\t-\n";
    assert_eq!(text(&broker, &list), rules);
    let describe = ["group", "describe", "jobs", "default"];
    let shown = text(&broker, &describe);
    assert!(shown.contains("\t50/s burst 50\tpaused\t-\n") && shown.ends_with(rules), "{shown}");
    let told = described(&broker, &[&describe[..], &["--json"]].concat());
    assert_eq!(told["throttle"]["burst"], 50);
    assert_eq!(told["key_rules"][0]["throttle"]["interval_ns"], 100_000_000);
    set(&["noisy", "--resume", "--throttle", "none"]);
    set(&["tenant-*", "--weight", "none"]);
    assert_eq!(text(&broker, &list), "noisy\t-\t2\t-\t-\n");
    broker.ok(&["group", "key", "delete", "jobs", "default", "noisy"], b"");
    assert_eq!(text(&broker, &list), "");
    broker.ok(&["group", "alter", "jobs", "default", "--throttle", "none"], b"");
    broker.ok(&["group", "resume", "jobs", "default"], b"");
    let told = described(&broker, &[&describe[..], &["--json"]].concat());
    assert_eq!((&told["throttle"], &told["paused"]), (&Value::Null, &json!(false)));
}

#[test]
fn wrong_settings_are_refused_with_the_code_that_the_help_names() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["topic", "create", "jobs"], b"");
    let key = |arguments: &[&str]| code(&broker, &[&["group", "key"], arguments].concat());
    assert_eq!(code(&broker, &["topic", "alter", "jobs", "--cost", "much"]), Some(2));
    assert_eq!(code(&broker, &["topic", "alter", "jobs", "--fair-key", ""]), Some(2));
    assert_eq!(code(&broker, &["topic", "pause", "none"]), Some(3));
    assert_eq!(code(&broker, &["group", "pause", "jobs", "none"]), Some(3));
    assert_eq!(code(&broker, &["group", "alter", "jobs", "default", "--throttle", "x"]), Some(2));
    assert_eq!(key(&["set", "jobs", "default", "a"]), Some(2));
    assert_eq!(key(&["set", "jobs", "default", "a*b", "--weight", "1"]), Some(2));
    assert_eq!(key(&["set", "jobs", "default", "a", "--weight", "0"]), Some(2));
    assert_eq!(key(&["set", "jobs", "default", "a", "--burst", "1"]), Some(2));
    assert_eq!(key(&["set", "jobs", "none", "a", "--weight", "1"]), Some(3));
    assert_eq!(key(&["delete", "jobs", "default", "a"]), Some(3));
}
