//! Subscriptions on three nodes: any node takes requests about them, one works for them, and what was acked stays when that one is killed.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::mpsc::{self, Receiver, Sender},
    thread,
};

use serde_json::{Value, json};

use crate::{
    bounds::{BOUND, until},
    broker::Broker,
    cluster_nodes::{cluster, leader_of_catalogue, living},
    subscriptions::ask,
};

/// Asks until the node can do it.
fn done(broker: &Broker, method: &str, path: &str, token: &str, body: &Value) -> (u16, Value) {
    let mut answer = None;
    until("the node can say", || {
        answer = ask(&broker.http, method, path, token, body);
        answer.as_ref().is_some_and(|(status, _)| *status != 503)
    });
    answer.expect("it was answered")
}

fn pull(pattern: &str) -> Value {
    json!({ "type": "pull-wake", "pattern": pattern, "wake_stream": "wake", "lease_ttl_ms": 60_000 })
}

/// The body of an ack of everything that a claim has told.
fn acks(told: &Value) -> Value {
    let acked =
        |stream: &Value| json!({ "stream": stream["path"], "offset": stream["tail_offset"] });
    let acks: Vec<Value> = told["streams"].as_array().unwrap().iter().map(acked).collect();
    json!({ "wake_id": told["wake_id"], "generation": told["generation"], "acks": acks, "done": true })
}

#[test]
fn subscriptions_are_made_worked_on_and_deleted_through_any_node() {
    let folder = tempfile::tempdir().unwrap();
    let brokers = cluster(folder.path(), &[]);
    let keys = done(&brokers[0], "GET", "__ds/jwks.json", "", &Value::Null);
    assert_eq!(keys.0, 200, "{keys:?}");
    for broker in &brokers {
        assert_eq!(done(broker, "GET", "__ds/jwks.json", "", &Value::Null), keys);
    }
    for at in 0..3 {
        let node = |more: usize| &brokers[(at + more) % 3];
        let (stream, path) = (format!("jobs-{at}/a"), format!("__ds/subscriptions/s-{at}"));
        let body = pull(&format!("jobs-{at}/*"));
        assert_eq!(done(node(0), "PUT", &path, "", &body).0, 201);
        assert_eq!(done(node(1), "PUT", &path, "", &body).0, 200);
        assert_eq!(done(node(2), "PUT", &path, "", &pull("others/*")).0, 409);
        assert_eq!(done(node(1), "PUT", &stream, "", &json!([1])).0, 201);
        let claim = format!("{path}/claim");
        let mut told = Value::Null;
        until("there is work", || {
            let worker = json!({ "worker": "one" });
            let (status, answer) = done(node(2), "POST", &claim, "", &worker);
            told = answer;
            status == 200
        });
        let (status, taken) = done(node(1), "POST", &claim, "", &json!({ "worker": "two" }));
        assert_eq!((status, &taken["error"]["code"]), (409, &json!("ALREADY_CLAIMED")), "{taken}");
        let token = told["token"].as_str().unwrap();
        let (status, acked) = done(node(0), "POST", &format!("{path}/ack"), token, &acks(&told));
        assert_eq!(status, 200, "{acked}");
        for broker in &brokers {
            let (status, shown) = done(broker, "GET", &path, "", &Value::Null);
            assert_eq!((status, &shown["status"]), (200, &json!("idle")), "{shown}");
            assert_eq!(shown["streams"][0]["acked_offset"], told["streams"][0]["tail_offset"]);
        }
        let link = json!({ "streams": ["beside"] });
        assert_eq!(done(node(2), "POST", &format!("{path}/streams"), "", &link).0, 204);
        let unlink = format!("{path}/streams/beside");
        assert_eq!(done(node(1), "DELETE", &unlink, "", &Value::Null).0, 204);
        let all = done(node(0), "GET", "__ds/subscriptions", "", &Value::Null).1;
        assert_eq!(all["subscriptions"].as_array().unwrap().len(), 1, "{all}");
        assert_eq!(done(node(1), "DELETE", &path, "", &Value::Null).0, 204);
        for broker in &brokers {
            assert_eq!(done(broker, "GET", &path, "", &Value::Null).0, 404);
        }
    }
}

