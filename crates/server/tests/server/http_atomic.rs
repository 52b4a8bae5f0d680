//! POST /v1/atomic over real sockets: several streams of one group are appended to at once, or none is.

use serde_json::{Value, json};

use crate::{
    browser::{Answer, Browser},
    http_streams::next,
    world::Broker,
};

fn ask(browser: &mut Browser, method: &str, path: &str, headers: &str, body: &str) -> Answer {
    let length = body.len();
    browser.say(format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
    ));
    browser.hear(method != "HEAD")
}

fn create(browser: &mut Browser, name: &str, group: &str) -> Answer {
    let headers =
        format!("Content-Type: text/plain\r\nStream-Storage: acid\r\nStream-Group: {group}\r\n");
    ask(browser, "PUT", &format!("/v1/stream/{name}"), &headers, "")
}

fn together(browser: &mut Browser, appends: Value) -> (u16, Value) {
    let body = json!({ "appends": appends }).to_string();
    let answer = ask(browser, "POST", "/v1/atomic", "", &body);
    (answer.status, serde_json::from_str(&answer.body).unwrap())
}

fn to(stream: &str, text: &str) -> Value {
    json!({ "stream": stream, "body": text, "content_type": "text/plain" })
}

fn by(stream: &str, text: &str, seq: u64) -> Value {
    let mut append = to(stream, text);
    append["producer"] = json!({ "id": "w", "epoch": 0, "seq": seq });
    append
}

fn text_of(browser: &mut Browser, name: &str) -> String {
    ask(browser, "GET", &format!("/v1/stream/{name}"), "", "").body
}

#[test]
fn streams_of_one_group_are_appended_to_together() {
    let (broker, _folder) = Broker::fresh();
    // Each of them asks another core than the last.
    for round in 0..4 {
        let http = &mut Browser::of(&broker);
        for name in ["a", "b", "c"] {
            let again = create(http, name, "accounts").status;
            assert_eq!(again, if round == 0 { 201 } else { 200 });
        }
        let (status, said) =
            together(http, json!([to("a", "x"), to("/v1/stream/b", "y"), to("c", "z")]));
        assert_eq!(status, 200, "{said}");
        for (at, name) in ["a", "b", "c"].into_iter().enumerate() {
            let path = format!("/v1/stream/{name}");
            let next = next(&ask(http, "HEAD", &path, "", ""));
            assert!(next.starts_with(&format!("{:016}_", round + 1)), "{next}");
            let one =
                json!({ "stream": path, "next_offset": next, "closed": false, "duplicate": false });
            assert_eq!(said["appends"][at], one);
        }
        assert_eq!(text_of(http, "b"), "y".repeat(round + 1));
    }
    broker.stop();
}

#[test]
fn one_that_is_refused_refuses_all_and_is_named() {
    let (broker, _folder) = Broker::fresh();
    let http = &mut Browser::of(&broker);
    create(http, "a", "accounts");
    create(http, "b", "accounts");
    ask(http, "POST", "/v1/stream/b", "Stream-Closed: true\r\n", "");
    let (status, said) = together(http, json!([to("a", "x"), to("b", "y")]));
    assert_eq!((status, &said["code"], &said["append"]), (409, &json!("stream_closed"), &json!(1)));
    assert_eq!(said["stream"], "/v1/stream/b");
    let (status, said) = together(http, json!([to("a", "x"), to("nowhere", "y")]));
    assert_eq!(
        (status, &said["code"], &said["append"]),
        (404, &json!("unknown_stream"), &json!(1))
    );
    let (status, said) = together(http, json!([to("a", "x"), to("a", "y")]));
    assert_eq!((status, &said["append"]), (400, &json!(1)));
    assert_eq!(text_of(http, "a"), "");
    let wrong = ask(http, "GET", "/v1/atomic", "", "");
    assert_eq!((wrong.status, wrong.head.contains("allow: POST, OPTIONS")), (405, true));
    broker.stop();
}

