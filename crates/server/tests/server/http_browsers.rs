//! What browsers are told over real sockets: the routes of the page for machines, one by one, by either
//! HTTP, and the headers that answers of streams have.

use std::{fs, path::Path};

use sennit_server::Config;
use tempfile::TempDir;

use crate::{
    browser::{Answer, Browser},
    http_streams::{JSON, TEXT, ask, header},
    world::{Broker, config},
};

/// The paths and methods that docs/reference/openapi.yaml names. A test in the server compares them with
/// the table of routes.
fn documented() -> Vec<(String, String)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/openapi.yaml");
    let page = fs::read_to_string(page).unwrap();
    let paths = page.split_once("\npaths:\n").unwrap().1.split_once("\ncomponents:").unwrap().0;
    let (mut path, mut all) = (String::new(), Vec::new());
    for line in paths.lines() {
        if let Some(text) = line.strip_prefix("  /") {
            let text = text.trim_end_matches(':').replace("{verb}", "ack");
            path = format!("/{text}")
                .replace("{id}", "s")
                .replace("{path}", "a")
                .replace("{stream}", "a");
        } else if let Some(word) = line.strip_prefix("    ").and_then(|l| l.strip_suffix(':'))
            && ["get", "head", "post", "put", "delete", "options"].contains(&word)
        {
            all.push((word.to_uppercase(), path.clone()));
        }
    }
    assert!(all.len() > 15, "the page is read: {all:?}");
    all
}

fn ask_at(http: &mut Browser, method: &str, path: &str, headers: &str) -> Answer {
    http.say(format!("{method} {path} HTTP/1.1\r\n{headers}Content-Length: 0\r\n\r\n"));
    http.hear(method != "HEAD")
}

#[test]
fn no_route_is_reached_by_a_name_that_only_points_here() {
    let (broker, _folder) = Broker::fresh();
    let http = &mut Browser::of(&broker);
    ask(http, "PUT", "a", TEXT, "secret");
    for (method, path) in documented() {
        for headers in
            ["Host: evil.example:4437\r\n", "Host: evil.example\r\nOrigin: http://evil.example\r\n"]
        {
            let told = ask_at(http, &method, &path, headers);
            assert_eq!(told.status, 421, "{method} {path}: {}", told.head);
            assert!(!told.body.contains("secret"));
        }
    }
    assert_eq!(ask(http, "GET", "a", "", "").body, "secret", "nothing has changed");
    broker.stop();
}

#[test]
fn no_page_of_another_site_reads_or_changes_anything() {
    let (broker, _folder) = Broker::fresh();
    let http = &mut Browser::of(&broker);
    ask(http, "PUT", "a", TEXT, "secret");
    let page = "Host: localhost\r\nOrigin: https://evil.example\r\n";
    for (method, path) in documented() {
        let told = ask_at(http, &method, &path, page);
        let is_preflight = method == "OPTIONS";
        assert_eq!(
            told.status,
            if is_preflight { 204 } else { 403 },
            "{method} {path}: {}",
            told.head
        );
        assert!(!told.head.contains("access-control-allow-origin"), "{}", told.head);
    }
    assert_eq!(ask(http, "GET", "a", "", "").body, "secret", "nothing has changed");
    broker.stop();
}

#[test]
fn what_the_operator_allows_is_allowed() {
    let folder = TempDir::new().unwrap();
    let broker = Broker::start(Config {
        http_hosts: vec!["broker.internal".parse().unwrap()],
        http_origins: vec!["https://app.example".parse().unwrap()],
        streams_public_url: Some("https://example.com/broker".parse().unwrap()),
        ..config(folder.path())
    });
    let http = &mut Browser::of(&broker);
    for (headers, status) in [
        ("Host: broker.internal:4437\r\n", 200),
        ("Host: example.com\r\n", 200),
        ("Host: example.com\r\nOrigin: https://example.com\r\n", 200),
        ("Host: 127.0.0.1\r\nOrigin: https://example.com\r\n", 200),
        ("Host: other.internal\r\n", 421),
        ("Host: broker.internal\r\nOrigin: https://app.example\r\n", 403),
    ] {
        assert_eq!(ask_at(http, "GET", "/metrics", headers).status, status, "{headers}");
    }
    let page = "Host: broker.internal\r\nOrigin: https://app.example\r\n";
    let created = ask_at(http, "PUT", "/v1/stream/a", page);
    assert_eq!((created.status, header(&created, "access-control-allow-origin")), (201, Some("*")));
    broker.stop();
}

#[test]
fn events_come_through_a_proxy_that_gathers_and_hold_what_they_can() {
    let (broker, _folder) = Broker::fresh();
    let http = &mut Browser::of(&broker);
    ask(http, "PUT", "text", TEXT, "a\rb\r\nc\nd");
    let events = |encoding: &str| {
        let reader = &mut Browser::of(&broker);
        reader.say(format!(
            "GET /v1/stream/text?offset=-1&live=sse{encoding} HTTP/1.1\r\nHost: localhost\r\n\r\n"
        ));
        (reader.until("\r\n\r\n"), reader.until("event: control"))
    };
    let (head, plain) = events("");
    assert!(head.contains("x-accel-buffering: no\r\n"), "{head}");
    assert!(head.contains("cache-control: no-cache\r\n"), "{head}");
    assert!(!head.contains("\r\nstream-sse-data-encoding"), "{head}");
    assert!(plain.contains("event: data\ndata:a\ndata:b\ndata:c\ndata:d\n\n"), "{plain}");
    let (head, encoded) = events("&encoding=base64");
    assert!(head.contains("\r\nstream-sse-data-encoding: base64\r\n"), "{head}");
    assert!(encoded.contains("event: data\ndata:YQ1iDQpjCmQ=\n\n"), "{encoded}");
    // What has no end of line may stand as it is; a long-poll gives all of it.
    assert_eq!(ask(http, "GET", "text?offset=-1&live=long-poll", "", "").body, "a\rb\r\nc\nd");
    broker.stop();
}

#[test]
fn events_that_wait_without_a_task_come_as_they_were_asked_for() {
    let (broker, _folder) = Broker::fresh();
    let http = &mut Browser::of(&broker);
    ask(http, "PUT", "text", TEXT, "");
    let mut readers: Vec<_> = ["", "&encoding=base64"]
        .into_iter()
        .map(|encoding| {
            let mut reader = Browser::of(&broker);
            reader.say(format!(
                "GET /v1/stream/text?offset=now&live=sse{encoding} HTTP/1.1\r\nHost: localhost\r\n\r\n"
            ));
            reader.until("\"upToDate\":true}\n\n");
            reader
        })
        .collect();
    crate::http_parked::until_parked(http, 2);
    ask(http, "POST", "text", TEXT, "a\rb");
    assert!(readers[0].until("event: control").contains("data:a\ndata:b\n\n"));
    assert!(readers[1].until("event: control").contains("data:YQ1i\n\n"));
    broker.stop();
}

#[test]
fn the_last_second_of_the_year_9999_is_a_time() {
    let (broker, _folder) = Broker::fresh();
    let http = &mut Browser::of(&broker);
    let end = "9999-12-31T23:59:59Z";
    let created = ask(http, "PUT", "a", &format!("{JSON}Stream-Expires-At: {end}\r\n"), "");
    assert_eq!(created.status, 201, "{}", created.body);
    let head = ask(http, "HEAD", "a", "", "");
    assert_eq!(header(&head, "stream-expires-at"), Some(end));
    broker.stop();
}
