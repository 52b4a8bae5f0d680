//! All errors of the command line: each is reported in one line, with the exit code of its kind.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    process::{Output, Stdio},
};

use crate::{
    bounds::Watch,
    broker::{Broker, run, sennit},
};

/// Asserts that `output` ended with `code` and that its one message names each of `words`.
fn refused(output: &Output, code: i32, words: &[&str]) {
    let talk = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{talk}");
    for word in words {
        assert!(talk.contains(word), "{word:?} is missing: {talk}");
    }
}

#[test]
fn what_is_not_there_ends_with_3() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["topic", "create", "known"], b"");
    for command in [
        &["publish", "nothing", "body"][..],
        &["consume", "nothing"],
        &["topic", "describe", "nothing"],
        &["topic", "delete", "nothing"],
        &["group", "list", "nothing"],
    ] {
        refused(&broker.run(command, b""), 3, &["nothing", "unknown-topic"]);
    }
    let absent = broker.run(&["consume", "known", "--group", "absent"], b"");
    refused(&absent, 3, &["absent", "unknown-group"]);
    let file = broker.run(&["publish", "known", "--file", "/nowhere/at/all"], b"");
    refused(&file, 3, &["/nowhere/at/all"]);
}

#[test]
fn what_is_there_and_different_ends_with_4() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["topic", "create", "orders"], b"");
    broker.ok(&["topic", "create", "orders"], b"");
    let other = broker.run(&["topic", "create", "orders", "--partitions", "4"], b"");
    refused(&other, 4, &["orders", "partitions"]);
}

#[test]
fn a_broker_that_cannot_be_as_it_was_asked_for_ends_with_2() {
    let folder = tempfile::tempdir().unwrap();
    for (setting, value, words) in [
        ("--shards", "0", ["0 shards", "1 to 1024"]),
        ("--segment-size", "1MiB", ["1048576", "20971520"]),
        ("--http-connections", "0", ["--http-connections", "at least 1"]),
    ] {
        let mut broker = sennit(&["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
        broker.args([setting, value]).arg("--data").arg(folder.path().join("data"));
        refused(&run(broker, b""), 2, &words);
    }
}

#[test]
fn a_wrong_command_line_ends_with_2_before_any_broker_is_asked() {
    for command in [
        &["topic", "create", "no spaces"][..],
        &["topic", "create", "a", "--retain", "sometimes"],
        &["topic", "create", "a", "--kind", "stream", "--retain", "until-settled"],
        &["group", "create", "a", "b", "--lease", "soon"],
        &["topic", "create", "a", "--retain", "1d", "--retain", "7d"],
        &["publish", "a", "body", "--file", "lines"],
        &["publish", "a", "body", "--expect-offset", "0", "--patience", "1s"],
        &["frobnicate"],
    ] {
        let output = run(sennit(command), b"");
        assert_eq!(output.status.code(), Some(2), "{command:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{command:?}");
    }
}

#[test]
fn a_broker_that_is_not_there_ends_with_6_and_is_named_once() {
    // A port that was free a moment ago.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for (command, option) in [
        (&["topic", "list"][..], "--server"),
        (&["publish", "orders", "body"], "--server"),
        (&["bench", "publish"], "--server"),
        (&["stream", "read", "chat"], "--http"),
        (&["backup", "--to", "-"], "--http"),
    ] {
        let output = run(sennit(&[command, &[option, &address]].concat()), b"");
        refused(&output, 6, &["no broker answers at", "sennit serve", option]);
        let talk = String::from_utf8_lossy(&output.stderr);
        let named = [&address, "refused"].map(|word| talk.matches(word).count());
        assert_eq!(named, [1, 1], "{talk}");
    }
}

/// A frame that refuses whoever asks: code 7, `unauthorized`, and "no".
const NO: &[u8] = b"\x06\0\0\0\x03\0\0\0\x01\0\0\0\0\0\0\0\x08\x07\x12\x02no";

#[test]
fn a_verb_that_loses_its_broker_for_good_says_why() {
    for verb in [&["read", "orders", "--follow"][..], &["consume", "orders", "--follow"]] {
        let folder = tempfile::tempdir().unwrap();
        let mut broker = Broker::start(folder.path());
        broker.ok(&["publish", "orders", "first", "--create"], b"");
        let mut command = broker.command(verb);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let _watch = Watch::over(&child, "the verb");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "first\n");
        broker.kill();
        // Another has taken its place, and wants nothing to do with this client.
        let other = TcpListener::bind(&broker.listen).unwrap();
        std::thread::spawn(move || {
            for stream in other.incoming() {
                stream.and_then(|mut stream| stream.write_all(NO)).expect("it is there");
            }
        });
        let output = child.wait_with_output().unwrap();
        refused(&output, 5, &["unauthorized: no"]);
    }
}

#[test]
fn a_port_in_use_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut command = sennit(&["serve", "--http", "127.0.0.1:0", "--listen", &address]);
    command.arg("--data").arg(folder.path().join("data"));
    refused(&run(command, b""), 1, &[&address, "in use"]);
}

#[test]
fn a_newer_data_directory_is_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    Broker::start(folder.path()).kill();
    let path = folder.path().join("FORMAT");
    let format = std::fs::read_to_string(&path).unwrap();
    // A node's is 2.
    let newer = format.replace("format = 1", "format = 99").replace("format = 2", "format = 99");
    std::fs::write(&path, &newer).unwrap();
    refused(&serve_on(folder.path()), 1, &["99", folder.path().to_str().unwrap()]);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), newer);
}

#[test]
fn a_file_in_place_of_the_data_directory_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    std::fs::write(&path, "a file").unwrap();
    refused(&serve_on(&path), 1, &[path.to_str().unwrap()]);
}

#[test]
fn a_data_directory_has_one_broker() {
    let folder = tempfile::tempdir().unwrap();
    let _broker = Broker::start(folder.path());
    refused(&serve_on(folder.path()), 1, &[folder.path().to_str().unwrap()]);
}

fn serve_on(data: &std::path::Path) -> Output {
    let mut command = sennit(&["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    command.arg("--data").arg(data);
    run(command, b"")
}

#[test]
fn an_address_for_strangers_is_refused_unless_it_is_meant() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = sennit(&["serve", "--listen", "0.0.0.0:0", "--http", "127.0.0.1:0"]);
    command.arg("--data").arg(folder.path().join("data"));
    refused(&run(command, b""), 2, &["0.0.0.0", "--insecure-no-auth"]);
    assert!(!folder.path().join("data").exists());
}

#[test]
fn a_line_too_long_is_named_and_those_before_it_are_confirmed() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["topic", "create", "lines"], b"");
    for length in [8 << 20, 9 << 20, 20 << 20] {
        let input = [b"one\ntwo\n", &vec![b'x'; length][..], b"\nfour\n"].concat();
        refused(&broker.run(&["publish", "lines"], &input), 7, &["line 3", "2 confirmed"]);
        assert_eq!(broker.ok(&["consume", "lines"], b""), b"one\ntwo\n");
    }
}

#[test]
fn a_benchmark_whose_reader_has_left_does_not_fail() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    for json in [&[][..], &["--json", "-"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut bench = broker.command(&["bench", "publish", "--messages", "10"]);
        let bench = bench.args(json).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        let _watch = Watch::over(&bench, "the benchmark");
        let output = bench.wait_with_output().unwrap();
        refused(&output, 0, &[]);
    }
}
