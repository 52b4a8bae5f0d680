//! Verbs that are given several addresses use one that answers, and go on at another when that one is lost.

use std::{
    io::Write as _,
    net::TcpListener,
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::{
    bounds::{Watch, until},
    broker::{Broker, run, sennit},
};

/// An address at which nothing listens.
fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

/// A command that knows two addresses, of which the broker listens at one.
fn command(broker: &Broker, arguments: &[&str]) -> Command {
    let mut command = sennit(arguments);
    command.env("SENNIT_SERVER", format!("{},{}", free_address(), broker.listen));
    command.env("SENNIT_HTTP", format!("{},{}", free_address(), broker.http));
    command
}

#[test]
fn every_door_is_found_among_addresses_that_are_dead() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    // An order of chance: in ten runs the dead one comes first at least once, but for one time in a thousand.
    for turn in 0..10 {
        let name = format!("orders{turn}");
        let stream = format!("notes{turn}");
        for (arguments, input) in [
            (&["publish", &name, "one", "--create"][..], &b""[..]),
            (&["topic", "describe", &name], b""),
            (&["stream", "create", &stream], b""),
            (&["stream", "append", &stream], b"text"),
            (&["live", "publish", &name, "{}"], b""),
        ] {
            let output = run(command(&broker, arguments), input);
            let talk = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{arguments:?}: {talk}");
        }
    }
}

#[test]
fn addresses_that_are_all_dead_are_named_with_their_reasons() {
    let list = [free_address(), free_address()];
    for arguments in [
        &["topic", "list", "--server", &list.join(",")][..],
        &["stream", "show", "notes", "--http", &list.join(",")],
        &["bench", "publish", "--server", &list.join(",")],
    ] {
        let output = run(sennit(arguments), b"");
        let talk = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(6), "{arguments:?}: {talk}");
        for address in &list {
            assert!(talk.contains(&format!("{address}: Connection refused")), "{talk}");
        }
    }
}

#[test]
fn a_publish_goes_on_at_another_address_and_each_message_is_there_once_and_in_order() {
    const BEFORE: u32 = 20_000;
    const AFTER: u32 = 5_000;
    let folder = tempfile::tempdir().unwrap();
    let mut broker = Broker::start(folder.path());
    broker.ok(&["topic", "create", "numbers", "--kind", "stream"], b"");
    let other = free_address();
    let mut publish = sennit(&["publish", "numbers", "--json"]);
    publish.env("SENNIT_SERVER", format!("{},{other}", broker.listen));
    let mut child = publish
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _watch = Watch::over(&child, "the publish");
    let mut input = child.stdin.take().unwrap();
    let mut say = |numbers: std::ops::Range<u32>| {
        let lines: String = numbers.map(|number| format!("{number}\n")).collect();
        input.write_all(lines.as_bytes()).unwrap();
    };
    say(0..BEFORE);
    // In the middle: some are confirmed.
    until("a message is there", || {
        !broker.ok(&["read", "numbers", "--from", "earliest", "--count", "1"], b"").is_empty()
    });
    broker.kill();
    broker.listen = other;
    broker.start_again();
    say(BEFORE..BEFORE + AFTER);
    drop(input);
    let output = child.wait_with_output().unwrap();
    let talk = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{talk}");
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["confirmed"], BEFORE + AFTER);
    let read = broker.ok(&["read", "numbers", "--from", "earliest"], b"");
    let lines: Vec<_> = std::str::from_utf8(&read).unwrap().lines().collect();
    assert!(
        lines.iter().copied().eq((0..BEFORE + AFTER)
            .map(|number| number.to_string())
            .collect::<Vec<_>>()
            .iter()
            .map(String::as_str)),
        "{} lines",
        lines.len()
    );
}
