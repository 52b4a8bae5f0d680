//! `sennit schedule`: messages at the times of a pattern, one for each tick, also when the broker is killed around
//! them.

use serde_json::Value;

use crate::{
    bounds::{until, within},
    broker::Broker,
};

fn broker() -> (tempfile::TempDir, Broker) {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(&folder.path().join("data"));
    broker.ok(&["topic", "create", "jobs"], b"");
    (folder, broker)
}

fn create(broker: &Broker, name: &str, options: &[&str]) {
    broker.ok(&[&["schedule", "create", name, "--topic", "jobs"], options].concat(), b"");
}

pub fn shown(broker: &Broker, name: &str) -> Value {
    let said = broker.ok(&["schedule", "show", name, "--json"], b"");
    serde_json::from_slice(&said).unwrap()
}

fn refused(broker: &Broker, arguments: &[&str]) -> String {
    let output = broker.run(&[&["schedule"], arguments].concat(), b"");
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// The ticks of all messages that are in the topic, in their order.
pub fn ticks(broker: &Broker) -> Vec<u64> {
    let said = broker.ok(&["read", "jobs", "--json"], b"");
    let said = String::from_utf8(said).unwrap();
    let tick = |line: &str| {
        let message: Value = serde_json::from_str(line).unwrap();
        header(&message, "sennit-tick-ms").parse().unwrap()
    };
    said.lines().map(tick).collect()
}

fn header(message: &Value, name: &str) -> String {
    let headers = message["headers"].to_string();
    let found = match &message["headers"] {
        Value::Array(headers) => headers
            .iter()
            .find(|header| header["name"] == name)
            .map(|header| header["value"].clone()),
        headers => headers.get(name).cloned(),
    };
    match found {
        Some(Value::String(text)) => text,
        Some(other) => other.to_string(),
        None => panic!("no header {name} in {headers}"),
    }
}

#[test]
fn a_schedule_is_created_shown_listed_and_deleted() {
    let (_folder, mut broker) = broker();
    let options = ["--cron", "0 9 * * MON-FRI", "--zone", "Europe/Berlin", "--payload", "{}"];
    create(&broker, "report", &[&options[..], &["--header", "type=daily", "--key", "k"]].concat());
    create(&broker, "report", &[&options[..], &["--header", "type=daily", "--key", "k"]].concat());
    let said = refused(&broker, &["create", "report", "--topic", "jobs", "--cron", "0 8 * * *"]);
    assert!(said.contains("exists with cron 0 9 * * MON-FRI, not 0 8 * * *"), "{said}");
    broker.kill();
    broker.start_again();
    let report = shown(&broker, "report");
    assert_eq!(
        (&report["zone"], &report["payload_base64"]),
        (&"Europe/Berlin".into(), &"e30=".into())
    );
    assert!(report["next_ms"].as_u64().is_some_and(|next| next % 60_000 == 0), "{report}");
    broker.ok(&["schedule", "pause", "report"], b"");
    let listed = String::from_utf8(broker.ok(&["schedule", "list"], b"")).unwrap();
    assert!(
        listed.starts_with("report\tjobs\t0 9 * * MON-FRI\tEurope/Berlin\tpaused\t-\t0\t0"),
        "{listed}"
    );
    broker.ok(&["schedule", "resume", "report"], b"");
    broker.ok(&["schedule", "run-now", "report"], b"");
    assert_eq!(broker.ok(&["consume", "jobs"], b""), b"{}\n");
    assert_eq!(shown(&broker, "report")["published"], 1);
    broker.ok(&["schedule", "delete", "report"], b"");
    let said = refused(&broker, &["show", "report"]);
    assert!(said.contains("there is no schedule \"report\""), "{said}");
}

#[test]
fn what_is_wrong_with_a_schedule_is_said() {
    let (_folder, broker) = broker();
    let create = |options: &[&str]| refused(&broker, &[&["create", "s"], options].concat());
    let said = create(&["--topic", "jobs", "--cron", "0 25 * * *"]);
    assert!(said.contains("\"25\" at byte 2 of \"0 25 * * *\" is no hour"), "{said}");
    let said = create(&["--topic", "jobs", "--cron", "0 0 30 2 *"]);
    assert!(said.contains("never ticks"), "{said}");
    let said = create(&["--topic", "jobs", "--cron", "0 2 * * *", "--zone", "Europe/Atlantis"]);
    assert!(said.contains("\"Europe/Atlantis\" is no time zone"), "{said}");
    let said = create(&["--topic", "nothing", "--cron", "0 2 * * *"]);
    assert!(said.contains("there is no topic \"nothing\""), "{said}");
    let said = create(&["--topic", "__ds/schedules", "--cron", "0 2 * * *"]);
    assert!(said.contains("broker's own"), "{said}");
    assert_eq!(broker.ok(&["schedule", "list"], b""), b"");
}

#[test]
fn for_each_tick_there_is_one_message_though_the_broker_is_killed_again_and_again() {
    let (_folder, mut broker) = broker();
    create(&broker, "each", &["--cron", "* * * * * *", "--catch-up", "all", "--payload", "x"]);
    // A tick or more may be over by now.
    let next = shown(&broker, "each")["next_ms"].as_u64().unwrap();
    let mut seen = 0;
    for _ in 0..6 {
        // Killed as soon as a message is there: its note may not be.
        until("the schedule ticks", || {
            let count = ticks(&broker).len();
            let has_more = count > seen;
            seen = seen.max(count);
            has_more
        });
        broker.kill();
        broker.start_again();
    }
    until("the missed ticks are there", || ticks(&broker).len() > seen);
    broker.ok(&["schedule", "pause", "each"], b"");
    let ticks = ticks(&broker);
    let expected: Vec<u64> = (0..ticks.len() as u64).map(|n| ticks[0] + 1000 * n).collect();
    assert_eq!(ticks, expected);
    assert!(ticks[0] <= next, "{next} is missing: {ticks:?}");
    within("a schedule is asked", async {});
}

#[test]
fn with_overlap_skip_a_tick_waits_for_nothing_and_is_left_out_while_a_message_is_at_work() {
    let (_folder, broker) = broker();
    create(&broker, "slow", &["--cron", "* * * * * *", "--overlap", "skip", "--payload", "x"]);
    until("ticks are left out", || shown(&broker, "slow")["left_out"].as_u64().unwrap() >= 2);
    assert_eq!(ticks(&broker).len(), 1);
    // The next one may come while this one is acked.
    assert_eq!(broker.ok(&["consume", "jobs", "--count", "1"], b""), b"x\n");
    until("the next tick is published", || {
        shown(&broker, "slow")["published"].as_u64().unwrap() >= 2
    });
}

#[test]
fn a_schedule_whose_topic_is_gone_says_so_and_goes_on_when_it_is_back() {
    let (_folder, broker) = broker();
    create(&broker, "each", &["--cron", "* * * * * *"]);
    broker.ok(&["topic", "delete", "jobs"], b"");
    until("the failure is told", || {
        shown(&broker, "each")["failure"].as_str().unwrap().contains("there is no topic")
    });
    broker.ok(&["topic", "create", "jobs"], b"");
    until("it ticks", || !ticks(&broker).is_empty());
}

#[test]
fn the_hook_of_the_topic_decides_about_the_messages_of_a_schedule() {
    let (folder, broker) = broker();
    create(&broker, "daily", &["--cron", "0 0 29 2 *", "--payload", "x"]);
    let script = folder.path().join("script.lua");
    let set = |source: &str| {
        std::fs::write(&script, source).unwrap();
        broker.ok(&["hook", "set", "jobs", script.to_str().unwrap()], b"");
    };
    set("function on_publish(msg) return { headers = { seen = msg.payload() } } end");
    broker.ok(&["schedule", "run-now", "daily"], b"");
    let read = broker.ok(&["read", "jobs", "--json"], b"");
    let message: Value = serde_json::from_slice(&read).unwrap();
    assert_eq!(header(&message, "seen"), "x");
    set("function on_publish(msg) return { refuse = 'not today' } end");
    let said = refused(&broker, &["run-now", "daily"]);
    assert!(said.contains("not today"), "{said}");
    assert_eq!(ticks(&broker).len(), 1);
}
