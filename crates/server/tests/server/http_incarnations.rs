//! A stream that is deleted and created anew is another one: whoever holds an offset of the first is told
//! that it is gone, however it is asked with, and never that nothing has come.

use std::time::Duration;

use sennit_server::Config;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    browser::{Answer, Browser},
    http_parked::until_parked,
    http_streams::{TEXT, ask, header, next, token_at},
    world::{Broker, config},
};

/// A broker, and the end of a stream of three messages that is deleted; one of two has its name now.
fn twice() -> (Broker, TempDir, String) {
    let (broker, folder) = Broker::fresh();
    let http = &mut Browser::of(&broker);
    ask(http, "PUT", "notes", TEXT, "");
    for text in ["a", "b", "c"] {
        ask(http, "POST", "notes", TEXT, text);
    }
    let old = next(&ask(http, "HEAD", "notes", "", ""));
    assert_eq!(ask(http, "DELETE", "notes", "", "").status, 204);
    assert_eq!(ask(http, "PUT", "notes", TEXT, "").status, 201);
    for text in ["x", "y"] {
        ask(http, "POST", "notes", TEXT, text);
    }
    (broker, folder, old)
}

fn is_of_another(answer: &Answer, what: &str) {
    assert_eq!(answer.status, 410, "{what}: {} {}", answer.head, answer.body);
    assert!(answer.body.contains("offset_of_other_stream"), "{what}: {}", answer.body);
    assert_eq!(header(answer, "stream-next-offset"), None, "{what}");
    assert_eq!(header(answer, "stream-up-to-date"), None, "{what}");
    assert_eq!(header(answer, "cache-control"), Some("no-store"), "{what}");
}

#[test]
fn an_offset_of_a_stream_that_had_the_name_before_is_gone() {
    let (broker, _folder, old) = twice();
    // On connections of both cores, of which one has learnt the name and the other has not.
    for _ in 0..2 {
        let http = &mut Browser::of(&broker);
        for at in 0..=3 {
            let old = token_at(at, &old);
            for live in ["", "&live=long-poll", "&live=sse"] {
                let answer = ask(http, "GET", &format!("notes?offset={old}{live}"), "", "");
                is_of_another(&answer, &format!("{old}{live}"));
            }
            // A browser that comes again by itself asks as it did first.
            let last = format!("Last-Event-ID: {old}\r\n");
            let answer = ask(http, "GET", "notes?offset=-1&live=sse", &last, "");
            is_of_another(&answer, "Last-Event-ID");
            let fork =
                format!("Stream-Forked-From: /v1/stream/notes\r\nStream-Fork-Offset: {old}\r\n");
            is_of_another(&ask(http, "PUT", "fork", &fork, ""), "a fork");
        }
        assert_eq!(ask(http, "GET", "fork", "", "").status, 404, "nothing is left of it");
        let all = ask(http, "GET", "notes", "", "");
        assert_eq!(all.body, "xy");
        let rest = ask(http, "GET", &format!("notes?offset={}", token_at(1, &next(&all))), "", "");
        assert_eq!(rest.body, "y", "its own offsets are as they were");
    }
    broker.stop();
}

#[test]
fn every_answer_says_offsets_of_the_stream_that_is_there() {
    let (broker, _folder, old) = twice();
    let http = &mut Browser::of(&broker);
    let tag = |token: &str| token.split_once('_').unwrap().1.to_owned();
    let head = ask(http, "HEAD", "notes", "", "");
    let new = tag(&next(&head));
    assert_ne!(new, tag(&old));
    assert!(new.len() == 16 && new.ends_with("0000"), "{new}");
    let events = {
        let reader = &mut Browser::of(&broker);
        reader.say("GET /v1/stream/notes?offset=-1&live=sse HTTP/1.1\r\nHost: localhost\r\n\r\n");
        reader.until("\"upToDate\":true}\n\n")
    };
    assert!(events.contains(&format!("id: {}\n", next(&head))), "{events}");
    assert!(events.contains(&format!("\"streamNextOffset\":\"{}\"", next(&head))), "{events}");
    let closes = "Stream-Closed: true\r\n";
    for answer in [
        ask(http, "PUT", "notes", TEXT, ""),
        ask(http, "GET", "notes?offset=now", "", ""),
        ask(http, "GET", "notes?offset=-1&live=long-poll", "", ""),
        ask(http, "POST", "notes", TEXT, "z"),
        ask(http, "POST", "notes", closes, ""),
        ask(http, "POST", "notes", TEXT, "behind the end"),
        ask(http, "GET", "notes", "", ""),
    ] {
        assert_eq!(tag(&next(&answer)), new, "{}", answer.head);
    }
    broker.stop();
}

