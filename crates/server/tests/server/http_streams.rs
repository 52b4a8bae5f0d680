//! HTTP streams over real sockets: the main paths of the protocol, end to end. The conformance suite of
//! the protocol asks for the rest.

use std::time::{Duration, SystemTime};

use sennit_server::Config;
use tempfile::TempDir;

use crate::{
    browser::{Answer, Browser},
    world::{Broker, config, publish},
};

pub const TEXT: &str = "Content-Type: text/plain\r\n";
pub const JSON: &str = "Content-Type: application/json\r\n";

/// Asks, and hears the whole answer.
pub fn ask(browser: &mut Browser, method: &str, path: &str, headers: &str, body: &str) -> Answer {
    let length = body.len();
    browser.say(format!(
        "{method} /v1/stream/{path} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
    ));
    browser.hear(method != "HEAD")
}

pub fn header<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    answer.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

pub fn next(answer: &Answer) -> String {
    header(answer, "stream-next-offset").unwrap().to_owned()
}

/// What a read gives, and where it goes on.
fn read(browser: &mut Browser, path: &str) -> (u16, String, String) {
    let answer = ask(browser, "GET", path, "", "");
    (answer.status, answer.body.clone(), next(&answer))
}

#[test]
fn what_is_appended_is_read_from_where_one_was() {
    let (broker, _folder) = Broker::fresh();
    let http = &mut Browser::of(&broker);
    let created = ask(http, "PUT", "notes", TEXT, "first");
    assert_eq!(created.status, 201);
    assert_eq!(header(&created, "location"), Some("http://localhost/v1/stream/notes"));
    assert_eq!(ask(http, "PUT", "notes", TEXT, "").status, 200);
    assert_eq!(ask(http, "PUT", "notes", JSON, "").status, 409);
    let appended = ask(http, "POST", "notes", TEXT, "second");
    assert_eq!(appended.status, 204);
    let (status, body, end) = read(http, "notes");
    assert_eq!((status, body.as_str(), end), (200, "firstsecond", next(&appended)));
    let (_, rest, _) = read(http, &format!("notes?offset={}", next(&created)));
    assert_eq!(rest, "second");
    let head = ask(http, "HEAD", "notes", "", "");
    assert_eq!((head.status, next(&head)), (200, next(&appended)));
    assert_eq!(header(&head, "content-type"), Some("text/plain"));
    broker.stop();
}

#[test]
fn streams_that_begin_with_something_get_room_however_little_there_is() {
    let folder = TempDir::new().unwrap();
    let broker = Broker::start(Config { ingest_bytes: 0, ..config(folder.path()) });
    let mut browsers: Vec<_> = (0..4).map(|_| Browser::of(&broker)).collect();
    let long = "x".repeat(300_000);
    for round in 0..10 {
        for (number, browser) in browsers.iter_mut().enumerate() {
            let length = long.len();
            browser.say(format!(
                "PUT /v1/stream/{number}/{round} HTTP/1.1\r\nHost: localhost\r\n{TEXT}Content-Length: {length}\r\n\r\n{long}"
            ));
        }
        for browser in &mut browsers {
            assert_eq!(browser.hear(true).status, 201);
        }
    }
    broker.stop();
}

#[test]
fn what_comes_in_one_piece_is_done_in_its_order() {
    let (broker, _folder) = Broker::fresh();
    let http = &mut Browser::of(&broker);
    for round in 0..20 {
        let asked = |method: &str, body: &str| {
            let length = body.len();
            format!(
                "{method} /v1/stream/round/{round} HTTP/1.1\r\nHost: localhost\r\n{TEXT}Content-Length: {length}\r\n\r\n{body}"
            )
        };
        let all = [("PUT", ""), ("POST", "a"), ("POST", "b"), ("GET", ""), ("DELETE", "")];
        http.say(all.map(|(method, body)| asked(method, body)).concat() + &asked("GET", ""));
        let heard: Vec<_> = (0..6).map(|_| http.hear(true)).collect();
        let told: Vec<_> = heard.iter().map(|answer| answer.status).collect();
        assert_eq!(told, [201, 204, 204, 200, 204, 404], "{round}");
        assert_eq!(heard[3].body, "ab");
    }
    broker.stop();
}

