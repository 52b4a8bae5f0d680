//! Connections that wait for streams without a task, over real sockets: whatever happens meanwhile, each
//! hears what one with a task would.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, TcpStream},
    time::{Duration, Instant},
};

use sennit_server::Config;
use tempfile::TempDir;

use crate::{
    browser::{Answer, Browser},
    http_streams::{JSON, TEXT, ask, header, next},
    world::{Broker, LONG, SOON, config, ended},
};

/// How a reader's request begins, and how it ends.
const OLD_KEPT: &str = " HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n";
const OLD: &str = " HTTP/1.0\r\nHost: localhost\r\n\r\n";
const KEPT: &str = " HTTP/1.1\r\nHost: localhost\r\n\r\n";
const LAST: &str = " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// A broker with short silences.
fn impatient(long_poll: u64, silence: u64, span: u64) -> (Broker, TempDir) {
    let folder = TempDir::new().unwrap();
    let config = Config {
        streams_long_poll_timeout: Duration::from_millis(long_poll),
        streams_events_silence: Duration::from_millis(silence),
        streams_events_span: Duration::from_millis(span),
        ..config(folder.path())
    };
    (Broker::start(config), folder)
}

fn sum(metrics: &str, name: &str) -> u64 {
    let lines = metrics.lines().filter(|line| line.starts_with(&format!("{name}{{")));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

/// Looks until the broker counts so many connections without tasks.
pub fn until_parked(browser: &mut Browser, count: u64) {
    until_counted(browser, "sennit_http_parked", count);
}

fn until_counted(browser: &mut Browser, name: &str, count: u64) {
    let begun = Instant::now();
    loop {
        let now = sum(&browser.get("/metrics").body, name);
        if now == count {
            return;
        }
        assert!(begun.elapsed() < SOON, "{name} is {now}, not {count}");
    }
}

/// Begins to wait for what comes at the end of a stream, as `live` says; the connection is parked then.
fn waits(broker: &Broker, writer: &mut Browser, stream: &str, live: &str) -> Browser {
    let mut reader = Browser::of(broker);
    let before = sum(&writer.get("/metrics").body, "sennit_http_parked");
    reader.say(format!("GET /v1/stream/{stream}?offset=now&live={live}{KEPT}"));
    if live == "sse" {
        reader.until("\"upToDate\":true}\n\n\r\n");
    }
    until_parked(writer, before + 1);
    reader
}

#[test]
fn who_waits_gets_what_comes_and_asks_again() {
    let (broker, _folder) = Broker::fresh();
    let writer = &mut Browser::of(&broker);
    ask(writer, "PUT", "notes", TEXT, "before");
    let mut reader = waits(&broker, writer, "notes", "long-poll");
    for text in ["one", "two", "three"] {
        let appended = ask(writer, "POST", "notes", TEXT, text);
        let came = reader.hear(true);
        assert_eq!((came.status, came.body.as_str()), (200, text));
        assert_eq!(next(&came), next(&appended));
        for (name, value) in [
            ("stream-up-to-date", "true"),
            ("content-type", "text/plain"),
            ("access-control-allow-origin", "*"),
            ("x-content-type-options", "nosniff"),
        ] {
            assert_eq!(header(&came, name), Some(value), "{name}");
        }
        let cursor = header(&came, "stream-cursor").unwrap();
        let at = next(&came);
        assert_eq!(reader.get("/healthz").status, 200);
        reader
            .say(format!("GET /v1/stream/notes?offset={at}&live=long-poll&cursor={cursor}{KEPT}"));
        until_parked(writer, 1);
    }
    broker.stop();
}

#[test]
fn all_who_wait_at_one_spot_hear_the_same_each_in_its_manner() {
    let (broker, _folder) = Broker::fresh();
    let writer = &mut Browser::of(&broker);
    let end = next(&ask(writer, "PUT", "notes", JSON, "[]"));
    let manners = [KEPT, LAST, OLD, OLD_KEPT];
    let cursors = ["", "&cursor=1", "&cursor=99999999", "&cursor=99999990"];
    let mut readers = Vec::new();
    for manner in manners {
        for cursor in cursors {
            let mut reader = Browser::of(&broker);
            reader.say(format!("GET /v1/stream/notes?offset={end}&live=long-poll{cursor}{manner}"));
            readers.push((reader, manner, cursor));
        }
    }
    until_parked(writer, 16);
    ask(writer, "POST", "notes", JSON, "{\"came\":1}");
    for (mut reader, manner, cursor) in readers {
        let came = reader.hear(true);
        assert_eq!((came.status, came.body.as_str()), (200, "[{\"came\":1}]"));
        let given: u64 = header(&came, "stream-cursor").unwrap().parse().unwrap();
        let came_with: u64 = cursor.strip_prefix("&cursor=").unwrap_or("0").parse().unwrap();
        assert!(given > came_with, "{given} {cursor}");
        // Nobody is driven ahead by others.
        assert!(given < came_with.max(70_000_000) + 181, "{given} {cursor}");
        let connection = match manner {
            KEPT => None,
            OLD_KEPT => Some("keep-alive"),
            _ => Some("close"),
        };
        assert_eq!(header(&came, "connection"), connection);
        match connection {
            Some("close") => assert!(reader.is_closed()),
            _ => assert_eq!(reader.get("/healthz").status, 200),
        }
    }
    broker.stop();
}

#[test]
fn who_waits_in_vain_is_told_in_time() {
    let (broker, _folder) = impatient(400, 15_000, 60_000);
    let writer = &mut Browser::of(&broker);
    let end = next(&ask(writer, "PUT", "notes", TEXT, "there"));
    let mut reader = waits(&broker, writer, "notes", "long-poll");
    for _ in 0..2 {
        let nothing = reader.hear(false);
        assert_eq!((nothing.status, next(&nothing)), (204, end.clone()));
        assert_eq!(header(&nothing, "stream-up-to-date"), Some("true"));
        assert_eq!(header(&nothing, "cache-control"), Some("no-store"));
        assert!(header(&nothing, "stream-cursor").is_some());
        reader.say(format!("GET /v1/stream/notes?offset={end}&live=long-poll{KEPT}"));
    }
    broker.stop();
}

#[test]
fn events_come_to_who_is_parked_and_the_connection_goes_on_behind_them() {
    let (broker, _folder) = Broker::fresh();
    let writer = &mut Browser::of(&broker);
    ask(writer, "PUT", "notes", TEXT, "");
    let mut readers: Vec<Browser> =
        (0..3).map(|_| waits(&broker, writer, "notes", "sse")).collect();
    for text in ["one", "two"] {
        let end = next(&ask(writer, "POST", "notes", TEXT, text));
        for reader in &mut readers {
            let event = reader.until("\"upToDate\":true}\n\n\r\n");
            assert!(event.contains(&format!("event: data\ndata:{text}\n\n")), "{event}");
            assert!(event.contains(&format!("\"streamNextOffset\":\"{end}\"")), "{event}");
        }
    }
    until_parked(writer, 3);
    ask(writer, "POST", "notes", &format!("{TEXT}Stream-Closed: true\r\n"), "last");
    for reader in &mut readers {
        let event = reader.until("0\r\n\r\n");
        assert!(
            event.contains("data:last\n") && event.contains("\"streamClosed\":true"),
            "{event}"
        );
        assert_eq!(reader.get("/healthz").status, 200);
    }
    broker.stop();
}

#[test]
fn silence_is_broken_and_the_end_comes_in_its_time() {
    let (broker, _folder) = impatient(30_000, 200, 900);
    let writer = &mut Browser::of(&broker);
    ask(writer, "PUT", "notes", TEXT, "");
    let begun = Instant::now();
    let mut reader = waits(&broker, writer, "notes", "sse");
    let all = reader.until("0\r\n\r\n");
    let took = begun.elapsed();
    let comments = all.matches("3\r\n:\n\n\r\n").count();
    assert!((3..=4).contains(&comments), "{all:?}");
    assert!(took >= Duration::from_millis(850), "{took:?}");
    assert_eq!(reader.get("/healthz").status, 200);
    let mut old = Browser::of(&broker);
    old.say(format!("GET /v1/stream/notes?offset=now&live=sse{OLD}"));
    until_parked(writer, 1);
    old.until(":\n\n");
    old.until(":\n\n");
    assert!(!old.until_closed().contains("0\r\n"), "it has no chunks");
    broker.stop();
}

#[test]
fn a_client_that_goes_leaves_nothing_behind() {
    let (broker, _folder) = Broker::fresh();
    let writer = &mut Browser::of(&broker);
    ask(writer, "PUT", "notes", TEXT, "");
    for live in ["long-poll", "sse"] {
        let readers: Vec<Browser> = (0..3).map(|_| waits(&broker, writer, "notes", live)).collect();
        drop(readers);
        until_parked(writer, 0);
        until_counted(writer, "sennit_http_connections", 1);
    }
    // The stream goes on for who comes next.
    let mut reader = waits(&broker, writer, "notes", "long-poll");
    ask(writer, "POST", "notes", TEXT, "came");
    assert_eq!(reader.hear(true).body, "came");
    broker.stop();
}

#[test]
fn what_is_asked_meanwhile_is_answered_behind_what_was_asked_before() {
    let (broker, _folder) = Broker::fresh();
    let writer = &mut Browser::of(&broker);
    ask(writer, "PUT", "notes", TEXT, "");
    let mut reader = waits(&broker, writer, "notes", "long-poll");
    reader.say(format!("GET /healthz{KEPT}GET /nothing{KEPT}"));
    until_parked(writer, 0);
    ask(writer, "POST", "notes", TEXT, "came");
    assert_eq!(reader.hear(true).body, "came");
    assert_eq!((reader.hear(true).status, reader.hear(true).status), (200, 404));

    let mut events = waits(&broker, writer, "notes", "sse");
    events.say(format!("GET /healthz{KEPT}"));
    until_parked(writer, 0);
    ask(writer, "POST", "notes", &format!("{TEXT}Stream-Closed: true\r\n"), "last");
    assert!(events.until("0\r\n\r\n").contains("data:last\n"));
    assert_eq!(events.hear(true).status, 200);
    broker.stop();
}

#[test]
fn a_client_that_sends_no_more_gets_an_answer_that_comes_at_once_and_no_later_one() {
    let (broker, _folder) = Broker::fresh();
    let writer = &mut Browser::of(&broker);
    ask(writer, "PUT", "notes", TEXT, "");
    let mut reader = waits(&broker, writer, "notes", "long-poll");
    reader.send_no_more();
    ask(writer, "POST", "notes", TEXT, "came");
    assert_eq!(reader.hear(true).body, "came");
    assert!(reader.is_closed());
    for live in ["long-poll", "sse"] {
        let mut reader = waits(&broker, writer, "notes", live);
        reader.send_no_more();
        assert!(reader.is_closed(), "{live}");
    }
    until_parked(writer, 0);
    broker.stop();
}

#[test]
fn who_reads_slowly_gets_all_of_it() {
    let (broker, _folder) = Broker::fresh();
    let writer = &mut Browser::of(&broker);
    ask(writer, "PUT", "notes", TEXT, "");
    let mut poll = waits(&broker, writer, "notes", "long-poll");
    let mut events = waits(&broker, writer, "notes", "sse");
    let piece = |n: usize| format!("{n:07}\n").repeat((3 << 20) / 8);
    for n in 0..5 {
        // More than the sockets hold.
        assert_eq!(ask(writer, "POST", "notes", TEXT, &piece(n)).status, 204);
    }
    let came = poll.hear(true);
    assert_eq!((came.status, came.body), (200, piece(0)));
    let mut lines = 0;
    for n in 0..5 {
        let event = events.until("event: control\n");
        assert_eq!(event.matches(&format!("data:{n:07}\n")).count(), (3 << 20) / 8, "{n}");
        lines += event.matches("\ndata:").count();
    }
    assert!(lines >= 5 * (3 << 20) / 8);
    assert_eq!(poll.get("/healthz").status, 200);
    broker.stop();
}

#[test]
fn who_waits_when_the_broker_stops_is_told() {
    let (broker, _folder) = Broker::fresh();
    let writer = &mut Browser::of(&broker);
    let end = next(&ask(writer, "PUT", "notes", TEXT, "there"));
    let mut poll = waits(&broker, writer, "notes", "long-poll");
    let mut events = waits(&broker, writer, "notes", "sse");
    let mut at_rest = waits(&broker, writer, "notes", "long-poll");
    at_rest.say(format!("GET /healthz{KEPT}"));
    let stopping = broker.begin_to_stop();
    let nothing = poll.hear(false);
    assert_eq!((nothing.status, next(&nothing)), (204, end));
    assert_eq!(header(&nothing, "connection"), Some("close"));
    assert!(poll.is_closed());
    assert_eq!(events.until("0\r\n\r\n"), "0\r\n\r\n");
    assert!(events.is_closed());
    assert_eq!(at_rest.hear(false).status, 204);
    ended(stopping);
}

#[test]
fn who_waits_for_what_is_deleted_is_told_as_anybody_who_asks() {
    let (broker, _folder) = Broker::fresh();
    let writer = &mut Browser::of(&broker);
    ask(writer, "PUT", "notes", TEXT, "");
    let mut polls: Vec<Browser> =
        (0..3).map(|_| waits(&broker, writer, "notes", "long-poll")).collect();
    let mut events = waits(&broker, writer, "notes", "sse");
    assert_eq!(ask(writer, "DELETE", "notes", "", "").status, 204);
    for poll in &mut polls {
        let gone: Answer = poll.hear(true);
        assert_eq!(gone.status, 404);
        assert!(gone.body.contains("\"unknown_stream\""), "{}", gone.body);
        assert_eq!(poll.get("/healthz").status, 200);
    }
    assert_eq!(events.until("0\r\n\r\n"), "0\r\n\r\n");
    assert_eq!(events.get("/healthz").status, 200);
    broker.stop();
}

#[test]
fn who_waits_at_the_end_of_a_stream_that_is_closed_is_told_so() {
    let (broker, _folder) = Broker::fresh();
    let writer = &mut Browser::of(&broker);
    ask(writer, "PUT", "notes", TEXT, "");
    let mut poll = waits(&broker, writer, "notes", "long-poll");
    ask(writer, "POST", "notes", "Stream-Closed: true\r\n", "");
    let closed = poll.hear(false);
    assert_eq!((closed.status, header(&closed, "stream-closed")), (204, Some("true")));
    broker.stop();
}

#[test]
fn who_waits_keeps_a_stream_alive() {
    let (broker, _folder) = impatient(30_000, 300, 5_000);
    let writer = &mut Browser::of(&broker);
    ask(writer, "PUT", "notes", &format!("{TEXT}Stream-TTL: 1\r\n"), "");
    let mut events = waits(&broker, writer, "notes", "sse");
    for _ in 0..7 {
        events.until(":\n\n");
    }
    assert_eq!(ask(writer, "HEAD", "notes", "", "").status, 200);
    drop(events);
    broker.stop();
}

#[test]
fn a_fork_is_waited_for_as_any_stream() {
    let (broker, _folder) = Broker::fresh();
    let writer = &mut Browser::of(&broker);
    ask(writer, "PUT", "notes", TEXT, "source ");
    let fork = "Stream-Forked-From: /v1/stream/notes\r\n";
    assert_eq!(ask(writer, "PUT", "fork", fork, "").status, 201);
    let mut poll = waits(&broker, writer, "fork", "long-poll");
    ask(writer, "POST", "notes", TEXT, "elsewhere");
    ask(writer, "POST", "fork", TEXT, "here");
    assert_eq!(poll.hear(true).body, "here");
    broker.stop();
}

/// Numbers that look random, from a seed that a failure tells.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

/// A reader of events, on a connection of its own.
struct Events {
    stream: TcpStream,
    /// What has come of an event that is not whole.
    raw: String,
    /// What came of the event whose control event is next.
    fresh: String,
}

impl Events {
    /// Reads for a moment: what has come goes to `text`, and where to go on to `at`.
    fn read(&mut self, moment: Duration, at: &mut String, text: &mut String) {
        let begun = Instant::now();
        self.stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        while begun.elapsed() < moment {
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => break,
                Ok(count) => self.raw.push_str(str::from_utf8(&bytes[..count]).unwrap()),
                Err(_) => {}
            }
        }
        while let Some(end) = self.raw.find("\n\n") {
            let event: String = self.raw.drain(..end + 2).collect();
            for line in event.lines() {
                if let Some(number) = line.strip_prefix("data:n") {
                    self.fresh.push_str(&format!("n{number}\n"));
                } else if let Some(rest) = line.strip_prefix("data:{\"streamNextOffset\":\"") {
                    *at = rest.split('"').next().unwrap().to_owned();
                    text.push_str(&std::mem::take(&mut self.fresh));
                }
            }
        }
    }
}