#[test]
fn streams_of_different_groups_are_refused_wherever_they_lie() {
    let (broker, _folder) = Broker::fresh();
    let http = &mut Browser::of(&broker);
    create(http, "a", "one");
    let text = "Content-Type: text/plain\r\n";
    // Of many groups and of none some lie where the first does, and some do not.
    for number in 0..6 {
        let (grouped, alone) = (format!("grouped-{number}"), format!("alone-{number}"));
        create(http, &grouped, &grouped);
        ask(http, "PUT", &format!("/v1/stream/{alone}"), text, "");
        for other in [&grouped, &alone] {
            let (status, said) = together(http, json!([to("a", "x"), to(other, "y")]));
            assert_eq!((status, &said["code"]), (422, &json!("groups_differ")), "{said}");
            assert_eq!(said["streams"], json!(["/v1/stream/a", format!("/v1/stream/{other}")]));
        }
    }
    assert_eq!(text_of(http, "a"), "");
    broker.stop();
}

#[test]
fn what_is_sent_twice_counts_once() {
    let (broker, _folder) = Broker::fresh();
    let http = &mut Browser::of(&broker);
    create(http, "a", "accounts");
    create(http, "b", "accounts");
    for is_again in [false, true] {
        let (status, said) = together(http, json!([by("a", "x", 0), by("b", "y", 0)]));
        assert_eq!(status, 200);
        for at in 0..2 {
            assert_eq!(said["appends"][at]["duplicate"], is_again);
            assert_eq!(said["appends"][at]["producer_seq"], 0);
        }
    }
    let (status, said) = together(http, json!([by("a", "x", 1), by("b", "y", 0)]));
    assert_eq!((status, &said["code"]), (409, &json!("partly_appended")));
    assert_eq!((text_of(http, "a"), text_of(http, "b")), ("x".into(), "y".into()));
    broker.stop();
}

#[test]
fn a_stream_is_of_one_group_for_its_life_and_says_so() {
    let (broker, _folder) = Broker::fresh();
    let http = &mut Browser::of(&broker);
    assert_eq!(create(http, "a", "accounts").status, 201);
    let other = create(http, "a", "others");
    assert_eq!((other.status, other.body.contains("settings_differ")), (409, true));
    let head = ask(http, "HEAD", "/v1/stream/a", "", "");
    assert!(head.head.contains("stream-group: accounts\r\n"), "{}", head.head);
    let fast = "Stream-Storage: file-fast\r\nStream-Group: accounts\r\n";
    let refused = ask(http, "PUT", "/v1/stream/b", fast, "");
    assert_eq!((refused.status, refused.body.contains("group_needs_acid")), (422, true));
    // One that is deleted and made anew is found where it is now.
    create(http, "b", "accounts");
    together(http, json!([to("a", "x"), to("b", "y")]));
    let elsewhere = &mut Browser::of(&broker);
    ask(elsewhere, "DELETE", "/v1/stream/b", "", "");
    create(elsewhere, "b", "accounts");
    let (status, said) = together(http, json!([to("a", "x"), to("b", "z")]));
    assert_eq!(status, 200, "{said}");
    assert_eq!((text_of(http, "a"), text_of(http, "b")), ("xx".into(), "z".into()));
    broker.stop();
}

#[test]
fn groups_and_their_members_survive_a_start() {
    let folder = tempfile::TempDir::new().unwrap();
    for life in 0..3 {
        let broker = Broker::start(crate::world::config(folder.path()));
        let http = &mut Browser::of(&broker);
        for name in ["a", "b"] {
            assert_eq!(create(http, name, "accounts").status, if life == 0 { 201 } else { 200 });
        }
        let (status, said) = together(http, json!([by("a", "x", life), by("b", "y", life)]));
        assert_eq!((status, &said["appends"][1]["duplicate"]), (200, &json!(false)), "{said}");
        broker.stop();
    }
}