#[test]
fn who_creates_a_stream_just_when_it_ends_gets_it_or_a_new_one() {
    let (broker, _folder) = Broker::fresh();
    let http = &mut Browser::of(&broker);
    for round in 0..40 {
        let ends_at = SystemTime::now() + Duration::from_millis(20);
        let headers =
            format!("{TEXT}Stream-Expires-At: {}\r\n", jiff::Timestamp::try_from(ends_at).unwrap());
        let path = format!("short/{round}");
        let mut made = 0;
        while SystemTime::now() < ends_at + Duration::from_millis(5) {
            let answer = ask(http, "PUT", &path, &headers, "");
            assert!(matches!(answer.status, 200 | 201), "{round}: {}", answer.head);
            made += u32::from(answer.status == 201);
        }
        assert!(made > 0, "{round}");
    }
    broker.stop();
}

#[test]
fn a_connection_goes_to_the_core_of_its_streams_and_loses_nothing() {
    let (broker, _folder) = Broker::fresh();
    let streams = ["a", "b", "c", "d"];
    let mut connections: Vec<Browser> = (0..4).map(|_| Browser::of(&broker)).collect();
    for stream in streams {
        assert_eq!(ask(&mut connections[0], "PUT", stream, TEXT, "").status, 201);
    }
    // Each connection with each stream: half of those are elsewhere, and the next stream may be back
    // where it came from.
    for turn in 0..streams.len() {
        for (number, http) in connections.iter_mut().enumerate() {
            let stream = streams[(turn + number) % streams.len()];
            for _ in 0..20 {
                assert_eq!(ask(http, "POST", stream, TEXT, "x").status, 204);
            }
            // Several at once: none of them is left behind.
            let length = "Content-Length: 1\r\n\r\n";
            let one =
                format!("POST /v1/stream/{stream} HTTP/1.1\r\nHost: localhost\r\n{TEXT}{length}y");
            http.say(one.repeat(20));
            for _ in 0..20 {
                assert_eq!(http.hear(false).status, 204);
            }
        }
    }
    for stream in streams {
        let body = read(&mut connections[0], stream).1;
        assert_eq!((body.len(), body.matches('y').count()), (160, 80), "{stream}");
    }
    let metrics = connections[0].get("/metrics").body;
    let sum = |name: &str| -> u64 {
        let lines = metrics.lines().filter(|line| line.starts_with(&format!("{name}{{")));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    };
    // Each move makes the next one dearer.
    let moved = sum("sennit_http_connections_moved_total");
    assert!((1..=16).contains(&moved), "{moved}");
    assert_eq!(sum("sennit_http_connections_opened_total"), 4);
    broker.stop();
}

#[test]
fn elements_of_json_are_messages() {
    let (broker, _folder) = Broker::fresh();
    let http = &mut Browser::of(&broker);
    ask(http, "PUT", "events", JSON, "[]");
    assert_eq!(read(http, "events").1, "[]");
    assert_eq!(ask(http, "POST", "events", JSON, "[{\"a\":1}, [2]]").status, 204);
    assert_eq!(ask(http, "POST", "events", JSON, "3").status, 204);
    assert_eq!(read(http, "events").1, "[{\"a\":1},[2],3]");
    let problem = ask(http, "POST", "events", JSON, "{ invalid");
    assert_eq!((problem.status, problem.body.contains("\"invalid_json\"")), (400, true));
    broker.stop();
}

