//! Subscriptions over real sockets: webhooks that are told, workers that claim, leases that end, and
//! what a start finds of it.

use std::time::Instant;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::signature::{ED25519, UnparsedPublicKey};
use sennit_model::TopicId;
use sennit_protocol::{ErrorCode, Reply, Request, control};
use sennit_server::Config;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    browser::Browser,
    http_streams::{self, JSON, token_at},
    reading,
    webhooks::Webhook,
    world::{Broker, SOON, config, publish, texts_of},
};

fn start(folder: &TempDir) -> Broker {
    let config = Config { streams_allow_private_webhooks: true, ..config(folder.path()) };
    Broker::start(config)
}

/// Asks with a body, and hears status and body of the answer.
fn ask(http: &mut Browser, method: &str, path: &str, token: &str, body: &Value) -> (u16, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let length = body.len();
    let token =
        if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") };
    http.say(format!(
        "{method} /v1/stream/{path} HTTP/1.1\r\nHost: localhost:1\r\nContent-Type: application/json\r\n{token}Content-Length: {length}\r\n\r\n{body}"
    ));
    let answer = http.hear(true);
    let told = serde_json::from_str(&answer.body).unwrap_or_default();
    (answer.status, told)
}

fn put(http: &mut Browser, path: &str, body: &Value) -> u16 {
    ask(http, "PUT", path, "", body).0
}

fn append(http: &mut Browser, path: &str) {
    assert_eq!(ask(http, "POST", path, "", &json!({ "event": "more" })).0, 204);
}

fn subscribe(http: &mut Browser, id: &str, body: &Value) -> (u16, Value) {
    ask(http, "PUT", &format!("__ds/subscriptions/{id}"), "", body)
}

fn view(http: &mut Browser, id: &str) -> Value {
    let (status, told) = ask(http, "GET", &format!("__ds/subscriptions/{id}"), "", &Value::Null);
    assert_eq!(status, 200);
    told
}

fn pulled(pattern: &str) -> Value {
    json!({ "type": "pull-wake", "pattern": pattern, "wake_stream": "wake", "lease_ttl_ms": 60_000 })
}

fn called(webhook: &Webhook) -> Value {
    json!({ "type": "webhook", "pattern": "events/*", "webhook": { "url": webhook.url() } })
}

fn claim(http: &mut Browser, id: &str) -> (u16, Value) {
    ask(http, "POST", &format!("__ds/subscriptions/{id}/claim"), "", &json!({ "worker": "one" }))
}

/// What somebody says who has done everything they were told of.
fn all_done(told: &Value, is_done: bool) -> Value {
    let streams = told["streams"].as_array().unwrap().iter();
    let acks = streams.map(|one| json!({ "stream": one["path"], "offset": one["tail_offset"] }));
    json!({
        "wake_id": told["wake_id"],
        "generation": told["generation"],
        "acks": acks.collect::<Vec<_>>(),
        "done": is_done,
    })
}

fn code(told: &Value) -> &str {
    told["error"]["code"].as_str().unwrap()
}

/// Where the stream of that number among those told ends.
fn end_of(told: &Value, stream: usize) -> &str {
    told["streams"][stream]["tail_offset"].as_str().unwrap()
}

/// Until the subscription is as it is to be.
fn until(http: &mut Browser, id: &str, is_it: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let told = view(http, id);
        if is_it(&told) {
            return told;
        }
        assert!(begun.elapsed() < SOON, "{told}");
        std::thread::yield_now();
    }
}