#[test]
fn what_was_acked_stays_and_no_generation_comes_twice_when_the_node_that_works_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut brokers = cluster(folder.path(), &[]);
    assert_eq!(done(&brokers[0], "PUT", "jobs/a", "", &json!([])).0, 201);
    assert_eq!(done(&brokers[0], "PUT", "__ds/subscriptions/s", "", &pull("jobs/*")).0, 201);
    let mut generation = 0;
    for _ in 0..3 {
        let killed = leader_of_catalogue(&brokers);
        let mut acked = Value::Null;
        for broker in &brokers {
            assert_eq!(done(broker, "POST", "jobs/a", "", &json!([1])).0, 204);
            let worker = json!({ "worker": "one" });
            let (status, told) = done(broker, "POST", "__ds/subscriptions/s/claim", "", &worker);
            assert_eq!(status, 200, "{told}");
            let next = told["generation"].as_u64().unwrap();
            assert!(next > generation, "{next} after {generation}");
            generation = next;
            let token = told["token"].as_str().unwrap();
            let path = "__ds/subscriptions/s/ack";
            let (status, answer) = done(broker, "POST", path, token, &acks(&told));
            assert_eq!(status, 200, "{answer}");
            acked = told["streams"][0]["tail_offset"].clone();
        }
        brokers[killed].kill();
        for broker in living(&brokers, killed) {
            let (status, shown) = done(broker, "GET", "__ds/subscriptions/s", "", &Value::Null);
            assert_eq!(status, 200, "{shown}");
            assert_eq!(shown["streams"][0]["acked_offset"], acked, "{shown}");
            assert_eq!(shown["generation"], generation, "{shown}");
        }
        brokers[killed].start_again();
    }
}

/// A server that takes every wake, and says that its work is done.
fn webhook() -> (String, Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let (sender, wakes) = mpsc::channel();
    thread::spawn(move || {
        for wire in listener.incoming().flatten() {
            // A broker that is killed leaves a request half done.
            let _ = take_wake(wire, &sender);
        }
    });
    (url, wakes)
}

fn take_wake(wire: TcpStream, sender: &Sender<Value>) -> std::io::Result<()> {
    wire.set_read_timeout(Some(BOUND))?;
    let mut wire = BufReader::new(wire);
    let mut length = 0;
    loop {
        let mut line = String::new();
        wire.read_line(&mut line)?;
        if line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    wire.read_exact(&mut body)?;
    let _ = sender.send(serde_json::from_slice(&body)?);
    let answer =
        b"HTTP/1.1 200 OK\r\ncontent-length: 13\r\nconnection: close\r\n\r\n{\"done\":true}";
    wire.into_inner().write_all(answer)
}

#[test]
fn a_webhook_is_called_by_the_next_node_when_the_one_that_called_it_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut brokers = cluster(folder.path(), &["--streams-allow-private-webhooks"]);
    let (url, wakes) = webhook();
    let body = json!({ "type": "webhook", "pattern": "jobs/*", "webhook": { "url": url } });
    assert_eq!(done(&brokers[0], "PUT", "jobs/a", "", &json!([])).0, 201);
    assert_eq!(done(&brokers[1], "PUT", "__ds/subscriptions/hook", "", &body).0, 201);
    let mut last: Option<(u64, Value)> = None;
    let mut called = |what: &str| {
        let wake = wakes.recv_timeout(BOUND).unwrap_or_else(|_| panic!("no call: {what}"));
        let (generation, id) = (wake["generation"].as_u64().unwrap(), wake["wake_id"].clone());
        // A call may be repeated. Then it is the same wake.
        match &last {
            Some((before, same)) if *before == generation => assert_eq!(*same, id),
            Some((before, _)) => assert!(*before < generation, "{generation} after {before}"),
            None => {}
        }
        last = Some((generation, id));
        wake["streams"][0]["tail_offset"].as_str().unwrap().to_owned()
    };
    for _ in 0..3 {
        let killed = leader_of_catalogue(&brokers);
        brokers[killed].kill();
        {
            let living = living(&brokers, killed);
            assert_eq!(done(living[0], "POST", "jobs/a", "", &json!([1])).0, 204);
            let status = done(living[1], "GET", "__ds/subscriptions/hook", "", &Value::Null).1;
            let end = status["streams"][0]["tail_offset"].as_str().unwrap().to_owned();
            while called("what was appended is told") < end {}
            until("the work is done", || {
                let hook = "__ds/subscriptions/hook";
                done(living[0], "GET", hook, "", &Value::Null).1["status"] == "idle"
            });
        }
        brokers[killed].start_again();
    }
}
