//! What programs do with live connections over the HTTP API: messages reach those that are meant, on all cores, and no others;
//! connections are listed and end as they are told.

use std::collections::BTreeSet;

use sennit_centrifuge::{DisconnectCode, Encoding, FromServer, PushKind};
use sennit_protocol::{Reply, Request, control};
use sennit_websocket::CloseCode;
use serde_json::{Value, json};

use crate::{
    access::{Guarded, logged_in},
    browser::Browser,
    http_publish::{ask_api, said},
    live_client::LiveClient,
    world::{Broker, texts_of, until},
};

const SEND: &str = "/api/v1/live/send";
const CONNECTIONS: &str = "/api/v1/live/connections";

/// Asks the API as the admin, over a connection of its own.
pub fn as_admin(guarded: &Guarded, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let mut browser = Browser::of(&guarded.broker);
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let answer = ask_api(&mut browser, method, path, &guarded.admin_key, &body);
    (answer.status, said(&answer))
}

/// The next message that is in no topic.
fn message(client: &mut LiveClient) -> String {
    match client.push() {
        (channel, PushKind::Message(data)) => {
            assert_eq!(channel, "", "it is of no channel");
            String::from_utf8(data.as_bytes().to_vec()).unwrap()
        }
        other => panic!("{other:?}"),
    }
}

/// A key, and connections of it in both encodings.
fn connections(guarded: &mut Guarded, count: usize) -> (String, Vec<LiveClient>) {
    let key = guarded.key("", &["subscribe,publish,create >"]);
    let encoding = |index: usize| [Encoding::Json, Encoding::Protobuf][index % 2];
    let connect = |index| LiveClient::connect(&guarded.broker, encoding(index), &key.text);
    let clients = (0..count).map(connect).collect();
    (key.id, clients)
}