#[test]
fn a_tag_of_a_stream_that_had_the_name_before_is_not_known() {
    let (broker, _folder) = Broker::fresh();
    let http = &mut Browser::of(&broker);
    let mut tags = Vec::new();
    for _ in 0..2 {
        ask(http, "PUT", "notes", TEXT, "same");
        let all = ask(http, "GET", "notes", "", "");
        tags.push(header(&all, "etag").unwrap().to_owned());
        ask(http, "DELETE", "notes", "", "");
    }
    assert_ne!(tags[0], tags[1]);
    ask(http, "PUT", "notes", TEXT, "same");
    let known = format!("If-None-Match: {}, {}\r\n", tags[0], tags[1]);
    assert_eq!(ask(http, "GET", "notes", &known, "").status, 200);
    broker.stop();
}

#[test]
fn a_broker_that_begins_anew_knows_no_offset_of_its_life_before() {
    let tokens: Vec<_> = (0..2)
        .map(|_| {
            let (broker, _folder) = Broker::fresh();
            let http = &mut Browser::of(&broker);
            let created = ask(http, "PUT", "notes", TEXT, "first");
            broker.stop();
            next(&created)
        })
        .collect();
    let (broker, _folder) = Broker::fresh();
    let http = &mut Browser::of(&broker);
    ask(http, "PUT", "notes", TEXT, "first");
    for token in &tokens {
        is_of_another(&ask(http, "GET", &format!("notes?offset={token}"), "", ""), token);
    }
    broker.stop();
}

#[test]
fn offsets_stay_what_they_are_while_the_stream_is_there() {
    let folder = TempDir::new().unwrap();
    let mut end = String::new();
    for start in 0..3 {
        let broker = Broker::start(config(folder.path()));
        let http = &mut Browser::of(&broker);
        if start == 0 {
            end = next(&ask(http, "PUT", "notes", TEXT, "first"));
        }
        let answer = ask(http, "GET", &format!("notes?offset={end}"), "", "");
        assert_eq!((answer.status, next(&answer)), (200, end.clone()), "start {start}");
        broker.stop();
    }
}

#[test]
fn who_waits_for_a_stream_is_not_given_what_comes_to_the_next_of_its_name() {
    let folder = TempDir::new().unwrap();
    let long_poll = Duration::from_secs(60);
    let broker =
        Broker::start(Config { streams_long_poll_timeout: long_poll, ..config(folder.path()) });
    let http = &mut Browser::of(&broker);
    let end = next(&ask(http, "PUT", "notes", TEXT, "abc"));
    let mut waiting: Vec<_> = [end.as_str(), "now"]
        .map(|at| {
            let mut reader = Browser::of(&broker);
            reader.say(format!(
                "GET /v1/stream/notes?offset={at}&live=long-poll HTTP/1.1\r\nHost: localhost\r\n\r\n"
            ));
            reader
        })
        .into();
    until_parked(http, 2);
    assert_eq!(ask(http, "DELETE", "notes", "", "").status, 204);
    ask(http, "PUT", "notes", TEXT, "of the next");
    for reader in &mut waiting {
        let answer = reader.hear(true);
        assert!(matches!(answer.status, 404 | 410), "{} {}", answer.head, answer.body);
    }
    broker.stop();
}

#[test]
fn an_offset_beyond_the_end_is_gone_and_the_end_is_said() {
    let (broker, _folder) = Broker::fresh();
    let http = &mut Browser::of(&broker);
    for mode in ["memory", "file-fast", "file-durable", "acid"] {
        let settings = format!("{TEXT}Stream-Storage: {mode}\r\n");
        let end = next(&ask(http, "PUT", mode, &settings, "first"));
        for live in ["", "&live=long-poll", "&live=sse"] {
            let beyond = token_at(2, &end);
            let answer = ask(http, "GET", &format!("{mode}?offset={beyond}{live}"), "", "");
            assert_eq!(answer.status, 410, "{mode}{live}: {}", answer.head);
            assert!(answer.body.contains("offset_beyond_end"), "{}", answer.body);
            assert_eq!(next(&answer), end, "{mode}{live}");
        }
        // What clients count there is of no account.
        let (at, tag) = end.split_once('_').unwrap();
        let counted = format!("{at}_{:016}", tag.parse::<u64>().unwrap() + 1);
        let answer = ask(http, "GET", &format!("{mode}?offset={counted}"), "", "");
        assert_eq!((answer.status, next(&answer)), (200, end), "{mode}");
    }
    broker.stop();
}