#[test]
fn nothing_is_missed_or_doubled_whenever_one_parks_and_comes_back() {
    let seed = std::env::var("SENNIT_SEED").map_or(0x5eed_1e55, |seed| seed.parse().unwrap());
    eprintln!("SENNIT_SEED={seed}");
    let (broker, _folder) = impatient(130, 70, 500);
    let address = broker.addresses.http;
    let mut writer = Browser::of(&broker);
    let first = next(&ask(&mut writer, "PUT", "numbers", TEXT, ""));
    let (count, begun) = (300, Instant::now());
    let has_all = |text: &str| text.ends_with(&format!("n{}\n", count - 1));
    std::thread::scope(|scope| {
        let mut readers = Vec::new();
        for number in 0..4 {
            let (at, broker) = (first.clone(), &broker);
            readers.push(scope.spawn(move || {
                let mut dice = Dice(seed + 7 * number + 1);
                let (mut at, mut text) = (at, String::new());
                let mut http = Browser::of(broker);
                while !has_all(&text) {
                    assert!(begun.elapsed() < LONG, "reader {number} misses something: {text}");
                    http.say(format!("GET /v1/stream/numbers?offset={at}&live=long-poll{KEPT}"));
                    match dice.below(8) {
                        // Goes away while it waits.
                        0 => {
                            std::thread::sleep(Duration::from_millis(dice.below(120)));
                            http = Browser::of(broker);
                            continue;
                        }
                        // Says more while it waits.
                        1 => {
                            std::thread::sleep(Duration::from_millis(dice.below(120)));
                            http.say(format!("GET /healthz{KEPT}"));
                            let came = http.hear(true);
                            (at, text) = (next(&came), text + &came.body);
                            assert_eq!(http.hear(true).status, 200);
                        }
                        _ => {
                            let came = http.hear(true);
                            (at, text) = (next(&came), text + &came.body);
                        }
                    }
                }
                text
            }));
            let at = first.clone();
            readers.push(scope.spawn(move || {
                let mut dice = Dice(seed + 7 * number + 2);
                let (mut at, mut text) = (at, String::new());
                while !has_all(&text) {
                    assert!(begun.elapsed() < LONG, "reader {number} misses something: {text}");
                    let mut stream = TcpStream::connect(address).unwrap();
                    let asked = format!("GET /v1/stream/numbers?offset={at}&live=sse{KEPT}");
                    stream.write_all(asked.as_bytes()).unwrap();
                    if dice.below(4) == 0 {
                        stream.shutdown(Shutdown::Write).unwrap();
                    }
                    let mut events = Events { stream, raw: String::new(), fresh: String::new() };
                    for _ in 0..dice.below(4) + 1 {
                        let moment = Duration::from_millis(dice.below(150) + 1);
                        events.read(moment, &mut at, &mut text);
                    }
                }
                text
            }));
        }
        let mut dice = Dice(seed);
        for n in 0..count {
            let pause = if dice.below(10) == 0 { 150 } else { dice.below(12) };
            std::thread::sleep(Duration::from_millis(pause));
            assert_eq!(ask(&mut writer, "POST", "numbers", TEXT, &format!("n{n}\n")).status, 204);
        }
        let all: String = (0..count).map(|n| format!("n{n}\n")).collect();
        for (number, reader) in readers.into_iter().enumerate() {
            assert_eq!(reader.join().unwrap(), all, "reader {number}, SENNIT_SEED={seed}");
        }
    });
    broker.stop();
}
