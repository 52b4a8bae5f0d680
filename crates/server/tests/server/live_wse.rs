//! The WSE protocol over real sockets, on the same topics as all else, with a client of its own (`conformance/wse` has PyPI's
//! `wse-client`).

use std::time::Duration;

use sennit_identity::Verb;
use sennit_model::TopicId;
use sennit_protocol::control::change_access::Change;
use sennit_server::Config;
use sennit_websocket::{Opcode, client::UpgradeRequest};
use serde_json::json;

use crate::{
    access::Guarded,
    access_matrix::{all_but, now_ms},
    live_client::{LiveClient, ask_upgrade},
    reading::{published, reader, stream},
    world::{Broker, Peer, config},
    wse_client::WseClient,
};

fn texts(peer: &mut Peer, topic: TopicId, first: u64, count: u64) {
    let texts: Vec<String> = (first..first + count).map(|n| format!("{{\"n\":{n}}}")).collect();
    for (at, some) in texts.chunks(100).enumerate() {
        let some: Vec<&str> = some.iter().map(String::as_str).collect();
        published(peer, topic, 0, first + 100 * at as u64, &some);
    }
}

#[test]
fn clients_of_all_protocols_have_the_same_topics() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = reader(&broker);
    let topic = stream(&mut peer, "chat%3Aindex", 1);
    let (mut client, mut other) = (WseClient::of(&broker), WseClient::of(&broker));
    let mut centrifuge = LiveClient::of(&broker);
    centrifuge.subscribe("chat:index");
    for client in [&mut client, &mut other] {
        let position = client.subscribe("chat:index");
        assert_eq!((&position["offset"], &position["recovered"]), (&json!(0), &json!(false)));
    }
    published(
        &mut peer,
        topic,
        0,
        0,
        &["{\"by\":\"native\"}", "text", "{\"t\":\"tick\",\"p\":{}}"],
    );
    centrifuge.publish("chat:index", "from a browser").unwrap();
    other.publish("chat:index", json!({"by": "wse"}));
    for client in [&mut client, &mut other] {
        for (kind, payload, offset) in [
            ("chat:index", json!({"by": "native"}), 1),
            ("chat:index", json!({"data": "text"}), 2),
            ("tick", json!({}), 3),
            ("chat:index", json!({"data": "from a browser"}), 4),
            ("chat:index", json!({"by": "wse"}), 5),
        ] {
            let heard = loop {
                // Its own publication is confirmed before, or after, it comes.
                match client.next().unwrap() {
                    heard if heard["t"] == "published" => assert_eq!(heard["cid"], "q"),
                    heard => break heard,
                }
            };
            let shown = (&heard["t"], &heard["p"], &heard["o"], &heard["tp"]);
            assert_eq!(shown, (&json!(kind), &payload, &json!(offset), &json!("chat:index")));
        }
    }
    assert_eq!(centrifuge.offsets("chat:index", 4), [1, 2, 3, 4]);
    let (_, publication) = centrifuge.published();
    assert_eq!(publication.data.as_bytes(), b"{\"by\":\"wse\"}");
    broker.stop();
}

#[test]
fn a_client_that_was_away_gets_what_it_missed_to_any_depth_and_is_told_of_what_is_gone() {
    let folder = tempfile::TempDir::new().unwrap();
    let broker = Broker::start(config(folder.path()));
    let mut peer = reader(&broker);
    let topic = stream(&mut peer, "news", 1);
    let mut client = WseClient::of(&broker);
    let position = client.subscribe("news");
    let epoch = position["epoch"].as_str().unwrap().to_owned();
    texts(&mut peer, topic, 0, 2);
    assert_eq!(client.offsets("news", 2), [1, 2]);
    texts(&mut peer, topic, 2, 5000);
    drop(client);
    let stopping = broker.begin_to_stop();
    crate::world::ended(stopping);
    let broker = Broker::start(config(folder.path()));
    let mut client = WseClient::of(&broker);
    let position = client.recover("news", &epoch, 2);
    // Where it begins, and not where the topic is: it may be cut off again before it has all.
    assert_eq!(position, json!({"epoch": epoch, "offset": 2, "recovered": true}));
    assert_eq!(client.offsets("news", 5000), (3..=5002).collect::<Vec<_>>());
    for (epoch, offset) in [("another", 2), (epoch.as_str(), 9000)] {
        client.update(json!({"action": "unsubscribe", "topics": ["news"]}));
        assert_eq!(client.event("subscription_update")["action"], "unsubscribe");
        let position = client.recover("news", epoch, offset);
        assert_eq!((&position["offset"], &position["recovered"]), (&json!(5002), &json!(false)));
    }
    client.publish("news", json!(1));
    while client.next().unwrap()["t"] != "news" {}
    broker.stop();
}

