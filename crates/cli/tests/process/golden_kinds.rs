//! A data directory of an earlier Sennit with nearly every kind of record, opened by this one: it gives the same
//! answers, and repeated requests count once. The server's own tests check that each kind is in some golden
//! directory (`crates/server/tests/server/golden.rs`). `SENNIT_WRITE_GOLDEN=kinds cargo test -p sennit --test
//! process golden_kinds` creates it; a committed one is never created again.

use std::{fs, time::Duration};

use sennit_client::{Client, GroupName};
use serde_json::{Value, json};

use crate::{
    asking,
    backup::short_segments,
    bounds::{until, within},
    broker::Broker,
    golden::{golden, is_to_be_made, restored},
};

/// Longer than anything takes that is to happen.
const SOON: Duration = Duration::from_secs(60);

/// Long enough that nobody will see it due.
const DELAY: Duration = Duration::from_secs(90 * 365 * 24 * 3600);

/// What is asked of the broker.
const QUESTIONS: [&str; 19] = [
    "topic list",
    "topic describe jobs --json",
    "group list jobs --json",
    "topic describe jobs.dead-letter --json",
    "read jobs --json",
    "read jobs.dead-letter --json",
    "topic describe log --json",
    "read log --json",
    "cursor list log --json",
    "read fleeting --json",
    "read rates --json",
    "topic describe rates --json",
    "stream show notes --json",
    "stream read notes",
    "stream show branch --json",
    "stream read branch",
    "stream show debit --json",
    "stream read debit",
    "stream read credit",
];

/// Appends as they may be sent again: stream, body, producer's number.
const ONE: (&str, &str, &str) = ("notes", "a line of writer one", "1");

fn together() -> String {
    let append = |stream: &str| {
        json!({
            "stream": format!("/v1/stream/{stream}"), "body": [7],
            "content_type": "application/json",
            "producer": { "id": "bank", "epoch": 3, "seq": 0 },
        })
    };
    json!({ "appends": [append("debit"), append("credit")] }).to_string()
}

fn append_one(broker: &Broker) -> u16 {
    let (stream, body, number) = ONE;
    let headers = [
        ("content-type", "text/plain"),
        ("producer-id", "one"),
        ("producer-epoch", "0"),
        ("producer-seq", number),
    ];
    asking::ask(&broker.http, "POST", stream, &headers, body).unwrap().status
}

fn append_together(broker: &Broker) -> Value {
    let answer = asking::ask_at(&broker.http, "POST", "/v1/atomic", &[], &together()).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.head);
    serde_json::from_slice(&answer.body).unwrap()
}

fn queues(broker: &Broker) {
    for command in [
        "topic create gone",
        "topic delete gone",
        "topic create jobs",
        "topic alter jobs --retain until-settled --retain 90GiB",
        "group create jobs passing",
        "group delete jobs passing",
        "publish jobs first second third fourth fifth",
    ] {
        broker.ok(&command.split(' ').collect::<Vec<_>>(), b"");
    }
    within("queues are written", async {
        let client = Client::connect(&broker.listen).await.unwrap();
        let (jobs, group) = ("jobs".parse().unwrap(), GroupName::default_group());
        let mut consumer = client.consumer(&jobs, &group).subscribe().await.unwrap();
        for number in 0..4 {
            let delivery = tokio::time::timeout(SOON, consumer.next()).await.unwrap();
            let delivery = delivery.unwrap().unwrap();
            match number {
                0 => drop(delivery.ack_confirmed().await.unwrap()),
                1 => delivery.retry_after(DELAY),
                2 => delivery.dead_letter("it cannot be done"),
                _ => {}
            }
        }
        consumer.close().await.unwrap();
        client.close().await;
    });
}

fn kept(broker: &Broker) {
    for command in [
        "topic create log --kind stream",
        "publish log one",
        "publish log two three",
        "topic trim log --before 1",
        "cursor set log reader 2",
        "cursor set log passing 2",
        "cursor delete log passing",
        "topic create fleeting --kind stream --durability ephemeral",
        "publish fleeting hello",
        "topic create rates --retain latest-per-key",
    ] {
        broker.ok(&command.split(' ').collect::<Vec<_>>(), b"");
    }
    for round in 0..2 {
        let lines: String = (0..8).map(|key| format!("key {key}={round}\n")).collect();
        broker.ok(&["publish", "rates", "--key-before", "="], lines.as_bytes());
    }
    broker.ok(&["publish", "rates", "--key", "key 3", ""], b"");
}

