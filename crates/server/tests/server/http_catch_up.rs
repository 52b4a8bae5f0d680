//! Reads of more than the broker reads at once: one answer gives all that there is.

use sennit_server::Config;
use tempfile::TempDir;

use crate::{
    browser::Browser,
    http_streams::{JSON, TEXT, ask, header, next},
    world::{Broker, config},
};

/// More appends than one read of the engine gives.
const APPENDS: usize = 2500;

/// Appends `0`, `1`, ... to a stream of JSON, each by itself.
fn count_up(http: &mut Browser, stream: &str) -> String {
    for from in (0..APPENDS).step_by(100) {
        for number in from..from + 100 {
            let (text, length) = (number.to_string(), number.to_string().len());
            http.say(format!(
                "POST /v1/stream/{stream} HTTP/1.1\r\nHost: localhost\r\n{JSON}Content-Length: {length}\r\n\r\n{text}"
            ));
        }
        for _ in 0..100 {
            assert_eq!(http.hear(false).status, 204);
        }
    }
    let numbers: Vec<String> = (0..APPENDS).map(|number| number.to_string()).collect();
    format!("[{}]", numbers.join(","))
}

#[test]
fn one_answer_gives_all_of_many_small_appends() {
    let (broker, _folder) = Broker::fresh();
    let http = &mut Browser::of(&broker);
    assert_eq!(ask(http, "PUT", "numbers", JSON, "").status, 201);
    let expected = count_up(http, "numbers");
    let all = ask(http, "GET", "numbers", "", "");
    assert_eq!((all.status, all.body == expected), (200, true));
    assert_eq!(header(&all, "stream-up-to-date"), Some("true"));
    assert_eq!(header(&all, "stream-closed"), None);
    // Who has it already is told so; who has all of an open one has not all of a closed one.
    let known = format!("If-None-Match: {}\r\n", header(&all, "etag").unwrap());
    assert_eq!(ask(http, "GET", "numbers", &known, "").status, 304);
    assert_eq!(ask(http, "POST", "numbers", "Stream-Closed: true\r\n", "").status, 204);
    let closed = ask(http, "GET", "numbers", &known, "");
    assert_eq!((closed.status, closed.body == expected), (200, true));
    assert_eq!(header(&closed, "stream-closed"), Some("true"));
    assert_eq!(next(&closed), next(&all));
    // An old client is sent the same, and its end is the connection's.
    let old = &mut Browser::of(&broker);
    old.say("GET /v1/stream/numbers HTTP/1.0\r\nHost: localhost\r\n\r\n");
    assert!(old.until("\r\n\r\n").contains("connection: close"));
    assert_eq!(old.until("]"), expected);
    assert!(old.is_closed());
    broker.stop();
}

#[test]
fn one_answer_gives_all_of_a_fork_and_of_what_it_was_forked_from() {
    let (broker, _folder) = Broker::fresh();
    let http = &mut Browser::of(&broker);
    assert_eq!(ask(http, "PUT", "numbers", JSON, "").status, 201);
    let expected = count_up(http, "numbers");
    let of = format!("{JSON}Stream-Forked-From: /v1/stream/numbers\r\n");
    assert_eq!(ask(http, "PUT", "fork", &of, "").status, 201);
    assert_eq!(ask(http, "POST", "fork", JSON, "\"own\"").status, 204);
    let all = ask(http, "GET", "fork", "", "");
    assert_eq!(all.body, expected.replace(']', ",\"own\"]"));
    assert_eq!(header(&all, "stream-up-to-date"), Some("true"));
    broker.stop();
}

#[test]
fn a_read_that_cannot_go_on_breaks_off() {
    let (broker, _folder) = Broker::fresh();
    let http = &mut Browser::of(&broker);
    assert_eq!(ask(http, "PUT", "long", TEXT, "").status, 201);
    let piece = "x".repeat(12 << 20);
    for _ in 0..5 {
        assert_eq!(ask(http, "POST", "long", TEXT, &piece).status, 204);
    }
    let all = ask(http, "GET", "long", "", "");
    assert_eq!((all.body.len(), all.body.matches('x').count()), (60 << 20, 60 << 20));
    // Its sockets hold a part of it; the rest is read when there is room.
    let slow = &mut Browser::of(&broker);
    slow.say("GET /v1/stream/long HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(slow.until("\r\n\r\n").contains(&next(&all)));
    assert_eq!(ask(http, "DELETE", "long", "", "").status, 204);
    assert_eq!(slow.chunks(), None);
    broker.stop();
}

/// What the broker has room for in answers of a core, and in those of a connection.
const CORE_BYTES: usize = 1 << 30;
const CONNECTION_BYTES: usize = 64 << 20;

/// An element of a stream.
const PART_BYTES: usize = 16 << 10;

#[test]
fn pages_are_short_while_the_deaf_hold_what_a_core_has_room_for_and_who_reads_gets_all() {
    let folder = TempDir::new().unwrap();
    // What is read lies in memory once, however many hold it.
    let config = Config { shards: Some(1), cache_bytes: 64 << 20, ..config(folder.path()) };
    let broker = Broker::start(config);
    let http = &mut Browser::of(&broker);
    assert_eq!(ask(http, "PUT", "long", TEXT, &"x".repeat(12 << 20)).status, 201);
    assert_eq!(ask(http, "PUT", "parts", JSON, "").status, 201);
    let part = format!("\"{}\"", "x".repeat(PART_BYTES - 3));
    let parts = format!("[{}]", vec![&part[..]; 100].join(","));
    for _ in 0..4 {
        assert_eq!(ask(http, "POST", "parts", JSON, &parts).status, 204);
    }
    let poll = "parts?live=long-poll&offset=-1";
    let whole = ask(http, "GET", poll, "", "");
    assert!(whole.body.len() > 1 << 20, "{}", whole.body.len());
    let one = "GET /v1/stream/long HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut deaf: Vec<Browser> = Vec::new();
    while deaf.len() <= 2 * CORE_BYTES / CONNECTION_BYTES {
        deaf.push(Browser::of(&broker));
        let last = deaf.last_mut().unwrap();
        last.say(one.repeat(8));
        assert!(last.until("\r\n\r\n").contains("200 OK"));
    }
    let short = ask(http, "GET", poll, "", "");
    assert!(short.body.len() < 128 << 10, "{}", short.body.len());
    let expected = format!("[{}]", vec![&part[..]; 400].join(","));
    assert!(ask(http, "GET", "parts", "", "").body == expected, "nothing is missing");
    drop(deaf);
    broker.stop();
}