#[test]
fn a_client_that_misses_a_message_gets_it_again_and_one_that_cannot_read_it_goes_on() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = reader(&broker);
    let topic = stream(&mut peer, "news", 1);
    let mut client = WseClient::of(&broker);
    let epoch = client.subscribe("news")["epoch"].as_str().unwrap().to_owned();
    texts(&mut peer, topic, 0, 4);
    assert_eq!(client.offsets("news", 4), [1, 2, 3, 4]);
    // Subscribed again without a position, nothing changes.
    client.ask_for("news");
    assert!(client.event("subscription_update")["recovery"].is_null());
    client.positions.clear();
    assert_eq!(client.recover("news", &epoch, 1)["recovered"], true);
    assert_eq!(client.offsets("news", 3), [2, 3, 4]);
    // It asks for the same once more: it has not understood message 2.
    client.positions.clear();
    let recovery = json!({"news": {"epoch": epoch, "offset": 1}});
    let again =
        json!({"action": "subscribe", "topics": ["news"], "recover": true, "recovery": recovery});
    client.update(again.clone());
    assert_eq!(client.error(), "MESSAGE_SKIPPED");
    let skipped = client.event("subscription_update");
    assert_eq!(
        skipped["recovery"]["news"],
        json!({"epoch": epoch, "offset": 2, "recovered": false})
    );
    assert_eq!(client.event("subscription_update")["recovery"]["news"]["recovered"], true);
    assert_eq!(client.offsets("news", 2), [3, 4]);
    // What it asked before it knew that is stale.
    client.update(again);
    texts(&mut peer, topic, 4, 1);
    assert_eq!(client.offsets("news", 1), [5]);
    broker.stop();
}

#[test]
fn a_topic_that_is_another_is_told_and_goes_on_by_itself() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = reader(&broker);
    let topic = stream(&mut peer, "news", 1);
    let mut client = WseClient::of(&broker);
    let before = client.subscribe("news");
    texts(&mut peer, topic, 0, 3);
    assert_eq!(client.offsets("news", 3), [1, 2, 3]);
    let delete = sennit_protocol::control::DeleteTopic { name: "news".into() };
    peer.ask(&sennit_protocol::Request::DeleteTopic(delete));
    let told = client.event("subscription_update");
    let position = &told["recovery"]["news"];
    assert!(position["recovered"] == false && position["epoch"] != before["epoch"], "{told}");
    client.publish("news", json!({"n": 1}));
    while client.next().unwrap()["t"] != "news" {}
    broker.stop();
}

#[test]
fn snapshots_batches_and_what_is_not_known() {
    let (broker, _folder) = Broker::fresh();
    let mut client = WseClient::of(&broker);
    client.say(&json!({"c": "WSE", "t": "client_hello", "p": {"encryption_public_key": "x"}}));
    let hello = client.event("server_hello");
    assert_eq!(
        (&hello["features"]["encryption"], hello["ping_interval"].as_u64().is_some()),
        (&json!(false), true)
    );
    assert_eq!(client.error(), "ENCRYPTION_NOT_SUPPORTED");
    client.say(&json!({"c": "WSE", "t": "ping", "p": {"timestamp": 5}}));
    assert_eq!(client.event("PONG")["client_timestamp"], 5);
    let messages = json!([{"t": "a", "p": {"n": 1}}, {"t": "a", "p": {"n": 2}}, {"t": "b", "p": {}, "cid": "last"}]);
    client.say(&json!({"c": "WSE", "t": "batch", "p": {"messages": messages}}));
    assert_eq!(client.event("published")["topic"], "b");
    client.say(&json!({"c": "S", "t": "sync_request", "p": {"topics": ["a", "b", "absent"]}}));
    let heard = client.next().unwrap();
    assert_eq!(heard, json!({"c": "S", "t": "a", "p": {"n": 2}, "tp": "a"}));
    assert_eq!(client.event("b"), json!({}));
    assert_eq!(client.error(), "UNKNOWN_TOPIC");
    let all = json!({"topics": ["a", "b", "absent"], "count": 2});
    assert_eq!(client.event("snapshot_complete"), all);
    client.say(&json!({"c": "WSE", "t": "debug_request", "p": {}}));
    assert_eq!(client.error(), "UNKNOWN_TYPE");
    client.ask_for("");
    assert_eq!(client.event("subscription_update")["failed_topics"], json!([""]));
    assert_eq!(client.error(), "INVALID_REQUEST");
    for (opcode, message) in [
        (Opcode::Text, &b"{\"t\":"[..]),
        (Opcode::Binary, b"E:secret"),
        (Opcode::Text, b"{\"t\":\"subscription_update\",\"p\":{\"action\":\"x\"}}"),
    ] {
        let mut client = WseClient::of(&broker);
        client.say_bytes(opcode, message);
        assert_eq!(client.error(), "INVALID_MESSAGE");
        assert_eq!(client.close(), Some(4400));
    }
    // Topics may be named with the request.
    let mut client = WseClient::open(&broker, "/wse?topics=a,gr%C3%B6%C3%9Fe%2C1,%FF", &[]);
    client.event("server_ready");
    for topic in ["a", "größe,1"] {
        assert_eq!(client.event("subscription_update")["success_topics"], json!([topic]));
    }
    broker.stop();
}

