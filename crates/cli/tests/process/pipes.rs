//! Messages that are printed into a pipe count once the reader has taken them: unread ones return to the group, and
//! a cursor stays before them.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, Command, Stdio},
};

use serde_json::Value;

use crate::{
    bounds::{Watch, until},
    broker::Broker,
};

fn numbers(count: u32) -> Vec<u8> {
    (0..count).flat_map(|number| format!("line {number}\n").into_bytes()).collect()
}

/// A broker with a topic `many` that holds so many lines.
fn broker(data: &std::path::Path, lines: u32) -> Broker {
    let broker = Broker::start(data);
    broker.ok(&["publish", "many", "--create"], &numbers(lines));
    broker
}

fn spawned(broker: &Broker, arguments: &[&str]) -> Child {
    broker.command(arguments).stdout(Stdio::piped()).spawn().unwrap()
}

/// What `head -N` prints of a verb, and how the verb ends.
fn into_head(broker: &Broker, arguments: &[&str], lines: &str) -> (String, Option<i32>) {
    let mut verb = spawned(broker, arguments);
    let stdout = verb.stdout.take().unwrap();
    let head = Command::new("head").args(["-n", lines]).stdin(stdout).output().unwrap();
    (String::from_utf8(head.stdout).unwrap(), verb.wait().unwrap().code())
}

/// How many messages the group `default` has ready and leased.
fn counts(broker: &Broker) -> (u64, u64) {
    let said = broker.ok(&["group", "describe", "many", "default", "--json"], b"");
    let group: Value = serde_json::from_slice(&said).unwrap();
    (group["ready"].as_u64().unwrap(), group["leased"].as_u64().unwrap())
}

fn cursor(broker: &Broker) -> String {
    String::from_utf8(broker.ok(&["cursor", "list", "many"], b"")).unwrap()
}

#[test]
fn a_consumer_into_head_takes_one_message_and_hands_the_rest_back() {
    let folder = tempfile::tempdir().unwrap();
    let broker = broker(folder.path(), 10_000);
    for (number, json) in [&[][..], &["--json"], &["--follow"]].into_iter().enumerate() {
        let verb = [&["consume", "many"], json].concat();
        let (printed, code) = into_head(&broker, &verb, "1");
        assert!(printed.contains(&format!("line {number}")), "{printed}");
        assert_eq!(code, Some(0));
        assert_eq!(counts(&broker), (9_999 - number as u64, 0));
    }
}

#[test]
fn a_consumer_into_head_takes_no_more_than_twice_what_head_prints() {
    let folder = tempfile::tempdir().unwrap();
    let broker = broker(folder.path(), 10_000);
    assert_eq!(into_head(&broker, &["consume", "many"], "100").1, Some(0));
    let (ready, leased) = counts(&broker);
    assert!((9_800..=9_900).contains(&ready) && leased == 0, "{ready} ready, {leased} leased");
}

#[test]
fn messages_that_lie_in_a_pipe_are_not_acked() {
    let folder = tempfile::tempdir().unwrap();
    let broker = broker(folder.path(), 1000);
    let mut verb = spawned(&broker, &["consume", "many", "--follow"]);
    let mut reader = verb.stdout.take().unwrap();
    // As a shell reads a line.
    let mut line = [0; b"line 0\n".len()];
    for _ in 0..10 {
        reader.read_exact(&mut line).unwrap();
    }
    drop(reader);
    assert_eq!(verb.wait().unwrap().code(), Some(0));
    assert_eq!(counts(&broker), (990, 0));
    assert!(broker.ok(&["consume", "many", "--count", "1"], b"") == b"line 10\n");
}