#[test]
fn a_webhook_is_told_signed_and_what_it_has_done_is_acked() {
    let folder = TempDir::new().unwrap();
    let broker = start(&folder);
    let http = &mut Browser::of(&broker);
    let webhook = Webhook::answering(&[(200, r#"{"done":true}"#)]);
    put(http, "events/old", &json!([1, 2]));
    let (status, created) = subscribe(http, "s", &called(&webhook));
    assert_eq!(status, 201);
    let old = &created["streams"][0];
    assert_eq!((&old["path"], &old["has_pending"]), (&json!("events/old"), &json!(false)));
    assert!(old["acked_offset"].as_str().unwrap().starts_with("0000000000000002_"), "{old}");
    assert_eq!(subscribe(http, "s", &called(&webhook)).0, 200);
    let other =
        json!({ "type": "webhook", "pattern": "other", "webhook": { "url": webhook.url() } });
    let (status, told) = subscribe(http, "s", &other);
    assert_eq!((status, code(&told)), (409, "SUBSCRIPTION_ALREADY_EXISTS"));

    put(http, "events/new", &json!(["first"]));
    let notice = webhook.notice();
    let (_, keys) = ask(http, "GET", "__ds/jwks.json", "", &Value::Null);
    let key = URL_SAFE_NO_PAD.decode(keys["keys"][0]["x"].as_str().unwrap()).unwrap();
    let (head, signature) = notice.signature.split_once(",ed25519=").unwrap();
    let at = head.split_once(',').unwrap().0.strip_prefix("t=").unwrap();
    let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
    let signed = format!("{at}.{}", notice.text);
    assert!(UnparsedPublicKey::new(&ED25519, key).verify(signed.as_bytes(), &signature).is_ok());
    assert_eq!(notice.body["subscription_id"], "s");
    assert_eq!(notice.body["generation"], 1);
    assert_eq!(
        notice.body["callback_url"],
        "http://localhost:1/v1/stream/__ds/subscriptions/s/callback"
    );
    let told = until(http, "s", |told| told["status"] == "idle");
    let streams = told["streams"].as_array().unwrap();
    assert!(streams.iter().all(|one| one["has_pending"] == false), "{told}");
    assert_eq!(streams.len(), 2);

    append(http, "events/old");
    assert_eq!(webhook.notice().body["generation"], 2);
    assert_eq!(ask(http, "DELETE", "__ds/subscriptions/s", "", &Value::Null).0, 204);
    assert_eq!(ask(http, "GET", "__ds/subscriptions/s", "", &Value::Null).0, 404);
    append(http, "events/old");
    assert!(!webhook.was_told());
    broker.stop();
}

#[test]
fn a_webhook_that_fails_is_told_again_and_may_call_back() {
    let folder = TempDir::new().unwrap();
    let broker = start(&folder);
    let http = &mut Browser::of(&broker);
    let webhook = Webhook::answering(&[(500, ""), (302, ""), (202, "")]);
    subscribe(http, "s", &called(&webhook));
    put(http, "events/a", &json!(["first"]));
    let first = webhook.notice().body;
    webhook.notice();
    let third = webhook.notice().body;
    assert_eq!((&third["wake_id"], &third["generation"]), (&first["wake_id"], &json!(1)));
    let token = third["callback_token"].as_str().unwrap();
    let path = "__ds/subscriptions/s/callback";
    let (status, told) = ask(http, "POST", path, "nonsense", &all_done(&third, true));
    assert_eq!((status, code(&told)), (401, "TOKEN_INVALID"));
    let (status, told) = ask(http, "POST", path, token, &all_done(&third, true));
    assert_eq!((status, told), (200, json!({ "ok": true, "next_wake": false })));
    let (status, told) = ask(http, "POST", path, token, &all_done(&third, true));
    assert_eq!((status, code(&told)), (409, "FENCED"));
    broker.stop();
}

#[test]
fn a_webhook_of_this_machine_is_not_called_unless_that_is_allowed() {
    let (broker, _folder) = Broker::fresh();
    let http = &mut Browser::of(&broker);
    for url in ["http://127.0.0.1:1/", "https://127.0.0.1/", "https://localhost/", "http://a.b/"] {
        let body = json!({ "type": "webhook", "pattern": "a", "webhook": { "url": url } });
        let (status, told) = subscribe(http, "s", &body);
        assert_eq!((status, code(&told)), (400, "WEBHOOK_URL_REJECTED"), "{url}");
    }
    broker.stop();
}

#[test]
fn one_worker_claims_and_the_next_comes_when_its_lease_is_over() {
    let folder = TempDir::new().unwrap();
    let broker = start(&folder);
    let http = &mut Browser::of(&broker);
    put(http, "wake", &json!([]));
    let body = json!({ "type": "pull-wake", "streams": ["jobs"], "wake_stream": "wake", "lease_ttl_ms": 1_000 });
    assert_eq!(subscribe(http, "s", &body).0, 201);
    let (status, told) = claim(http, "s");
    assert_eq!((status, code(&told)), (409, "NO_PENDING_WORK"));
    // It was named before it was there.
    put(http, "jobs", &json!(["first"]));
    let (status, first) = claim(http, "s");
    assert_eq!((status, &first["generation"]), (200, &json!(1)), "{first}");
    let (status, told) = claim(http, "s");
    assert_eq!((status, code(&told)), (409, "ALREADY_CLAIMED"));
    assert_eq!(told["error"]["current_holder"], "one");

    // Nobody acks: the lease ends, and it wakes again.
    until(http, "s", |told| told["status"] == "woken" && told["generation"] == 2);
    let path = "__ds/subscriptions/s/ack";
    let (status, told) =
        ask(http, "POST", path, first["token"].as_str().unwrap(), &all_done(&first, true));
    assert_eq!((status, code(&told)), (409, "FENCED"));
    let (_, second) = claim(http, "s");
    let token = second["token"].as_str().unwrap();
    let end = second["streams"][0]["tail_offset"].as_str().unwrap();
    let beyond = json!({
        "wake_id": second["wake_id"],
        "generation": second["generation"],
        "acks": [{ "stream": "jobs", "offset": token_at(9, end) }],
    });
    let (status, told) = ask(http, "POST", path, token, &beyond);
    assert_eq!((status, code(&told)), (409, "INVALID_OFFSET"));
    append(http, "jobs");
    let (status, told) = ask(http, "POST", path, token, &all_done(&second, true));
    assert_eq!((status, told), (200, json!({ "ok": true, "next_wake": true })));
    let (_, third) = claim(http, "s");
    let token = third["token"].as_str().unwrap();
    let path = "__ds/subscriptions/s/release";
    assert_eq!(ask(http, "POST", path, token, &all_done(&third, false)).0, 204);
    until(http, "s", |told| told["generation"] == 4);
    // Those wakes lie in the stream that nobody had claimed before they were written.
    let begun = Instant::now();
    let wakes = loop {
        let (_, wakes) = ask(http, "GET", "wake", "", &Value::Null);
        let wakes = wakes.as_array().unwrap().clone();
        if wakes.iter().any(|wake| wake["generation"] == 4) {
            break wakes;
        }
        assert!(begun.elapsed() < SOON, "{wakes:?}");
        std::thread::yield_now();
    };
    assert!(wakes.iter().all(|wake| {
        wake["type"] == "wake" && wake["subscription_id"] == "s" && wake["stream"] == "jobs"
    }));
    broker.stop();
}

#[test]
fn a_wake_stream_that_takes_no_wakes_is_not_tried_again_before_another_has_its_name() {
    let folder = TempDir::new().unwrap();
    let broker = start(&folder);
    let http = &mut Browser::of(&broker);
    let closed = format!("{JSON}Stream-Closed: true\r\n");
    assert_eq!(http_streams::ask(http, "PUT", "closed", &closed, "").status, 201);
    broker.greeted().create_topic("partitioned", 2);
    let resting = ["closed", "missing", "partitioned"];
    for id in resting {
        let mut body = pulled("jobs");
        body["wake_stream"] = json!(id);
        assert_eq!(subscribe(http, id, &body).0, 201);
    }
    let webhook = Webhook::answering(&[(500, "")]);
    let mut body = called(&webhook);
    body["pattern"] = json!("jobs");
    assert_eq!(subscribe(http, "webhook", &body).0, 201);
    put(http, "jobs", &json!([1]));
    // What failed is kept: a webhook that may answer any moment is tried again and again.
    let mut peer = reading::reader(&broker);
    reading::begin(&mut peer, reading::read("__ds/subscriptions"));
    let mut failed = 0;
    while failed < 2 {
        for text in texts_of(&peer.delivery()) {
            let change: Value = serde_json::from_str(&text).unwrap();
            let attempt = change["moved"]["phase"]["attempt"].as_u64().unwrap_or_default();
            match change["id"].as_str().unwrap() {
                "webhook" => failed = attempt.max(failed),
                _ => assert_eq!(attempt, 0, "{text}"),
            }
        }
    }
    for (id, gone) in [("closed", true), ("missing", false), ("partitioned", true)] {
        if gone {
            let delete = control::DeleteTopic { name: id.into() };
            assert!(matches!(peer.ask(&Request::DeleteTopic(delete)), Reply::Done(_)));
        }
        put(http, id, &json!([]));
        let begun = Instant::now();
        while ask(http, "GET", id, "", &Value::Null).1[0]["subscription_id"] != id {
            assert!(begun.elapsed() < SOON, "{id}");
            std::thread::yield_now();
        }
    }
    broker.stop();
}

#[test]
fn a_start_finds_subscriptions_acks_and_leases_as_they_were() {
    let folder = TempDir::new().unwrap();
    let broker = start(&folder);
    let http = &mut Browser::of(&broker);
    put(http, "wake", &json!([]));
    subscribe(http, "s", &pulled("jobs/**"));
    subscribe(http, "gone", &pulled("jobs/**"));
    ask(http, "DELETE", "__ds/subscriptions/gone", "", &Value::Null);
    put(http, "jobs/a", &json!([1, 2]));
    put(http, "jobs/b", &json!([1]));
    let (_, told) = claim(http, "s");
    let token = told["token"].as_str().unwrap();
    let path = "__ds/subscriptions/s/ack";
    let mut ack = json!({
        "wake_id": told["wake_id"],
        "generation": told["generation"],
        "acks": [{ "stream": "jobs/a", "offset": token_at(1, end_of(&told, 0)) }],
    });
    assert_eq!(ask(http, "POST", path, token, &ack).0, 200);
    broker.stop();

    let broker = start(&folder);
    let http = &mut Browser::of(&broker);
    assert_eq!(ask(http, "GET", "__ds/subscriptions/gone", "", &Value::Null).0, 404);
    let found = view(http, "s");
    assert_eq!((&found["status"], &found["holder"]), (&json!("held"), &json!("one")));
    assert_eq!(found["generation"], told["generation"]);
    let acked: Vec<&Value> =
        found["streams"].as_array().unwrap().iter().map(|one| &one["acked_offset"]).collect();
    let expected = [token_at(1, end_of(&told, 0)), token_at(0, end_of(&told, 1))];
    assert_eq!(acked, expected.iter().collect::<Vec<_>>(), "the stream's offsets stay its own");
    // Who worked goes on; and what comes later is linked as before.
    put(http, "jobs/c", &json!([1]));
    ack["acks"] = json!([
        { "stream": "jobs/a", "offset": token_at(2, end_of(&told, 0)) },
        { "stream": "jobs/b", "offset": token_at(1, end_of(&told, 1)) },
    ]);
    ack["done"] = json!(true);
    assert_eq!(ask(http, "POST", path, token, &ack).0, 200);
    let told = until(http, "s", |told| told["status"] == "woken");
    assert_eq!(told["generation"], found["generation"].as_u64().unwrap() + 1);
    let pending =
        told["streams"].as_array().unwrap().iter().filter(|one| one["has_pending"] == true);
    assert_eq!(pending.map(|one| &one["path"]).collect::<Vec<_>>(), ["jobs/c"]);
    broker.stop();
}

#[test]
fn a_topic_of_the_native_protocol_wakes_too() {
    let folder = TempDir::new().unwrap();
    let broker = start(&folder);
    let http = &mut Browser::of(&broker);
    subscribe(http, "s", &pulled("orders.*"));
    let mut peer = broker.greeted();
    let topic = peer.create_topic("orders.eu", 1);
    peer.create_topic("orders.us", 2);
    peer.send(&Request::Publish(publish(topic, 0, 0, &["a"])));
    peer.confirmed_up_to(1);
    let (status, told) = claim(http, "s");
    assert_eq!(status, 200);
    let streams = told["streams"].as_array().unwrap();
    assert_eq!(streams.len(), 1, "a topic of two partitions is no stream");
    assert_eq!(
        (&streams[0]["path"], &streams[0]["has_pending"]),
        (&json!("orders.eu"), &json!(true))
    );
    broker.stop();
}

#[test]
fn a_stream_that_is_deleted_is_linked_no_more() {
    let folder = TempDir::new().unwrap();
    let broker = start(&folder);
    let http = &mut Browser::of(&broker);
    subscribe(http, "s", &pulled("jobs/*"));
    put(http, "jobs/a", &json!([1]));
    ask(http, "POST", "__ds/subscriptions/s/streams", "", &json!({ "streams": ["x", "jobs/a"] }));
    assert_eq!(view(http, "s")["streams"].as_array().unwrap().len(), 2);
    assert_eq!(ask(http, "DELETE", "jobs/a", "", &Value::Null).0, 204);
    assert_eq!(ask(http, "DELETE", "__ds/subscriptions/s/streams/x", "", &Value::Null).0, 204);
    let told = view(http, "s");
    let streams = told["streams"].as_array().unwrap();
    assert_eq!(streams.len(), 1, "{told}");
    assert_eq!(streams[0]["link_type"], "explicit");
    assert_eq!(streams[0]["has_pending"], false);
    put(http, "jobs/a", &json!([1]));
    assert_eq!(claim(http, "s").0, 200);
    broker.stop();
}

#[test]
fn where_subscriptions_are_kept_clients_may_read_and_nothing_else() {
    let folder = TempDir::new().unwrap();
    let topic = || "__ds/subscriptions".to_owned();
    let open =
        |name: String| Request::OpenTopic(control::OpenTopic { name, create_if_missing: true });
    let code = |reply: Reply| match reply {
        Reply::Error(error) => error.error_code(),
        _ => None,
    };
    let reserved = Some(ErrorCode::TopicReserved);
    let mut broker = start(&folder);
    let mut peer = broker.greeted();
    // Neither before it is there, nor beside it.
    assert_eq!(code(peer.ask(&open(topic()))), reserved);
    assert_eq!(code(peer.ask(&open("__ds/mine".into()))), reserved);
    assert_eq!(code(peer.ask(&open("__dst/mine".into()))), None);
    assert_eq!(subscribe(&mut Browser::of(&broker), "s", &pulled("jobs/*")).0, 201);
    // In the life that made it, and in the next.
    for _ in 0..2 {
        let mut peer = broker.greeted();
        let describe = control::DescribeTopic { name: topic() };
        let Reply::TopicDescription(kept) = peer.ask(&Request::DescribeTopic(describe)) else {
            panic!("it is no topic")
        };
        let group = control::CreateGroup { topic: topic(), name: "g".into(), ..<_>::default() };
        let take = control::Subscribe { topic: topic(), group: "g".into(), ..<_>::default() };
        let trim = control::TrimTopic { topic: topic(), positions: Vec::new() };
        for request in [
            Request::CreateTopic(control::CreateTopic { name: topic(), ..Default::default() }),
            Request::AlterTopic(control::AlterTopic { name: topic(), config: None }),
            Request::DeleteTopic(control::DeleteTopic { name: topic() }),
            open(topic()),
            Request::CreateGroup(group),
            Request::Subscribe(take),
            Request::TrimTopic(trim),
            // Who guesses its number is not let in either.
            Request::Publish(publish(TopicId(kept.id), 0, 0, &["{}"])),
        ] {
            assert_eq!(code(peer.ask(&request)), reserved, "{:?}", request.kind());
        }
        assert_eq!(view(&mut Browser::of(&broker), "s")["id"], "s");
        broker.stop();
        broker = start(&folder);
    }
    broker.stop();
}

#[test]
fn what_is_kept_does_not_grow_for_ever() {
    let folder = TempDir::new().unwrap();
    let broker = start(&folder);
    let http = &mut Browser::of(&broker);
    let streams: Vec<String> = (0..2_000).map(|n| format!("{n:0>180}")).collect();
    let big = json!({ "type": "pull-wake", "streams": streams, "wake_stream": "wake" });
    subscribe(http, "small", &pulled("jobs/*"));
    for _ in 0..12 {
        assert_eq!(subscribe(http, "big", &big).0, 201);
        ask(http, "DELETE", "__ds/subscriptions/big", "", &Value::Null);
    }
    let mut peer = broker.greeted();
    let describe = control::DescribeTopic { name: "__ds/subscriptions".into() };
    let Reply::TopicDescription(topic) = peer.ask(&Request::DescribeTopic(describe)) else {
        panic!("it is no topic")
    };
    assert!(topic.partitions[0].start > 0, "{:?}", topic.partitions);
    broker.stop();
    let broker = start(&folder);
    let http = &mut Browser::of(&broker);
    assert_eq!(view(http, "small")["id"], "small");
    assert_eq!(ask(http, "GET", "__ds/subscriptions/big", "", &Value::Null).0, 404);
    broker.stop();
}

#[test]
fn what_is_written_once_more_is_all_of_it() {
    let folder = TempDir::new().unwrap();
    let broker = start(&folder);
    let http = &mut Browser::of(&broker);
    for id in ["a", "b", "c"] {
        assert_eq!(subscribe(http, id, &pulled("events/*")).0, 201);
    }
    // Twice as long as what may gather.
    for letter in ["x", "y"] {
        let streams: Vec<_> = (0..4500).map(|n| format!("{n}-{}", letter.repeat(190))).collect();
        let body = json!({ "streams": streams });
        assert_eq!(ask(http, "POST", "__ds/subscriptions/b/streams", "", &body).0, 204);
    }
    let mut peer = broker.greeted();
    let describe = control::DescribeTopic { name: "__ds/subscriptions".into() };
    loop {
        match peer.ask(&Request::DescribeTopic(describe.clone())) {
            Reply::TopicDescription(told) if told.partitions[0].start > 0 => break,
            Reply::TopicDescription(_) => {}
            other => panic!("{other:?}"),
        }
    }
    broker.stop();
    let broker = start(&folder);
    let http = &mut Browser::of(&broker);
    let links = ["a", "b", "c"].map(|id| view(http, id)["streams"].as_array().unwrap().len());
    assert_eq!(links, [0, 9000, 0]);
    broker.stop();
}