#[test]
fn a_client_that_only_listens_is_kept_and_one_that_is_gone_is_not() {
    let folder = tempfile::TempDir::new().unwrap();
    let live_ping_interval = Duration::from_millis(50);
    let broker = Broker::start(Config { live_ping_interval, ..config(folder.path()) });
    let mut client = WseClient::of(&broker);
    while client.pings < 3 {
        client.say(&json!({"c": "WSE", "t": "ping", "p": {}}));
        client.event("PONG");
    }
    client.is_there = false;
    assert_eq!(client.error(), "TIMEOUT");
    assert_eq!(client.close(), Some(4408));
    let mut client = WseClient::of(&broker);
    let stopping = broker.begin_to_stop();
    assert_eq!(client.close(), Some(4300), "clients take 1001 for the end of all");
    crate::world::ended(stopping);
}

#[test]
fn clients_are_told_who_comes_and_goes_where_all_are_told() {
    let folder = tempfile::TempDir::new().unwrap();
    let broker = Broker::start(Config { live_tells_all: true, ..config(folder.path()) });
    let mut client = WseClient::of(&broker);
    client.subscribe("room");
    let own = client.event("presence_join");
    assert_eq!((&own["topic"], &own["data"]), (&json!("room"), &json!({})));
    let mut centrifuge = LiveClient::of(&broker);
    centrifuge.subscribe("room");
    let other = client.event("presence_join");
    assert_ne!(other["connection_id"], own["connection_id"]);
    drop(centrifuge);
    assert_eq!(client.event("presence_leave")["connection_id"], other["connection_id"]);
    broker.stop();
}

#[test]
fn a_client_that_says_something_of_itself_is_told_who_comes_and_goes() {
    let (broker, _folder) = Broker::fresh();
    let (mut ada, mut bob) = (WseClient::of(&broker), WseClient::of(&broker));
    let subscribe =
        |mood: &str| json!({"action": "subscribe", "topics": ["room"], "presence": {"mood": mood}});
    bob.subscribe("room");
    bob.publish("room", json!({"n": 1}));
    while bob.next().unwrap()["t"] != "room" {}
    ada.update(subscribe("good"));
    assert_eq!(ada.event("subscription_update")["recovery"]["room"]["offset"], 1);
    assert_eq!(ada.event("presence_join")["data"], json!({"mood": "good"}));
    // It says something else, and goes on where it is.
    ada.update(subscribe("better"));
    let position = ada.event("subscription_update")["recovery"]["room"].clone();
    assert_eq!((&position["offset"], &position["recovered"]), (&json!(1), &json!(true)));
    let mut told = Vec::new();
    while told.last() != Some(&json!({"mood": "better"})) {
        let heard = ada.next().unwrap();
        assert!(heard["t"].as_str().unwrap().starts_with("presence_"), "{heard}");
        told.push(heard["p"]["data"].clone());
    }
    bob.publish("room", json!({"n": 2}));
    assert_eq!(ada.message("room"), (json!({"n": 2}), 2));
    broker.stop();
}

#[test]
fn a_pattern_is_a_subscription_without_positions() {
    let (broker, _folder) = Broker::fresh();
    let mut client = WseClient::of(&broker);
    // Its clients would ask for what they missed behind a position.
    for _ in 0..2 {
        client.ask_for("room.*");
        let told = client.event("subscription_update");
        assert_eq!(told["success_topics"], json!(["room.*"]));
        assert!(told["recovery"].is_null(), "{told}");
    }
    for topic in ["room.1", "room.2"] {
        client.publish(topic, json!({"n": 1}));
        let told = [client.next().unwrap(), client.next().unwrap()];
        let heard = told.iter().find(|heard| heard["c"] == "U").unwrap();
        assert_eq!(*heard, json!({"c": "U", "t": topic, "p": {"n": 1}, "tp": topic}));
    }
    broker.stop();
}