#[test]
fn a_message_reaches_those_who_are_meant_on_all_cores_and_no_others() {
    let mut guarded = Guarded::start();
    let (ada, mut of_ada) = connections(&mut guarded, 5);
    let (_, mut of_bob) = connections(&mut guarded, 3);
    let to_ada = json!({ "user": ada, "data": { "for": "ada" } });
    let sent = as_admin(&guarded, "POST", SEND, &to_ada);
    assert_eq!(sent, (200, json!({ "reached": 5, "missed": 0 })));
    let to_one = json!({ "connection": of_bob[1].id, "text": "for one" });
    let sent = as_admin(&guarded, "POST", SEND, &to_one);
    assert_eq!(sent, (200, json!({ "reached": 1, "missed": 0 })));
    let to_all = json!({ "all": true, "data": "for all" });
    let sent = as_admin(&guarded, "POST", SEND, &to_all);
    assert_eq!(sent, (200, json!({ "reached": 8, "missed": 0 })));
    for client in &mut of_ada {
        assert_eq!(message(client), r#"{"for":"ada"}"#);
        assert_eq!(message(client), "\"for all\"");
    }
    for (index, client) in of_bob.iter_mut().enumerate() {
        if index == 1 {
            let expected = match client.encoding {
                Encoding::Json => "\"for one\"",
                Encoding::Protobuf => "for one",
            };
            assert_eq!(message(client), expected);
        }
        assert_eq!(message(client), "\"for all\"", "nothing came before");
    }
    let gone = of_bob[1].id.clone();
    drop(of_bob);
    until("the connections end", || {
        let to_one = json!({ "connection": gone, "data": 1 });
        as_admin(&guarded, "POST", SEND, &to_one).1["reached"] == 0
    });
    let nobody = json!({ "user": "nobody", "data": 1 });
    let sent = as_admin(&guarded, "POST", SEND, &nobody);
    assert_eq!(sent, (200, json!({ "reached": 0, "missed": 0 })));
}

#[test]
fn one_who_takes_nothing_misses_messages_and_that_is_told() {
    let mut guarded = Guarded::start();
    let (user, mut clients) = connections(&mut guarded, 2);
    let mut stalled = clients.pop().unwrap();
    let mut reader = clients.pop().unwrap();
    let text = "x".repeat(60 << 10);
    let (mut sent, mut missed) = (0, 0);
    // The sockets hold some of them.
    while missed == 0 {
        let body = json!({ "user": user, "text": format!("{sent} {text}") });
        let (status, told) = as_admin(&guarded, "POST", SEND, &body);
        assert_eq!(status, 200);
        let numbers = ["reached", "missed"].map(|name| told[name].as_u64().unwrap());
        assert_eq!(numbers[0] + numbers[1], 2, "{told}");
        missed = numbers[1];
        let said = message(&mut reader);
        assert!(said.trim_matches('"').starts_with(&format!("{sent} ")), "the other has all");
        sent += 1;
    }
    // It has those that were counted as reached, and goes on.
    for number in 0..sent - 1 {
        assert!(message(&mut stalled).trim_matches('"').starts_with(&format!("{number} ")));
    }
    let body = json!({ "connection": stalled.id, "data": "again" });
    until("it has room again", || as_admin(&guarded, "POST", SEND, &body).1["reached"] == 1);
    assert_eq!(message(&mut stalled), "\"again\"");
}

#[test]
fn a_body_that_is_wrong_says_what_would_be_right() {
    let guarded = Guarded::start();
    for (body, said) in [
        (json!({ "data": 1 }), "name one of user, connection, and all: true"),
        (json!({ "user": "a", "all": true, "data": 1 }), "name one of user, connection"),
        (json!({ "user": "", "data": 1 }), "user is empty"),
        (json!({ "connection": "x", "data": 1 }), "20 hexadecimal digits"),
        (json!({ "all": true }), "a message has data, text or base64"),
        (json!({ "all": true, "data": 1, "other": 1 }), "unknown field `other`"),
    ] {
        let (status, refused) = as_admin(&guarded, "POST", SEND, &body);
        assert_eq!(status, 400, "{body}");
        assert!(refused["detail"].as_str().unwrap().contains(said), "{body} {refused}");
    }
    let long = json!({ "all": true, "text": "x".repeat((64 << 10) + 1) });
    let (status, refused) = as_admin(&guarded, "POST", SEND, &long);
    assert_eq!((status, &refused["code"]), (413, &json!("limit_reached")));
    for (path, said) in [
        ("?limit=0", "limit is 1 to 1000"),
        ("?from=x", "from: "),
        ("?other=1", "there is no parameter"),
        ("/xyz", "20 hexadecimal digits"),
    ] {
        let asked = as_admin(&guarded, "GET", &format!("{CONNECTIONS}{path}"), &Value::Null);
        assert_eq!(asked.0, 400, "{path}");
        assert!(asked.1["detail"].as_str().unwrap().contains(said), "{path} {asked:?}");
    }
    for (query, said) in [("", "name the user"), ("?user=a&code=1000", "code is 3503")] {
        let path = format!("{CONNECTIONS}{query}");
        let (status, refused) = as_admin(&guarded, "DELETE", &path, &Value::Null);
        assert_eq!(status, 400);
        assert!(refused["detail"].as_str().unwrap().contains(said), "{refused}");
    }
}

#[test]
fn connections_are_listed_page_by_page_with_all_that_is_known_of_them() {
    let mut guarded = Guarded::start();
    let (ada, mut of_ada) = connections(&mut guarded, 5);
    let (_, of_bob) = connections(&mut guarded, 2);
    of_ada[0].subscribe("news");
    of_ada[0].subscribe("chat:index");
    // One that has not said who it is is not among them.
    let _greeting = LiveClient::open(&guarded.broker, Encoding::Json, &[]);
    let page = |query: &str| {
        let (status, page) =
            as_admin(&guarded, "GET", &format!("{CONNECTIONS}{query}"), &Value::Null);
        assert_eq!(status, 200, "{page}");
        let ids = page["connections"].as_array().unwrap().iter();
        let ids: Vec<_> = ids.map(|one| one["id"].as_str().unwrap().to_owned()).collect();
        (ids, page["next"].as_str().map(str::to_owned), page)
    };
    let (ids, next, _) = page("");
    let expected: BTreeSet<_> = of_ada.iter().chain(&of_bob).map(|of| of.id.clone()).collect();
    assert_eq!((ids.len(), next), (7, None));
    assert_eq!(ids.into_iter().collect::<BTreeSet<_>>(), expected);
    let (mut all, mut from) = (BTreeSet::new(), String::new());
    loop {
        let (ids, next, _) = page(&format!("?limit=2{from}"));
        assert!((1..=2).contains(&ids.len()), "{ids:?}");
        all.extend(ids);
        let Some(next) = next else { break };
        from = format!("&from={next}");
    }
    assert_eq!(all, expected);
    let (ids, _, page_of_ada) = page(&format!("?user={ada}"));
    assert_eq!(ids.len(), 5);
    let id = of_ada[0].id.as_str();
    let one = page_of_ada["connections"].as_array().unwrap().iter().find(|one| one["id"] == id);
    let one = one.unwrap();
    assert_eq!((&one["user"], &one["protocol"]), (&json!(ada), &json!("centrifuge-json")));
    assert_eq!(
        (&one["channels"], &one["unsent_bytes"]),
        (&json!(["news", "chat:index"]), &json!(0))
    );
    assert!(one["address"].as_str().unwrap().starts_with("127.0.0.1:"), "{one}");
    assert!(one["since_ms"].as_u64() > Some(1_700_000_000_000), "{one}");
    let alone = as_admin(&guarded, "GET", &format!("{CONNECTIONS}/{id}"), &Value::Null);
    assert_eq!(alone, (200, one.clone()));
    assert_eq!(page("?user=nobody").0.len(), 0);
}

#[test]
fn connections_end_with_the_code_that_is_said_and_do_not_come_back() {
    let mut guarded = Guarded::start();
    let (ada, mut of_ada) = connections(&mut guarded, 4);
    let (_, mut of_bob) = connections(&mut guarded, 1);
    let mut one = of_ada.remove(0);
    let path = format!("{CONNECTIONS}/{}", one.id);
    let ended = as_admin(&guarded, "DELETE", &path, &Value::Null);
    assert_eq!(ended, (200, json!({ "disconnected": 1 })));
    let force = DisconnectCode::ForceDisconnect;
    let close = one.close();
    assert_eq!(close.code, CloseCode::of(force.code()));
    assert!(!force.reconnects(), "its client stays away");
    drop(one);
    let path = format!("{CONNECTIONS}?user={ada}&code=4501&reason=go%20away");
    let ended = as_admin(&guarded, "DELETE", &path, &Value::Null);
    assert_eq!(ended, (200, json!({ "disconnected": 3 })));
    for client in &mut of_ada {
        let close = client.close();
        assert_eq!((close.code, close.reason.as_str()), (CloseCode::of(4501), "go away"));
    }
    of_bob[0].subscribe("still.there");
    let absent = format!("{CONNECTIONS}/0000ffffffff00000000");
    let (status, refused) = as_admin(&guarded, "DELETE", &absent, &Value::Null);
    assert_eq!((status, &refused["code"]), (404, &json!("unknown_connection")));
    assert_eq!(as_admin(&guarded, "GET", &absent, &Value::Null).0, 404);
    // The audit has it.
    let acts = audited(&guarded, "live disconnect", 3);
    let of_user = (format!("user {ada}"), "done".to_owned());
    assert_eq!(acts[1], of_user, "{acts:?}");
    assert_eq!(acts[2].1, "there is no such connection");
}

/// What so many acts of this kind were done to, and their outcomes.
fn audited(guarded: &Guarded, act: &str, count: usize) -> Vec<(String, String)> {
    let from = control::ReadFrom { at: Some(control::read_from::At::Earliest(true)) };
    let read = Request::Read(control::Read {
        subscription: 7,
        topic: "__ds/audit".into(),
        credit_messages: 1000,
        credit_bytes: 1 << 20,
        from: Some(from),
        ..<_>::default()
    });
    let reader = std::cell::RefCell::new(logged_in(&guarded.broker, &guarded.admin_key));
    // It is created with the first act, some moments later.
    until("there is no audit", || {
        let mut reader = reader.borrow_mut();
        *reader = logged_in(&guarded.broker, &guarded.admin_key);
        matches!(reader.ask(&read), Reply::Subscribed(_))
    });
    let (mut reader, mut acts) = (reader.into_inner(), Vec::new());
    while acts.len() < count {
        for text in texts_of(&reader.delivery()) {
            let line: Value = serde_json::from_str(&text).unwrap();
            if line["act"] == act {
                let [to, outcome] = ["to", "outcome"].map(|name| line[name].as_str().unwrap());
                acts.push((to.to_owned(), outcome.to_owned()));
            }
        }
    }
    acts
}

#[test]
fn what_a_message_says_is_between_publications_and_replies_and_whole() {
    let (broker, _folder) = Broker::fresh();
    let mut client = LiveClient::of(&broker);
    client.subscribe("news");
    let mut browser = Browser::of(&broker);
    for number in 0..50 {
        let body = json!({ "channel": "news", "data": number }).to_string();
        assert_eq!(ask_api(&mut browser, "POST", "/api/v1/publish", "", &body).status, 200);
        let body = json!({ "all": true, "data": number }).to_string();
        assert_eq!(ask_api(&mut browser, "POST", SEND, "", &body).status, 200);
    }
    let (mut published, mut sent) = (0, 0);
    while published + sent < 100 {
        match client.next() {
            Some(FromServer::Push(push)) => match push.kind {
                PushKind::Publication(publication) => {
                    assert_eq!(publication.data.as_bytes(), published.to_string().as_bytes());
                    published += 1;
                }
                PushKind::Message(data) => {
                    assert_eq!(data.as_bytes(), sent.to_string().as_bytes());
                    sent += 1;
                }
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((published, sent), (50, 50));
    broker.stop();
}