fn streams(broker: &Broker) {
    for stream in ["notes", "ended"] {
        let headers = [("content-type", "text/plain"), ("stream-storage", "acid")];
        asking::ask(&broker.http, "PUT", stream, &headers, "title").unwrap();
    }
    for command in [
        "stream fork ended branch",
        "stream append branch goes-on",
        "stream close branch",
        "stream delete ended",
        "stream create debit --content-type application/json --storage acid --group accounts",
        "stream create credit --content-type application/json --storage acid --group accounts",
    ] {
        broker.ok(&command.split(' ').collect::<Vec<_>>(), b"");
    }
    let (stream, _, _) = ONE;
    let headers = [
        ("content-type", "text/plain"),
        ("producer-id", "one"),
        ("producer-epoch", "0"),
        ("producer-seq", "0"),
    ];
    asking::ask(&broker.http, "POST", stream, &headers, "before it").unwrap();
    assert_eq!(append_one(broker), 200);
    assert_eq!(append_together(broker)["appends"][0]["duplicate"], false);
}

fn make() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    short_segments(&data, 1, 256 << 10);
    let mut broker = Broker::start_with(&data, &["--journal-segments", "100"]);
    queues(&broker);
    kept(&broker);
    streams(&broker);
    // Until the first values of the keys are gone.
    until("the topic is compacted", || {
        broker.ok(&["read", "rates"], b"").split(|byte| *byte == b'\n').count() <= 9
    });
    broker.kill();
    broker.start_again();
    broker.ok(&["publish", "jobs", "the last"], b"");
    let lines: String = QUESTIONS
        .iter()
        .map(|question| json!({ "asked": question, "said": ask(&broker, question) }))
        .map(|line| format!("{line}\n"))
        .collect();
    let file = golden("kinds.backup");
    broker.ok(&["backup", "--overwrite", "--to", file.to_str().unwrap()], b"");
    fs::write(golden("kinds.answers"), lines).unwrap();
}

/// What the broker answers: lines, each as JSON if it is.
fn ask(broker: &Broker, question: &str) -> Vec<Value> {
    let said = broker.ok(&question.split(' ').collect::<Vec<_>>(), b"");
    let lines = String::from_utf8(said).unwrap();
    let value = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| line.into());
    lines.lines().map(value).collect()
}

/// Whether an answer says what another said; it may say more.
fn says(now: &Value, then: &Value) -> bool {
    match (now, then) {
        (Value::Object(now), Value::Object(then)) => {
            then.iter().all(|(key, then)| now.get(key).is_some_and(|now| says(now, then)))
        }
        (Value::Array(now), Value::Array(then)) => {
            now.len() == then.len() && now.iter().zip(then).all(|(now, then)| says(now, then))
        }
        (now, then) => now == then,
    }
}

/// What an answer says whenever it is asked. What ends a key goes some time after a day, and its bytes with
/// it.
fn lasting(answer: &Value) -> Value {
    let mut lines = answer.as_array().unwrap().clone();
    lines.retain(|line| line["key"].is_null() || line["payload"] != "");
    for line in lines.iter_mut().filter(|line| line["retention"]["latest_per_key"] == true) {
        for partition in line["partition"].as_array_mut().unwrap() {
            let partition = partition.as_object_mut().unwrap();
            partition.retain(|figure, _| !figure.ends_with("bytes"));
        }
    }
    Value::Array(lines)
}

#[test]
fn a_golden_directory_with_every_kind_of_record_answers_as_it_did() {
    if is_to_be_made("kinds") {
        make();
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    restored("kinds.backup", &data);
    let broker = Broker::start(&data);
    let answers = fs::read_to_string(golden("kinds.answers")).unwrap();
    let answers: Vec<Value> =
        answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), QUESTIONS.len());
    for answer in &answers {
        let now = Value::Array(ask(&broker, answer["asked"].as_str().unwrap()));
        assert!(says(&lasting(&now), &lasting(&answer["said"])), "{answer}\nnow {now}");
    }
    // What was sent then and is sent again counts once.
    assert_eq!(append_one(&broker), 204);
    let said = append_together(&broker);
    assert!((0..2).all(|at| said["appends"][at]["duplicate"] == true), "{said}");
    let refused = asking::ask(&broker.http, "GET", "ended", &[], "").unwrap();
    assert_eq!(refused.status, 410, "it is kept for its fork alone");
}