#[test]
fn nobody_is_let_in_with_credentials_that_are_missing_wrong_or_gone() {
    let mut guarded = Guarded::start();
    let gone = guarded.key("", &["subscribe >"]);
    guarded.change(Change::DeleteKey(gone.id.clone()));
    let bearer = format!("Bearer {}", gone.text);
    let cookie = format!("access_token={}", gone.text);
    for headers in [
        &[][..],
        &[("Authorization", "Bearer sennit_x")],
        &[("Authorization", bearer.as_str())],
        &[("Authorization", "nothing")],
        &[("Cookie", cookie.as_str())],
        &[("Cookie", "other=1")],
    ] {
        let mut client = WseClient::open(&guarded.broker, "/wse", headers);
        client.ask_for("news");
        let error = client.event("error");
        assert_eq!((&error["code"], &error["recoverable"]), (&json!("AUTH_FAILED"), &json!(false)));
        assert!(error["message"].as_str().unwrap().contains("credentials"), "{error}");
        assert_eq!(client.close(), Some(4401), "{headers:?}");
    }
    let key = guarded.key("", &["subscribe >", "create >"]);
    let bearer = format!("Bearer {}", key.text);
    let cookie = format!("a=b; access_token={}; c=d", key.text);
    for headers in [
        &[("Authorization", bearer.as_str())][..],
        &[("Cookie", cookie.as_str())],
        // What a program says counts more than what a browser keeps.
        &[("Cookie", "access_token=wrong"), ("Authorization", bearer.as_str())],
    ] {
        WseClient::connect(&guarded.broker, headers).subscribe("news");
    }
}

#[test]
fn each_request_needs_its_right_and_one_that_is_taken_away_counts_at_once() {
    let mut guarded = Guarded::start();
    let admin_key = guarded.admin_key.clone();
    let mut admin =
        LiveClient::connect(&guarded.broker, sennit_centrifuge::Encoding::Json, &admin_key);
    admin.publish("news", "first").unwrap();
    for verb in [Verb::Subscribe, Verb::Publish] {
        let all = all_but(verb);
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let key = guarded.key("", &all);
        let bearer = format!("Bearer {}", key.text);
        let mut client = WseClient::connect(&guarded.broker, &[("Authorization", &bearer)]);
        if verb == Verb::Publish {
            client.publish("news", json!(1));
            let refused = client.next().unwrap();
            assert_eq!((&refused["t"], &refused["cid"]), (&json!("error"), &json!("q")));
            assert_eq!(refused["p"]["code"], "PERMISSION_DENIED");
            continue;
        }
        client.ask_for("news");
        assert_eq!(client.event("subscription_update")["failed_topics"], json!(["news"]));
        assert_eq!(client.error(), "PERMISSION_DENIED");
        client.say(&json!({"c": "S", "t": "sync_request", "p": {"topics": ["news"]}}));
        assert_eq!(client.error(), "PERMISSION_DENIED");
        assert_eq!(client.event("snapshot_complete")["count"], 0);
    }
    let key = guarded.expiring_key("", &["subscribe news"], Some(now_ms() + 3000));
    let bearer = format!("Bearer {}", key.text);
    let mut client = WseClient::connect(&guarded.broker, &[("Authorization", &bearer)]);
    client.subscribe("news");
    guarded.revoke(&key, "subscribe news");
    admin.publish("news", "behind").unwrap();
    assert_eq!(client.event("subscription_update")["failed_topics"], json!(["news"]));
    assert_eq!(client.error(), "SUBSCRIPTION_ENDED");
    guarded.grant(&key, "subscribe news");
    assert_eq!(client.subscribe("news")["offset"], 2);
    assert_eq!(client.close(), Some(4403), "it expires");
    let key = guarded.key("", &["subscribe news"]);
    let bearer = format!("Bearer {}", key.text);
    let mut client = WseClient::connect(&guarded.broker, &[("Authorization", &bearer)]);
    guarded.change(Change::DeleteKey(key.id.clone()));
    assert_eq!(client.close(), Some(4401));
}

#[test]
fn pages_of_other_origins_and_what_is_no_websocket_are_refused() {
    let (broker, _folder) = Broker::fresh();
    let request = UpgradeRequest {
        host: "localhost",
        target: "/wse",
        key: [3; 16],
        subprotocols: &[],
        offers_deflate: false,
        headers: &[("Origin", "http://evil.example")],
    };
    assert_eq!(ask_upgrade(&broker, &request).1.status, 403);
    let mut browser = crate::browser::Browser::of(&broker);
    assert_eq!(browser.get("/wse").status, 426);
    broker.stop();
}