#[test]
fn a_fork_takes_offsets_of_its_sources_up_to_where_it_begins() {
    let (broker, _folder) = Broker::fresh();
    let http = &mut Browser::of(&broker);
    let of = |source: &str, at: &str| {
        format!("{TEXT}Stream-Forked-From: /v1/stream/{source}\r\nStream-Fork-Offset: {at}\r\n")
    };
    ask(http, "PUT", "root", TEXT, "");
    for text in ["a", "b", "c", "d"] {
        ask(http, "POST", "root", TEXT, text);
    }
    let root = next(&ask(http, "HEAD", "root", "", ""));
    assert_eq!(ask(http, "PUT", "first", &of("root", &token_at(3, &root)), "").status, 201);
    ask(http, "POST", "first", TEXT, "x");
    // By an offset of the root, which lies in what the first has of it.
    assert_eq!(ask(http, "PUT", "second", &of("first", &token_at(2, &root)), "").status, 201);
    ask(http, "POST", "second", TEXT, "y");
    ask(http, "DELETE", "first", "", "");
    for (fork, at, expected) in
        [("second", 0, Some("aby")), ("second", 2, Some("y")), ("second", 3, None)]
    {
        let answer = ask(http, "GET", &format!("{fork}?offset={}", token_at(at, &root)), "", "");
        match expected {
            Some(body) => assert_eq!((answer.status, answer.body.as_str()), (200, body), "{at}"),
            None => is_of_another(&answer, "what lies behind where it begins"),
        }
    }
    // Its own are none of its source's.
    let own = next(&ask(http, "HEAD", "second", "", ""));
    is_of_another(&ask(http, "GET", &format!("root?offset={own}"), "", ""), "a fork's");
    // A fork that is made anew at the same place is another one.
    ask(http, "DELETE", "second", "", "");
    assert_eq!(ask(http, "PUT", "second", &of("root", &token_at(2, &root)), "").status, 201);
    ask(http, "POST", "second", TEXT, "z");
    is_of_another(&ask(http, "GET", &format!("second?offset={own}"), "", ""), "the fork before");
    broker.stop();
}

#[test]
fn who_acks_what_was_done_of_the_stream_before_has_done_nothing_of_this_one() {
    let (broker, _folder) = Broker::fresh();
    let http = &mut Browser::of(&broker);
    let json = "Content-Type: application/json\r\n";
    ask(http, "PUT", "wake", json, "[]");
    let subscribes = json!({ "type": "pull-wake", "wake_stream": "wake", "pattern": "jobs/*" });
    let created = ask(http, "PUT", "__ds/subscriptions/s", json, &subscribes.to_string());
    assert_eq!(created.status, 201, "{}", created.body);
    ask(http, "PUT", "jobs/a", json, "[1,2,3]");
    let claimed = ask(http, "POST", "__ds/subscriptions/s/claim", json, r#"{"worker":"one"}"#);
    let claimed: Value = serde_json::from_str(&claimed.body).unwrap();
    let done = claimed["streams"][0]["tail_offset"].clone();
    ask(http, "DELETE", "jobs/a", "", "");
    ask(http, "PUT", "jobs/a", json, "[4,5,6,7]");
    let ack = json!({
        "wake_id": claimed["wake_id"], "generation": claimed["generation"],
        "acks": [{ "stream": "jobs/a", "offset": done }],
    });
    let token = format!("Authorization: Bearer {}\r\n", claimed["token"].as_str().unwrap());
    let acked = ask(http, "POST", "__ds/subscriptions/s/ack", &token, &ack.to_string());
    assert_eq!(acked.status, 200, "{}", acked.body);
    let told = ask(http, "GET", "__ds/subscriptions/s", "", "");
    let told: Value = serde_json::from_str(&told.body).unwrap();
    let link = &told["streams"][0];
    assert!(link["acked_offset"].as_str().unwrap().starts_with("0000000000000000_"), "{told}");
    assert_eq!(link["has_pending"], true, "{told}");
    broker.stop();
}
