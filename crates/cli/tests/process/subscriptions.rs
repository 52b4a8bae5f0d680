//! Subscriptions of a broker that is killed while workers use them: each exists afterwards with all acks, and no
//! generation is repeated.

use std::{process::Command, thread, time::Duration};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{asking, bounds::joined, broker::Broker};

const KILLS: u64 = 5;

/// Asks, and hears status and body; `None` if the broker is not there to answer.
pub fn ask(
    http: &str,
    method: &str,
    path: &str,
    token: &str,
    body: &Value,
) -> Option<(u16, Value)> {
    let bearer = format!("Bearer {token}");
    let headers = [("content-type", "application/json"), ("authorization", &bearer)];
    let answer = asking::ask(http, method, path, &headers, &body.to_string())?;
    Some((answer.status, serde_json::from_slice(&answer.body).unwrap_or_default()))
}

/// What the broker has confirmed.
#[derive(Debug, Default)]
struct Known {
    generation: u64,
    acked: String,
    acks: u64,
}

/// Appends, claims and acks until the broker is gone.
fn work(http: &str, known: &mut Known) -> Option<()> {
    loop {
        ask(http, "POST", "jobs/a", "", &json!([1]))?;
        let path = "__ds/subscriptions/s/claim";
        let (status, told) = ask(http, "POST", path, "", &json!({ "worker": "one" }))?;
        if status != 200 {
            // Of a claim that was made before a kill nobody knows: its lease has to end.
            assert_eq!(told["error"]["code"], "ALREADY_CLAIMED", "{told}");
            continue;
        }
        let generation = told["generation"].as_u64().unwrap();
        assert!(generation > known.generation, "{told} after {known:?}");
        known.generation = generation;
        let end = told["streams"][0]["tail_offset"].clone();
        let body = json!({
            "wake_id": told["wake_id"],
            "generation": generation,
            "acks": [{ "stream": "jobs/a", "offset": end }],
            "done": true,
        });
        let token = told["token"].as_str().unwrap();
        let (status, told) = ask(http, "POST", "__ds/subscriptions/s/ack", token, &body)?;
        assert_eq!(status, 200, "{told}");
        known.acked = end.as_str().unwrap().to_owned();
        known.acks += 1;
    }
}

#[test]
fn what_was_acked_survives_a_kill_and_no_generation_comes_twice() {
    let folder = TempDir::new().unwrap();
    let mut broker = Broker::start(folder.path());
    let http = broker.http.clone();
    for stream in ["wake", "jobs/a"] {
        assert_eq!(ask(&http, "PUT", stream, "", &json!([])).unwrap().0, 201);
    }
    let body = json!({ "type": "pull-wake", "pattern": "jobs/*", "wake_stream": "wake", "lease_ttl_ms": 1_000 });
    assert_eq!(ask(&http, "PUT", "__ds/subscriptions/s", "", &body).unwrap().0, 201);
    let mut known = Known::default();
    for kill in 0..KILLS {
        let pid = broker.pid().to_string();
        let killer = thread::spawn(move || {
            // At another point of the work each time.
            thread::sleep(Duration::from_millis(1_200 + 37 * kill));
            Command::new("kill").args(["-KILL", &pid]).status().unwrap();
        });
        work(&http, &mut known);
        joined("the broker is killed", killer);
        broker.kill();
        broker.start_again();
        let (status, told) = ask(&http, "GET", "__ds/subscriptions/s", "", &Value::Null).unwrap();
        assert_eq!(status, 200, "the subscription is gone after {known:?}");
        assert!(told["generation"].as_u64().unwrap() >= known.generation, "{told} {known:?}");
        let acked = told["streams"][0]["acked_offset"].as_str().unwrap();
        assert!(acked >= known.acked.as_str(), "{told} {known:?}");
    }
    eprintln!("{} acks, generation {}", known.acks, known.generation);
    assert!(known.acks >= KILLS, "{known:?}");
}

#[test]
fn subscriptions_are_made_listed_shown_and_deleted_from_the_command_line() {
    let folder = TempDir::new().unwrap();
    let broker = Broker::start(folder.path());
    let text = |args: &[&str]| String::from_utf8(broker.ok(args, b"")).unwrap();
    let create = |id, pattern| {
        [
            "subscription",
            "create",
            id,
            "--pattern",
            pattern,
            "--wake-stream",
            "wake",
            "--lease",
            "1m",
        ]
    };
    text(&create("one", "jobs/*"));
    text(&create("two", "mails/**"));
    assert_eq!(ask(&broker.http, "PUT", "jobs/a", "", &json!([1])).unwrap().0, 201);
    let claim = "__ds/subscriptions/one/claim";
    assert_eq!(ask(&broker.http, "POST", claim, "", &json!({ "worker": "me" })).unwrap().0, 200);
    assert_eq!(
        text(&["subscription", "list"]),
        "one\tpull-wake\theld\t1\t1\t1\ntwo\tpull-wake\tidle\t0\t0\t0\n"
    );
    let shown = text(&["subscription", "show", "one"]);
    for line in ["holder\tme", "pattern\tjobs/*", "lease_ttl_ms\t60000", "stream jobs/a\tacked "] {
        assert!(shown.contains(line), "{line:?} is missing: {shown}");
    }
    let shown: Value =
        serde_json::from_str(&text(&["subscription", "show", "one", "--json"])).unwrap();
    assert_eq!(shown["streams"][0]["has_pending"], true);
    // Of several nodes the one that leads the catalogue has them.
    let metrics = broker.metrics();
    for line in [
        "sennit_subscriptions{core=\"0\"} 2",
        "sennit_subscription_links{core=\"0\"} 1",
        "sennit_subscriptions_held{core=\"0\"} 1",
        "sennit_subscriptions_woken{core=\"0\"} 0",
    ] {
        assert!(metrics.contains(line), "{line} is missing: {metrics}");
    }
    text(&["subscription", "delete", "one"]);
    assert_eq!(text(&["subscription", "list", "--json"]).lines().count(), 1);
    for verb in ["show", "delete"] {
        let gone = broker.run(&["subscription", verb, "one"], b"");
        assert_eq!(gone.status.code(), Some(3), "{}", String::from_utf8_lossy(&gone.stderr));
    }
}
