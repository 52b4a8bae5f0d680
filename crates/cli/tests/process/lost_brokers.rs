//! Verbs that run until they are stopped survive a restart of their broker: they continue where they were, without
//! repetitions.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
};

use crate::{bounds::BOUND, broker::Broker};

/// A verb, and the lines that it prints.
fn lines_of(broker: &Broker, verb: &[&str]) -> (Child, Receiver<String>) {
    let mut child = broker.command(verb).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (said, receiver) = channel();
    // It ends with the verb.
    thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| said.send(line)));
    (child, receiver)
}

#[test]
fn readers_and_consumers_go_on_once_the_broker_is_back() {
    for (verb, is_asked) in [
        (&["read", "orders", "--follow"][..], false),
        (&["read", "orders", "--follow", "--cursor", "audit"], true),
        (&["read", ">", "--follow"], true),
        (&["consume", "orders", "--follow"], false),
        (&["consume", "orders", "--follow"], true),
        (&["consume", "orders", "--follow", "--exec", "cat; echo"], true),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut broker = Broker::start(folder.path());
        broker.ok(&["publish", "orders", "one", "--create"], b"");
        let (mut child, lines) = lines_of(&broker, verb);
        assert_eq!(lines.recv_timeout(BOUND).as_deref(), Ok("one"), "{verb:?}");
        // The one says that it goes, the other does not.
        match is_asked {
            true => assert_eq!(broker.terminate(), Some(0)),
            false => broker.kill(),
        }
        broker.start_again();
        broker.ok(&["publish", "orders", "two"], b"");
        let second = lines.recv_timeout(BOUND);
        // An ack that the broker had not committed when it was killed is one of nothing.
        let second = match (verb[0], second.as_deref()) {
            ("consume", Ok("one")) => lines.recv_timeout(BOUND),
            _ => second,
        };
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(second.as_deref(), Ok("two"), "{verb:?}");
    }
}

#[test]
fn a_tail_of_a_stream_goes_on_once_the_broker_is_back() {
    for content_type in ["text/plain", "application/json"] {
        let folder = tempfile::tempdir().unwrap();
        let mut broker = Broker::start(folder.path());
        broker.ok(&["stream", "create", "notes", "--content-type", content_type], b"");
        let (body, line) = match content_type {
            "text/plain" => ([&b"1\n"[..], b"2\n", b"3\n"], ["1", "2", "3"]),
            _ => ([&b"1"[..], b"2", b"3"], ["[1]", "[2]", "[3]"]),
        };
        broker.ok(&["stream", "append", "notes"], body[0]);
        let mut child = broker
            .command(&["stream", "tail", "notes"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = child.stdout.take().unwrap();
        let mut next = |expected: &str| {
            let mut bytes = vec![0; expected.len()];
            std::io::Read::read_exact(&mut out, &mut bytes).unwrap();
            String::from_utf8(bytes).unwrap()
        };
        let end = if content_type == "text/plain" { "\n" } else { "" };
        assert_eq!(next(&(line[0].to_owned() + end)), line[0].to_owned() + end);
        for round in 1..3 {
            // Asked to end once, killed once: the one says that it goes, the other does not.
            match round {
                1 => assert_eq!(broker.terminate(), Some(0)),
                _ => broker.kill(),
            }
            broker.start_again();
            broker.ok(&["stream", "append", "notes"], body[round]);
            let expected = line[round].to_owned() + end;
            assert_eq!(next(&expected), expected);
        }
        broker.ok(&["stream", "close", "notes"], b"");
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut rest = Vec::new();
        std::io::Read::read_to_end(&mut out, &mut rest).unwrap();
        assert!(rest.is_empty() || rest == b"[]", "{rest:?}");
    }
}

#[test]
fn a_tail_of_a_stream_that_is_gone_when_the_broker_is_back_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let mut broker = Broker::start(folder.path());
    broker.ok(&["stream", "create", "notes", "--storage", "memory"], b"");
    broker.ok(&["stream", "append", "notes", "a"], b"");
    let mut child = broker
        .command(&["stream", "tail", "notes"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
    broker.ok(&["stream", "delete", "notes"], b"");
    broker.kill();
    broker.start_again();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
}
