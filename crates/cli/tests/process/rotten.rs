//! HTTP streams on a disk with a changed byte: damaged content is refused with a named error, never returned, and
//! everything else continues.

use std::{
    fs::{self, OpenOptions},
    io::{Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::{
    asking::{self, Answer},
    broker::{Broker, is_one_node},
};

/// Why damage is not told on several nodes as here.
const SEVERAL_NODES: &str = "a damaged lane is put in quarantine, as `cluster_rot` has it";

const TEXT: (&str, &str) = ("content-type", "text/plain");

fn asked(
    broker: &Broker,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    asking::ask(&broker.http, method, path, headers, body).expect("a broker that runs answers")
}

fn next(answer: &Answer) -> String {
    answer.header("stream-next-offset").expect("it says where to go on").to_owned()
}

/// Turns one byte over in the middle of `text`, wherever in `folder` that lies.
pub fn turn_over(folder: &Path, text: &str) {
    let mut folders: Vec<PathBuf> = vec![folder.to_owned()];
    let mut turned = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let mut file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).unwrap();
            let found = bytes.windows(text.len()).position(|window| window == text.as_bytes());
            if let Some(at) = found {
                let at = at + text.len() / 2;
                file.seek(SeekFrom::Start(at as u64)).unwrap();
                file.write_all(&[bytes[at] ^ 1]).unwrap();
                file.sync_all().unwrap();
                turned += 1;
            }
        }
    }
    assert_eq!(turned, 1, "{text:?} lies in one place");
}

/// Three messages, each in a request of its own; says where the second lies.
fn written(broker: &Broker, path: &str, mode: &str) -> String {
    let created = asked(broker, "PUT", path, &[TEXT, ("stream-storage", mode)], "");
    assert_eq!(created.status, 201, "{}", created.head);
    let mut second = String::new();
    for number in 0..3 {
        let appended = asked(broker, "POST", path, &[TEXT], &message(path, number));
        assert_eq!(appended.status, 204, "{}", appended.head);
        if number == 0 {
            second = next(&appended);
        }
    }
    second
}

fn message(path: &str, number: u32) -> String {
    format!("<{path} has written message {number} and nobody else>")
}

/// The second message is refused by name, and what lies around it is there.
fn refuses_the_second(broker: &Broker, path: &str, second: &str) {
    let first = asked(broker, "GET", path, &[], "");
    assert_eq!((first.status, &first.body[..]), (200, message(path, 0).as_bytes()));
    assert_eq!((next(&first).as_str(), first.header("stream-up-to-date")), (second, None));
    let mut behind = String::new();
    for live in ["", "&live=long-poll", "&live=sse"] {
        let damaged = asked(broker, "GET", &format!("{path}?offset={second}{live}"), &[], "");
        assert_eq!(damaged.status, 500, "{live}: {}", damaged.head);
        assert_eq!(damaged.header("content-type"), Some("application/problem+json"));
        assert_eq!(damaged.header("cache-control"), Some("no-store"));
        let problem: Value = serde_json::from_slice(&damaged.body).unwrap();
        assert_eq!((&problem["status"], &problem["code"]), (&500.into(), &"damaged".into()));
        behind = next(&damaged);
    }
    let rest = asked(broker, "GET", &format!("{path}?offset={behind}"), &[], "");
    assert_eq!((rest.status, &rest.body[..]), (200, message(path, 2).as_bytes()));
    let more = asked(broker, "POST", path, &[TEXT], "more");
    assert_eq!(more.status, 204, "{}", more.head);
    assert_eq!(read_on(broker, path, next(&rest)), "more");
}

/// What lies from there on. Behind damage of the journal more may be missing than is: that is told too.
fn read_on(broker: &Broker, path: &str, mut at: String) -> String {
    let mut text = String::new();
    loop {
        let answer = asked(broker, "GET", &format!("{path}?offset={at}"), &[], "");
        match answer.status {
            200 => text += std::str::from_utf8(&answer.body).unwrap(),
            status => assert_eq!(status, 500, "{}", answer.head),
        }
        at = next(&answer);
        if answer.header("stream-up-to-date").is_some() {
            return text;
        }
    }
}

