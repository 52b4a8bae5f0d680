//! Publishing by HTTP: one message or many, each told where it lies or why it does not.

use std::collections::BTreeMap;

use sennit_centrifuge::{Answer as LiveAnswer, Encoding, HistoryRequest, Request as LiveRequest};
use sennit_protocol::{
    Reply, Request,
    control::{self, change_access::Change},
};
use serde_json::{Value, json};

use crate::{
    access::{Guarded, create_tenant},
    browser::{Answer, Browser},
    http_streams::header,
    live_client::LiveClient,
    world::{Broker, Peer, texts_of},
};

/// Asks the HTTP API.
pub fn ask_api(browser: &mut Browser, method: &str, path: &str, key: &str, body: &str) -> Answer {
    let length = body.len();
    let authorization = match key {
        "" => String::new(),
        key => format!("Authorization: Bearer {key}\r\n"),
    };
    browser.say(format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{authorization}Content-Length: {length}\r\n\r\n{body}"
    ));
    browser.hear(true)
}

/// What the API says in JSON.
pub fn said(answer: &Answer) -> Value {
    serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
}

fn publish(browser: &mut Browser, body: &Value) -> (u16, Value) {
    let answer = ask_api(browser, "POST", "/api/v1/publish", "", &body.to_string());
    (answer.status, said(&answer))
}

fn create(peer: &mut Peer, name: &str, config: control::TopicConfig) {
    let create = control::CreateTopic { name: name.into(), config: Some(config), beside: None };
    let Reply::Done(_) = peer.ask(&Request::CreateTopic(create)) else { panic!("it is created") };
}