#[test]
fn an_append_that_is_sent_twice_counts_once() {
    let (broker, _folder) = Broker::fresh();
    let http = &mut Browser::of(&broker);
    ask(http, "PUT", "notes", TEXT, "");
    let by = |epoch: u64, sequence: u64| {
        format!("{TEXT}Producer-Id: w\r\nProducer-Epoch: {epoch}\r\nProducer-Seq: {sequence}\r\n")
    };
    let mut append =
        |epoch, sequence| ask(http, "POST", "notes", &by(epoch, sequence), &sequence.to_string());
    assert_eq!(append(1, 0).status, 200);
    assert_eq!(append(1, 1).status, 200);
    let again = append(1, 0);
    assert_eq!((again.status, header(&again, "producer-seq")), (204, Some("1")));
    let gap = append(1, 3);
    assert_eq!((gap.status, header(&gap, "producer-expected-seq")), (409, Some("2")));
    let fenced = append(0, 2);
    assert_eq!((fenced.status, header(&fenced, "producer-epoch")), (403, Some("1")));
    assert_eq!(read(http, "notes").1, "01");
    broker.stop();
}

#[test]
fn a_closed_stream_says_so_and_takes_no_more() {
    let (broker, _folder) = Broker::fresh();
    let http = &mut Browser::of(&broker);
    ask(http, "PUT", "notes", TEXT, "a");
    let closing = format!("{TEXT}Stream-Closed: true\r\n");
    let closed = ask(http, "POST", "notes", &closing, "b");
    assert_eq!((closed.status, header(&closed, "stream-closed")), (204, Some("true")));
    let refused = ask(http, "POST", "notes", TEXT, "c");
    assert_eq!((refused.status, next(&refused)), (409, next(&closed)));
    assert_eq!(header(&refused, "content-type"), Some("application/problem+json"));
    let all = ask(http, "GET", "notes", "", "");
    assert_eq!((all.body.as_str(), header(&all, "stream-closed")), ("ab", Some("true")));
    let end = format!("notes?offset={}&live=long-poll", next(&closed));
    let end = ask(http, "GET", &end, "", "");
    assert_eq!((end.status, header(&end, "stream-closed")), (204, Some("true")));
    broker.stop();
}

#[test]
fn who_has_it_already_is_told_so_unless_the_stream_is_another() {
    let (broker, _folder) = Broker::fresh();
    let http = &mut Browser::of(&broker);
    ask(http, "PUT", "notes", TEXT, "a");
    let etag = header(&ask(http, "GET", "notes", "", ""), "etag").unwrap().to_owned();
    let known = format!("If-None-Match: {etag}\r\n");
    assert_eq!(ask(http, "GET", "notes", &known, "").status, 304);
    assert_eq!(ask(http, "DELETE", "notes", "", "").status, 204);
    assert_eq!(ask(http, "GET", "notes", &known, "").status, 404);
    ask(http, "PUT", "notes", TEXT, "b");
    assert_eq!(ask(http, "GET", "notes", &known, "").body, "b");
    broker.stop();
}

#[test]
fn a_read_that_waits_gets_what_comes() {
    let (broker, _folder) = Broker::fresh();
    let (reader, writer) = (&mut Browser::of(&broker), &mut Browser::of(&broker));
    ask(writer, "PUT", "notes", TEXT, "");
    reader.say("GET /v1/stream/notes?offset=-1&live=long-poll HTTP/1.1\r\nHost: localhost\r\n\r\n");
    ask(writer, "POST", "notes", TEXT, "came");
    let came = reader.hear(true);
    assert_eq!((came.status, came.body.as_str()), (200, "came"));
    assert!(header(&came, "stream-cursor").is_some());
    broker.stop();
}

#[test]
fn a_stream_is_kept_as_its_creator_says_or_as_the_rules_do() {
    let folder = TempDir::new().unwrap();
    let rules = ["metrics/=memory", "metrics/kept/=acid"].map(|rule| rule.parse().unwrap());
    let streams_storage_rules = rules.to_vec();
    let broker = Broker::start(Config { streams_storage_rules, ..config(folder.path()) });
    let http = &mut Browser::of(&broker);
    for (name, said, kept) in [
        ("metrics/a", "", "memory"),
        ("metrics/kept/a", "", "acid"),
        ("metrics/b", "Stream-Storage: file-fast\r\n", "file-fast"),
        ("notes", "", "file-durable"),
    ] {
        let created = ask(http, "PUT", name, said, "");
        assert_eq!(
            (created.status, header(&created, "stream-storage")),
            (201, Some(kept)),
            "{name}"
        );
        let head = ask(http, "HEAD", name, "", "");
        assert_eq!(header(&head, "stream-storage"), Some(kept), "{name}");
    }
    // What a rule says is for those who come; a group needs what it needs by whatever rule.
    let grouped = "Stream-Group: g\r\n";
    assert_eq!(ask(http, "PUT", "metrics/kept/b", grouped, "").status, 201);
    assert_eq!(ask(http, "PUT", "metrics/c", grouped, "").status, 422);
    broker.stop();
}