#[test]
fn the_lease_of_a_message_whose_reader_is_slow_does_not_end() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["topic", "create", "many"], b"");
    broker.ok(&["group", "create", "many", "quick", "--lease", "200ms"], b"");
    broker.ok(&["publish", "many", "one"], b"");
    let consume = ["consume", "many", "--group", "quick", "--json"];
    let mut verb = spawned(&broker, &[&consume[..], &["--follow"]].concat());
    let pipe = verb.stdout.take().unwrap();
    until("something is printed", || unread_bytes(&pipe) > 0);
    // A message that is published with a delay of several leases is the clock: it comes to another.
    broker.ok(&["publish", "many", "two", "--delay", "1s"], b"");
    let other = broker.ok(&[&consume[..], &["--follow", "--count", "1"]].concat(), b"");
    let other: Value = serde_json::from_slice(&other).unwrap();
    assert_eq!((&other["payload"], &other["attempt"]), (&"two".into(), &1.into()));
    let mut line = String::new();
    BufReader::new(pipe).read_line(&mut line).unwrap();
    assert!(line.contains("\"one\""), "{line}");
    assert!(verb.wait().unwrap().success());
}

#[test]
fn a_verb_that_waits_for_more_ends_when_its_reader_has_left() {
    let folder = tempfile::tempdir().unwrap();
    let broker = broker(folder.path(), 1);
    broker.ok(&["stream", "create", "notes", "--content-type", "text/plain"], b"");
    broker.ok(&["stream", "append", "notes"], b"line 0\n");
    for verb in [
        &["read", "many", "--follow"][..],
        &["read", ">", "--follow"],
        &["read", "many", "--follow", "--cursor", "audit"],
        &["stream", "tail", "notes"],
        &["consume", "many", "--follow", "--no-ack"],
        &["consume", "many", "--follow"],
    ] {
        let mut child = spawned(&broker, verb);
        let mut reader = child.stdout.take().unwrap();
        reader.read_exact(&mut [0; b"line 0\n".len()]).unwrap();
        drop(reader);
        until(&format!("the end of {verb:?}"), || child.try_wait().unwrap().is_some());
        assert_eq!(child.wait().unwrap().code(), Some(0), "{verb:?}");
    }
    assert_eq!(counts(&broker), (0, 0));
    assert_eq!(cursor(&broker), "audit\t0\t1\n");
}

#[test]
fn a_cursor_stays_before_what_lies_in_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let broker = broker(folder.path(), 10_000);
    for end in ["1", "2"] {
        let (_, code) = into_head(&broker, &["read", "many", "--cursor", "audit"], "1");
        assert_eq!(code, Some(0));
        assert_eq!(cursor(&broker), format!("audit\t0\t{end}\n"));
    }
    let (printed, _) = into_head(&broker, &["read", ">", "--cursor", "audit"], "1");
    assert_eq!((printed.as_str(), cursor(&broker).as_str()), ("line 2\n", "audit\t0\t3\n"));
}

#[test]
fn a_signal_ends_a_verb_whose_output_nobody_reads_and_settles_nothing_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let broker = broker(folder.path(), 10);
    for (verb, signal) in [
        (&["consume", "many", "--follow"][..], "-INT"),
        (&["consume", "many", "--follow"], "-TERM"),
        (&["read", "many", "--follow", "--cursor", "audit"], "-HUP"),
    ] {
        let mut child = spawned(&broker, verb);
        // Beneath `nohup` it would not end by SIGHUP.
        let _watch = Watch::over(&child, signal);
        let mut unread = child.stdout.take().unwrap();
        until("something is printed", || unread_bytes(&unread) > 0);
        let pid = child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        assert_eq!(child.wait().unwrap().code(), Some(0), "{verb:?} {signal}");
        let mut rest = String::new();
        unread.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "line 0\n");
    }
    assert_eq!(counts(&broker), (10, 0));
    assert!(["", "audit\t0\t0\n"].contains(&cursor(&broker).as_str()), "{}", cursor(&broker));
}

/// How many bytes a pipe holds.
fn unread_bytes(pipe: &impl std::os::fd::AsFd) -> u64 {
    rustix::io::ioctl_fionread(pipe).unwrap()
}