#[test]
fn a_message_published_by_http_is_one_like_others() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    peer.create_topic("orders", 1);
    peer.subscribe("orders", 1, 100);
    let mut browser = Browser::of(&broker);
    for (offset, message) in [
        json!({ "topic": "orders", "data": { "id": 7 } }),
        json!({ "topic": "orders", "text": "größe", "key": "7", "headers": { "type": "created" } }),
        json!({ "topic": "orders", "base64": "YWJj" }),
    ]
    .iter()
    .enumerate()
    {
        let told = publish(&mut browser, message);
        assert_eq!(told, (200, json!({ "partition": 0, "offset": offset })));
    }
    let (texts, deliveries) = peer.deliveries(3);
    assert_eq!(texts, [r#"{"id":7}"#, "größe", "abc"]);
    assert_eq!(deliveries.iter().map(|of| texts_of(of).len()).sum::<usize>(), 3);
    broker.stop();
}

#[test]
fn headers_may_be_tags_of_a_publication_for_live_clients() {
    let (broker, _folder) = Broker::fresh();
    let mut clients = [Encoding::Json, Encoding::Protobuf]
        .map(|encoding| LiveClient::connect(&broker, encoding, ""));
    for client in &mut clients {
        client.subscribe("news.eu");
        client.subscribe("news.*");
    }
    let headers = json!({
        "sennit-tag-color": "red", "sennit-tag-n": 7, "sennit-tag-": "", "sennit-tag-topic": "forged", "other": "no",
    });
    let message = json!({ "channel": "news.eu", "data": 1, "headers": headers });
    assert_eq!(publish(&mut Browser::of(&broker), &message).0, 200);
    let tags = |topic: &str| -> BTreeMap<String, String> {
        let tags = [("color", "red"), ("n", "7"), ("topic", topic)];
        tags.into_iter().map(|(name, text)| (name.to_owned(), text.to_owned())).collect()
    };
    for client in &mut clients {
        let mut heard = BTreeMap::from([client.published(), client.published()]);
        assert_eq!(heard.remove("news.eu").unwrap().tags, tags("forged"));
        // The topic of a publication in a pattern is said by the broker alone.
        assert_eq!(heard.remove("news.*").unwrap().tags, tags("news.eu"));
        let history = HistoryRequest { channel: "news.eu".into(), limit: 1, ..<_>::default() };
        match client.ask(LiveRequest::History(history)) {
            Ok(LiveAnswer::History(history)) => {
                assert_eq!(history.publications[0].tags, tags("forged"));
            }
            other => panic!("{other:?}"),
        }
    }
    broker.stop();
}

#[test]
fn a_channel_is_created_as_live_clients_create_it_and_a_topic_has_to_be_there() {
    let (broker, _folder) = Broker::fresh();
    let mut browser = Browser::of(&broker);
    let (status, refused) = publish(&mut browser, &json!({ "topic": "news", "data": 1 }));
    assert_eq!((status, &refused["code"]), (404, &json!("unknown_topic")), "{refused}");
    let told = publish(&mut browser, &json!({ "channel": "chat:index", "data": [1] }));
    assert_eq!(told, (200, json!({ "partition": 0, "offset": 0 })));
    let mut client = LiveClient::of(&broker);
    assert_eq!(client.subscribe("chat:index").offset, 1);
    publish(&mut browser, &json!({ "channel": "chat:index", "data": { "a": 1 } }));
    let (channel, publication) = client.published();
    assert_eq!((channel.as_str(), publication.offset), ("chat:index", 2));
    assert_eq!(publication.data.as_bytes(), br#"{"a":1}"#);
    broker.stop();
}

#[test]
fn many_messages_are_answered_one_by_one_in_their_order() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    peer.create_topic("orders", 1);
    peer.create_topic("spread", 3);
    let mut browser = Browser::of(&broker);
    let many: Vec<_> = (0..100).map(|n| json!({ "topic": "orders", "data": n })).collect();
    let (status, told) = publish(&mut browser, &json!({ "messages": many }));
    let results: Vec<_> = (0..100).map(|n| json!({ "partition": 0, "offset": n })).collect();
    assert_eq!(status, 200);
    assert_eq!(told, json!({ "published": 100, "refused": 0, "results": results }));
    // Some of them are refused.
    let (status, told) = publish(
        &mut browser,
        &json!({ "messages": [
            { "topic": "orders", "data": 1 },
            { "topic": "absent", "data": 1 },
            { "topic": "orders", "data": 1, "partition": 1 },
            { "topic": "__ds/audit", "data": 1 },
            { "channel": "spread", "data": 1 },
            { "topic": "orders", "text": "x".repeat(9 << 20) },
            { "topic": "orders", "data": 2 },
        ] }),
    );
    assert_eq!((status, &told["published"], &told["refused"]), (207, &json!(2), &json!(5)));
    let results = told["results"].as_array().unwrap();
    let codes: Vec<_> = results.iter().map(|one| &one["error"]["code"]).collect();
    let none = &Value::Null;
    let unknown = &json!("unknown_topic");
    let (partition, spread) = (&json!("unknown_partition"), &json!("partitioned"));
    let long = &json!("limit_reached");
    assert_eq!(codes, [none, unknown, partition, unknown, spread, long, none], "{told}");
    assert_eq!((&results[0]["offset"], &results[6]["offset"]), (&json!(100), &json!(101)));
    // Messages of one key go to one partition, those without one to each in turn.
    let keyed: Vec<_> =
        (0..9).map(|n| json!({ "topic": "spread", "data": n, "key": "k" })).collect();
    let others: Vec<_> = (0..9).map(|n| json!({ "topic": "spread", "data": n })).collect();
    let mut partitions = |many: Vec<Value>| {
        let (_, told) = publish(&mut browser, &json!({ "messages": many }));
        let results = told["results"].as_array().unwrap().iter();
        let mut found: Vec<_> = results.map(|one| one["partition"].as_u64().unwrap()).collect();
        found.sort_unstable();
        found.dedup();
        found
    };
    assert_eq!(partitions(keyed).len(), 1);
    assert_eq!(partitions(others), [0, 1, 2]);
    broker.stop();
}

#[test]
fn a_body_that_is_wrong_publishes_nothing() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    peer.create_topic("orders", 1);
    let mut browser = Browser::of(&broker);
    let wrong = json!({ "messages": [{ "topic": "orders", "data": 1 }, { "topic": "orders" }] });
    let (status, refused) = publish(&mut browser, &wrong);
    assert_eq!((status, &refused["code"]), (400, &json!("bad_request")));
    assert_eq!(refused["detail"], "message 1: a message has data, text or base64");
    let told = publish(&mut browser, &json!({ "topic": "orders", "data": 1 }));
    assert_eq!(told.1["offset"], 0, "nothing was published before");
    broker.stop();
}