#[test]
fn addresses_that_are_given_away_begin_where_others_find_the_broker() {
    let folder = TempDir::new().unwrap();
    let streams_public_url = Some("https://example.com/broker/".parse().unwrap());
    let broker = Broker::start(Config { streams_public_url, ..config(folder.path()) });
    let created = ask(&mut Browser::of(&broker), "PUT", "a%20b", TEXT, "");
    let location = header(&created, "location");
    assert_eq!(location, Some("https://example.com/broker/v1/stream/a%20b"));
    broker.stop();
}

#[test]
fn a_read_does_not_wait_for_ever() {
    let folder = TempDir::new().unwrap();
    let waits = Duration::from_millis(10);
    let broker =
        Broker::start(Config { streams_long_poll_timeout: waits, ..config(folder.path()) });
    let http = &mut Browser::of(&broker);
    let end = next(&ask(http, "PUT", "notes", TEXT, "there"));
    for at in [end.as_str(), "now"] {
        let nothing = ask(http, "GET", &format!("notes?offset={at}&live=long-poll"), "", "");
        assert_eq!((nothing.status, next(&nothing)), (204, end.clone()));
        assert_eq!(header(&nothing, "stream-up-to-date"), Some("true"));
    }
    broker.stop();
}

#[test]
fn events_come_until_the_stream_is_closed() {
    let (broker, _folder) = Broker::fresh();
    let (reader, writer) = (&mut Browser::of(&broker), &mut Browser::of(&broker));
    ask(writer, "PUT", "notes", TEXT, "there\nbefore");
    reader.say("GET /v1/stream/notes?offset=-1&live=sse HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let head = reader.until("\r\n\r\n");
    assert!(head.contains("text/event-stream") && !head.contains("content-length"), "{head}");
    let first = reader.until("\"upToDate\":true}\n\n");
    assert!(first.contains("event: data\ndata:there\ndata:before\n\n"), "{first}");
    let closing = format!("{TEXT}Stream-Closed: true\r\n");
    ask(writer, "POST", "notes", &closing, "last");
    let last = reader.until("\"streamClosed\":true}\n\n");
    assert!(last.contains("event: data\ndata:last\n\n"), "{last}");
    assert_eq!(last.matches("event: control").count(), 1, "{last}");
    assert!(reader.until("0\r\n\r\n").ends_with("0\r\n\r\n"));
    broker.stop();
}

#[test]
fn events_do_not_go_on_inside_another_stream_of_the_same_name() {
    let (broker, _folder) = Broker::fresh();
    let (reader, writer) = (&mut Browser::of(&broker), &mut Browser::of(&broker));
    // More than lies between the broker and a reader who does not read, by far.
    let mut fill = |word: &str| {
        assert_eq!(ask(writer, "PUT", "notes", TEXT, "").status, 201);
        let long = word.repeat((1 << 20) / word.len());
        for _ in 0..24 {
            assert_eq!(ask(writer, "POST", "notes", TEXT, &long).status, 204);
        }
    };
    fill("old.");
    reader.say("GET /v1/stream/notes?offset=-1&live=sse HTTP/1.1\r\nHost: localhost\r\n\r\n");
    reader.until("\r\n\r\n");
    let remover = &mut Browser::of(&broker);
    assert_eq!(ask(remover, "DELETE", "notes", "", "").status, 204);
    fill("new!");
    let events = reader.chunks().expect("they end");
    assert!(events.contains("old.") && !events.contains("new!"));
    broker.stop();
}

#[test]
fn a_fork_goes_its_own_way() {
    let (broker, _folder) = Broker::fresh();
    let http = &mut Browser::of(&broker);
    let at = next(&ask(http, "PUT", "source", TEXT, "one"));
    ask(http, "POST", "source", TEXT, "two");
    let from = format!("Stream-Forked-From: /v1/stream/source\r\nStream-Fork-Offset: {at}\r\n");
    assert_eq!(ask(http, "PUT", "fork", &from, "").status, 201);
    let cut = format!("{from}Stream-Fork-Sub-Offset: 2\r\n");
    assert_eq!(ask(http, "PUT", "cut", &cut, "!").status, 201);
    ask(http, "POST", "fork", TEXT, "three");
    assert_eq!(read(http, "fork").1, "onethree");
    assert_eq!(read(http, "cut").1, "onetw!");
    assert_eq!(ask(http, "DELETE", "source", "", "").status, 204);
    assert_eq!(ask(http, "GET", "source", "", "").status, 410);
    assert_eq!(ask(http, "PUT", "source", TEXT, "").status, 409);
    assert_eq!(read(http, "fork").1, "onethree");
    broker.stop();
}

#[test]
fn one_stream_has_one_name_however_it_is_written() {
    let (broker, _folder) = Broker::fresh();
    let http = &mut Browser::of(&broker);
    for (path, same, other) in [
        ("docs/%61%20b", "docs/a%20b", "docs%2Fa%20b"),
        ("docs/.updates", "docs/%2Eupdates", "docs/updates"),
        ("..%2F..", "%2e.%2f%2E%2e", "..%2F."),
    ] {
        assert_eq!(ask(http, "PUT", path, TEXT, path).status, 201, "{path}");
        assert_eq!(read(http, same).1, path);
        assert_eq!(ask(http, "GET", other, "", "").status, 404, "{other}");
    }
    assert_eq!(ask(http, "PUT", "__ds/mine", TEXT, "").status, 404);
    assert_eq!(ask(http, "PUT", "%zz", TEXT, "").status, 400);
    broker.stop();
}

#[test]
fn what_is_on_disk_is_there_after_a_start() {
    let folder = TempDir::new().unwrap();
    let broker = Broker::start(config(folder.path()));
    let http = &mut Browser::of(&broker);
    let modes = ["memory", "file-fast", "file-durable", "acid"];
    for mode in modes {
        let headers = format!("{TEXT}Stream-Storage: {mode}\r\nStream-TTL: 3600\r\n");
        assert_eq!(ask(http, "PUT", mode, &headers, "a").status, 201);
        assert_eq!(ask(http, "POST", mode, TEXT, "b").status, 204);
        assert_eq!(read(http, mode).1, "ab");
    }
    broker.stop();
    let broker = Broker::start(config(folder.path()));
    let http = &mut Browser::of(&broker);
    for mode in modes {
        let expected = if mode == "memory" { "" } else { "ab" };
        assert_eq!(read(http, mode).1, expected, "{mode}");
        let head = ask(http, "HEAD", mode, "", "");
        assert_eq!(header(&head, "stream-ttl"), Some("3600"));
    }
    broker.stop();
}

#[test]
fn a_topic_of_the_native_protocol_is_a_stream_too() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    let topic = peer.create_topic("orders.eu", 1);
    peer.send(&sennit_protocol::Request::Publish(publish(topic, 0, 0, &["one", "two"])));
    peer.confirmed_up_to(1);
    let http = &mut Browser::of(&broker);
    assert_eq!(read(http, "orders.eu").1, "onetwo");
    peer.create_topic("wide", 2);
    assert_eq!(ask(http, "GET", "wide", "", "").status, 409);
    broker.stop();
}

