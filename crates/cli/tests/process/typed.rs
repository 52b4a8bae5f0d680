//! Arguments with a plain meaning are accepted; others are refused with a correct example.

use std::{
    io::{BufRead, BufReader},
    process::{Output, Stdio},
};

use crate::broker::{Broker, run, sennit};

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_broker_listens_on_a_name_and_ends_with_its_standard_input() {
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--listen", "localhost:0", "--http", "localhost:0"];
    let mut command = sennit(&["serve", "--json", "--until-stdin-ends"]);
    command.args(flags).arg("--data").arg(folder.path());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let addresses: serde_json::Value = serde_json::from_str(&line).unwrap();
    for name in ["listen", "http"] {
        let address = addresses[name].as_str().unwrap();
        assert!(address.starts_with("127.0.0.1:") && !address.ends_with(":0"), "{address}");
    }
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn an_address_without_a_host_is_every_address_and_is_refused_unless_it_is_meant() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = sennit(&["serve", "--listen", ":0", "--http", "127.0.0.1:0"]);
    command.arg("--data").arg(folder.path().join("data"));
    let output = run(command, b"");
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("0.0.0.0:0") && said(&output).contains("--insecure-no-auth"));
}

#[test]
fn a_broker_is_reached_under_a_name_and_a_port_alone() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["topic", "create", "orders"], b"");
    let port = broker.listen.rsplit(':').next().unwrap();
    for address in [format!("localhost:{port}"), format!(":{port}"), port.to_owned()] {
        let output = run(sennit(&["topic", "list", "--server", &address]), b"");
        assert!(output.status.success(), "{address}: {}", said(&output));
    }
    let http = format!("http://{}/", broker.http);
    let output = run(sennit(&["stream", "create", "notes", "--http", &http]), b"");
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn durations_may_be_zero_and_have_parts() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["publish", "orders", "now", "--create", "--delay", "0"], b"");
    broker.ok(&["publish", "orders", "later", "--delay", "1.5h"], b"");
    assert_eq!(broker.ok(&["consume", "orders"], b""), b"now\n");
    broker.ok(&["group", "create", "orders", "slow", "--lease", "1 min"], b"");
    let listed = broker.ok(&["group", "list", "orders"], b"");
    assert!(String::from_utf8_lossy(&listed).contains("\t1m\t"));
}

#[test]
fn a_date_is_its_midnight_in_utc_and_the_last_time_there_is_can_be_read_from() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["publish", "orders", "one", "--create"], b"");
    for (from, lines) in [
        ("2020-01-01", &b"one\n"[..]),
        ("2020-01-01T12:00", b"one\n"),
        ("2020-01-01 12:00:00+02:00", b"one\n"),
        ("9999-12-31", b""),
        ("9999-12-31T23:59:59Z", b""),
        ("1.5h", b"one\n"),
        ("-1h", b"one\n"),
    ] {
        assert_eq!(broker.ok(&["read", "orders", "--from", from], b""), lines, "{from}");
    }
}

#[test]
fn a_stream_ends_at_a_date() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["stream", "create", "notes", "--expires-at", "2200-01-31"], b"");
    let shown = broker.ok(&["stream", "show", "notes", "--json"], b"");
    let shown: serde_json::Value = serde_json::from_slice(&shown).unwrap();
    assert!(shown["expires_at"].as_str().unwrap().starts_with("2200-01-31T00:00:00"), "{shown}");
    broker.ok(&["stream", "create", "soon", "--expires-at", "7d"], b"");
}

#[test]
fn what_is_out_of_range_is_told_as_that_and_what_is_misspelled_with_what_would_be_right() {
    for (command, word) in [
        (&["publish", "a", "b", "--delay", "40000d"][..], "at most 100 years"),
        (&["publish", "a", "b", "--delay", "5"], "5s"),
        (&["publish", "a", "b", "--delay=-5s"], "negative"),
        (&["publish", "a", "b", "--ttl", "soon"], "1h30m"),
        (&["read", "a", "--from", "10000-01-01"], "out of range"),
        (&["read", "a", "--from", "18446744073709551616"], "out of range"),
        (&["read", "a", "--from", "yesterday"], "2026-11-25"),
        (&["read", "a", "--from", "2026-02-30"], "no time"),
        (&["topic", "create", "a", "--retain", "40000d"], "at most 100 years"),
        (&["serve", "--segment-size", "64M"], "64MiB"),
        (&["serve", "--listen", "localhost:70000"], "65535"),
        (&["serve", "--listen", "no.such.host.invalid:1"], "localhost:1"),
        (&["stream", "create", "a", "--expires-at", "10000-01-01"], "out of range"),
    ] {
        let output = run(sennit(command), b"");
        assert_eq!(output.status.code(), Some(2), "{command:?}: {}", said(&output));
        assert!(said(&output).contains(word), "{command:?}: {}", said(&output));
    }
}