#[test]
fn hooks_decide_and_duplicates_are_told() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    peer.create_topic("hooked", 1);
    let script =
        "function on_publish(msg) if msg.key == 'bad' then return { refuse = 'no' } end end";
    let set = control::SetHook { topic: "hooked".into(), script: script.into(), ..<_>::default() };
    let Reply::HookChanged(_) = peer.ask(&Request::SetHook(set)) else { panic!("it is set") };
    let mut browser = Browser::of(&broker);
    let (status, refused) =
        publish(&mut browser, &json!({ "topic": "hooked", "data": 1, "key": "bad" }));
    assert_eq!((status, &refused["code"]), (422, &json!("hook_refused")), "{refused}");
    assert_eq!(publish(&mut browser, &json!({ "topic": "hooked", "data": 1, "key": "ok" })).0, 200);

    let dedup = control::Dedup { header: "id".into(), window_ms: 60_000, ..<_>::default() };
    create(&mut peer, "once", control::TopicConfig { dedup: Some(dedup), ..<_>::default() });
    let message = json!({ "topic": "once", "data": 1, "headers": { "id": "7" } });
    assert_eq!(publish(&mut browser, &message), (200, json!({ "partition": 0, "offset": 0 })));
    let again = json!({ "partition": 0, "offset": 0, "duplicate": true });
    assert_eq!(publish(&mut browser, &message), (200, again));
    broker.stop();
}

#[test]
fn a_name_that_is_another_topic_by_now_is_found_again() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    let mut browser = Browser::of(&broker);
    for data in [json!(1), json!({ "messages": [{ "topic": "news", "data": 2 }] })] {
        peer.create_topic("news", 1);
        let body = if data.is_object() { data } else { json!({ "topic": "news", "data": data }) };
        let (status, told) = publish(&mut browser, &body);
        assert_eq!(status, 200, "{told}");
        let delete = control::DeleteTopic { name: "news".into() };
        let Reply::Done(_) = peer.ask(&Request::DeleteTopic(delete)) else { panic!("it is gone") };
    }
    assert_eq!(publish(&mut browser, &json!({ "topic": "news", "data": 3 })).0, 404);
    broker.stop();
}

#[test]
fn quotas_and_rights_count_for_each_message() {
    let mut guarded = Guarded::start();
    guarded.change(create_tenant("acme"));
    let quotas = control::Quotas { messages_per_second: Some(2), ..<_>::default() };
    let quotas = control::TenantQuotas { tenant: "acme".into(), quotas: Some(quotas) };
    guarded.change(Change::SetQuotas(quotas));
    let key = guarded.key("acme", &["publish,create acme.>"]).text;
    let mut browser = Browser::of(&guarded.broker);
    let message = |channel: &str| json!({ "channel": channel, "data": 1 });
    let many = json!({ "messages": [
        message("acme.a"), message("other"), message("acme.b"), message("acme.a"), message("acme.a"),
    ] });
    let answer = ask_api(&mut browser, "POST", "/api/v1/publish", &key, &many.to_string());
    let told = said(&answer);
    assert_eq!(answer.status, 207);
    let code = |index: usize| &told["results"][index]["error"]["code"];
    assert_eq!((code(0), code(1)), (&Value::Null, &json!("forbidden")), "{told}");
    assert_eq!((code(2), code(4)), (&Value::Null, &json!("quota_exceeded")), "{told}");
    assert!(told["results"][4]["error"]["retry_after"].as_u64() >= Some(1), "{told}");
    let body = message("acme.a").to_string();
    let answer = ask_api(&mut browser, "POST", "/api/v1/publish", &key, &body);
    assert_eq!(answer.status, 429);
    assert!(header(&answer, "retry-after").is_some());
}