#[test]
fn an_array_of_any_number_of_elements_is_one_append() {
    let (broker, _folder) = Broker::fresh();
    let http = &mut Browser::of(&broker);
    let elements: Vec<String> = (0..100_000).map(|number| number.to_string()).collect();
    let array = format!("[{}]", elements.join(","));
    let producer = "Producer-Id: p\r\nProducer-Epoch: 0\r\nProducer-Seq: 0\r\n";
    for mode in ["memory", "file-fast", "file-durable", "acid"] {
        let settings = format!("{JSON}Stream-Storage: {mode}\r\n");
        assert_eq!(ask(http, "PUT", mode, &settings, &array).status, 201, "{mode}");
        for status in [200, 204] {
            let by = format!("{JSON}{producer}");
            let appended = ask(http, "POST", mode, &by, &array);
            assert_eq!((appended.status, place(&appended)), (status, 200_000), "{mode}");
        }
        let all = ask(http, "GET", mode, "", "");
        let twice = format!("{},{}", &array[..array.len() - 1], &array[1..]);
        assert!(all.status == 200 && all.body == twice, "{mode}: {} bytes", all.body.len());
        let closed = ask(http, "POST", mode, "Stream-Closed: true\r\n", "");
        assert_eq!(place(&closed), 200_000, "{mode}");
    }
    // What is longer than an append may be is refused by the limit's name.
    let too_many = format!("[{}1]", "1,".repeat(1_200_000));
    let refused = ask(http, "PUT", "more", JSON, &too_many);
    assert_eq!(refused.status, 413);
    assert!(refused.body.contains("APPEND_BYTES_MAX"), "{}", refused.body);
    broker.stop();
}