fn is_whole(broker: &Broker, path: &str) {
    let all: String = (0..3).map(|number| message(path, number)).collect();
    assert_eq!(read_on(broker, path, "-1".into()), all);
    let more = asked(broker, "POST", path, &[TEXT], "more");
    assert_eq!(more.status, 204, "{}", more.head);
    assert_eq!(read_on(broker, path, "-1".into()), all + "more");
}

#[test]
fn what_a_disk_has_turned_over_while_the_broker_was_stopped_is_refused_and_never_given() {
    if !is_one_node(SEVERAL_NODES) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut broker = Broker::start_with(folder.path(), &["--shards", "1"]);
    written(&broker, "spared", "acid");
    let modes = ["acid", "file-durable"];
    let seconds = modes.map(|mode| written(&broker, mode, mode));
    assert_eq!(broker.terminate(), Some(0));
    for path in modes {
        turn_over(folder.path(), &message(path, 1));
    }
    broker.start_again();
    for (path, second) in modes.iter().zip(&seconds) {
        refuses_the_second(&broker, path, second);
    }
    is_whole(&broker, "spared");
}

#[test]
fn what_a_disk_turns_over_while_the_broker_runs_is_refused_and_never_given() {
    if !is_one_node(SEVERAL_NODES) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start_with(folder.path(), &["--shards", "1"]);
    let second = written(&broker, "acid", "acid");
    written(&broker, "spared", "acid");
    turn_over(folder.path(), &message("acid", 1));
    // What was written last is in memory; so much behind it is not any more.
    asked(&broker, "PUT", "others", &[TEXT], "");
    let large = "x".repeat(12 << 20);
    for _ in 0..4 {
        assert_eq!(asked(&broker, "POST", "others", &[TEXT], &large).status, 204);
    }
    refuses_the_second(&broker, "acid", &second);
    is_whole(&broker, "spared");
}

/// Bytes of each piece of a long stream.
const PIECE: usize = 256 << 10;

/// A piece that says which it is, and is as long as all are.
fn piece(path: &str, number: u32) -> String {
    let mut text = message(path, number);
    text += &"x".repeat(PIECE - text.len());
    text
}

#[test]
fn damage_behind_what_an_answer_has_begun_with_breaks_it_off_and_the_next_ends_before_it() {
    if !is_one_node(SEVERAL_NODES) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start_with(folder.path(), &["--shards", "2"]);
    let pieces: Vec<String> = (0..48).map(|number| piece("long", number)).collect();
    asked(&broker, "PUT", "long", &[TEXT, ("stream-storage", "acid")], "");
    let ends: Vec<String> =
        pieces.iter().map(|piece| next(&asked(&broker, "POST", "long", &[TEXT], piece))).collect();
    // An answer begins when two pages of 4 MiB are read.
    turn_over(folder.path(), &message("long", 36));
    // What was written last is in memory; so much behind it, on either core, is not any more.
    let large = "x".repeat(12 << 20);
    for others in ["one", "two"] {
        asked(&broker, "PUT", others, &[TEXT], "");
        for _ in 0..4 {
            assert_eq!(asked(&broker, "POST", others, &[TEXT], &large).status, 204);
        }
    }
    let before: String = pieces[..36].concat();
    let broken = asking::read_broken(&broker.http, "long").expect("the answer breaks off");
    assert_eq!((broken.status, next(&broken)), (200, ends[47].clone()));
    assert!(before.as_bytes().starts_with(&broken.body) && broken.body.len() >= 8 << 20);
    // Connections are handed round the cores: both know by now.
    for _ in 0..4 {
        let answer = asked(&broker, "GET", "long", &[], "");
        assert_eq!((answer.status, next(&answer)), (200, ends[35].clone()));
        assert_eq!(answer.header("stream-up-to-date"), None);
        assert!(answer.body == before.as_bytes(), "{} bytes", answer.body.len());
    }
    let damaged = asked(&broker, "GET", &format!("long?offset={}", ends[35]), &[], "");
    assert_eq!((damaged.status, next(&damaged)), (500, ends[36].clone()));
    let problem: Value = serde_json::from_slice(&damaged.body).unwrap();
    assert_eq!(problem["code"], "damaged");
    let rest = asked(&broker, "GET", &format!("long?offset={}", ends[36]), &[], "");
    assert_eq!((rest.status, rest.header("stream-up-to-date")), (200, Some("true")));
    assert!(rest.body == pieces[37..].concat().as_bytes());
}