/// The offset that a token says, without its stream.
fn place(answer: &Answer) -> u64 {
    next(answer).split_once('_').unwrap().0.parse().unwrap()
}

/// A token of the same stream that says this offset.
pub fn token_at(offset: u64, token: &str) -> String {
    format!("{offset:016}{}", &token[16..])
}

#[test]
fn a_long_body_comes_back_whole() {
    let (broker, _folder) = Broker::fresh();
    let http = &mut Browser::of(&broker);
    ask(http, "PUT", "long", TEXT, "");
    let line = "0123456789abcde\n";
    let body = line.repeat((12 << 20) / line.len());
    assert_eq!(ask(http, "POST", "long", TEXT, &body).status, 204);
    let got = ask(http, "GET", "long", "", "").body;
    assert!(got == body, "{} of {} bytes", got.len(), body.len());
    broker.stop();
}

#[test]
fn browsers_are_told_what_they_may() {
    let (broker, _folder) = Broker::fresh();
    let http = &mut Browser::of(&broker);
    let preflight = ask(http, "OPTIONS", "notes", "Origin: https://example.com\r\n", "");
    assert_eq!(preflight.status, 204);
    assert!(header(&preflight, "access-control-allow-headers").unwrap().contains("if-none-match"));
    let unknown = ask(http, "GET", "notes", "", "");
    assert_eq!(unknown.status, 404);
    assert_eq!(header(&unknown, "access-control-allow-origin"), Some("*"));
    assert_eq!(header(&unknown, "x-content-type-options"), Some("nosniff"));
    let wrong = ask(http, "PATCH", "notes", "", "");
    assert_eq!(wrong.status, 405);
    assert!(header(&wrong, "allow").unwrap().contains("GET"));
    broker.stop();
}

#[test]
fn only_new_content_of_a_producer_is_answered_200() {
    let (broker, _folder) = Broker::fresh();
    let http = &mut Browser::of(&broker);
    assert_eq!(ask(http, "PUT", "a", TEXT, "").status, 201);
    let append = |sequence: u64, more: &str| {
        format!("{TEXT}Producer-Id: p\r\nProducer-Epoch: 0\r\nProducer-Seq: {sequence}\r\n{more}")
    };
    assert_eq!(ask(http, "POST", "a", &append(0, ""), "x").status, 200);
    assert_eq!(ask(http, "POST", "a", &append(0, ""), "x").status, 204);
    assert_eq!(ask(http, "POST", "a", &append(1, "Stream-Closed: true\r\n"), "").status, 204);
    broker.stop();
}
